//! Clear, fill and copy that call nothing: for calls that arrive before the library has found the C library's functions
//! or loaded its policy.
//!
//! A program can replace memset, memcpy and memmove (with LD_PRELOAD, or with functions of its own), and the
//! replacement may be built on this library. So these functions are one instruction of assembly on x86-64 and volatile
//! stores elsewhere, which the compiler turns into no call.

#[cfg(any(not(target_arch = "x86_64"), miri))]
use crate::volatile;

/// Writes `byte` to `length` bytes from `dst`.
///
/// # Safety
/// `dst..dst+length` is valid for writes.
#[inline(always)]
pub(crate) unsafe fn fill(dst: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller vouches for the range; the direction flag is clear, as the calling convention demands.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("rep stosb", inout("rdi") dst => _, inout("rcx") length => _, in("al") byte,
                        options(nostack, preserves_flags));
    }
    // SAFETY: passed on from the caller.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    unsafe {
        volatile::fill(dst, length, byte);
    }
}

/// Copies `length` bytes from `src` to `dst`.
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("rep movsb", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") length => _,
                        options(nostack, preserves_flags));
    }
    // SAFETY: passed on from the caller.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    unsafe {
        volatile::copy(dst, src, length);
    }
}

/// Copies `length` bytes from `src` to `dst`, which may overlap.
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes.
pub(crate) unsafe fn copy_overlapping(dst: *mut u8, src: *const u8, length: usize) {
    let ahead = dst.addr().wrapping_sub(src.addr());
    if ahead >= length && ahead.wrapping_neg() >= length {
        // SAFETY: passed on from the caller, and the ranges share no byte.
        return unsafe { copy(dst, src, length) };
    }
    // One byte at a time, from the end that is not overwritten before it is read. Slow, and rare: it needs ranges that
    // overlap before the constructor has run. Volatile, so that the compiler does not turn the loop into a call.
    // SAFETY: every access is within the two ranges, which the caller vouches for.
    let copy_byte = |at| unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
    if ahead < length { (0..length).rev().for_each(copy_byte) } else { (0..length).for_each(copy_byte) }
}
