//! Loops of cached stores at two places in the code: at the start of a cache line of instructions, and across two lines.
//!
//! For comparison only: 2004's "Aligning main loop gives 0-2% speedup" (Denis Vlasenko, "copy_page(): non-temporal stores
//! look useful?", linux-kernel).

use std::arch::asm;
use std::arch::x86_64::_mm_set1_epi8;

use super::edges::{self, Lines};
use super::entry::ordered;
use super::line::StoreSse2;
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Defines a method whose loops start `$past` bytes after the start of a cache line of instructions.
macro_rules! placed {
    ($module:ident, $name:literal, $where:literal, $past:literal) => {
        mod $module {
            use super::*;

            /// # Safety
            /// See [`FillFn`](crate::method::FillFn).
            unsafe fn fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
                // SAFETY: the caller vouches for the range; the loop writes the whole lines that `edges` left.
                unsafe {
                    let Lines { start, count, .. } = edges::fill::<StoreSse2>(dst, len, byte);
                    if count == 0 {
                        return;
                    }
                    asm!(
                        "jmp 2f",
                        ".balign 64",
                        concat!(".skip ", $past, ", 0x90"),
                        "2:",
                        "movdqa [{dst}], {v}",
                        "movdqa [{dst} + 16], {v}",
                        "movdqa [{dst} + 32], {v}",
                        "movdqa [{dst} + 48], {v}",
                        "add {dst}, 64",
                        "dec {count}",
                        "jnz 2b",
                        dst = inout(reg) start => _, count = inout(reg) count => _,
                        v = in(xmm_reg) _mm_set1_epi8(byte as i8), options(nostack)
                    );
                }
            }

            /// # Safety
            /// See [`CopyFn`](crate::method::CopyFn).
            unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
                // SAFETY: as in `fill`, for both ranges.
                unsafe {
                    let Lines { start, skipped, count } = edges::copy::<StoreSse2>(dst, src, len);
                    if count == 0 {
                        return;
                    }
                    asm!(
                        "jmp 2f",
                        ".balign 64",
                        concat!(".skip ", $past, ", 0x90"),
                        "2:",
                        "movdqu {a}, [{src}]",
                        "movdqu {b}, [{src} + 16]",
                        "movdqu {c}, [{src} + 32]",
                        "movdqu {d}, [{src} + 48]",
                        "movdqa [{dst}], {a}",
                        "movdqa [{dst} + 16], {b}",
                        "movdqa [{dst} + 32], {c}",
                        "movdqa [{dst} + 48], {d}",
                        "add {src}, 64",
                        "add {dst}, 64",
                        "dec {count}",
                        "jnz 2b",
                        dst = inout(reg) start => _, src = inout(reg) src.add(skipped) => _,
                        count = inout(reg) count => _, a = out(xmm_reg) _, b = out(xmm_reg) _,
                        c = out(xmm_reg) _, d = out(xmm_reg) _, options(nostack)
                    );
                }
            }

            pub(super) const METHOD: Method = Method {
                name: $name,
                summary: concat!("cached stores of 16 bytes, loop ", $where, ", for comparison only"),
                effect: CacheEffect::Allocates,
                ordering: Ordering::Ordered,
                requires: Features::SSE2,
                code: Code {
                    clear: ordered!(FillFn, fill, &[]),
                    fill: ordered!(FillFn, fill, &[]),
                    copy: ordered!(CopyFn, copy, &[]),
                    ..Code::NONE
                },
            };
        }
    };
}

placed!(aligned, "loop_aligned_sse2", "at the start of a cache line", "0");
placed!(unaligned, "loop_unaligned_sse2", "across two cache lines", "50");

pub(super) static METHODS: &[Method] = &[aligned::METHOD, unaligned::METHOD];
