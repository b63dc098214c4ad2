//! Text of limited length without the heap.

use std::fmt;

use crate::built_in;

/// A text of at most `N` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    /// Appends `text`, or fails and appends nothing if it does not fit.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let free = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        // Not `copy_from_slice`, a call of memcpy, which the program may have replaced.
        // SAFETY: both have the length of `text`, and a slice that is borrowed mutably overlaps no other.
        unsafe { built_in::copy(free.as_mut_ptr(), text.as_ptr(), text.len()) }
        self.length = end;
        Ok(())
    }
}
