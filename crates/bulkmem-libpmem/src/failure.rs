//! The boundary to C: catches panics, sets `errno`, and keeps the text of the last error.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use std::fmt::{self, Write as _};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

/// The version of the interface. Not that of PMDK.
const MAJOR: c_uint = 1;
/// See [`MAJOR`].
const MINOR: c_uint = 1;

/// Bytes of the text, with the 0 at its end. A path fits.
const MOST: usize = 5120;

thread_local! {
    /// The text of the thread's last error. The last byte is never written. Needs neither initialization nor a
    /// destructor.
    static TEXT: [Cell<u8>; MOST] = const { [const { Cell::new(0) }; MOST] };
}

/// A failure whose text has been stored, with the value for `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) c_int);

/// Writes to [`TEXT`]; cuts what does not fit.
struct Text<'t> {
    text: &'t [Cell<u8>; MOST],
    length: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = MOST - 1 - self.length;
        let cells = self.text.iter().skip(self.length).take(room);
        let written = cells.zip(part.bytes()).map(|(cell, byte)| cell.set(byte)).count();
        self.length += written;
        if written < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Stores the text of an error.
#[cold]
pub(crate) fn fail(errno: c_int, text: fmt::Arguments<'_>) -> Failed {
    TEXT.with(|cells| {
        let mut writer = Text { text: cells, length: 0 };
        // An error means that the text was cut.
        _ = writer.write_fmt(text);
        cells.iter().skip(writer.length).take(1).for_each(|end| end.set(0));
    });
    Failed(errno)
}

/// The failure of a system call, whose `errno` is still set.
#[cold]
pub(crate) fn system(what: fmt::Arguments<'_>) -> Failed {
    let error = io::Error::last_os_error();
    fail(error.raw_os_error().unwrap_or(libc::EIO), format_args!("{what}: {error}"))
}

/// Runs the body of a function. If it fails, returns `otherwise` and sets `errno`.
pub(crate) fn guarded<R>(otherwise: R, body: impl FnOnce() -> Result<R, Failed>) -> R {
    let failed = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failed)) => failed,
        Err(payload) => {
            // Dropping it could panic again.
            mem::forget(payload);
            fail(libc::EIO, format_args!("a defect of bulkmem's libpmem: please report it"))
        }
    };
    // SAFETY: the C library returns the address of the calling thread's `errno`, which is valid.
    unsafe { *libc::__errno_location() = failed.0 };
    otherwise
}

/// Returns the text of the calling thread's last error; empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn pmem_errormsg() -> *const c_char {
    TEXT.with(|cells| cells.as_ptr().cast())
}

/// Returns null if the interface of that version is there, and else a text that says what is.
#[unsafe(no_mangle)]
pub extern "C" fn pmem_check_version(major: c_uint, minor: c_uint) -> *const c_char {
    if major == MAJOR && minor <= MINOR {
        return null();
    }
    let part = if major == MAJOR { "minor" } else { "major" };
    fail(0, format_args!("libpmem {part} version mismatch (need {major}.{minor}, found {MAJOR}.{MINOR})"));
    pmem_errormsg()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the text ends with a 0 and no other thread changes it.
        unsafe { CStr::from_ptr(pmem_errormsg()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_failure() {
        assert_eq!(guarded(-1, || panic!("planted")), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        assert!(last().contains("report it"));
    }

    #[test]
    fn texts_belong_to_a_thread_and_are_cut() {
        fail(0, format_args!("{}", "x".repeat(2 * MOST)));
        assert_eq!(last().len(), MOST - 1);
        fail(0, format_args!("short"));
        assert_eq!(std::thread::spawn(last).join().unwrap(), "");
        assert_eq!(last(), "short");
    }

    #[test]
    fn versions_are_compared() {
        for (major, minor, there) in [(1, 0, true), (1, 1, true), (1, 2, false), (0, 1, false), (2, 0, false)]
        {
            assert_eq!(pmem_check_version(major, minor).is_null(), there, "{major}.{minor}");
        }
        assert_eq!(last(), "libpmem major version mismatch (need 2.0, found 1.1)");
    }
}
