//! Error codes, the text of the last error, and what every function does at the boundary to C.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write as _};
use std::iter;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bulkmem_reserve::system_has;

/// Results of functions. An operation that fails has written nothing, and `bulkmem_last_error` says more.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "functions return `Ok` as the number 0")]
pub enum Error {
    /// Success.
    Ok = 0,
    /// A null pointer, and a length that is not 0; or a null pointer where an object is needed.
    Null = -1,
    /// A range that is longer than PTRDIFF_MAX or ends beyond the address space; a number of 0 where at least 1 is needed.
    Length = -2,
    /// Ranges of a copy that overlap. bulkmem_move copies those.
    Overlap = -3,
    /// A value that this version does not know: a flag, an intent, a durability, or options of a later version.
    Argument = -4,
    /// A method that is unknown, does not support the operation, or needs instructions that the machine does not have.
    Method = -5,
    /// The bytes cannot be made durable: the architecture has no instruction that writes cache lines back.
    NotDurable = -6,
    /// Too little memory, or too few huge pages.
    Memory = -7,
    /// The operating system refused a request.
    System = -8,
    /// An environment variable has an invalid value.
    Environment = -9,
    /// A defect of the library. Please report it.
    Internal = -10,
    /// A policy file that cannot be used: there is none, it is invalid, or it was measured on another processor model.
    Policy = -11,
    /// The callback of the caller cancelled.
    Cancelled = -12,
}

/// A failure whose text has been stored.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Error);

/// Bytes of the text of an error, with the 0 at its end.
const MOST: usize = 512;

thread_local! {
    /// The text of the thread's last error. The last byte is never written, so there is always an end, even for a signal
    /// handler that interrupts `fail`. Needs neither initialization nor a destructor.
    static TEXT: [Cell<u8>; MOST] = const { [const { Cell::new(0) }; MOST] };
}

/// Writes to [`TEXT`]; cuts what does not fit.
struct Text<'t> {
    text: &'t [Cell<u8>; MOST],
    length: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = MOST - 1 - self.length;
        let end = (0..=part.len().min(room)).rev().find(|&end| part.is_char_boundary(end)).unwrap_or(0);
        for (cell, byte) in self.text.iter().skip(self.length).zip(part.as_bytes().iter().take(end)) {
            cell.set(*byte);
        }
        self.length += end;
        if end < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Stores the text of an error. Does not allocate unless formatting does.
#[cold]
pub(crate) fn fail(code: Error, text: fmt::Arguments<'_>) -> Failed {
    explain(text);
    Failed(code)
}

/// Stores a text for [`bulkmem_last_error`] without failing.
#[cold]
pub(crate) fn explain(text: fmt::Arguments<'_>) {
    keeping_errno(|| {
        TEXT.with(|cells| {
            let mut writer = Text { text: cells, length: 0 };
            // An error means that the text was cut.
            _ = writer.write_fmt(text);
            cells.iter().skip(writer.length).take(1).for_each(|end| end.set(0));
        });
    });
}

/// Shows an error and its causes.
pub(crate) struct Causes<'e>(pub(crate) &'e dyn std::error::Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        iter::successors(self.0.source(), |error| error.source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// Runs the body of a function and returns its code. A panic becomes [`Error::Internal`].
#[inline(always)]
pub(crate) fn outcome(body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failed(code))) => code as c_int,
        Err(payload) => {
            // Dropping it could panic again.
            mem::forget(payload);
            fail(Error::Internal, format_args!("a defect of the library: please report it")).0 as c_int
        }
    }
}

/// As [`outcome`], for bodies that can change `errno`.
pub(crate) fn slow_outcome(body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    keeping_errno(|| outcome(body))
}

/// Returns what `body` returns, and restores `errno`.
pub(crate) fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: the C library returns the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is valid for the life of the thread, and no other thread uses it.
    let before = unsafe { *errno };
    let result = body();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// Bytes to check for before threads and mappings. Starting a thread, or waiting for one, allocates less than 1 KiB.
pub(crate) const SOME: usize = 64 << 10;

/// Bytes to check for before a policy, which has 200 KB, is loaded.
pub(crate) const FOR_A_POLICY: usize = 512 << 10;

/// Checks that so many bytes can be allocated. If an allocation fails later, its memory comes from a reserve, which is small. Rust's
/// standard library allocates some for threads elsewhere, and ends the process if that fails.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn check_memory(bytes: usize) -> Result<(), Failed> {
    if system_has(bytes) {
        Ok(())
    } else {
        Err(fail(Error::Memory, format_args!("no memory for {bytes} bytes")))
    }
}

/// Returns the text of the last error of the calling thread, or an empty string if there was none. It is valid until the
/// thread's next call of a bulkmem function that fails. At most 511 bytes, UTF-8. bulkmem_pool_memory also stores a text if
/// it succeeds with fresh memory.
///
/// Async-signal-safe, except in a program that has loaded the library by dlopen.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_last_error() -> *const c_char {
    TEXT.with(|cells| cells.as_ptr().cast())
}

/// Returns a short description of an error code, for example "null pointer". The string is static.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_strerror(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        0 => c"success",
        -1 => c"null pointer",
        -2 => c"length out of range",
        -3 => c"the ranges overlap",
        -4 => c"unknown flag, value or option",
        -5 => c"the method cannot be used",
        -6 => c"the bytes cannot be made durable",
        -7 => c"too little memory or too few huge pages",
        -8 => c"the operating system refused a request",
        -9 => c"an environment variable has an invalid value",
        -10 => c"a defect of the library",
        -11 => c"the policy file cannot be used",
        -12 => c"cancelled",
        _ => c"unknown error code",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> &'static str {
        // SAFETY: the text ends with a 0 and is not changed while the reference is used.
        unsafe { CStr::from_ptr(bulkmem_last_error()) }.to_str().unwrap()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(outcome(|| panic!("planted")), Error::Internal as c_int);
        assert!(last().contains("report it"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for length in [0, 1, 509, 510, 511, 512, 5000] {
            fail(Error::System, format_args!("{}{}", "x".repeat(length), "µ".repeat(9)));
            let text = last();
            assert!(text.len() < MOST && text.starts_with(&"x".repeat(length.min(511))), "{length}: {text}");
        }
        fail(Error::System, format_args!("short"));
        assert_eq!(last(), "short");
    }

    #[test]
    fn each_code_has_a_description() {
        // SAFETY: the string is static.
        let text = |code| unsafe { CStr::from_ptr(bulkmem_strerror(code)) };
        let unknown = text(-13);
        assert_eq!(unknown, text(1));
        let known: std::collections::HashSet<_> = (-12..=0).map(text).collect();
        assert!(known.len() == 13 && !known.contains(unknown));
    }
}
