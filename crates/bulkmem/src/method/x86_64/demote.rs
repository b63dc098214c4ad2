//! Cached stores, each line followed by CLDEMOTE, which moves it to a cache that processors share.
//!
//! For bytes that another processor or a device reads next. Not for bytes that this processor reads soon, nor for
//! bytes that nothing reads soon, for which stores that bypass the cache are faster. CLDEMOTE is a hint: a processor
//! may ignore it, and one that does not support it executes a no-operation.

use std::arch::asm;

use super::entry::{copy_kernel, fill_kernel, ordered};
use super::line::{FlushLine, Flushed, StoreAvx};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// CLDEMOTE, a hint.
struct Cldemote;

impl FlushLine for Cldemote {
    #[inline(always)]
    unsafe fn flush(at: *const u8) {
        // SAFETY: the hint does not fault, whatever the address, and does not change memory.
        unsafe { asm!("cldemote [{}]", in(reg) at, options(nostack, preserves_flags)) }
    }
}

type Line = Flushed<StoreAvx, Cldemote>;

fill_kernel!(
    #[target_feature(enable = "avx")]
    fill = loops::fill::<Line>,
    |dst, len, byte, p| dst,
    len,
    byte
);
copy_kernel!(
    #[target_feature(enable = "avx")]
    copy = loops::copy_cached::<Line>,
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
