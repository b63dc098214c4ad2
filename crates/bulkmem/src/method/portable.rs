//! Volatile word stores: the reference that tests compare with, and the only method besides the C library on other
//! architectures.

use super::{CacheEffect, Code, CopyFn, Entry, FillFn, Method, Ordering, Parameters};
use crate::machine::Features;
use crate::volatile;

pub(super) static METHOD: Method = Method {
    name: "portable",
    summary: "volatile word stores; the reference the tests compare with",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::empty(),
    code: Code { clear: Some(FILL), fill: Some(FILL), copy: Some(COPY), ..Code::NONE },
};

const FILL: Entry<FillFn> = Entry { unfenced: fill, fenced: fill, tunables: &[] };
const COPY: Entry<CopyFn> = Entry { unfenced: copy, fenced: copy, tunables: &[] };

/// # Safety
/// See [`FillFn`].
unsafe fn fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
    // SAFETY: passed on from the caller.
    unsafe { volatile::fill(dst, len, byte) }
}

/// # Safety
/// See [`CopyFn`].
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    // SAFETY: passed on from the caller.
    unsafe { volatile::copy(dst, src, len) }
}
