//! Stores and copies of one cache line, in assembly, from which all loops are built. `x86_64/line.rs` says why.

use std::arch::aarch64::{uint8x16_t, vdupq_n_u8};
use std::arch::asm;

use crate::method::lines::{CopyLine, FillLine, FlushLine};

/// Implements [`FillLine`] and [`CopyLine`] by instructions that write `{v}` to `{p}`, and such that copy from `{s}` to
/// `{d}` through the registers `t0` and following.
macro_rules! line {
    ($name:ident, $value:ty, $class:ident, $spread:expr, [$($fill:expr),+ $(,)?], ($($t:ident)+), [$($copy:expr),+ $(,)?]) => {
        impl FillLine for $name {
            type Value = $value;

            #[inline(always)]
            unsafe fn value(byte: u8) -> $value {
                $spread(byte)
            }

            #[inline(always)]
            unsafe fn write(line: *mut u8, value: &$value) {
                // SAFETY: the caller vouches for the line and its alignment; every access is within its 64 bytes.
                unsafe { asm!($($fill),+, p = in(reg) line, v = in($class) *value, options(nostack, preserves_flags)) }
            }
        }

        copy_line!($name, $value, $class, ($($t)+), [$($copy),+]);
    };
}

/// Implements [`CopyLine`] only.
macro_rules! copy_line {
    ($name:ident, $value:ty, $class:ident, ($($t:ident)+), [$($copy:expr),+ $(,)?]) => {
        impl CopyLine for $name {
            #[inline(always)]
            unsafe fn copy(dst: *mut u8, src: *const u8) {
                $(let $t: $value;)+
                // SAFETY: the caller vouches for both lines; every access is within their 64 bytes.
                unsafe {
                    asm!($($copy),+, d = in(reg) dst, s = in(reg) src, $($t = out($class) $t),+,
                         options(nostack, preserves_flags));
                }
                let _ = ($($t,)+);
            }
        }
    };
}

/// Repeats a byte eight times.
#[inline(always)]
fn spread_8(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Repeats a byte sixteen times.
#[inline(always)]
fn spread_16(byte: u8) -> uint8x16_t {
    #[allow(unused_unsafe, reason = "intrinsics are unsafe before Rust 1.87")]
    // SAFETY: Advanced SIMD is part of this target.
    unsafe {
        vdupq_n_u8(byte)
    }
}

/// STR of 8 bytes.
pub(super) struct Store8;
/// STP of 16 bytes.
pub(super) struct Stp16;
/// STP of 32 bytes.
pub(super) struct Stp32;
/// STNP of 16 bytes.
pub(super) struct Stnp16;
/// STNP of 32 bytes.
pub(super) struct Stnp32;
/// LDNP and STNP of 32 bytes.
pub(super) struct LdnpStnp32;
/// LDNP and STP of 32 bytes.
pub(super) struct LdnpStp32;

line!(
    Store8, u64, reg, spread_8,
    ["str {v}, [{p}]", "str {v}, [{p}, 8]", "str {v}, [{p}, 16]", "str {v}, [{p}, 24]",
     "str {v}, [{p}, 32]", "str {v}, [{p}, 40]", "str {v}, [{p}, 48]", "str {v}, [{p}, 56]"],
    (t0 t1 t2 t3),
    ["ldr {t0}, [{s}]", "ldr {t1}, [{s}, 8]", "ldr {t2}, [{s}, 16]", "ldr {t3}, [{s}, 24]",
     "str {t0}, [{d}]", "str {t1}, [{d}, 8]", "str {t2}, [{d}, 16]", "str {t3}, [{d}, 24]",
     "ldr {t0}, [{s}, 32]", "ldr {t1}, [{s}, 40]", "ldr {t2}, [{s}, 48]", "ldr {t3}, [{s}, 56]",
     "str {t0}, [{d}, 32]", "str {t1}, [{d}, 40]", "str {t2}, [{d}, 48]", "str {t3}, [{d}, 56]"]
);

/// The pairs of 16 bytes: a load and a store instruction.
macro_rules! pairs_16 {
    ($name:ident, $load:literal, $store:literal) => {
        line!(
            $name, u64, reg, spread_8,
            [concat!($store, " {v}, {v}, [{p}]"), concat!($store, " {v}, {v}, [{p}, 16]"),
             concat!($store, " {v}, {v}, [{p}, 32]"), concat!($store, " {v}, {v}, [{p}, 48]")],
            (t0 t1 t2 t3),
            [concat!($load, " {t0}, {t1}, [{s}]"), concat!($load, " {t2}, {t3}, [{s}, 16]"),
             concat!($store, " {t0}, {t1}, [{d}]"), concat!($store, " {t2}, {t3}, [{d}, 16]"),
             concat!($load, " {t0}, {t1}, [{s}, 32]"), concat!($load, " {t2}, {t3}, [{s}, 48]"),
             concat!($store, " {t0}, {t1}, [{d}, 32]"), concat!($store, " {t2}, {t3}, [{d}, 48]")]
        );
    };
}

pairs_16!(Stp16, "ldp", "stp");
pairs_16!(Stnp16, "ldp", "stnp");

/// Implements [`CopyLine`] by pairs of 32 bytes: a load and a store instruction.
macro_rules! copied_pairs_32 {
    ($name:ident, $load:literal, $store:literal) => {
        copy_line!($name, uint8x16_t, vreg, (t0 t1 t2 t3), [
            concat!($load, " {t0:q}, {t1:q}, [{s}]"),
            concat!($load, " {t2:q}, {t3:q}, [{s}, 32]"),
            concat!($store, " {t0:q}, {t1:q}, [{d}]"),
            concat!($store, " {t2:q}, {t3:q}, [{d}, 32]"),
        ]);
    };
}

/// The pairs of 32 bytes: a load and a store instruction.
macro_rules! pairs_32 {
    ($name:ident, $load:literal, $store:literal) => {
        line!(
            $name, uint8x16_t, vreg, spread_16,
            [concat!($store, " {v:q}, {v:q}, [{p}]"), concat!($store, " {v:q}, {v:q}, [{p}, 32]")],
            (t0 t1 t2 t3),
            [concat!($load, " {t0:q}, {t1:q}, [{s}]"), concat!($load, " {t2:q}, {t3:q}, [{s}, 32]"),
             concat!($store, " {t0:q}, {t1:q}, [{d}]"), concat!($store, " {t2:q}, {t3:q}, [{d}, 32]")]
        );
    };
}

pairs_32!(Stp32, "ldp", "stp");
pairs_32!(Stnp32, "ldp", "stnp");
copied_pairs_32!(LdnpStnp32, "ldnp", "stnp");
copied_pairs_32!(LdnpStp32, "ldnp", "stp");

/// DC CVAP: cleans the line to the point of persistence.
pub(super) struct Cvap;
/// DC CVADP: cleans the line to the point of deep persistence, which also survives the failure of a battery.
pub(super) struct Cvadp;

/// Implements [`FlushLine`] by a DC instruction, by its encoding, because assemblers want an extension for its name.
macro_rules! clean_line {
    ($name:ident, $encoding:literal) => {
        impl FlushLine for $name {
            #[inline(always)]
            unsafe fn flush(at: *const u8) {
                // SAFETY: the caller vouches for the address and the instruction, which changes no byte.
                unsafe { asm!(concat!("sys ", $encoding, ", {}"), in(reg) at, options(nostack, preserves_flags)) }
            }
        }
    };
}

clean_line!(Cvap, "#3, c7, c12, #1");
clean_line!(Cvadp, "#3, c7, c13, #1");
