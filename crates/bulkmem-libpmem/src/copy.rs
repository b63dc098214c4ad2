//! Copies and fills of persistent memory, with flags and without.
//!
//! No program checks what these functions return, so a panic, which only a defect causes, ends the process (as in every
//! function with this calling convention) instead of returning without the bytes.

use std::ffi::{c_int, c_uint, c_void};

use bulkmem::method;

use crate::methods::{Stores, methods};

/// No drain.
pub const PMEM_F_MEM_NODRAIN: c_uint = 1 << 0;
/// Stores that bypass the cache.
pub const PMEM_F_MEM_NONTEMPORAL: c_uint = 1 << 1;
/// Stores to the cache.
pub const PMEM_F_MEM_TEMPORAL: c_uint = 1 << 2;
/// As PMEM_F_MEM_NONTEMPORAL.
pub const PMEM_F_MEM_WC: c_uint = 1 << 3;
/// As PMEM_F_MEM_TEMPORAL.
pub const PMEM_F_MEM_WB: c_uint = 1 << 4;
/// Neither flush nor drain: the caller flushes later.
pub const PMEM_F_MEM_NOFLUSH: c_uint = 1 << 5;

/// Unknown flags are ignored, as PMDK does.
fn stores(flags: c_uint) -> Stores {
    if flags & (PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_WC) != 0 {
        Stores::NonTemporal
    } else if flags & (PMEM_F_MEM_TEMPORAL | PMEM_F_MEM_WB) != 0 {
        Stores::Temporal
    } else {
        Stores::ByPolicy
    }
}

/// Copies `length` bytes; the ranges may overlap. Durable when it returns, unless the flags say otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memmove(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    flags: c_uint,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe {
        if flags & PMEM_F_MEM_NOFLUSH == 0 {
            methods().copy(dst.cast(), src.cast(), length, stores(flags));
        } else {
            methods().copy_ordinary(dst.cast(), src.cast(), length);
        }
    }
    drain(flags);
    dst
}

/// Sets `length` bytes to the lowest eight bits of `byte`. Durable when it returns, unless the flags say otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memset(
    dst: *mut c_void,
    byte: c_int,
    length: usize,
    flags: c_uint,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe {
        if flags & PMEM_F_MEM_NOFLUSH == 0 {
            methods().fill(dst.cast(), byte as u8, length, stores(flags));
        } else {
            methods().fill_ordinary(dst.cast(), byte as u8, length);
        }
    }
    drain(flags);
    dst
}

fn drain(flags: c_uint) {
    if flags & (PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NOFLUSH) == 0 {
        method::fence();
    }
}

/// As `pmem_memmove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memcpy(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    flags: c_uint,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memmove(dst, src, length, flags) }
}

/// As `pmem_memmove` without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memmove_persist(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memmove(dst, src, length, 0) }
}

/// As `pmem_memmove` without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memcpy_persist(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memmove(dst, src, length, 0) }
}

/// As `pmem_memset` without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memset_persist(dst: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memset(dst, byte, length, 0) }
}

/// As `pmem_memmove` without a drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memmove_nodrain(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memmove(dst, src, length, PMEM_F_MEM_NODRAIN) }
}

/// As `pmem_memmove` without a drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memcpy_nodrain(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memmove(dst, src, length, PMEM_F_MEM_NODRAIN) }
}

/// As `pmem_memset` without a drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_memset_nodrain(dst: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { pmem_memset(dst, byte, length, PMEM_F_MEM_NODRAIN) }
}
