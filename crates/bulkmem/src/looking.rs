//! The execution of a call that [looks at the cache state](crate::look).

use std::ops::Range;

use crate::carried::{Known, MOST_AGREED, Stream};
use crate::clock;
use crate::kernel::{Kernel, Memory, Step};
use crate::look;
use crate::operation::Operation;
use crate::policy::{CacheVerdict, Look};
use crate::probe;

/// Bytes from a look to the next while stores go through the cache.
const INTERVAL: usize = 4 << 20;
/// Bytes from a look to the next while stores bypass the cache: each look makes them drain, which takes as long as 100 KiB.
/// No look is at more.
const LONGEST_INTERVAL: usize = 16 << 20;
/// A further look pays only for so many bytes: it costs up to 2 % of them.
const WORTH_ANOTHER: usize = 1 << 20;
/// So many looks in a row must agree before a verdict is carried over to further calls. Those are shorter than [`INTERVAL`]: a
/// look after stores that bypass the cache takes 2 µs, as it waits until they have reached memory, which is a share of the call.
const AGREED: u8 = 7;
/// Bytes of further calls that the verdict is then carried over to, twice as many after each further look that agrees, up to
/// those from a look to the next in one call: never more than what has agreed before. Two calls in a row that take
/// another time than the first one end it: the memory is probably in another state.
const CARRIED: usize = LONGEST_INTERVAL >> (MOST_AGREED - AGREED);

/// How a call that looks is executed.
#[derive(Clone, Copy)]
pub(crate) struct Looking<'c, K: 'static, S, C> {
    pub(crate) operation: Operation,
    pub(crate) look: &'c Look,
    /// By what a look found.
    pub(crate) step_for: S,
    /// False if its speed depends on the length of one call.
    pub(crate) may_be_cut: C,
    /// By length alone: for pieces that are too short, and if the clock fails.
    pub(crate) otherwise: Step<'c, K>,
    /// The length of the call.
    pub(crate) whole: usize,
    /// Carries verdicts from call to call.
    pub(crate) stream: &'c Stream,
}

impl<'c, K: Kernel, S: Fn(CacheVerdict) -> Step<'c, K>, C: Fn(CacheVerdict) -> bool> Looking<'c, K, S, C> {
    /// Works on a piece. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As the kernel's type says, of the piece.
    #[inline(never)]
    pub(crate) unsafe fn run(&self, memory: &Memory, piece: Range<usize>) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { self.run_by(memory, piece, clock::ticks) }
    }

    /// # Safety
    /// As [`Looking::run`].
    #[inline(always)]
    unsafe fn run_by(&self, memory: &Memory, piece: Range<usize>, mut clock: impl FnMut() -> u64) -> bool {
        if piece.len() < INTERVAL.max(self.look.from) {
            // SAFETY: passed on from the caller.
            return unsafe { self.carry(memory, piece, clock) };
        }
        let mut weak = false;
        let mut at = piece.start;
        while at < piece.end {
            let rest = piece.end - at;
            // SAFETY: passed on from the caller; what is looked at lies within the piece.
            let verdict = unsafe { self.look_at(memory, at..at + rest.min(LONGEST_INTERVAL), &mut clock) };
            let step = self.step(verdict);
            let may_be_cut = verdict.is_some_and(&self.may_be_cut);
            let length = if may_be_cut && rest >= interval(step) + WORTH_ANOTHER { interval(step) } else { rest };
            // SAFETY: as above.
            unsafe { step.call(memory, at..at + length) }
            weak |= step.weak;
            at += length;
        }
        weak
    }

    /// Works on a piece that is too short for another look: looks, or uses the verdict of an earlier call. That of the first of several calls that are too
    /// short to look each, parts of a large total, holds for those that follow. Otherwise, many looks must have agreed.
    /// Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Looking::run`].
    #[inline(always)]
    unsafe fn carry(&self, memory: &Memory, piece: Range<usize>, mut clock: impl FnMut() -> u64) -> bool {
        let part_of_total = self.whole < self.look.from;
        let shortest = if part_of_total { probe::LEAST } else { self.look.from };
        let last = self.stream.load();
        let known = if last.left > 0 {
            last
        } else if piece.len() < shortest {
            // SAFETY: passed on from the caller.
            unsafe { self.otherwise.call(memory, piece) }
            return self.otherwise.weak;
        } else {
            // SAFETY: passed on from the caller.
            let verdict = unsafe { self.look_at(memory, piece.clone(), &mut clock) };
            let agreed = if verdict == last.verdict { (last.agreed + 1).min(MOST_AGREED) } else { 0 };
            let left = match agreed {
                _ if part_of_total => INTERVAL,
                AGREED.. => (CARRIED << (agreed - AGREED)).min(interval(self.step(verdict))) + piece.len(),
                _ => 0,
            };
            let pace = if verdict == last.verdict && !last.odd { last.pace } else { 0 };
            Known { verdict, agreed, left, pace, odd: false }
        };
        let step = self.step(known.verdict);
        let length = piece.len();
        // Not of the call that looked: it began when no stores were on their way. Nor of calls that end sooner than a clock is read.
        let timed = last.left > 0 && !part_of_total;
        let start = if timed { clock() } else { 0 };
        // SAFETY: as above.
        unsafe { step.call(memory, piece) }
        let taken = if timed { pace(clock().wrapping_sub(start), length) } else { 0 };
        let odd = differs(taken, known.pace);
        let left = if odd && known.odd { 0 } else { known.left.saturating_sub(length) };
        let pace = if known.pace == 0 { taken } else { known.pace };
        self.stream.store(Known { left, pace, odd, ..known });
        step.weak
    }

    /// Looks at a part of a piece, judges, and counts the verdict.
    ///
    /// # Safety
    /// As [`Looking::run`], of the part.
    #[inline(always)]
    unsafe fn look_at(
        &self,
        memory: &Memory,
        part: Range<usize>,
        clock: &mut impl FnMut() -> u64,
    ) -> Option<CacheVerdict> {
        // SAFETY: passed on from the caller. Looks are for operations that write, and calls whose ranges overlap are not
        // planned.
        let times = unsafe { probe::take(memory, part, self.look.cached_below, clock) };
        let verdict = self.look.judge(times.reaching, times.storing);
        if let Some(verdict) = verdict {
            look::count(self.operation, verdict as usize);
        }
        verdict
    }

    #[inline(always)]
    fn step(&self, verdict: Option<CacheVerdict>) -> Step<'c, K> {
        verdict.map_or(self.otherwise, &self.step_for)
    }
}

/// The time of a call in ticks per KiB.
#[inline(always)]
fn pace(ticks: u64, length: usize) -> u64 {
    ticks / (length as u64 >> 10).max(1)
}

/// True if a call did not take the usual time, both known.
#[inline(always)]
fn differs(taken: u64, usual: u64) -> bool {
    taken != 0 && usual != 0 && (3 * taken > 4 * usual || 3 * usual > 4 * taken)
}

/// Bytes from a look to the next.
fn interval<K>(step: Step<'_, K>) -> usize {
    if step.weak { LONGEST_INTERVAL } else { INTERVAL }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Entry, FillFn, Parameters};
    use crate::policy::{Unmapped, built_in};

    const FROM: usize = 64 << 10;

    /// Kernels that show by the byte that they write which of them ran.
    macro_rules! writes {
        ($name:ident, $byte:literal) => {
            static $name: Entry<FillFn> = {
                unsafe fn kernel(dst: *mut u8, len: usize, _: u8, _: &Parameters) {
                    // SAFETY: as for every fill kernel.
                    unsafe { dst.write_bytes($byte, len) }
                }
                Entry { unfenced: kernel, fenced: kernel, tunables: &[] }
            };
        };
    }
    writes!(CACHED, b'c');
    writes!(UNCACHED, b'u');
    writes!(UNMAPPED, b'm');
    writes!(OTHERWISE, b'o');

    type Planted =
        Looking<'static, FillFn, fn(CacheVerdict) -> Step<'static, FillFn>, fn(CacheVerdict) -> bool>;

    fn step(entry: &'static Entry<FillFn>, weak: bool) -> Step<'static, FillFn> {
        Step { entry, parameters: &Parameters::NONE, weak }
    }

    fn looking() -> Planted {
        let unmapped = Unmapped { from: 1000, choice: *built_in(Operation::Clear) };
        Looking {
            operation: Operation::Clear,
            look: Box::leak(Box::new(Look { from: FROM, cached_below: 100, unmapped: Some(unmapped) })),
            step_for: |verdict| match verdict {
                CacheVerdict::Cached => step(&CACHED, false),
                CacheVerdict::Uncached => step(&UNCACHED, true),
                CacheVerdict::Unmapped => step(&UNMAPPED, false),
            },
            may_be_cut: |_| true,
            otherwise: step(&OTHERWISE, false),
            whole: FROM,
            stream: Box::leak(Box::new(Stream::new())),
        }
    }

    /// The time until lines in their pages were reached, or after that of storing to others.
    const FINDS_CACHED: &[u64] = &[99];
    const FINDS_UNCACHED: &[u64] = &[999, 100];
    const FINDS_UNMAPPED: &[u64] = &[1000, 50];

    /// Works on `length` bytes with looks that take those times, in a call that takes no time; returns the kernels that ran and
    /// the lengths of their work, and whether a fence is needed. A further look would find a clock that stands still.
    fn run(looking: &Planted, length: usize, looks: &[&[u64]]) -> (Vec<(u8, usize)>, bool) {
        run_for(looking, length, looks, 0)
    }

    /// The same, in a call that takes so many ticks.
    fn run_for(looking: &Planted, length: usize, looks: &[&[u64]], ticks: u64) -> (Vec<(u8, usize)>, bool) {
        let mut bytes = vec![0; length];
        let memory = Memory::filled(bytes.as_mut_ptr(), length, 0);
        let mut now = 7_u64;
        let steps = looks.iter().flat_map(|times| [&0].into_iter().chain(*times));
        let mut steps = steps.copied().collect::<Vec<_>>().into_iter();
        let clock = || {
            now = now.wrapping_add(steps.next().unwrap_or(ticks));
            now
        };
        // SAFETY: the memory is valid for its length.
        let weak = unsafe { looking.run_by(&memory, 0..length, clock) };
        assert_eq!(steps.next(), None, "a look less");
        let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        (runs, weak)
    }

    #[test]
    fn the_times_decide() {
        let length = 1 << 20;
        assert_eq!(run(&looking(), length, &[&[99]]), (vec![(b'c', length)], false));
        assert_eq!(run(&looking(), length, &[&[100, 99]]), (vec![(b'c', length)], false));
        assert_eq!(run(&looking(), length, &[&[100, 100]]), (vec![(b'u', length)], true));
        assert_eq!(run(&looking(), length, &[&[999, 5000]]), (vec![(b'u', length)], true));
        assert_eq!(run(&looking(), length, &[&[1000, 1]]), (vec![(b'm', length)], false));
    }

    #[test]
    fn a_clock_that_cannot_be_trusted_leaves_the_rule_by_length() {
        let length = 20 << 20;
        let backwards = 1_u64.wrapping_neg();
        for times in
            [&[0][..], &[backwards, 50], &[1 << 40, 50], &[100, 0], &[100, backwards], &[100, 1 << 40]]
        {
            assert_eq!(run(&looking(), length, &[times]), (vec![(b'o', length)], false), "{times:?}");
        }
    }

    #[test]
    fn it_looks_again_after_each_interval() {
        let (c, u) = ((b'c', INTERVAL), (b'u', LONGEST_INTERVAL));
        let looks = [
            FINDS_CACHED,
            FINDS_CACHED,
            FINDS_UNCACHED,
            FINDS_CACHED,
            FINDS_UNCACHED,
            FINDS_UNCACHED,
            FINDS_CACHED,
        ];
        let mut looking = looking();
        let expected = [(b'c', 2 * INTERVAL), u, c, (b'u', 2 * LONGEST_INTERVAL), c];
        let length = expected.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(run(&looking, length, &looks), (expected.to_vec(), true));
        let length = INTERVAL + WORTH_ANOTHER - 1;
        assert_eq!(
            run(&looking, length, &[FINDS_CACHED]),
            (vec![(b'c', length)], false),
            "not worth another look"
        );
        assert_eq!(
            run(&looking, length + 1, &[FINDS_CACHED, FINDS_UNCACHED]),
            (vec![c, (b'u', WORTH_ANOTHER)], true)
        );
        looking.may_be_cut = |verdict| verdict != CacheVerdict::Uncached;
        let length = 3 * LONGEST_INTERVAL;
        assert_eq!(
            run(&looking, length, &[FINDS_UNCACHED]).0,
            [(b'u', length)],
            "its speed depends on the call"
        );
    }

    #[test]
    fn short_pieces_follow_the_rule_by_length() {
        for length in [0, 1, probe::LEAST, FROM - 1] {
            let runs = run(&looking(), length, &[]).0;
            assert!(runs.iter().all(|run| *run == (b'o', length)), "{length}: {runs:?}");
        }
        assert_eq!(run(&looking(), FROM, &[FINDS_CACHED]).0, [(b'c', FROM)]);
        let from = 4 * WORTH_ANOTHER;
        let look: &'static Look = Box::leak(Box::new(Look { from, ..*looking().look }));
        let looking = Looking { look, whole: from, ..looking() };
        assert_eq!(run(&looking, from - 1, &[]).0, [(b'o', from - 1)], "a piece of a longer call");
        assert_eq!(run(&looking, from, &[FINDS_CACHED]).0, [(b'c', from)]);
    }

    #[test]
    fn the_first_short_call_of_a_total_looks_for_those_that_follow() {
        let call = probe::LEAST;
        let looking = Looking { whole: call, ..looking() };
        assert_eq!(run(&looking, call - 1, &[]), (vec![(b'o', call - 1)], false), "no room to look");
        assert_eq!(run(&looking, call, &[FINDS_CACHED]), (vec![(b'c', call)], false));
        for _ in 1..INTERVAL / call {
            assert_eq!(run(&looking, call, &[]), (vec![(b'c', call)], false));
        }
        // Each interval begins with another look.
        assert_eq!(run(&looking, call, &[FINDS_UNCACHED]), (vec![(b'u', call)], true));
        assert_eq!(run(&looking, 64, &[]), (vec![(b'u', 64)], true));
        for _ in 2..=INTERVAL / call {
            assert_eq!(run(&looking, call, &[]), (vec![(b'u', call)], true));
        }
        assert_eq!(run(&looking, call, &[FINDS_UNMAPPED]), (vec![(b'm', call)], false));
        for _ in 1..INTERVAL / call {
            assert_eq!(run(&looking, call, &[]), (vec![(b'm', call)], false));
        }
        // A clock that fails.
        assert_eq!(run(&looking, call, &[&[0]]), (vec![(b'o', call)], false));
        assert_eq!(run(&looking, call, &[]), (vec![(b'o', call)], false));
    }

    #[test]
    fn calls_look_less_often_while_looks_agree() {
        let looking = looking();
        let length = CARRIED / 8;
        let calls = |times: usize, looks: &[&[u64]], method: u8| {
            for _ in 0..times {
                assert_eq!(run(&looking, length, looks), (vec![(method, length)], method == b'u'));
            }
        };
        calls(usize::from(AGREED), &[FINDS_CACHED], b'c');
        for carried in [8, 16, 32, INTERVAL / length, INTERVAL / length] {
            calls(1, &[FINDS_CACHED], b'c');
            calls(carried, &[], b'c');
        }
        // One that disagrees is believed immediately, and ends it.
        calls(usize::from(AGREED), &[FINDS_UNCACHED], b'u');
        for carried in [8, 16, 32, 64, 128, LONGEST_INTERVAL / length, LONGEST_INTERVAL / length] {
            calls(1, &[FINDS_UNCACHED], b'u');
            calls(carried, &[], b'u');
        }
        calls(1, &[FINDS_UNCACHED], b'u');
        // Long ones look as ever.
        assert_eq!(run(&looking, INTERVAL, &[FINDS_CACHED]), (vec![(b'c', INTERVAL)], false));
        let shorter = INTERVAL - 1;
        for _ in 0..=LONGEST_INTERVAL / shorter {
            assert_eq!(run(&looking, shorter, &[]), (vec![(b'u', shorter)], true));
        }
        assert_eq!(run(&looking, shorter, &[FINDS_CACHED]), (vec![(b'c', shorter)], false));
    }

    #[test]
    fn two_calls_that_take_another_time_make_the_next_one_look() {
        let looking = looking();
        let calls = |times: usize, looks: &[&[u64]], ticks: u64, method: u8| {
            for _ in 0..times {
                assert_eq!(run_for(&looking, FROM, looks, ticks).0, [(method, FROM)], "{ticks} ticks");
            }
        };
        let usual = 100 * FROM as u64 / 1024;
        calls(1 + usize::from(AGREED), &[FINDS_CACHED], 9, b'c');
        calls(1, &[], usual, b'c');
        calls(1, &[], usual * 5 / 4, b'c');
        for other in [usual * 2, usual / 2] {
            calls(1, &[], other, b'c');
            calls(1, &[], usual, b'c');
            calls(2, &[], other, b'c');
            calls(1, &[FINDS_CACHED], 9, b'c');
            calls(2, &[], usual, b'c');
        }
        calls(2, &[], usual * 3, b'c');
        calls(1, &[FINDS_UNCACHED], usual, b'u');
        calls(1, &[FINDS_UNCACHED], usual, b'u');
    }

    #[test]
    fn verdicts_are_counted() {
        let looking = Looking { operation: Operation::FillPersist, ..looking() };
        let before = look::counts(looking.operation);
        let length = INTERVAL + LONGEST_INTERVAL + WORTH_ANOTHER;
        run(&looking, length, &[FINDS_CACHED, FINDS_UNCACHED, FINDS_UNMAPPED]);
        let after = look::counts(looking.operation);
        assert_eq!((after.cached, after.uncached), (before.cached + 1, before.uncached + 1));
        assert_eq!(after.unmapped, before.unmapped + 1);
    }
}
