//! The bytes before the first and after the last whole cache line of a range, fewer than 64 each. They are written by
//! ordinary stores that overlap, without a loop.

use super::{CopyLine, FillLine, LINE};
use crate::method::primitives::part::{copy_part, fill_part};

/// The whole lines of a range.
pub(in crate::method) struct Lines {
    /// Address of the first; a multiple of 64.
    pub(in crate::method) start: *mut u8,
    /// Number of bytes of the range before it.
    pub(in crate::method) skipped: usize,
    /// Number of lines.
    pub(in crate::method) count: usize,
}

/// Splits a range into a part of a line, whole lines, and a part of a line.
#[inline(always)]
fn split(dst: *mut u8, len: usize) -> (usize, usize, usize) {
    let head = (dst.addr().wrapping_neg() % LINE).min(len);
    let lines = (len - head) / LINE;
    (head, lines, len - head - lines * LINE)
}

/// Fills the partial lines at both ends. Returns the whole lines between them.
///
/// # Safety
/// `dst..dst+len` is valid for writes, and `L`'s instructions are enabled.
#[inline(always)]
pub(in crate::method) unsafe fn fill<L: FillLine>(dst: *mut u8, len: usize, byte: u8) -> Lines {
    let (head, lines, tail) = split(dst, len);
    // SAFETY: head and tail are within the range, which the caller vouches for.
    unsafe {
        if head > 0 {
            fill_part(dst, head, byte);
            L::part_written(dst);
        }
        if tail > 0 {
            fill_part(dst.add(len - tail), tail, byte);
            L::part_written(dst.add(len - tail));
        }
        Lines { start: dst.add(head), skipped: head, count: lines }
    }
}

/// Copies the partial lines at both ends. Returns the whole lines between them.
///
/// # Safety
/// `dst..dst+len` is valid for writes, `src..src+len` for reads, they do not overlap, and `L`'s instructions are
/// enabled.
#[inline(always)]
pub(in crate::method) unsafe fn copy<L: CopyLine>(dst: *mut u8, src: *const u8, len: usize) -> Lines {
    let (head, lines, tail) = split(dst, len);
    // SAFETY: head and tail are within both ranges, which the caller vouches for.
    unsafe {
        if head > 0 {
            copy_part(dst, src, head);
            L::part_written(dst);
        }
        if tail > 0 {
            copy_part(dst.add(len - tail), src.add(len - tail), tail);
            L::part_written(dst.add(len - tail));
        }
        Lines { start: dst.add(head), skipped: head, count: lines }
    }
}
