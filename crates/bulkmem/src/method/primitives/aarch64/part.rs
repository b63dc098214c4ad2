//! Ranges shorter than a cache line, by stores that overlap, without a loop.

use std::arch::aarch64::{uint8x16_t, vdupq_n_u8};
use std::arch::asm;

use crate::machine::CACHE_LINE as LINE;

/// Stores the register `{v}` at the start and at the end of `$len` bytes.
macro_rules! both_ends {
    ($dst:expr, $last:expr, $store:literal, $v:literal, $($value:tt)+) => {
        asm!(
            concat!($store, " ", $v, ", [{d}]"),
            concat!($store, " ", $v, ", [{e}]"),
            d = in(reg) $dst, e = in(reg) $last, v = $($value)+,
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
            1 => {
                asm!("strb {v:w}, [{d}]", d = in(reg) dst, v = in(reg) word, options(nostack, preserves_flags))
            }
            2..4 => both_ends!(dst, dst.add(len - 2), "strh", "{v:w}", in(reg) word),
            4..8 => both_ends!(dst, dst.add(len - 4), "str", "{v:w}", in(reg) word),
            8..16 => both_ends!(dst, dst.add(len - 8), "str", "{v}", in(reg) word),
            _ => {
                let wide = vdupq_n_u8(byte);
                both_ends!(dst, dst.add(len - 16), "str", "{v:q}", in(vreg) wide);
                if len > 32 {
                    both_ends!(dst.add(16), dst.add(len - 32), "str", "{v:q}", in(vreg) wide);
                }
            }
        }
    }
}

/// Loads the first and the last piece of the bytes, then stores both. The modifier is that of the registers, `$last` the
/// offset of the last piece, whose register is used in full.
macro_rules! both_ends_copied {
    ($dst:expr, $src:expr, $last:expr, $load:literal, $store:literal, $modifier:literal, $type:ty, $class:ident) => {{
        let last: usize = $last;
        let (a, b): ($type, $type);
        asm!(
            concat!($load, " {a", $modifier, "}, [{s}]"),
            concat!($load, " {b", $modifier, "}, [{s}, {n}]"),
            concat!($store, " {a", $modifier, "}, [{d}]"),
            concat!($store, " {b", $modifier, "}, [{d}, {n}]"),
            d = in(reg) $dst, s = in(reg) $src, n = in(reg) last, a = out($class) a, b = out($class) b,
            options(nostack, preserves_flags)
        );
        let _ = (a, b);
    }};
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
            1 => both_ends_copied!(dst, src, 0, "ldrb", "strb", ":w", u64, reg),
            2..4 => both_ends_copied!(dst, src, len - 2, "ldrh", "strh", ":w", u64, reg),
            4..8 => both_ends_copied!(dst, src, len - 4, "ldr", "str", ":w", u64, reg),
            8..16 => both_ends_copied!(dst, src, len - 8, "ldr", "str", "", u64, reg),
            _ => {
                both_ends_copied!(dst, src, len - 16, "ldr", "str", ":q", uint8x16_t, vreg);
                if len > 32 {
                    both_ends_copied!(
                        dst.add(16),
                        src.add(16),
                        len.wrapping_sub(48),
                        "ldr",
                        "str",
                        ":q",
                        uint8x16_t,
                        vreg
                    );
                }
            }
        }
    }
}
