//! FEAT_MOPS: SET and CPY, the counterparts of REP STOSB and REP MOVSB.
//!
//! Three instructions each (prologue, main, epilogue); the processor chooses how to write the whole length. The variants
//! with an N in their names have the non-temporal hint, for the destination and, in copies, for the source.

use std::arch::asm;

use super::before_nontemporal_loads;
use super::entry::{ordered, weak};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Defines a fill and a copy kernel by the suffix of their instructions.
macro_rules! kernels {
    ($fill:ident, $copy:ident, $suffix:literal, $before:expr) => {
        /// # Safety
        /// See [`FillFn`](crate::method::FillFn).
        unsafe fn $fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
            // SAFETY: the caller vouches for the range and for FEAT_MOPS. The instructions update all three registers
            // but the byte's, and the flags.
            unsafe {
                asm!(
                    ".arch_extension mops",
                    concat!("setp", $suffix, " [{dst}]!, {len}!, {byte}"),
                    concat!("setm", $suffix, " [{dst}]!, {len}!, {byte}"),
                    concat!("sete", $suffix, " [{dst}]!, {len}!, {byte}"),
                    dst = inout(reg) dst => _, len = inout(reg) len => _, byte = in(reg) u64::from(byte),
                    options(nostack)
                );
            }
        }

        /// # Safety
        /// See [`CopyFn`](crate::method::CopyFn).
        unsafe fn $copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
            $before();
            // SAFETY: as above, for both ranges, which do not overlap: the forward-only variant is allowed.
            unsafe {
                asm!(
                    ".arch_extension mops",
                    concat!("cpyfp", $suffix, " [{dst}]!, [{src}]!, {len}!"),
                    concat!("cpyfm", $suffix, " [{dst}]!, [{src}]!, {len}!"),
                    concat!("cpyfe", $suffix, " [{dst}]!, [{src}]!, {len}!"),
                    dst = inout(reg) dst => _, src = inout(reg) src => _, len = inout(reg) len => _,
                    options(nostack)
                );
            }
        }
    };
}

kernels!(fill, copy, "", || ());
kernels!(fill_nontemporal, copy_nontemporal, "n", before_nontemporal_loads);

pub(super) static METHODS: &[Method] = &[
    Method {
        name: "mops",
        summary: "the memory instructions SET and CPY (FEAT_MOPS)",
        effect: CacheEffect::Allocates,
        ordering: Ordering::Ordered,
        requires: Features::MOPS,
        code: Code {
            clear: ordered!(FillFn, fill, &[]),
            fill: ordered!(FillFn, fill, &[]),
            copy: ordered!(CopyFn, copy, &[]),
            ..Code::NONE
        },
    },
    Method {
        name: "nontemporal_mops",
        summary: "the same with the non-temporal hint (SETN, CPYN)",
        effect: CacheEffect::Bypasses,
        ordering: Ordering::Weak,
        requires: Features::MOPS,
        code: Code {
            clear: weak!(FillFn, fill_nontemporal, &[]),
            fill: weak!(FillFn, fill_nontemporal, &[]),
            copy: weak!(CopyFn, copy_nontemporal, &[]),
            ..Code::NONE
        },
    },
];
