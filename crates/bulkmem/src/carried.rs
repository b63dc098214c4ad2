//! Verdicts about the cache state that are carried from call to call: for a large total that arrives in calls which are too
//! short to [look](crate::look) each, and for calls that have found the same again and again.
//!
//! The calls of one thread and operation are taken for one stream: a verdict holds for so many of its next bytes. A thread is
//! recognized by the address of its stack, because thread-local memory may have to be allocated at its first use. Two threads
//! that share a slot by chance share verdicts, which costs time and nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bypassed::Bypassed;
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
pub(crate) struct Stream {
    known: AtomicU64,
    pub(crate) bypassed: Bypassed,
    /// How often looks have found each state of the cache, in the order of [`CacheVerdict`].
    found: [AtomicU64; 3],
}

const _: () = assert!(size_of::<Stream>() == 64);

/// Returns how often looks of an operation have found each state of the cache, over all threads.
pub(crate) fn counts(operation: Operation) -> [u64; 3] {
    let all = STREAMS[operation as usize].iter().map(Stream::counts);
    all.reduce(|sum, of_one| std::array::from_fn(|at| sum[at] + of_one[at])).unwrap_or_default()
}

/// What is known about a stream between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The verdict of the last look; `None` if its clock failed, or none took place.
    pub(crate) verdict: Option<CacheVerdict>,
    /// Calls of another class look, as they are probably on other memory: the logarithm of the length, or [`PARTS`].
    pub(crate) class: u8,
    /// How many looks in a row have agreed with the one before, as far as that [matters](most_doubled).
    pub(crate) agreed: u8,
    /// The length of the call that looked, at most [`MOST_LENGTH`], if the verdict's method for it is the C library's function;
    /// otherwise 0.
    pub(crate) by_c_library: u32,
    /// How many bytes more the verdict holds for, at most [`MOST_BYTES`].
    pub(crate) left: u64,
}

/// The class of calls that are parts of a large total.
pub(crate) const PARTS: u8 = 0;
/// So many looks in a row must agree before further calls follow the verdict without a look.
pub(crate) const AGREED: u8 = 7;
/// Bytes of calls that then follow a verdict. They double with each further look that agrees: a look takes 1 to 3 µs if other work has
/// evicted its code, which is some percent of a cached call of a mebibyte.
pub(crate) const CARRIED: u64 = 512 << 10;

/// How often they double. In cached memory, up to what one call writes there without another look. In other memory less: a wrong
/// verdict costs more, and [attempts](crate::bypassed) to write through the cache need looks.
const fn most_doubled(verdict: Option<CacheVerdict>) -> u8 {
    if matches!(verdict, Some(CacheVerdict::Cached)) { 5 } else { 2 }
}

/// Of the 64 bits of a stream, the lowest name the verdict; then come the class, agreeing looks, the C library's length and bytes.
const VERDICT_BITS: u32 = 2;
const CLASS_BITS: u32 = 6;
const AGREED_BITS: u32 = 4;
const LENGTH_BITS: u32 = 27;
const BYTES_BITS: u32 = u64::BITS - BYTES_FROM;
const LENGTH_FROM: u32 = VERDICT_BITS + CLASS_BITS + AGREED_BITS;
const BYTES_FROM: u32 = LENGTH_FROM + LENGTH_BITS;
const MOST_BYTES: u64 = (1 << BYTES_BITS) - 1;
/// The greatest [`Known::by_c_library`].
pub(crate) const MOST_LENGTH: u32 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(CARRIED << most_doubled(Some(CacheVerdict::Cached)) <= MOST_BYTES);

impl Known {
    /// True if a call need not look.
    #[inline(always)]
    fn holds_for(&self, class: u8, length: usize) -> bool {
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
    #[inline(always)]
    pub(crate) fn looked(self, verdict: Option<CacheVerdict>, class: u8) -> Known {
        if (verdict, class) != (self.verdict, self.class) {
            return Known { verdict, class, ..Known::default() };
        }
        // At the end they double and halve in turn: otherwise, looks could fall on the same call of a pattern again and again.
        let most = AGREED + most_doubled(verdict);
        let agreed = if self.agreed < most { self.agreed + 1 } else { most - 1 };
        let left = match agreed.checked_sub(AGREED) {
            // A look at unmapped memory has four of the pages mapped that the call needs anyway.
            _ if verdict == Some(CacheVerdict::Unmapped) => 0,
            None => 0,
            Some(doubled) => CARRIED << doubled,
        };
        Known { agreed, left, ..self }
    }

    fn word(self) -> u64 {
        // In the order of declaration.
        let verdict = self.verdict.map_or(0, |verdict| verdict as u64 + 1);
        let fields = [
            (CLASS_BITS, u64::from(self.class)),
            (AGREED_BITS, u64::from(self.agreed)),
            (LENGTH_BITS, u64::from(self.by_c_library)),
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
        Known { verdict, class, agreed, by_c_library: take(LENGTH_BITS) as u32, left: take(BYTES_BITS) }
    }
}

impl Stream {
    pub(crate) const fn new() -> Stream {
        Stream {
            known: AtomicU64::new(0),
            bypassed: Bypassed::new(),
            found: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// The stream of the calling thread and an operation.
    #[inline]
    pub(crate) fn of_this_thread(operation: Operation) -> &'static Stream {
        let on_stack = 0_u8;
        // Stacks are mostly megabytes apart: the multiplication spreads that over the upper bits. Two within 64 KiB share a stream,
        // and a thread whose stack grows past such a boundary gets another.
        let spread = ((&raw const on_stack).addr() as u64 >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &STREAMS[operation as usize][(spread >> 60) as usize % SLOTS]
    }

    /// Counts a verdict of a look.
    #[inline(always)]
    pub(crate) fn count(&self, verdict: CacheVerdict) {
        self.found[verdict as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> [u64; 3] {
        self.found.each_ref().map(|count| count.load(Relaxed))
    }

    /// The class of a call or piece of that length, which may be too short to look but for the total that it is part of.
    #[inline(always)]
    pub(crate) fn class(part_of_total: bool, length: usize) -> u8 {
        if part_of_total { PARTS } else { length.max(1).ilog2() as u8 }
    }

    /// The verdict that a call or piece of that class and length follows, as it need not look; it counts for the stream then.
    #[inline(always)]
    pub(crate) fn follow(&self, class: u8, length: usize) -> Option<Option<CacheVerdict>> {
        let known = self.load();
        if !known.holds_for(class, length) {
            return None;
        }
        self.store(known.less(length));
        Some(known.verdict)
    }

    /// True if a call of that length follows a verdict by the C library's function; it counts for the stream then. Calls of another
    /// length may have another method, and another intent.
    #[inline(always)]
    pub(crate) fn follow_by_c_library(&self, length: usize) -> bool {
        // On the word, without the other fields: a call that evicts all that it reads on the way should read little.
        let word = self.known.load(Relaxed);
        let (by_c_library, length) = (word >> LENGTH_FROM & u64::from(MOST_LENGTH), length as u64);
        let follows = by_c_library == length && word >> BYTES_FROM >= length;
        if follows {
            self.known.store(word - (length << BYTES_FROM), Relaxed);
        }
        follows
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Known {
        Known::of(self.known.load(Relaxed))
    }

    /// Another thread that shares the stream may overwrite it.
    #[inline(always)]
    pub(crate) fn store(&self, known: Known) {
        self.known.store(known.word(), Relaxed);
    }
}

/// Forgets the verdicts that threads carry from call to call, so that a measurement in one state does not begin with those of
/// another.
#[cfg(feature = "unstable-internals")]
pub fn forget_verdicts() {
    for stream in STREAMS.iter().flatten() {
        stream.store(Known::default());
        stream.bypassed.forget();
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
            for (class, agreed, by_c_library) in [(PARTS, 0, 0), (63, 5, MOST_LENGTH), (CLASS, 12, 1)] {
                let known = Known { verdict, class, agreed, by_c_library, left: 4 << 20 };
                stream.store(known);
                assert_eq!(stream.load(), known);
                stream.store(Known { left: u64::MAX, ..known });
                assert_eq!(stream.load(), Known { left: MOST_BYTES, ..known });
            }
        }
    }

    /// A stream of calls whose memory is in given states: counts the looks, and the calls by the wrong method.
    #[derive(Default)]
    struct Calls {
        known: Known,
        looks: usize,
        wrong: usize,
        /// The length of each; 0 stands for `LENGTH`.
        length: usize,
    }

    impl Calls {
        /// Calls on memory of which each is uncached or cached.
        fn run(&mut self, uncached: impl Iterator<Item = bool>) {
            let length = if self.length == 0 { LENGTH } else { self.length };
            for uncached in uncached {
                let verdict = if uncached { UNCACHED } else { CACHED };
                if self.known.holds_for(CLASS, length) {
                    self.wrong += usize::from(self.known.verdict != verdict);
                    self.known = self.known.less(length);
                } else {
                    self.known = self.known.looked(verdict, CLASS);
                    self.looks += 1;
                }
            }
        }
    }

    #[test]
    fn looks_that_agree_become_rare() {
        for (uncached, most_looks) in [(true, 60), (false, 30)] {
            let mut calls = Calls::default();
            calls.run(std::iter::repeat_n(uncached, 1000));
            assert!(calls.looks <= most_looks && calls.wrong == 0, "{} looks", calls.looks);
        }
    }

    #[test]
    fn bytes_double_with_each_look_that_agrees() {
        for (verdict, expected) in [
            (UNCACHED, [512, 1024, 2048, 1024, 2048, 1024, 2048, 1024]),
            (CACHED, [512, 1024, 2048, 4096, 8192, 16384, 8192, 16384]),
        ] {
            let mut known = Known { verdict, class: CLASS, agreed: AGREED - 1, ..Known::default() };
            for left in expected {
                known = known.looked(verdict, CLASS);
                assert_eq!(known.left, left << 10);
            }
        }
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
            known.looked(UNCACHED, CLASS + 1),
            Known { verdict: UNCACHED, class: CLASS + 1, ..Known::default() }
        );
    }

    #[test]
    fn calls_of_that_length_follow_by_the_c_librarys_function() {
        let stream = Stream::new();
        let known = Known { verdict: CACHED, class: CLASS, by_c_library: LENGTH as u32, ..Known::default() };
        for (known, follows) in [
            (Known { left: 2 * LENGTH as u64, ..known }, true),
            (Known { left: LENGTH as u64 - 1, ..known }, false),
            (Known { left: CARRIED, by_c_library: LENGTH as u32 + 1, ..known }, false),
            (Known { left: CARRIED, by_c_library: 0, ..known }, false),
        ] {
            stream.store(known);
            assert_eq!(stream.follow_by_c_library(LENGTH), follows, "{known:?}");
            assert_eq!(stream.load(), if follows { known.less(LENGTH) } else { known });
        }
    }

    #[test]
    fn a_change_of_state_is_found_with_the_next_look() {
        for (uncached, most) in [(true, 2 << 20), (false, 16 << 20)] {
            let mut calls = Calls::default();
            calls.run(std::iter::repeat_n(uncached, 1000));
            calls.run(std::iter::repeat_n(!uncached, 1000));
            assert!((1..=most / LENGTH).contains(&calls.wrong), "{}", calls.wrong);
        }
    }

    /// Also if they begin after a thousand calls of one state.
    #[test]
    fn of_calls_that_take_turns_half_are_right() {
        for before in [None, Some(true), Some(false)] {
            // Miri would take minutes for all.
            for group in (1..=1000).step_by(if cfg!(miri) { 500 } else { 1 }) {
                let mut calls = Calls::default();
                calls.run(before.into_iter().cycle().take(1000));
                calls.wrong = 0;
                calls.run((0..8000).map(|at| at / group % 2 == 0));
                assert!(
                    calls.wrong <= 8000 / 2 + 256,
                    "{} in groups of {group} after {before:?}",
                    calls.wrong
                );
            }
        }
    }

    /// One call of the one state, and some of the other: looks that fell on each of the one, and on no other, would be wrong for most.
    #[test]
    fn looks_do_not_fall_on_the_same_call_of_a_pattern_for_good() {
        for length in [1 << 20, 2 << 20, 4 << 20, 8 << 20] {
            for others in (1..=20).step_by(if cfg!(miri) { 19 } else { 1 }) {
                for first in [false, true] {
                    let mut calls = Calls { length, ..Calls::default() };
                    calls.run(std::iter::repeat_n(!first, 1000));
                    calls.wrong = 0;
                    calls.run((0..1000).map(|at| (at % (others + 1) == 0) != first));
                    assert!(calls.wrong <= 150, "{} of {length}, {others}, {first}", calls.wrong);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri gives each variable of a stack an address anywhere")]
    fn a_thread_and_operation_find_their_stream_again() {
        let stream = || std::ptr::from_ref(Stream::of_this_thread(Operation::Clear));
        assert_eq!(stream(), stream());
        assert_ne!(stream(), std::ptr::from_ref(Stream::of_this_thread(Operation::Fill)));
    }
}
