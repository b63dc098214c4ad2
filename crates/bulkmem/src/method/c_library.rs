//! The C library's memset and memcpy. An empty assembly block behind each call keeps the compiler, which knows
//! both functions, from leaving the call out.

use super::{Code, CopyFn, Effect, Entry, FillFn, Method, Ordering, Parameters};
use crate::machine::Features;

pub(super) static METHOD: Method = Method {
    name: "c_library",
    summary: "the C library's memset and memcpy",
    // Beyond a threshold of its own it may bypass the cache; it fences itself where it does.
    effect: Effect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::empty(),
    code: Code { clear: Some(FILL), fill: Some(FILL), copy: Some(COPY), ..Code::NONE },
};

const FILL: Entry<FillFn> = Entry { unfenced: fill, fenced: fill, knobs: &[] };
const COPY: Entry<CopyFn> = Entry { unfenced: copy, fenced: copy, knobs: &[] };

/// # Safety
/// See [`FillFn`].
unsafe fn fill(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
    // SAFETY: the caller vouches that dst..dst+len is valid for writes.
    unsafe {
        libc::memset(dst.cast(), byte.into(), len);
    }
    // SAFETY: an empty assembly block: it only tells the compiler that the memory may be looked at here.
    unsafe { std::arch::asm!("/* {0} */", in(reg) dst, options(nostack, preserves_flags)) }
}

/// # Safety
/// See [`CopyFn`].
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    // SAFETY: the caller vouches for both ranges, and that they do not overlap.
    unsafe {
        libc::memcpy(dst.cast(), src.cast(), len);
    }
    // SAFETY: as in `fill`.
    unsafe { std::arch::asm!("/* {0} */", in(reg) dst, options(nostack, preserves_flags)) }
}
