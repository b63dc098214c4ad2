//! The execution of a call that [looks at the cache state](crate::look).

use std::ops::Range;

use crate::carried::{Known, MOST_LENGTH, Stream};
use crate::kernel::{Kernel, Memory, Step};
use crate::operation::Operation;
use crate::policy::{CacheVerdict, INTERVAL, Look};
use crate::populate;
use crate::probe::{self, Found, HUGE_PAGE};

/// Bytes from a look to the next while stores bypass the cache, since each look makes them drain, which takes as long as 100 KiB, and
/// while all places of a look are cached, since to begin the work again takes longer than the look. A look is at no longer range.
const LONGEST_INTERVAL: usize = 16 << 20;
/// A further look pays only for so many bytes: it costs up to 2 % of them.
const WORTH_ANOTHER: usize = 1 << 20;
const _: () = assert!(WORTH_ANOTHER > probe::BEGINNING && HUGE_PAGE > probe::BEGINNING);

/// The steps of a call that looks. Each is found when it is needed: what a call reads to find it is part of its time.
pub(crate) trait Steps<'c> {
    /// The type of its kernels.
    type Kernel: Kernel;

    /// For a verdict.
    fn after(&self, verdict: CacheVerdict) -> Step<'c, Self::Kernel>;

    /// By length alone: for pieces that are too short, and if the clock fails.
    fn by_length(&self) -> Step<'c, Self::Kernel>;

    /// For memory whose pages the kernel has just mapped in advance; `None` if it must not do that.
    fn populated(&self) -> Option<Step<'c, Self::Kernel>>;

    /// If new huge pages are to be bypassed, the ticks from which reaching a page means that it is one.
    fn huge_from(&self) -> Option<u64>;

    /// False if the speed of the step for a verdict depends on the length of one call.
    fn may_be_cut(&self, verdict: CacheVerdict) -> bool;
}

/// True if a call looks again and again in a piece of that length; `from` is the smallest length for which a look pays.
#[inline(always)]
pub(crate) fn looks_again(length: usize, from: usize) -> bool {
    length >= INTERVAL.max(from)
}

/// How a call that looks is executed.
pub(crate) struct Looking<'c, S> {
    pub(crate) operation: Operation,
    pub(crate) look: &'c Look,
    /// The smallest length for which a look pays, with the intent of the call.
    pub(crate) from: usize,
    /// The length of the call.
    pub(crate) whole: usize,
    pub(crate) steps: S,
    /// Carries verdicts from call to call.
    pub(crate) stream: &'c Stream,
}

impl<'c, S: Steps<'c>> Looking<'c, S> {
    /// Works on a piece that is long enough for [further looks](looks_again). Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece, which has at least [`probe::LEAST`] bytes.
    #[inline(always)]
    pub(crate) unsafe fn by_interval(
        &self,
        memory: &Memory,
        piece: Range<usize>,
        mut clock: impl FnMut() -> u64,
    ) -> bool {
        let (mut weak, mut at) = (false, piece.start);
        let mut after_unmapped = false;
        let huge_from = self.steps.huge_from();
        while at < piece.end {
            let rest = piece.end - at;
            // What follows unmapped memory begins with a huge page. Even if that is mapped, a look that reaches further would have the
            // kernel map huge pages ahead, where the next looks would find them mapped, and reach further.
            let reach = if after_unmapped { HUGE_PAGE } else { LONGEST_INTERVAL };
            let near = at..at + rest.min(reach);
            // SAFETY: passed on from the caller; what is looked at lies within the piece, and no cut leaves less of it than
            // `WORTH_ANOTHER`. Looks are for operations that write, and calls whose ranges overlap are not planned.
            let found = unsafe {
                if after_unmapped {
                    probe::look_at_long(self.look, memory, near, &mut clock)
                } else {
                    probe::look_at(self.look, memory, near, &mut clock)
                }
            };
            self.count(found);
            let verdict = found.map(|found| match found.verdict {
                CacheVerdict::Unmapped if huge_from.is_some_and(|from| found.reaching >= from) => {
                    CacheVerdict::Uncached
                }
                verdict => verdict,
            });
            let step = self.step(verdict);
            let throughout = found.is_some_and(|found| found.cached_throughout);
            let is_unmapped = found.is_some_and(|found| found.verdict == CacheVerdict::Unmapped);
            // In unmapped memory, a look may find the few lines that it reaches mapped, or take little time to have them mapped. That
            // says so little about the rest that even methods are cut that choose by the length themselves.
            let confined = after_unmapped && found.is_some() && !is_unmapped;
            let may_be_cut = confined || verdict.is_some_and(|verdict| self.steps.may_be_cut(verdict));
            let interval = if confined {
                reach
            } else if step.weak || throughout {
                LONGEST_INTERVAL
            } else {
                INTERVAL
            };
            let mut length = if may_be_cut && rest >= interval + WORTH_ANOTHER { interval } else { rest };
            if length < rest && is_unmapped {
                // So that the next look does not begin in a huge page that this work maps.
                length -= memory.dst.addr().wrapping_add(at + length) % HUGE_PAGE;
            }
            if at == piece.start {
                // A method that may not be cut does all of a longer piece than the look was at.
                let all = length == piece.len() && length <= LONGEST_INTERVAL + WORTH_ANOTHER;
                self.keep(if throughout && all { verdict } else { None }, piece.len(), step);
            }
            // SAFETY: as above.
            weak |= unsafe { self.work(memory, at..at + length, verdict, step) };
            at += length;
            after_unmapped = is_unmapped;
        }
        weak
    }

    /// Works on a piece that is too short for another look: looks, or [follows](crate::carried) the verdict of an earlier call.
    /// Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece.
    #[inline(always)]
    pub(crate) unsafe fn carry(
        &self,
        memory: &Memory,
        piece: Range<usize>,
        mut clock: impl FnMut() -> u64,
    ) -> bool {
        let length = piece.len();
        let part_of_total = self.whole < self.from;
        let class = Stream::class(part_of_total, length);
        let shortest = if part_of_total { probe::LEAST } else { self.from };
        // A call on one thread has mostly tried before it came here. Pieces of a call on several threads try here only.
        let (verdict, step) = if let Some(verdict) = self.stream.follow(class, length) {
            let step = self.step(verdict);
            // SAFETY: passed on from the caller.
            unsafe { step.call(memory, piece) }
            return step.weak;
        } else if length < shortest {
            (None, self.steps.by_length())
        } else {
            // SAFETY: passed on from the caller; the piece is long enough, and as in `by_interval`.
            let found = unsafe { probe::look_at(self.look, memory, piece.clone(), &mut clock) };
            self.count(found);
            let found = found.map(|found| found.verdict);
            let (verdict, known) = if part_of_total {
                // Each part has its own pages to map.
                let populates = found == Some(CacheVerdict::Unmapped) && self.steps.populated().is_some();
                let left = if populates { 0 } else { INTERVAL as u64 };
                (found, Known { verdict: found, class, left, ..Known::default() }.less(length))
            } else {
                let verdict = found.map(|found| self.reconsider(memory, &piece, class, found));
                (verdict, self.stream.load().looked(verdict, class))
            };
            let step = self.step(verdict);
            let by_c_library = if part_of_total { 0 } else { self.by_c_library(length, step) };
            self.stream.store(Known { by_c_library, ..known });
            (verdict, step)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.work(memory, piece, verdict, step) }
    }

    /// Works on a part that was looked at, by the step for the verdict. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Looking::carry`], of the part.
    #[inline(always)]
    unsafe fn work(
        &self,
        memory: &Memory,
        part: Range<usize>,
        verdict: Option<CacheVerdict>,
        step: Step<'c, S::Kernel>,
    ) -> bool {
        let populated = if verdict == Some(CacheVerdict::Unmapped) { self.steps.populated() } else { None };
        if let Some(populated) = populated {
            // SAFETY: passed on from the caller.
            return unsafe { populate_and_work(memory, part, populated, step) };
        }
        // SAFETY: passed on from the caller.
        unsafe { step.call(memory, part) }
        step.weak
    }

    /// Keeps the verdict of the first look of a call that may look again, if it is at all of the call, and all of that is cached: later
    /// calls may follow it.
    #[inline(always)]
    fn keep(&self, cached_throughout: Option<CacheVerdict>, length: usize, step: Step<'c, S::Kernel>) {
        let (known, class) = (self.stream.load(), Stream::class(false, length));
        if cached_throughout.is_some() {
            let known = known.looked(cached_throughout, class);
            self.stream.store(Known { by_c_library: self.by_c_library(length, step), ..known });
        } else if known.class == class {
            self.stream.store(Known::default());
        }
    }

    /// The length, if a call of that length is by the C library's function and is not too long to be kept.
    #[inline(always)]
    fn by_c_library(&self, length: usize, step: Step<'c, S::Kernel>) -> u32 {
        let kept = length <= MOST_LENGTH as usize && step.is_c_librarys(self.operation);
        if kept { length as u32 } else { 0 }
    }

    #[inline(always)]
    fn count(&self, found: Option<Found>) {
        if let Some(found) = found {
            self.stream.count(found.verdict);
        }
    }

    /// Returns the verdict to follow in a piece after a look: calls that have themselves kept memory out of the cache make
    /// [attempts](crate::bypassed) to write through it.
    #[inline(always)]
    fn reconsider(
        &self,
        memory: &Memory,
        piece: &Range<usize>,
        class: u8,
        verdict: CacheVerdict,
    ) -> CacheVerdict {
        // What persists is written to memory anyway. In longer ranges, a look finds cached memory if one line is cached, so that
        // an attempt would count as a success where only a part fits the cache.
        if self.operation.persists() || piece.len() > probe::LONG {
            return verdict;
        }
        self.stream.bypassed.reconsider(memory.dst.addr().wrapping_add(piece.start), class, verdict)
    }

    #[inline(always)]
    fn step(&self, verdict: Option<CacheVerdict>) -> Step<'c, S::Kernel> {
        match verdict {
            Some(verdict) => self.steps.after(verdict),
            None => self.steps.by_length(),
        }
    }
}

/// Has the kernel map the pages of a part, and works on them by `populated`, portion by portion. If it does not map a portion, does the
/// rest by `step`. Returns true if the calling thread must fence.
///
/// # Safety
/// As [`Looking::carry`], of the part.
#[cold]
#[inline(never)]
unsafe fn populate_and_work<K: Kernel>(
    memory: &Memory,
    part: Range<usize>,
    populated: Step<'_, K>,
    step: Step<'_, K>,
) -> bool {
    let mut at = part.start;
    while at < part.end {
        let start = memory.dst.wrapping_add(at);
        let length = (populate::PORTION - start.addr() % populate::PORTION).min(part.end - at);
        // SAFETY: passed on from the caller: the operation writes to the range, and to no other.
        unsafe {
            if !populate::pages(start, length) {
                step.call(memory, at..part.end);
                return step.weak || (populated.weak && at > part.start);
            }
            populated.call(memory, at..at + length);
        }
        at += length;
    }
    populated.weak
}

#[cfg(test)]
mod tests;
