//! Ranges as whole cache lines and the parts of lines at both ends: what the methods of all architectures share.
//!
//! An architecture says how to write one line ([`FillLine`], [`CopyLine`], [`FlushLine`]) and less than a line, how to
//! prefetch, and which barrier non-temporal loads need.

pub(super) mod edges;
pub(super) mod entry;
pub(super) mod loops;
pub(super) mod tunables;

pub(super) use crate::machine::CACHE_LINE as LINE;

/// A way to write one value to a whole cache line.
pub(in crate::method) trait FillLine {
    /// A register that holds the byte repeatedly.
    type Value;

    /// Repeats a byte to fill a register.
    ///
    /// # Safety
    /// The instructions of this implementation are enabled.
    unsafe fn value(byte: u8) -> Self::Value;

    /// Writes one line.
    ///
    /// # Safety
    /// `line..line+64` is valid for writes, `line` is a multiple of 64, and the instructions are enabled.
    unsafe fn write(line: *mut u8, value: &Self::Value);

    /// Writes lines, one after another.
    ///
    /// # Safety
    /// As [`Self::write`], for `count` times 64 bytes.
    #[inline(always)]
    unsafe fn write_lines(mut line: *mut u8, count: usize, value: &Self::Value) {
        for _ in 0..count {
            // SAFETY: the caller vouches for `count` lines; the pointer is advanced at most to their end.
            unsafe {
                Self::write(line, value);
                line = line.add(LINE);
            }
        }
    }

    /// Completes a line of which only a part belongs to the range, after that part was written by ordinary stores.
    ///
    /// # Safety
    /// `at` is a byte of that part, and the instructions are enabled.
    #[inline(always)]
    unsafe fn part_written(_at: *mut u8) {}
}

/// A way to copy one whole cache line.
pub(in crate::method) trait CopyLine {
    /// Required alignment of sources, bytes.
    const SOURCE_ALIGNMENT: usize = 1;

    /// Copies one line.
    ///
    /// # Safety
    /// `dst..dst+64` is valid for writes and `dst` a multiple of 64; `src..src+64` is valid for reads and a multiple
    /// of [`Self::SOURCE_ALIGNMENT`]; the instructions are enabled.
    unsafe fn copy(dst: *mut u8, src: *const u8);

    /// How many lines [`Self::copy_batch`] copies.
    const BATCH: usize = 1;

    /// Copies [`Self::BATCH`] lines; if these are several, loads all of them before it stores the first.
    ///
    /// # Safety
    /// As [`Self::copy`], for as many times 64 bytes.
    #[inline(always)]
    unsafe fn copy_batch(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller, for a batch of one line. Others have their own.
        unsafe { Self::copy(dst, src) }
    }

    /// Copies lines, one after another or in batches.
    ///
    /// # Safety
    /// As [`Self::copy`], for `count` times 64 bytes.
    #[inline(always)]
    unsafe fn copy_lines(mut dst: *mut u8, mut src: *const u8, count: usize) {
        for _ in 0..count {
            // SAFETY: the caller vouches for `count` lines; the pointers are advanced at most to their end.
            unsafe {
                Self::copy(dst, src);
                dst = dst.add(LINE);
                src = src.add(LINE);
            }
        }
    }

    /// As [`FillLine::part_written`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn part_written(_at: *mut u8) {}
}

/// An instruction that moves a cache line towards memory: writes it back, or demotes it.
pub(in crate::method) trait FlushLine {
    /// Moves the line that holds `at`.
    ///
    /// # Safety
    /// `at` is valid for reads and the instruction is enabled.
    unsafe fn flush(at: *const u8);
}

/// Each line written or copied by `L`, then written back by `F`.
pub(in crate::method) struct Flushed<L, F>(std::marker::PhantomData<(L, F)>);

impl<L: FillLine, F: FlushLine> FillLine for Flushed<L, F> {
    type Value = L::Value;

    #[inline(always)]
    unsafe fn value(byte: u8) -> L::Value {
        // SAFETY: passed on from the caller.
        unsafe { L::value(byte) }
    }

    #[inline(always)]
    unsafe fn write(line: *mut u8, value: &L::Value) {
        // SAFETY: passed on from the caller.
        unsafe {
            L::write(line, value);
            F::flush(line);
        }
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { F::flush(at) }
    }
}

impl<L: CopyLine, F: FlushLine> CopyLine for Flushed<L, F> {
    const SOURCE_ALIGNMENT: usize = L::SOURCE_ALIGNMENT;

    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: passed on from the caller.
        unsafe {
            L::copy(dst, src);
            F::flush(dst);
        }
    }

    #[inline(always)]
    unsafe fn part_written(at: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { F::flush(at) }
    }
}

/// Writes back every line that holds a byte of the range.
///
/// # Safety
/// See [`PersistFn`](crate::method::PersistFn).
pub(in crate::method) unsafe fn flush<F: FlushLine>(start: *const u8, len: usize, _: &super::Parameters) {
    if len == 0 {
        return;
    }
    let before = start.addr() % LINE;
    let first = start.wrapping_sub(before);
    for offset in (0..before + len).step_by(LINE) {
        // SAFETY: each line holds a byte of the range, which the caller vouches for.
        unsafe { F::flush(first.wrapping_add(offset)) }
    }
}
