//! Long calls, and copies that page aliasing may slow down in the C library: by the policy, or by the C library if ranges
//! overlap or the policy does not decide.
//!
//! A signal handler may throw an exception through these functions, as through the C library's. They are `C-unwind`, so that no
//! frame on the way stops it.

use std::ffi::{c_int, c_void};

use bulkmem::{Intent, Operation, Options, pointers};
use bulkmem_histogram::Call;

use crate::{c_library, histogram};

/// The function that the program called. The forms that check the length count as those that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Function {
    Memcpy,
    Memmove,
    Mempcpy,
    Memset,
    Bzero,
    ExplicitBzero,
}

impl Function {
    /// Returns the kind of call that is counted.
    #[inline(always)]
    fn call(self, operation: Operation) -> Call {
        match self {
            Function::Memcpy => Call::Memcpy,
            Function::Memmove => Call::Memmove,
            Function::Mempcpy => Call::Mempcpy,
            Function::Memset if operation == Operation::Clear => Call::MemsetZero,
            Function::Memset => Call::MemsetOther,
            Function::Bzero => Call::Bzero,
            Function::ExplicitBzero => Call::ExplicitBzero,
        }
    }
}

/// The options of a call by the policy; `None` for the default ones. The program may find the bytes of shorter calls in the cache.
#[inline]
fn options(operation: Operation, length: usize) -> Option<Options<'static>> {
    let (is_reused, populate) = (c_library::is_reused(operation, length), c_library::populates());
    let intent = if is_reused { Intent::Reuse } else { Intent::Throughput };
    (is_reused || populate).then(|| Options::new().intent(intent).populate(populate))
}

/// Copies `length` bytes; the ranges may overlap. Returns what the function returns. Called by `interpose.s`.
///
/// # Safety
/// As memmove; and the constructor has found the C library's functions.
pub(crate) unsafe extern "C-unwind" fn copy(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    function: Function,
) -> *mut c_void {
    let policy_decides = c_library::policy_decides(Operation::Copy, length);
    // First, and apart: a call that evicts all that it reads on the way should read little.
    if policy_decides && pointers::copy_follows_c_library(dst.cast(), src.cast(), length) {
        histogram::count(function.call(Operation::Copy), length, true);
        // SAFETY: passed on from the caller.
        unsafe { c_library::memmove(dst, src, length) };
    } else {
        // SAFETY: passed on from the caller.
        unsafe { copy_by_policy(dst, src, length, function, policy_decides) };
    }
    match function {
        Function::Mempcpy => dst.wrapping_byte_add(length),
        _ => dst,
    }
}

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_by_policy(
    dst: *mut c_void,
    src: *const c_void,
    length: usize,
    function: Function,
    policy_decides: bool,
) {
    let overlap = dst.addr().abs_diff(src.addr()) < length;
    let by_policy = !overlap && policy_decides;
    histogram::count(function.call(Operation::Copy), length, by_policy);
    // SAFETY: passed on from the caller; `bulkmem` gets no ranges that overlap.
    unsafe {
        if by_policy {
            match options(Operation::Copy, length) {
                Some(options) => pointers::copy_with(&options, dst.cast(), src.cast(), length),
                None => pointers::copy(dst.cast(), src.cast(), length),
            }
        } else if !overlap && c_library::copy_if_aliased(dst, src, length) {
            histogram::count_aliased(length);
        } else {
            c_library::memmove(dst, src, length);
        }
    }
}

/// Writes the lowest eight bits of `byte` to `length` bytes. Returns `dst`. Called by `interpose.s`.
///
/// # Safety
/// As memset; and the constructor has found the C library's functions.
pub(crate) unsafe extern "C-unwind" fn set(
    dst: *mut c_void,
    byte: c_int,
    length: usize,
    function: Function,
) -> *mut c_void {
    let operation = if byte as u8 == 0 { Operation::Clear } else { Operation::Fill };
    let by_policy = c_library::policy_decides(operation, length);
    // First, as in `copy`.
    let by_c_library = !by_policy || pointers::set_follows_c_library(operation, length);
    histogram::count(function.call(operation), length, by_policy);
    // SAFETY: passed on from the caller.
    unsafe {
        if by_c_library {
            c_library::memset(dst, byte, length);
        } else {
            set_by_policy(dst, byte as u8, length, operation);
        }
    }
    dst
}

/// # Safety
/// As [`set`].
#[inline(never)]
unsafe fn set_by_policy(dst: *mut c_void, byte: u8, length: usize, operation: Operation) {
    // SAFETY: passed on from the caller.
    unsafe {
        match (operation, options(operation, length)) {
            (Operation::Clear, Some(options)) => pointers::clear_with(&options, dst.cast(), length),
            (Operation::Clear, None) => pointers::clear(dst.cast(), length),
            (_, Some(options)) => pointers::fill_with(&options, dst.cast(), length, byte),
            (_, None) => pointers::fill(dst.cast(), length, byte),
        }
    }
}
