//! A library to preload, with `memset`, `memcpy` and `memmove` built on bulkmem, as a program may have them. If
//! bulkmem calls functions of these names, the calls come back here.

use std::ffi::{c_int, c_void};

use bulkmem::Options;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(dst: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe {
        match byte as u8 {
            0 => Options::new().clear_raw(dst.cast(), length),
            byte => Options::new().fill_raw(dst.cast(), length, byte),
        }
    }
    dst
}

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(dst: *mut c_void, src: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { Options::new().copy_raw(dst.cast(), src.cast(), length) }
    dst
}

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(dst: *mut c_void, src: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller; overlapping ranges are copied as by memmove.
    unsafe { Options::new().copy_raw(dst.cast(), src.cast(), length) }
    dst
}
