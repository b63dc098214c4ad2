//! Stores and copies of one cache line, in assembly, from which all loops are built. `x86_64/line.rs` says why.

use std::arch::asm;

use crate::method::lines::{CopyLine, FillLine, FlushLine, LINE};
use crate::volatile;

/// Implements [`FillLine`] and [`CopyLine`] by SD and LD, each after a hint: `$hint` is one or empty.
macro_rules! line {
    ($name:ident, $hint:literal) => {
        impl FillLine for $name {
            type Value = u64;

            #[inline(always)]
            unsafe fn value(byte: u8) -> u64 {
                u64::from_ne_bytes([byte; 8])
            }

            #[inline(always)]
            unsafe fn write(line: *mut u8, value: &u64) {
                // SAFETY: the caller vouches for the line and its alignment; every access is within its 64 bytes.
                unsafe {
                    asm!(
                        concat!($hint, "sd {v}, 0({p})"), concat!($hint, "sd {v}, 8({p})"),
                        concat!($hint, "sd {v}, 16({p})"), concat!($hint, "sd {v}, 24({p})"),
                        concat!($hint, "sd {v}, 32({p})"), concat!($hint, "sd {v}, 40({p})"),
                        concat!($hint, "sd {v}, 48({p})"), concat!($hint, "sd {v}, 56({p})"),
                        p = in(reg) line, v = in(reg) *value, options(nostack, preserves_flags)
                    );
                }
            }
        }

        impl CopyLine for $name {
            /// Loads from other addresses may be trapped and emulated, which [`AnySource`] avoids.
            const SOURCE_ALIGNMENT: usize = 8;

            #[inline(always)]
            unsafe fn copy(dst: *mut u8, src: *const u8) {
                // SAFETY: the caller vouches for both lines and the source's alignment; every access is within their 64
                // bytes.
                unsafe {
                    asm!(
                        concat!($hint, "ld {a}, 0({s})"), concat!($hint, "ld {b}, 8({s})"),
                        concat!($hint, "ld {c}, 16({s})"), concat!($hint, "ld {e}, 24({s})"),
                        concat!($hint, "sd {a}, 0({d})"), concat!($hint, "sd {b}, 8({d})"),
                        concat!($hint, "sd {c}, 16({d})"), concat!($hint, "sd {e}, 24({d})"),
                        concat!($hint, "ld {a}, 32({s})"), concat!($hint, "ld {b}, 40({s})"),
                        concat!($hint, "ld {c}, 48({s})"), concat!($hint, "ld {e}, 56({s})"),
                        concat!($hint, "sd {a}, 32({d})"), concat!($hint, "sd {b}, 40({d})"),
                        concat!($hint, "sd {c}, 48({d})"), concat!($hint, "sd {e}, 56({d})"),
                        d = in(reg) dst, s = in(reg) src, a = out(reg) _, b = out(reg) _, c = out(reg) _, e = out(reg) _,
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

/// SD of 8 bytes.
pub(super) struct Store8;
/// SD and LD of 8 bytes, each after NTL.ALL (ADD x0, x0, x5): neither is used again soon.
pub(super) struct Nontemporal8;

line!(Store8, "");
line!(Nontemporal8, "add x0, x0, x5\n");

/// A line from a source at any address, by whatever accesses that address allows.
pub(super) struct AnySource;

impl CopyLine for AnySource {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller.
        unsafe { volatile::copy(dst, src, LINE) }
    }
}

/// CBO.CLEAN: writes the block back and may keep it.
pub(super) struct Clean;
/// CBO.FLUSH: writes the block back and evicts it.
pub(super) struct Flush;

/// Implements [`FlushLine`] by a cache-block instruction.
macro_rules! block {
    ($name:ident, $instruction:literal) => {
        impl FlushLine for $name {
            #[inline(always)]
            unsafe fn flush(at: *const u8) {
                // SAFETY: the caller vouches for the address and the instruction, which changes no byte.
                unsafe {
                    asm!(".option push", ".option arch, +zicbom", concat!($instruction, " ({})"), ".option pop",
                         in(reg) at, options(nostack, preserves_flags));
                }
            }
        }
    };
}

block!(Clean, "cbo.clean");
block!(Flush, "cbo.flush");
