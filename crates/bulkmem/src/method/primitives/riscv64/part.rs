//! Ranges shorter than a cache line: stores to other addresses than multiples of their size may be trapped and emulated,
//! so they are done byte by byte where necessary.

use crate::volatile;

/// Fills fewer than 64 bytes.
///
/// # Safety
/// `dst..dst+len` is valid for writes.
#[inline(never)]
pub(in crate::method) unsafe fn fill_part(dst: *mut u8, len: usize, byte: u8) {
    // SAFETY: passed on from the caller.
    unsafe { volatile::fill(dst, len, byte) }
}

/// Copies fewer than 64 bytes.
///
/// # Safety
/// `dst..dst+len` is valid for writes, `src..src+len` for reads, and they do not overlap.
#[inline(never)]
pub(in crate::method) unsafe fn copy_part(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { volatile::copy(dst, src, len) }
}
