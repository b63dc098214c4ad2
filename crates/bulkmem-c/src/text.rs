//! Texts that are written to the caller's memory.

use std::ffi::{c_char, c_int};

use crate::error::{Failed, slow_outcome};
use crate::range;

/// Runs the body of a function and writes its text to `buffer` as snprintf does: at most `size` bytes, cut between
/// characters, with a 0 at the end. Returns the length of the whole text, or the code of an error.
///
/// # Safety
/// `size` bytes from `buffer` are writable.
pub(crate) unsafe fn outcome(
    buffer: *mut c_char,
    size: usize,
    body: impl FnOnce() -> Result<String, Failed>,
) -> c_int {
    let mut length = 0;
    let code = slow_outcome(|| {
        range::check("text", buffer.cast(), size)?;
        let text = body()?;
        length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        if let Some(room) = size.checked_sub(1) {
            let end = (0..=text.len().min(room)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            // SAFETY: no more than `size` bytes, for which the caller vouches.
            unsafe {
                buffer.copy_from_nonoverlapping(text.as_ptr().cast(), end);
                buffer.add(end).write(0);
            }
        }
        Ok(())
    });
    if code == 0 { length } else { code }
}
