//! The C library's memset, memcpy and memmove, called through pointers that are resolved when the program is loaded.
//!
//! A direct call binds to the first function of that name in the program, which can be a replacement that is built on
//! this library and would call itself without end. The pointers hold the next such functions after this library's own
//! object in the dynamic linker's order (`RTLD_NEXT`): the C library's, or those of a tool that instruments it. Until the
//! constructor has run, and if a function is not found, they hold [`built_in`] ones.
//!
//! The compiler cannot know which function a pointer holds, so it removes no call whose result the program does not read:
//! memory that is cleared because it held a secret must be cleared. Nothing follows a call, so that it can be a jump.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::built_in;

type Memset = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;
type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

static MEMSET: AtomicPtr<()> = AtomicPtr::new(built_in_memset as *mut ());
static MEMCPY: AtomicPtr<()> = AtomicPtr::new(built_in_memcpy as *mut ());
static MEMMOVE: AtomicPtr<()> = AtomicPtr::new(built_in_memmove as *mut ());

/// Writes `byte` to `length` bytes from `dst`.
///
/// # Safety
/// `dst..dst+length` is valid for writes.
#[inline(always)]
pub(crate) unsafe fn fill(dst: *mut u8, byte: u8, length: usize) {
    // SAFETY: the pointer holds a function of this type; the caller vouches for the range.
    unsafe {
        let memset: Memset = transmute(MEMSET.load(Relaxed));
        memset(dst.cast(), byte.into(), length);
    }
}

/// Copies `length` bytes from `src` to `dst`.
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: the pointer holds a function of this type; the caller vouches for the ranges.
    unsafe {
        let memcpy: Memcpy = transmute(MEMCPY.load(Relaxed));
        memcpy(dst.cast(), src.cast(), length);
    }
}

/// Copies `length` bytes from `src` to `dst`, which may overlap.
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes.
#[inline(always)]
pub(crate) unsafe fn copy_overlapping(dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: the pointer holds a function of this type; the caller vouches for the ranges.
    unsafe {
        let memmove: Memcpy = transmute(MEMMOVE.load(Relaxed));
        memmove(dst.cast(), src.cast(), length);
    }
}

unsafe extern "C" fn built_in_memset(dst: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller. As memset, only the low byte counts.
    unsafe { built_in::fill(dst.cast(), byte as u8, length) }
    dst
}

unsafe extern "C" fn built_in_memcpy(dst: *mut c_void, src: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { built_in::copy(dst.cast(), src.cast(), length) }
    dst
}

unsafe extern "C" fn built_in_memmove(dst: *mut c_void, src: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { built_in::copy_overlapping(dst.cast(), src.cast(), length) }
    dst
}

/// Finds the C library's functions. Called by the constructor; not async-signal-safe, because dlsym is not.
///
/// A static program has one function of each name, and nothing tells whether it is the C library's or the program's own,
/// built on this library. So there the built-in functions remain.
#[cfg(not(any(miri, target_feature = "crt-static")))]
pub(crate) fn resolve() {
    for (pointer, name) in [(&MEMSET, c"memset"), (&MEMCPY, c"memcpy"), (&MEMMOVE, c"memmove")] {
        // SAFETY: the name ends in 0.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !found.is_null() {
            pointer.store(found.cast(), Relaxed);
        }
    }
}

/// Miri knows no dlsym; the built-in functions remain there, too.
#[cfg(any(miri, target_feature = "crt-static"))]
pub(crate) fn resolve() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(any(miri, target_feature = "crt-static")))]
    fn the_constructor_has_found_the_c_librarys_functions() {
        for (pointer, built_in) in [
            (&MEMSET, built_in_memset as *mut ()),
            (&MEMCPY, built_in_memcpy as *mut ()),
            (&MEMMOVE, built_in_memmove as *mut ()),
        ] {
            assert_ne!(pointer.load(Relaxed), built_in);
        }
    }

    /// Every length up to 100 and every distance between the ranges, overlapping or not, by both sets of functions.
    #[test]
    fn bytes_are_filled_copied_and_moved() {
        const MOST: usize = if cfg!(miri) { 10 } else { 100 };
        type Move = unsafe fn(*mut u8, *const u8, usize);
        let moves: [(Move, bool); 4] = [
            (copy_overlapping, true),
            (built_in::copy_overlapping, true),
            (copy, false),
            (built_in::copy, false),
        ];
        for length in 0..MOST {
            for fill in [super::fill, built_in::fill] {
                let mut bytes = [1; MOST + 2];
                // SAFETY: `length` bytes from the second on are within the array.
                unsafe { fill(bytes.as_mut_ptr().wrapping_add(1), 7, length) }
                assert!(
                    bytes
                        .iter()
                        .enumerate()
                        .all(|(at, byte)| *byte == if (1..=length).contains(&at) { 7 } else { 1 })
                );
            }
            for (copy, overlapping) in moves {
                for distance in 0..=2 * MOST {
                    if !overlapping && distance.abs_diff(MOST) < length {
                        continue;
                    }
                    let mut bytes: [u8; 3 * MOST] = std::array::from_fn(|at| at as u8);
                    let mut expected = bytes;
                    expected.copy_within(MOST..MOST + length, distance);
                    let start = bytes.as_mut_ptr();
                    // SAFETY: both ranges are within the array, and overlap only for functions that allow it.
                    unsafe { copy(start.wrapping_add(distance), start.wrapping_add(MOST), length) }
                    assert_eq!(bytes, expected, "{length} bytes to {distance}");
                }
            }
        }
    }
}
