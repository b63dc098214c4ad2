//! Cached stores, each line followed by CLDEMOTE, which moves it to a cache that processors share.
//!
//! For bytes that another processor or a device reads next. Not for bytes that this processor reads soon, nor for
//! bytes that nothing reads soon, for which stores that bypass the cache are faster. CLDEMOTE is a hint: a processor
//! may ignore it, and one that does not support it executes a no-operation.

use std::arch::asm;

use super::entry::{copy_kernel, fill_kernel, ordered};
use super::line::{CopyLine, FillLine, StoreAvx};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Each line written or copied by `L`, then demoted.
struct Demoted<L>(std::marker::PhantomData<L>);

/// Demotes the line that holds `at`.
#[inline(always)]
fn demote(at: *mut u8) {
    // SAFETY: the hint does not fault, whatever the address, and does not change memory.
    unsafe { asm!("cldemote [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

impl<L: FillLine> FillLine for Demoted<L> {
    type Value = L::Value;

    #[inline(always)]
    unsafe fn value(byte: u8) -> L::Value {
        // SAFETY: passed on from the caller.
        unsafe { L::value(byte) }
    }

    #[inline(always)]
    unsafe fn write(line: *mut u8, value: &L::Value) {
        // SAFETY: passed on from the caller.
        unsafe { L::write(line, value) }
        demote(line);
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        demote(at);
    }
}

impl<L: CopyLine> CopyLine for Demoted<L> {
    const SOURCE_ALIGNMENT: usize = L::SOURCE_ALIGNMENT;

    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller.
        unsafe { L::copy(dst, src) }
        demote(dst);
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        demote(at);
    }
}

fill_kernel!(
    #[target_feature(enable = "avx")]
    fill = loops::fill::<Demoted<StoreAvx>>,
    |dst, len, byte, p| dst,
    len,
    byte
);
copy_kernel!(
    #[target_feature(enable = "avx")]
    copy = loops::copy_cached::<Demoted<StoreAvx>>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);

pub(super) static METHODS: &[Method] = &[Method {
    name: "store_avx_cldemote",
    summary: "cached stores of 32 bytes, each line followed by CLDEMOTE",
    effect: CacheEffect::Demotes,
    ordering: Ordering::Ordered,
    requires: Features::AVX.union(Features::CLDEMOTE),
    code: Code {
        clear: ordered!(FillFn, fill, &[]),
        fill: ordered!(FillFn, fill, &[]),
        copy: ordered!(CopyFn, copy, tunables::CACHED_COPY),
        ..Code::NONE
    },
}];
