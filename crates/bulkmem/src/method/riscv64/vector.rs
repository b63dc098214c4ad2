//! Vectors (RVV 1.0) of whatever length the processor has: eight registers at a time, cached and with the hint NTL.ALL.
//!
//! VSETVLI shortens the last vector, so the ends need no code of their own.

use std::arch::asm;

use super::entry::{ordered, weak};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Defines a fill and a copy kernel; `$hint` goes before each access.
macro_rules! kernels {
    ($fill:ident, $copy:ident, $hint:literal) => {
        /// # Safety
        /// See [`FillFn`](crate::method::FillFn).
        unsafe fn $fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
            // SAFETY: the caller vouches for the range and for vectors. Each round stores as many bytes as VSETVLI returns,
            // at most those that are left. The registers that are written are outputs, and VL and VTYPE clobbers.
            unsafe {
                asm!(
                    ".option push", ".option arch, +v",
                    "beqz {len}, 3f",
                    "vsetvli {n}, zero, e8, m8, ta, ma",
                    "vmv.v.x v8, {byte}",
                    "2:",
                    "vsetvli {n}, {len}, e8, m8, ta, ma",
                    concat!($hint, "vse8.v v8, ({dst})"),
                    "add {dst}, {dst}, {n}",
                    "sub {len}, {len}, {n}",
                    "bnez {len}, 2b",
                    "3:",
                    ".option pop",
                    dst = inout(reg) dst => _, len = inout(reg) len => _, byte = in(reg) u64::from(byte), n = out(reg) _,
                    out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _,
                    out("v15") _, options(nostack)
                );
            }
        }

        /// # Safety
        /// See [`CopyFn`](crate::method::CopyFn).
        unsafe fn $copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
            // SAFETY: as above, for both ranges.
            unsafe {
                asm!(
                    ".option push", ".option arch, +v",
                    "beqz {len}, 3f",
                    "2:",
                    "vsetvli {n}, {len}, e8, m8, ta, ma",
                    concat!($hint, "vle8.v v8, ({src})"),
                    concat!($hint, "vse8.v v8, ({dst})"),
                    "add {src}, {src}, {n}",
                    "add {dst}, {dst}, {n}",
                    "sub {len}, {len}, {n}",
                    "bnez {len}, 2b",
                    "3:",
                    ".option pop",
                    dst = inout(reg) dst => _, src = inout(reg) src => _, len = inout(reg) len => _, n = out(reg) _,
                    out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _,
                    out("v15") _, options(nostack)
                );
            }
        }
    };
}

kernels!(fill, copy, "");
kernels!(fill_nontemporal, copy_nontemporal, "add x0, x0, x5\n");

pub(super) static METHODS: &[Method] = &[
    Method {
        name: "store_rvv",
        summary: "cached stores of eight vector registers",
        effect: CacheEffect::Allocates,
        ordering: Ordering::Ordered,
        requires: Features::RVV,
        code: Code {
            clear: ordered!(FillFn, fill, &[]),
            fill: ordered!(FillFn, fill, &[]),
            copy: ordered!(CopyFn, copy, &[]),
            ..Code::NONE
        },
    },
    Method {
        name: "nontemporal_rvv",
        summary: "loads and stores of eight vector registers, each after the hint NTL.ALL",
        effect: CacheEffect::Bypasses,
        ordering: Ordering::Weak,
        requires: Features::RVV.union(Features::ZIHINTNTL),
        code: Code {
            clear: weak!(FillFn, fill_nontemporal, &[]),
            fill: weak!(FillFn, fill_nontemporal, &[]),
            copy: weak!(CopyFn, copy_nontemporal, &[]),
            ..Code::NONE
        },
    },
];
