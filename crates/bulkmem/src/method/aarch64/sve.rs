//! SVE stores and copies of whatever length the processor's vectors have: ST1B, and with the non-temporal hint STNT1B and
//! LDNT1B.
//!
//! A predicate selects the bytes of the last vector, so the ends need no code of their own. The instructions are those of
//! the first SVE: what SVE2 adds to them are scattered and gathered accesses.

use std::arch::asm;

use super::before_nontemporal_loads;
use super::entry::{ordered, weak};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Defines a fill and a copy kernel.
macro_rules! kernels {
    ($fill:ident, $copy:ident, $load:literal, $store:literal, $before:expr) => {
        /// # Safety
        /// See [`FillFn`](crate::method::FillFn).
        unsafe fn $fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
            // SAFETY: the caller vouches for the range and for SVE. The predicate disables the bytes from `len` on; no
            // byte is stored if `len` is 0. The registers that are written are outputs.
            unsafe {
                asm!(
                    ".arch_extension sve",
                    "mov z0.b, {byte:w}",
                    "whilelo p0.b, {at}, {len}",
                    "b.none 3f",
                    "2:",
                    concat!($store, " {{z0.b}}, p0, [{dst}, {at}]"),
                    "incb {at}",
                    "whilelo p0.b, {at}, {len}",
                    "b.any 2b",
                    "3:",
                    dst = in(reg) dst, len = in(reg) len, byte = in(reg) u32::from(byte), at = inout(reg) 0usize => _,
                    out("v0") _, out("p0") _, options(nostack)
                );
            }
        }

        /// # Safety
        /// See [`CopyFn`](crate::method::CopyFn).
        unsafe fn $copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
            $before();
            // SAFETY: as above, for both ranges.
            unsafe {
                asm!(
                    ".arch_extension sve",
                    "whilelo p0.b, {at}, {len}",
                    "b.none 3f",
                    "2:",
                    concat!($load, " {{z0.b}}, p0/z, [{src}, {at}]"),
                    concat!($store, " {{z0.b}}, p0, [{dst}, {at}]"),
                    "incb {at}",
                    "whilelo p0.b, {at}, {len}",
                    "b.any 2b",
                    "3:",
                    dst = in(reg) dst, src = in(reg) src, len = in(reg) len, at = inout(reg) 0usize => _,
                    out("v0") _, out("p0") _, options(nostack)
                );
            }
        }
    };
}

kernels!(fill, copy, "ld1b", "st1b", || ());
kernels!(fill_nontemporal, copy_nontemporal, "ldnt1b", "stnt1b", before_nontemporal_loads);

pub(super) static METHODS: &[Method] = &[
    Method {
        name: "store_sve",
        summary: "cached stores of an SVE vector",
        effect: CacheEffect::Allocates,
        ordering: Ordering::Ordered,
        requires: Features::SVE,
        code: Code {
            clear: ordered!(FillFn, fill, &[]),
            fill: ordered!(FillFn, fill, &[]),
            copy: ordered!(CopyFn, copy, &[]),
            ..Code::NONE
        },
    },
    Method {
        name: "nontemporal_sve",
        summary: "non-temporal stores of an SVE vector (STNT1B), and loads (LDNT1B)",
        effect: CacheEffect::Bypasses,
        ordering: Ordering::Weak,
        requires: Features::SVE,
        code: Code {
            clear: weak!(FillFn, fill_nontemporal, &[]),
            fill: weak!(FillFn, fill_nontemporal, &[]),
            copy: weak!(CopyFn, copy_nontemporal, &[]),
            ..Code::NONE
        },
    },
];
