//! Loops over whole cache lines: sequential, with prefetching, and over parallel page streams. They are generic over
//! the operation on a line.
//!
//! All functions are `inline(always)`, so that they become part of a kernel that has the target feature of the line.

use super::edges::{self, Lines};
use super::{CopyLine, FillLine, LINE};
use crate::method::Parameters;
use crate::method::primitives::barrier::before_nontemporal_loads;
use crate::method::primitives::prefetch::{
    prefetch_for_write, prefetch_nontemporal, prefetch_to_all_levels, prefetch_to_second_level,
};

/// Bytes in a page of a stream.
const PAGE: usize = 4096;

/// A kind of source prefetch. A type, so that the compiler specializes the loops.
pub(in crate::method) trait ReadPrefetch {
    fn prefetch(at: *const u8);
}
/// No prefetch.
pub(in crate::method) struct NoRead;
/// Prefetch into all cache levels.
pub(in crate::method) struct ReadAllLevels;
/// Prefetch into the second-level cache.
pub(in crate::method) struct ReadSecondLevel;
/// Prefetch with the non-temporal hint.
pub(in crate::method) struct ReadNta;

impl ReadPrefetch for NoRead {
    #[inline(always)]
    fn prefetch(_: *const u8) {}
}
impl ReadPrefetch for ReadAllLevels {
    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch_to_all_levels(at);
    }
}
impl ReadPrefetch for ReadSecondLevel {
    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch_to_second_level(at);
    }
}
impl ReadPrefetch for ReadNta {
    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch_nontemporal(at);
    }
}

/// Returns how many of `lines` lines have the line `distance` bytes after them within the range.
#[inline(always)]
fn with_line_ahead(lines: usize, distance: u32) -> usize {
    lines.saturating_sub(distance as usize / LINE)
}

/// Fills whole lines with write prefetches ahead of the stores.
///
/// # Safety
/// `count` lines from `line` are valid for writes, and `L`'s instructions are enabled.
#[inline(always)]
unsafe fn fill_lines_prefetched<L: FillLine>(line: *mut u8, count: usize, value: &L::Value, distance: u32) {
    let prefetched = with_line_ahead(count, distance);
    // SAFETY: the caller vouches for `count` lines; the pointer is advanced at most to their end.
    unsafe {
        let mut at = line;
        for _ in 0..prefetched {
            prefetch_for_write(at.wrapping_add(distance as usize));
            L::write(at, value);
            at = at.add(LINE);
        }
        L::write_lines(at, count - prefetched, value);
    }
}

/// Fills sequentially.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
#[inline(always)]
pub(in crate::method) unsafe fn fill<L: FillLine>(dst: *mut u8, len: usize, byte: u8) {
    // SAFETY: passed on from the caller.
    unsafe {
        let Lines { start, count, .. } = edges::fill::<L>(dst, len, byte);
        L::write_lines(start, count, &L::value(byte));
    }
}

/// Fills with write prefetches ahead. Tunables: `write_distance`.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
#[inline(always)]
pub(in crate::method) unsafe fn fill_prefetched<L: FillLine>(
    dst: *mut u8,
    len: usize,
    byte: u8,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        let Lines { start, count, .. } = edges::fill::<L>(dst, len, byte);
        fill_lines_prefetched::<L>(start, count, &L::value(byte), parameters.write_distance);
    }
}

/// Fills and writes back each line. Tunables: `write_distance`, 0 for none.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
#[inline(always)]
pub(in crate::method) unsafe fn fill_flushed<L: FillLine>(
    dst: *mut u8,
    len: usize,
    byte: u8,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match parameters.write_distance {
            0 => fill::<L>(dst, len, byte),
            _ => fill_prefetched::<L>(dst, len, byte, parameters),
        }
    }
}

/// Division of whole lines into groups of pages that are written in parallel.
struct Groups {
    /// Lines before the first page.
    before: usize,
    /// Number of groups of `streams` pages.
    count: usize,
    /// Bytes in a group.
    bytes: usize,
    /// Lines after the last group.
    after: usize,
}

impl Groups {
    #[inline(always)]
    fn new(start: *mut u8, lines: usize, streams: usize) -> Groups {
        let before = (start.addr().wrapping_neg() % PAGE / LINE).min(lines);
        let bytes = streams * PAGE;
        let count = (lines - before) * LINE / bytes;
        Groups { before, count, bytes, after: lines - before - count * bytes / LINE }
    }

    /// Returns the offset, from the start of group `group`, of the line that is `distance` bytes after `offset` in
    /// the first stream; `None` after the last group.
    #[inline(always)]
    fn ahead(&self, group: usize, offset: usize, distance: u32) -> Option<usize> {
        let along = offset + distance as usize;
        let groups = along / PAGE;
        (group + groups < self.count).then(|| groups * self.bytes + along % PAGE)
    }
}

/// Fills parallel page streams: a line of the first page of a group (by `First`), then the same line of each other
/// page (by `L`), then the next line. `First` is the non-temporal stream of a hybrid; otherwise it is `L`. Cached
/// streams are prefetched for writing if `write_distance` is not 0. Tunables: `streams`, `write_distance`.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
#[inline(always)]
pub(in crate::method) unsafe fn fill_streams<First, L>(
    dst: *mut u8,
    len: usize,
    byte: u8,
    parameters: &Parameters,
    first_cached: bool,
) where
    First: FillLine<Value = L::Value>,
    L: FillLine,
{
    let streams = parameters.streams.max(1) as usize;
    let distance = parameters.write_distance;
    // SAFETY: passed on from the caller; every line written is one of the `count` lines that `edges` left: group
    // starts are page starts within them, and stream and offset stay within a group.
    unsafe {
        let Lines { start, count, .. } = edges::fill::<L>(dst, len, byte);
        let value = L::value(byte);
        let groups = Groups::new(start, count, streams);
        L::write_lines(start, groups.before, &value);
        let mut base = start.add(groups.before * LINE);
        for group in 0..groups.count {
            for offset in (0..PAGE).step_by(LINE) {
                let ahead = if distance > 0 { groups.ahead(group, offset, distance) } else { None };
                if let Some(ahead) = ahead {
                    for stream in usize::from(!first_cached)..streams {
                        prefetch_for_write(base.wrapping_add(ahead + stream * PAGE));
                    }
                }
                First::write(base.add(offset), &value);
                for stream in 1..streams {
                    L::write(base.add(stream * PAGE + offset), &value);
                }
            }
            base = base.add(groups.bytes);
        }
        L::write_lines(base, groups.after, &value);
    }
}

/// Copies whole lines with prefetches ahead, of the source by `R` and of the destination if `WRITE`: those for a batch,
/// then the batch.
///
/// # Safety
/// As [`copy_lines`](CopyLine::copy_lines).
#[inline(always)]
unsafe fn copy_lines_prefetched<L: CopyLine, R: ReadPrefetch, const WRITE: bool>(
    mut dst: *mut u8,
    mut src: *const u8,
    count: usize,
    read_distance: u32,
    write_distance: u32,
) {
    let batches =
        with_line_ahead(count, read_distance.max(if WRITE { write_distance } else { 0 })) / L::BATCH;
    // SAFETY: as in `copy_lines`.
    unsafe {
        for _ in 0..batches {
            for offset in (0..L::BATCH * LINE).step_by(LINE) {
                R::prefetch(src.wrapping_add(read_distance as usize + offset));
                if WRITE {
                    prefetch_for_write(dst.wrapping_add(write_distance as usize + offset));
                }
            }
            L::copy_batch(dst, src);
            dst = dst.add(L::BATCH * LINE);
            src = src.add(L::BATCH * LINE);
        }
        L::copy_lines(dst, src, count - batches * L::BATCH);
    }
}

/// Copies whole lines with prefetches ahead, if distances are not 0.
///
/// # Safety
/// As [`copy_lines`](CopyLine::copy_lines).
#[inline(always)]
unsafe fn copy_lines_by<L: CopyLine, const WRITE: bool>(
    dst: *mut u8,
    src: *const u8,
    count: usize,
    parameters: &Parameters,
) {
    let (read, write) = (parameters.read_distance, parameters.write_distance);
    // SAFETY: passed on from the caller.
    unsafe {
        match (read, parameters.read_hint) {
            (0, _) if !WRITE => L::copy_lines(dst, src, count),
            (0, _) => copy_lines_prefetched::<L, NoRead, WRITE>(dst, src, count, read, write),
            (_, 0) => copy_lines_prefetched::<L, ReadSecondLevel, WRITE>(dst, src, count, read, write),
            (_, 1) => copy_lines_prefetched::<L, ReadNta, WRITE>(dst, src, count, read, write),
            _ => copy_lines_prefetched::<L, ReadAllLevels, WRITE>(dst, src, count, read, write),
        }
    }
}

/// Copies through the cache. Tunables: `read_distance`, `read_hint`, `write_distance`.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_cached<L: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller; the lines are those that `edges` left.
    unsafe {
        let Lines { start, skipped, count } = edges::copy::<L>(dst, src, len);
        let src = src.add(skipped);
        match parameters.write_distance {
            0 => copy_lines_by::<L, false>(start, src, count, parameters),
            _ => copy_lines_by::<L, true>(start, src, count, parameters),
        }
    }
}

/// Copies with non-temporal loads, stores or both. Tunables: `read_distance`, `read_hint`. If the source does not
/// have the alignment that `L` needs, `U` copies the lines.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_nontemporal<L: CopyLine, U: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller; the lines are those that `edges` left, and the alignment is looked at.
    unsafe {
        let Lines { start, skipped, count } = edges::copy::<L>(dst, src, len);
        let src = src.add(skipped);
        if src.addr() % L::SOURCE_ALIGNMENT == 0 {
            copy_lines_by::<L, false>(start, src, count, parameters);
        } else {
            copy_lines_by::<U, false>(start, src, count, parameters);
        }
    }
}

/// Copies with PREFETCHNTA of the source. Tunables: `read_distance`.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_nta<L: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller; the lines are those that `edges` left.
    unsafe {
        let Lines { start, skipped, count } = edges::copy::<L>(dst, src, len);
        let distance = parameters.read_distance;
        copy_lines_prefetched::<L, ReadNta, false>(start, src.add(skipped), count, distance, 0);
    }
}

/// Like [`copy_nontemporal`], for an `L` that loads non-temporally: begins with the barrier that such loads need.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_nontemporal_loads<L: CopyLine, U: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
) {
    before_nontemporal_loads();
    // SAFETY: passed on from the caller.
    unsafe { copy_nontemporal::<L, U>(dst, src, len, parameters) }
}

/// Copies parallel page streams in the order of [`fill_streams`]. Sources are prefetched `read_distance` ahead in
/// their stream. Tunables: `streams`, `read_distance`, `write_distance`.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_streams<First: CopyLine, L: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
    first_cached: bool,
) {
    let streams = parameters.streams.max(1) as usize;
    let (read, write) = (parameters.read_distance, parameters.write_distance);
    // SAFETY: passed on from the caller; every line copied is one of those that `edges` left, as in
    // `fill_streams`, and the source is read at the same offsets.
    unsafe {
        let Lines { start, skipped, count } = edges::copy::<L>(dst, src, len);
        let groups = Groups::new(start, count, streams);
        let mut from = src.add(skipped);
        L::copy_lines(start, from, groups.before);
        let mut to = start.add(groups.before * LINE);
        from = from.add(groups.before * LINE);
        for group in 0..groups.count {
            for offset in (0..PAGE).step_by(LINE) {
                if let Some(ahead) = groups.ahead(group, offset, read).filter(|_| read > 0) {
                    for stream in 0..streams {
                        ReadSecondLevel::prefetch(from.wrapping_add(ahead + stream * PAGE));
                    }
                }
                if let Some(ahead) = groups.ahead(group, offset, write).filter(|_| write > 0) {
                    for stream in usize::from(!first_cached)..streams {
                        prefetch_for_write(to.wrapping_add(ahead + stream * PAGE));
                    }
                }
                First::copy(to.add(offset), from.add(offset));
                for stream in 1..streams {
                    let at = stream * PAGE + offset;
                    L::copy(to.add(at), from.add(at));
                }
            }
            to = to.add(groups.bytes);
            from = from.add(groups.bytes);
        }
        L::copy_lines(to, from, groups.after);
    }
}

/// Copies and writes back each line. Tunables: `write_distance`, or `block`: the destination's lines of a whole block
/// are prefetched for writing before the first store to it.
///
/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
#[inline(always)]
pub(in crate::method) unsafe fn copy_flushed<L: CopyLine>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    parameters: &Parameters,
) {
    // SAFETY: passed on from the caller; the lines are those that `edges` left, and blocks are cut from them.
    unsafe {
        let Lines { start, skipped, count } = edges::copy::<L>(dst, src, len);
        let (mut to, mut from) = (start, src.add(skipped));
        if parameters.block == 0 {
            let write = parameters.write_distance;
            if write == 0 {
                return L::copy_lines(to, from, count);
            }
            return copy_lines_prefetched::<L, NoRead, true>(to, from, count, 0, write);
        }
        let mut left = count;
        while left > 0 {
            let lines = left.min(parameters.block as usize / LINE);
            for line in 0..lines {
                prefetch_for_write(to.add(line * LINE));
            }
            L::copy_lines(to, from, lines);
            to = to.add(lines * LINE);
            from = from.add(lines * LINE);
            left -= lines;
        }
    }
}
