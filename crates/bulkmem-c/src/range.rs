//! Checks of the ranges that a caller passes.

use std::ffi::c_void;

use crate::error::{Error, Failed, fail};

/// Checks the range of a parameter: no null pointer, and no end beyond the address space. A range of no bytes may have any pointer.
///
/// # Errors
/// [`Error::Null`], [`Error::Length`].
#[inline(always)]
pub(crate) fn check(name: &'static str, start: *const c_void, length: usize) -> Result<(), Failed> {
    // No object is longer, and none reaches the last byte.
    let fits = length <= isize::MAX as usize && start.addr().checked_add(length).is_some();
    if length == 0 || (fits && !start.is_null()) { Ok(()) } else { Err(refused(name, start, length)) }
}

/// Checks both ranges of a copy. They may overlap.
///
/// # Errors
/// As [`check`].
#[inline(always)]
pub(crate) fn check_both(dst: *const c_void, src: *const c_void, length: usize) -> Result<(), Failed> {
    check("dst", dst, length)?;
    check("src", src, length)
}

/// Checks both ranges of a copy between ranges that must not overlap.
///
/// # Errors
/// As [`check`]; [`Error::Overlap`].
#[inline(always)]
pub(crate) fn check_apart(dst: *const c_void, src: *const c_void, length: usize) -> Result<(), Failed> {
    check_both(dst, src, length)?;
    if overlap(dst, src, length) { Err(overlapping(dst, src, length)) } else { Ok(()) }
}

/// True if two ranges of that length share a byte.
#[inline(always)]
pub(crate) fn overlap(dst: *const c_void, src: *const c_void, length: usize) -> bool {
    dst.addr().abs_diff(src.addr()) < length
}

/// Checks a pointer that must not be null.
///
/// # Errors
/// [`Error::Null`].
pub(crate) fn not_null<T>(pointer: *const T, name: &str) -> Result<(), Failed> {
    if pointer.is_null() {
        Err(fail(Error::Null, format_args!("`{name}` is a null pointer")))
    } else {
        Ok(())
    }
}

#[cold]
fn refused(name: &str, start: *const c_void, length: usize) -> Failed {
    if start.is_null() {
        return fail(Error::Null, format_args!("`{name}` is a null pointer, and the length is not 0"));
    }
    let start = start.addr();
    fail(
        Error::Length,
        format_args!("`{name}`: {length} bytes from {start:#x} do not fit in the address space"),
    )
}

#[cold]
fn overlapping(dst: *const c_void, src: *const c_void, length: usize) -> Failed {
    let (dst, src) = (dst.addr(), src.addr());
    let remedy = "bulkmem_move copies ranges that overlap, and bulkmem_persist then makes them durable";
    fail(
        Error::Overlap,
        format_args!("destination {dst:#x} and source {src:#x} overlap within {length} bytes: {remedy}"),
    )
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, without_provenance as at};

    use super::*;

    #[test]
    fn ranges_are_checked_at_their_limits() {
        let code = |start, length| check("dst", start, length).map_err(|failed| failed.0);
        let most = isize::MAX as usize;
        for start in [null(), at(1), at(usize::MAX)] {
            assert_eq!(code(start, 0), Ok(()));
        }
        assert_eq!(code(at(1), most), Ok(()));
        assert_eq!(code(at(usize::MAX - 9), 9), Ok(()));
        assert_eq!(code(at(usize::MAX - 9), 10), Err(Error::Length));
        assert_eq!(code(at(1), most + 1), Err(Error::Length));
        assert_eq!(code(at(1), usize::MAX), Err(Error::Length));
        assert_eq!(code(null(), 1), Err(Error::Null));
        assert_eq!(code(null(), usize::MAX), Err(Error::Null));
    }
}
