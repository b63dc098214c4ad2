//! Ranges shorter than a cache line, by stores that overlap, without a loop.

use std::arch::asm;

use crate::machine::CACHE_LINE as LINE;

/// Stores the register `{v}` at the start and at the end of `$len` bytes.
macro_rules! both_ends {
    ($dst:expr, $len:expr, $op:literal, $v:literal, $size:literal, $($value:tt)+) => {
        asm!(
            concat!($op, " [{d}], ", $v),
            concat!($op, " [{d} + {n} - ", $size, "], ", $v),
            d = in(reg) $dst, n = in(reg) $len, v = $($value)+,
            options(nostack, preserves_flags)
        )
    };
}

/// Fills fewer than 64 bytes.
///
/// # Safety
/// `dst..dst+len` is valid for writes and `len < 64`.
#[inline(never)]
pub(in crate::method) unsafe fn fill_part(dst: *mut u8, len: usize, byte: u8) {
    debug_assert!(len < LINE);
    let word = u64::from_ne_bytes([byte; 8]);
    // SAFETY: the caller vouches for the range. Each arm's stores start at its start or end at its end and are no
    // longer than it; the last pair, for 33 bytes or more, covers 16..32 and len-32..len-16.
    unsafe {
        match len {
            0 => {}
            1 => asm!("mov byte ptr [{d}], {v}", d = in(reg) dst, v = in(reg_byte) byte,
                      options(nostack, preserves_flags)),
            2..4 => both_ends!(dst, len, "mov word ptr", "{v:x}", "2", in(reg) word),
            4..8 => both_ends!(dst, len, "mov dword ptr", "{v:e}", "4", in(reg) word),
            8..16 => both_ends!(dst, len, "mov qword ptr", "{v}", "8", in(reg) word),
            _ => {
                let wide = std::arch::x86_64::_mm_set1_epi8(byte as i8);
                both_ends!(dst, len, "movdqu", "{v}", "16", in(xmm_reg) wide);
                if len > 32 {
                    both_ends!(dst.add(16), len - 32, "movdqu", "{v}", "16", in(xmm_reg) wide);
                }
            }
        }
    }
}

/// Loads the first and the last piece of `$len` bytes, then stores both.
macro_rules! both_ends_copied {
    ($dst:expr, $src:expr, $len:expr, $load:literal, $store:literal, $modifier:literal, $size:literal, $class:ident) => {
        asm!(
            concat!($load, " {a", $modifier, "}, [{s}]"),
            concat!($load, " {b", $modifier, "}, [{s} + {n} - ", $size, "]"),
            concat!($store, " [{d}], {a", $modifier, "}"),
            concat!($store, " [{d} + {n} - ", $size, "], {b", $modifier, "}"),
            d = in(reg) $dst, s = in(reg) $src, n = in(reg) $len, a = out($class) _, b = out($class) _,
            options(nostack, preserves_flags)
        )
    };
}

/// Copies fewer than 64 bytes.
///
/// # Safety
/// `dst..dst+len` is valid for writes, `src..src+len` for reads, they do not overlap, and `len < 64`.
#[inline(never)]
pub(in crate::method) unsafe fn copy_part(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len < LINE);
    // SAFETY: the caller vouches for both ranges. The accesses of each arm are placed as in `fill_part`.
    unsafe {
        match len {
            0 => {}
            1 => asm!("mov {t}, byte ptr [{s}]", "mov byte ptr [{d}], {t}", d = in(reg) dst, s = in(reg) src,
                      t = out(reg_byte) _, options(nostack, preserves_flags)),
            2..4 => both_ends_copied!(dst, src, len, "mov", "mov", ":x", "2", reg),
            4..8 => both_ends_copied!(dst, src, len, "mov", "mov", ":e", "4", reg),
            8..16 => both_ends_copied!(dst, src, len, "mov", "mov", "", "8", reg),
            _ => {
                both_ends_copied!(dst, src, len, "movdqu", "movdqu", "", "16", xmm_reg);
                if len > 32 {
                    both_ends_copied!(
                        dst.add(16),
                        src.add(16),
                        len - 32,
                        "movdqu",
                        "movdqu",
                        "",
                        "16",
                        xmm_reg
                    );
                }
            }
        }
    }
}
