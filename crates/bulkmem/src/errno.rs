//! The error number of the C library.

/// Runs `f`, and leaves `errno` as it was: a crate that makes rustix use the C library makes its calls set it.
pub(crate) fn kept<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: it always points to this thread's variable.
    let errno = unsafe { &raw mut *libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let result = f();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}
