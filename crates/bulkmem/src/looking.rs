//! The execution of a call that [looks at the cache state](crate::look).

use std::ops::Range;

use crate::carried::{State, Stream};
use crate::clock;
use crate::kernel::{Kernel, Memory, Step};
use crate::look;
use crate::method;
use crate::operation::Operation;
use crate::policy::{CacheVerdict, Look};

/// Bytes between two looks.
const INTERVAL: usize = 4 << 20;
/// The most bytes between two looks while stores bypass the cache: each look makes them drain, which takes as long as 100 KiB.
const LONGEST_INTERVAL: usize = 16 << 20;
/// Bytes until the second look while stores go through the cache, and then [`GROWTH`] times as many each time. Such a look costs
/// next to nothing, and the first part alone may deceive: the call before wrote it through the cache, too, whatever it did
/// with the rest.
const FIRST_INTERVAL: usize = 64 << 10;
/// With 4 instead, warm clears of 2 MiB took 8 % longer on Zen 5 than one call of the method.
const GROWTH: usize = 16;

/// Bytes until the second look while stores bypass the cache: a range that is larger than a cache loses its first kilobytes
/// first. Without it, warm clears of 2 MiB took 2.3 times as long on Zen 5 as one call of the method for cached memory.
const FIRST_BYPASSING: usize = 1 << 20;

/// A further look pays only if so many parts follow. It costs about half the time of a part, so 1 or 2 %.
const WORTH_ANOTHER: usize = 32;

/// How a call that looks is executed.
#[derive(Clone, Copy)]
pub(crate) struct Looking<'c, K: 'static> {
    pub(crate) operation: Operation,
    pub(crate) look: &'c Look,
    /// For the part whose time is taken.
    pub(crate) part: Step<'c, K>,
    /// For memory whose pages are not mapped yet.
    pub(crate) unmapped: Step<'c, K>,
    pub(crate) cached: Step<'c, K>,
    pub(crate) uncached: Step<'c, K>,
    /// By length alone: for pieces that are too short, and if the clock fails.
    pub(crate) otherwise: Step<'c, K>,
    /// Where verdicts are carried from call to call, if the call is a short part of a large total.
    pub(crate) stream: Option<&'c Stream>,
}

impl<K: Kernel> Looking<'_, K> {
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
        if let Some(stream) = self.stream {
            // SAFETY: passed on from the caller.
            return unsafe { self.carry(stream, memory, piece, clock) };
        }
        let Look { from, part, .. } = *self.look;
        // A look does not pay in a shorter piece.
        let mut step = self.otherwise;
        let mut looks = piece.len() >= from;
        let mut weak = false;
        // Bytes until the next look.
        let mut through_cache = FIRST_INTERVAL;
        let mut bypassing = FIRST_BYPASSING;
        let mut at = piece.start;
        while at < piece.end {
            let worth = if at == piece.start { 2 } else { WORTH_ANOTHER };
            if looks && piece.end - at >= worth * part {
                if weak {
                    method::drain();
                }
                // SAFETY: passed on from the caller; the part is within the piece.
                let ticks = unsafe { self.take_time(memory, at..at + part, &mut clock) };
                let verdict = self.judge(ticks);
                weak = self.part.weak;
                at += part;
                step = self.step(verdict);
                looks = verdict.is_some();
            }
            let rest = piece.end - at;
            let until_next = if step.weak { bypassing } else { through_cache };
            if step.weak {
                bypassing = (4 * bypassing).min(LONGEST_INTERVAL);
                // A look that finds cached memory after this may deceive, too.
                through_cache = FIRST_INTERVAL;
            } else {
                bypassing = FIRST_BYPASSING;
                through_cache = (GROWTH * through_cache).min(INTERVAL);
            }
            let length = if looks && step.may_be_cut { rest.min(until_next) } else { rest };
            // SAFETY: as above.
            unsafe { step.call(memory, at..at + length) }
            weak |= step.weak;
            at += length;
        }
        weak
    }

    /// Works on a piece that is a short part of a large total: looks over several calls, and uses the verdict for those that
    /// follow. Returns true if the calling thread must fence.
    ///
    /// # Safety
    /// As [`Looking::run`].
    unsafe fn carry(
        &self,
        stream: &Stream,
        memory: &Memory,
        piece: Range<usize>,
        mut clock: impl FnMut() -> u64,
    ) -> bool {
        let mut rest = piece;
        let mut weak = false;
        let (verdict, left) = match stream.load() {
            State::Known { verdict, left } if left > 0 => (verdict, left),
            state => {
                let (seen, before) = match state {
                    State::Looking { bytes, ticks } => (bytes.min(self.look.part), ticks),
                    State::Known { .. } => (0, 0),
                };
                if seen == 0 {
                    method::drain();
                }
                let part = rest.start..rest.end.min(rest.start + self.look.part - seen);
                rest.start = part.end;
                let bytes = seen + part.len();
                // SAFETY: passed on from the caller; the part is within the piece.
                let ticks = before.saturating_add(unsafe { self.take_time(memory, part, &mut clock) });
                weak = self.part.weak;
                if bytes < self.look.part {
                    stream.store(State::Looking { bytes, ticks });
                    return weak;
                }
                (self.judge(ticks), INTERVAL)
            }
        };
        stream.store(State::Known { verdict, left: left.saturating_sub(rest.len()) });
        let step = self.step(verdict);
        // SAFETY: as above.
        unsafe { step.call(memory, rest) }
        weak | step.weak
    }

    /// Works on a part and returns the ticks that it takes.
    ///
    /// # Safety
    /// As [`Looking::run`], of the part.
    #[inline(always)]
    unsafe fn take_time(&self, memory: &Memory, part: Range<usize>, clock: &mut impl FnMut() -> u64) -> u64 {
        let before = clock();
        // SAFETY: passed on from the caller.
        unsafe { self.part.call(memory, part) }
        clock().wrapping_sub(before)
    }

    /// Judges by the time of a whole part, and counts the verdict.
    fn judge(&self, ticks: u64) -> Option<CacheVerdict> {
        let verdict = self.look.judge(ticks);
        if let Some(verdict) = verdict {
            look::count(self.operation, verdict as usize);
        }
        verdict
    }

    fn step(&self, verdict: Option<CacheVerdict>) -> Step<'_, K> {
        match verdict {
            Some(CacheVerdict::Cached) => self.cached,
            Some(CacheVerdict::Uncached) => self.uncached,
            Some(CacheVerdict::Unmapped) => self.unmapped,
            None => self.otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::method::{Entry, FillFn, Parameters};
    use crate::policy::built_in;

    const PART: usize = 16 << 10;
    const FROM: usize = 64 << 10;
    static LOOK: LazyLock<Look> = LazyLock::new(|| {
        let choice = *built_in(Operation::Clear);
        Look { from: FROM, part: PART, cached_below: 100, unmapped_from: 1000, choice, unmapped: choice }
    });

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
    writes!(TIMED, b'p');
    writes!(CACHED, b'c');
    writes!(UNCACHED, b'u');
    writes!(UNMAPPED, b'm');
    writes!(OTHERWISE, b'o');

    fn step(entry: &'static Entry<FillFn>, weak: bool) -> Step<'static, FillFn> {
        Step { entry, parameters: &Parameters::NONE, weak, may_be_cut: true }
    }

    fn looking() -> Looking<'static, FillFn> {
        Looking {
            operation: Operation::Clear,
            look: &LOOK,
            part: step(&TIMED, false),
            unmapped: step(&UNMAPPED, false),
            cached: step(&CACHED, false),
            uncached: step(&UNCACHED, true),
            otherwise: step(&OTHERWISE, false),
            stream: None,
        }
    }

    /// Works on `length` bytes with looks that take those times; returns the kernels that ran and the lengths of their
    /// work, and whether a fence is needed. No further look may happen.
    fn run(looking: &Looking<'_, FillFn>, length: usize, times: &[u64]) -> (Vec<(u8, usize)>, bool) {
        let mut bytes = vec![0; length];
        let memory = Memory::filled(bytes.as_mut_ptr(), length, 0);
        let mut readings = times.iter().flat_map(|time| [7, 7_u64.wrapping_add(*time)]);
        // SAFETY: the memory is valid for its length.
        let weak = unsafe { looking.run_by(&memory, 0..length, || readings.next().expect("one more look")) };
        assert_eq!(readings.next(), None, "a look less");
        let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        (runs, weak)
    }

    #[test]
    fn what_the_first_part_tells_decides_about_the_rest() {
        let length = 1 << 20;
        let rest = length - PART;
        let short = PART + FIRST_INTERVAL;
        assert_eq!(run(&looking(), short, &[99]), (vec![(b'p', PART), (b'c', FIRST_INTERVAL)], false));
        assert_eq!(run(&looking(), length, &[100]), (vec![(b'p', PART), (b'u', rest)], true));
        assert_eq!(run(&looking(), short, &[1000]), (vec![(b'p', PART), (b'm', FIRST_INTERVAL)], false));
    }

    #[test]
    fn a_clock_that_cannot_be_trusted_leaves_the_rule_by_length() {
        let length = 20 << 20;
        let by_length = (vec![(b'p', PART), (b'o', length - PART)], false);
        for time in [0, 1_u64.wrapping_neg(), 1 << 40] {
            assert_eq!(run(&looking(), length, &[time]), by_length, "{time}");
        }
    }

    #[test]
    fn it_looks_again_after_each_interval() {
        let (p, c, u) = ((b'p', PART), |bytes| (b'c', bytes), |bytes| (b'u', bytes));
        let cached = [p, c(FIRST_INTERVAL), p, c(GROWTH * FIRST_INTERVAL), p, c(INTERVAL)];
        let uncached = [p, u(FIRST_BYPASSING), p, u(INTERVAL)];
        let expected = [&cached[..], &uncached, &cached].concat();
        let length = expected.iter().map(|(_, bytes)| bytes).sum();
        let (runs, weak) = run(&looking(), length, &[50, 50, 50, 500, 500, 50, 50, 50]);
        assert_eq!(runs, expected);
        assert!(!weak, "fenced before the last look");
        let rest = FIRST_BYPASSING + WORTH_ANOTHER * PART - 1;
        assert_eq!(run(&looking(), PART + rest, &[500]).0, [p, u(rest)], "not worth another look");
        let length = PART + FIRST_BYPASSING + PART + INTERVAL + PART + LONGEST_INTERVAL;
        let expected = [p, u(FIRST_BYPASSING), p, u(INTERVAL), p, u(LONGEST_INTERVAL)];
        assert_eq!(run(&looking(), length, &[500; 3]).0, expected);
    }

    #[test]
    fn a_method_whose_speed_depends_on_the_call_gets_the_rest_in_one() {
        let mut looking = looking();
        looking.uncached.may_be_cut = false;
        let length = 3 * INTERVAL;
        assert_eq!(run(&looking, length, &[500]).0, [(b'p', PART), (b'u', length - PART)]);
    }

    #[test]
    fn short_pieces_follow_the_rule_by_length() {
        for length in [0, 1, PART, FROM - 1] {
            let runs = run(&looking(), length, &[]).0;
            assert!(runs.iter().all(|run| *run == (b'o', length)), "{length}: {runs:?}");
        }
        assert_eq!(run(&looking(), FROM, &[50]).0, [(b'p', PART), (b'c', FROM - PART)]);
    }

    #[test]
    fn short_calls_look_together_and_carry_the_verdict() {
        let stream = Stream::new();
        let looking = Looking { stream: Some(&stream), ..looking() };
        let call = PART / 2 + 64;
        let rest = 2 * call - PART;
        assert_eq!(run(&looking, call, &[40]), (vec![(b'p', call)], false));
        assert_eq!(run(&looking, call, &[59]), (vec![(b'p', call - rest), (b'c', rest)], false));
        for _ in 0..(INTERVAL - rest).div_ceil(call) {
            assert_eq!(run(&looking, call, &[]), (vec![(b'c', call)], false));
        }
        // Each interval begins with another look. 99 ticks are cached, 100 are not, and 1000 map pages.
        assert_eq!(run(&looking, PART, &[100]).0, [(b'p', PART)]);
        assert_eq!(run(&looking, INTERVAL, &[]), (vec![(b'u', INTERVAL)], true));
        assert_eq!(run(&looking, PART + 9, &[1000]), (vec![(b'p', PART), (b'm', 9)], false));
        assert_eq!(run(&looking, INTERVAL - 9, &[]).0, [(b'm', INTERVAL - 9)]);
    }

    #[test]
    fn short_calls_survive_a_clock_that_fails() {
        for (first, second) in [(0, 0), (1_u64.wrapping_neg(), 5), (1 << 40, 1)] {
            let stream = Stream::new();
            let looking = Looking { stream: Some(&stream), ..looking() };
            assert_eq!(run(&looking, PART / 2, &[first]).0, [(b'p', PART / 2)]);
            assert_eq!(run(&looking, PART, &[second]).0, [(b'p', PART / 2), (b'o', PART / 2)], "{first}");
            assert_eq!(run(&looking, INTERVAL - PART / 2, &[]).0, [(b'o', INTERVAL - PART / 2)]);
        }
    }

    #[test]
    fn verdicts_are_counted() {
        let looking = Looking { operation: Operation::FillPersist, ..looking() };
        let before = look::counts(looking.operation);
        run(
            &looking,
            PART + FIRST_INTERVAL + PART + FIRST_BYPASSING + WORTH_ANOTHER * PART,
            &[50, 500, 5000],
        );
        let after = look::counts(looking.operation);
        assert_eq!((after.cached, after.uncached), (before.cached + 1, before.uncached + 1));
        assert_eq!(after.unmapped, before.unmapped + 1);
    }
}
