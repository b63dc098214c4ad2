//! The C library's `memset` and `memcpy`.

use super::{CacheEffect, Code, CopyFn, Entry, FillFn, Method, Ordering, Parameters};
use crate::c_functions;
use crate::machine::Features;

pub(super) static METHOD: Method = Method {
    name: "c_library",
    summary: "the C library's memset and memcpy",
    // From some length on it may bypass the cache; it fences those stores.
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
    unsafe { c_functions::fill(dst, byte, len) }
}

/// # Safety
/// See [`CopyFn`].
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    // SAFETY: passed on from the caller.
    unsafe { c_functions::copy(dst, src, len) }
}
