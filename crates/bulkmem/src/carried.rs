//! Verdicts about the cache state that are carried from call to call: for a large total that arrives in calls which are too
//! short to [look](crate::look) each, and for calls that have found the same again and again.
//!
//! The calls of one thread and operation are taken for one stream: a verdict holds for so many of its next bytes. A thread is
//! recognized by the address of its stack, because thread-local memory may have to be allocated at its first use. Two threads
//! that share a slot by chance share verdicts, which costs time and nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::operation::Operation;
use crate::policy::CacheVerdict;

/// Each takes a cache line per operation. With more threads than slots, some threads share verdicts.
const SLOTS: usize = 16;

/// By operation and thread.
static STREAMS: [[Stream; SLOTS]; Operation::ALL.len()] =
    [const { [const { Stream::new() }; SLOTS] }; Operation::ALL.len()];

/// What is known about a stream of calls, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Stream(AtomicU64);

/// What is known about a stream between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The verdict of the last look; `None` if its clock failed, or none took place.
    pub(crate) verdict: Option<CacheVerdict>,
    /// Calls of another class look, as they are probably on other memory: the logarithm of the length, or [`PARTS`].
    pub(crate) class: u8,
    /// How many looks in a row have agreed with the one before, at most [`MOST_AGREED`].
    pub(crate) agreed: u8,
    /// Ticks that the first call without a look took per KiB, at most [`MOST_PACE`]; 0 if that is not known.
    pub(crate) pace: u64,
    /// Rises with each call that takes another time, and falls with each that takes the usual one.
    pub(crate) odd: u8,
    /// How many bytes more the verdict holds for, at most [`MOST_BYTES`].
    pub(crate) left: u64,
}

/// The class of calls that are parts of a large total.
pub(crate) const PARTS: u8 = 0;
/// So many looks in a row must agree before further calls follow the verdict without a look.
pub(crate) const AGREED: u8 = 7;
pub(crate) const MOST_AGREED: u8 = 12;
/// So many more looks must agree after calls have taken another time: fewer would find the same again and again where calls take
/// turns in small groups.
const AGREED_AGAIN: u8 = 4;
/// Bytes of calls that then follow a verdict. While stores bypass the cache, a look takes up to 2 µs, as it waits until they have
/// reached memory; so the bytes double with each further look that agrees, as long as they take fewer than [`LONGEST`] ticks.
pub(crate) const CARRIED: u64 = 512 << 10;
/// About 0.1 ms.
const LONGEST: u64 = 1 << 18;
/// The bytes before it is known how long they take.
const MOST_UNKNOWN: u64 = 4 << 20;

/// Of the 64 bits of a stream, the lowest name the verdict; then come the class, agreeing looks, the pace, odd calls and bytes.
const VERDICT_BITS: u32 = 2;
const CLASS_BITS: u32 = 6;
const AGREED_BITS: u32 = 4;
const PACE_BITS: u32 = 14;
const ODD_BITS: u32 = 2;
const BYTES_BITS: u32 = 64 - VERDICT_BITS - CLASS_BITS - AGREED_BITS - PACE_BITS - ODD_BITS;
const MOST_PACE: u64 = (1 << PACE_BITS) - 1;
const MOST_BYTES: u64 = (1 << BYTES_BITS) - 1;

impl Known {
    /// True if a call need not look.
    #[inline(always)]
    pub(crate) fn holds_for(&self, class: u8, length: usize) -> bool {
        // The last part may be longer than what is left: parts are short.
        let enough = if class == PARTS { 1 } else { length as u64 };
        class == self.class && self.left >= enough
    }

    /// Before a call that follows the verdict.
    #[inline(always)]
    pub(crate) fn less(self, length: usize) -> Known {
        Known { left: self.left.saturating_sub(length as u64), ..self }
    }

    /// After a look.
    pub(crate) fn looked(self, verdict: Option<CacheVerdict>, class: u8, bypasses: bool) -> Known {
        if (verdict, class) != (self.verdict, self.class) {
            return Known { verdict, class, ..Known::default() };
        }
        let agreed = (self.agreed + 1).min(MOST_AGREED);
        let left = match agreed.checked_sub(AGREED) {
            None => 0,
            Some(_) if !bypasses => CARRIED,
            Some(further) => {
                let most = LONGEST.checked_div(self.pace).map_or(MOST_UNKNOWN, |kib| kib << 10);
                (CARRIED << further).min(most)
            }
        };
        Known { agreed, left, ..self }
    }

    /// After a call that followed the verdict and took so many ticks.
    #[inline(always)]
    pub(crate) fn took(self, ticks: u64, length: usize) -> Known {
        let pace = (ticks / (length as u64 >> 10).max(1)).min(MOST_PACE);
        if pace == 0 || self.pace == 0 {
            return Known { pace, ..self };
        }
        let differs = 2 * pace > 3 * self.pace || 2 * self.pace > 3 * pace;
        let odd = if differs { self.odd + 2 } else { self.odd.saturating_sub(1) };
        if odd <= 2 {
            return Known { odd, ..self };
        }
        Known { agreed: self.agreed.min(AGREED - AGREED_AGAIN), pace: 0, odd: 0, left: 0, ..self }
    }

    fn word(self) -> u64 {
        let verdict: u64 = match self.verdict {
            None => 0,
            Some(CacheVerdict::Cached) => 1,
            Some(CacheVerdict::Uncached) => 2,
            Some(CacheVerdict::Unmapped) => 3,
        };
        let fields = [
            (CLASS_BITS, u64::from(self.class)),
            (AGREED_BITS, u64::from(self.agreed)),
            (PACE_BITS, self.pace),
            (ODD_BITS, u64::from(self.odd)),
            (BYTES_BITS, self.left.min(MOST_BYTES)),
        ];
        let (word, _) = fields.into_iter().fold((verdict, VERDICT_BITS), |(word, from), (bits, value)| {
            debug_assert!(value >> bits == 0);
            (word | value << from, from + bits)
        });
        word
    }

    fn of(mut word: u64) -> Known {
        let mut take = |bits: u32| {
            let value = word & ((1 << bits) - 1);
            word >>= bits;
            value
        };
        let verdict = match take(VERDICT_BITS) {
            1 => Some(CacheVerdict::Cached),
            2 => Some(CacheVerdict::Uncached),
            3 => Some(CacheVerdict::Unmapped),
            _ => None,
        };
        let (class, agreed) = (take(CLASS_BITS) as u8, take(AGREED_BITS) as u8);
        let (pace, odd) = (take(PACE_BITS), take(ODD_BITS) as u8);
        Known { verdict, class, agreed, pace, odd, left: take(BYTES_BITS) }
    }
}

impl Stream {
    pub(crate) const fn new() -> Stream {
        Stream(AtomicU64::new(0))
    }

    /// The stream of the calling thread and an operation.
    #[inline]
    pub(crate) fn of_this_thread(operation: Operation) -> &'static Stream {
        let on_stack = 0_u8;
        // Stacks are at least 16 KiB apart, mostly megabytes: the multiplication spreads either over the upper bits.
        let spread = ((&raw const on_stack).addr() as u64 >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &STREAMS[operation as usize][(spread >> 60) as usize % SLOTS]
    }

    #[inline]
    pub(crate) fn load(&self) -> Known {
        Known::of(self.0.load(Relaxed))
    }

    /// Another thread that shares the stream may overwrite it.
    #[inline]
    pub(crate) fn store(&self, known: Known) {
        self.0.store(known.word(), Relaxed);
    }

    /// Stores unless another thread or call has stored something since.
    #[inline]
    pub(crate) fn replace(&self, before: Known, known: Known) {
        _ = self.0.compare_exchange(before.word(), known.word(), Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHED: Option<CacheVerdict> = Some(CacheVerdict::Cached);
    const UNCACHED: Option<CacheVerdict> = Some(CacheVerdict::Uncached);
    const LENGTH: usize = 64 << 10;
    const CLASS: u8 = 16;

    #[test]
    fn a_stream_keeps_what_is_known() {
        let stream = Stream::new();
        assert_eq!(stream.load(), Known::default());
        for verdict in [CACHED, UNCACHED, Some(CacheVerdict::Unmapped), None] {
            for (class, agreed, odd) in [(PARTS, 0, 0), (63, 5, 1), (CLASS, MOST_AGREED, 2)] {
                let known = Known { verdict, class, agreed, pace: 77, odd, left: 4 << 20 };
                stream.store(known);
                assert_eq!(stream.load(), known);
                let most = Known { pace: MOST_PACE, left: MOST_BYTES, ..known };
                stream.replace(known, Known { left: u64::MAX, ..most });
                assert_eq!(stream.load(), most);
                stream.replace(known, Known::default());
                assert_eq!(stream.load(), most, "it has changed");
            }
        }
    }

    /// A stream of calls whose memory is in given states: counts the looks, and the calls by the wrong method.
    #[derive(Default)]
    struct Calls {
        known: Known,
        looks: usize,
        wrong: usize,
    }

    impl Calls {
        /// Calls on memory of which each is uncached or cached. Stores that bypass the cache take 64 or 192 ticks per KiB.
        fn run(&mut self, uncached: impl Iterator<Item = bool>) {
            for uncached in uncached {
                if !self.known.holds_for(CLASS, LENGTH) {
                    let verdict = if uncached { UNCACHED } else { CACHED };
                    self.known = self.known.looked(verdict, CLASS, uncached);
                    self.looks += 1;
                    continue;
                }
                let chosen = self.known.verdict == UNCACHED;
                self.wrong += usize::from(chosen != uncached);
                self.known = self.known.less(LENGTH);
                if chosen {
                    self.known = self.known.took(if uncached { 64 } else { 192 } * 64, LENGTH);
                }
            }
        }
    }

    #[test]
    fn looks_that_agree_become_rare() {
        for (uncached, most_looks) in [(true, 40), (false, 120)] {
            let mut calls = Calls::default();
            calls.run(std::iter::repeat_n(uncached, 1000));
            assert!(calls.looks <= most_looks && calls.wrong == 0, "{} looks", calls.looks);
        }
    }

    #[test]
    fn bytes_double_until_they_take_too_long() {
        let mut known = Known { verdict: UNCACHED, class: CLASS, agreed: AGREED - 1, ..Known::default() };
        let lefts = |pace| {
            let mut known = Known { pace, ..known };
            std::array::from_fn::<u64, 7, _>(|_| {
                known = known.looked(UNCACHED, CLASS, true);
                known.left >> 10
            })
        };
        assert_eq!(lefts(0), [512, 1024, 2048, 4096, 4096, 4096, 4096]);
        assert_eq!(lefts(16), [512, 1024, 2048, 4096, 8192, 16384, 16384]);
        assert_eq!(lefts(100), [512, 1024, 2048, 2621, 2621, 2621, 2621]);
        known.verdict = CACHED;
        known = known.looked(CACHED, CLASS, false).looked(CACHED, CLASS, false);
        assert_eq!(known.left, CARRIED, "there a look costs little");
    }

    #[test]
    fn calls_of_another_length_or_longer_than_what_is_left_look() {
        let known = Known { verdict: UNCACHED, class: CLASS, left: CARRIED, ..Known::default() };
        assert!(known.holds_for(CLASS, LENGTH) && known.holds_for(CLASS, CARRIED as usize));
        assert!(!known.holds_for(CLASS + 1, LENGTH) && !known.holds_for(CLASS, CARRIED as usize + 1));
        assert!(!known.holds_for(PARTS, LENGTH));
        let parts = Known { class: PARTS, left: 1, ..known };
        assert!(parts.holds_for(PARTS, 4096) && !parts.less(4096).holds_for(PARTS, 1));
        assert_eq!(
            known.looked(UNCACHED, CLASS + 1, true),
            Known { verdict: UNCACHED, class: CLASS + 1, ..Known::default() }
        );
    }

    #[test]
    fn a_change_of_state_is_found_after_two_calls() {
        let mut calls = Calls::default();
        calls.run(std::iter::repeat_n(true, 1000));
        calls.run(std::iter::repeat_n(false, 100));
        assert_eq!(calls.wrong, 2);
        // After stores through the cache, with the next look.
        calls.run(std::iter::repeat_n(true, 100));
        assert!(calls.wrong <= 2 + CARRIED as usize / LENGTH, "{}", calls.wrong);
    }

    /// Also if they begin after a thousand calls of one state.
    #[test]
    fn calls_that_take_turns_are_mostly_right() {
        for before in [0, 1000] {
            for group in 1..=100 {
                let mut calls = Calls::default();
                calls.run(std::iter::repeat_n(true, before));
                calls.wrong = 0;
                calls.run((0..4000).map(|at| at / group % 2 == 0));
                assert!(calls.wrong <= 4000 / 3, "{} in groups of {group} after {before}", calls.wrong);
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_runs_backwards_says_nothing_for_long() {
        let known =
            Known { verdict: UNCACHED, class: CLASS, agreed: AGREED, pace: 50, odd: 0, left: 9 << 20 };
        assert_eq!(known.took(0, LENGTH).pace, 0);
        let backwards = Known { pace: 0, ..known }.took(u64::MAX, LENGTH);
        assert_eq!(backwards.pace, MOST_PACE);
        let ended = backwards.took(64 * 50, LENGTH).took(64 * 50, LENGTH);
        assert_eq!((ended.left, ended.pace), (0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri gives each variable of a stack an address anywhere")]
    fn a_thread_and_operation_find_their_stream_again() {
        let stream = || std::ptr::from_ref(Stream::of_this_thread(Operation::Clear));
        assert_eq!(stream(), stream());
        assert_ne!(stream(), std::ptr::from_ref(Stream::of_this_thread(Operation::Fill)));
    }
}
