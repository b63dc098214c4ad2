//! Memory that calls write past the cache again and again.
//!
//! A look finds such memory uncached, but perhaps only because the call before has bypassed the cache: if that had stored through
//! the cache, the memory would be there, and stores to it faster. The time of a look can't tell this from memory that other work
//! evicts. So a call makes an attempt: it writes through the cache, and the next look at the same memory shows whether it stays
//! there. Each attempt that fails doubles the looks until the next one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::CacheVerdict;

/// State of the attempts of one stream of calls. Threads that share it may overwrite it, which costs time and nothing else.
#[derive(Debug)]
pub(crate) struct Bypassed(AtomicU64);

/// So many addresses are remembered, each by [`TAG_BITS`]. Two that share a tag cost an attempt in vain.
const TAGS: u32 = 4;
const TAG_BITS: u32 = 12;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const MOST_FAILURES: u32 = 7;
/// An attempt fails if so many looks at remembered memory pass without one at its own.
const PATIENCE: u32 = 2 * TAGS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// The latest addresses at which a look found uncached memory, the last one lowest. Zero means none.
    tags: u64,
    /// Attempts in a row that have failed, at most [`MOST_FAILURES`].
    failures: u32,
    /// Looks that pass until an attempt may be made, or until the one under way has failed.
    pause: u32,
    /// The number of the tag, from 1, at which an attempt is under way, or 0.
    tried: u32,
}

// Of the 64 bits, the tags are the lowest.
const FAILURES_AT: u32 = TAGS * TAG_BITS;
const PAUSE_AT: u32 = FAILURES_AT + 3;
const TRIED_AT: u32 = PAUSE_AT + 8;
const END: u32 = TRIED_AT + 3;
const _: () =
    assert!(MOST_FAILURES < 1 << 3 && 1 << MOST_FAILURES < 1 << 8 && TAGS < 1 << 3 && END <= u64::BITS);

impl State {
    fn word(self) -> u64 {
        self.tags
            | (u64::from(self.failures) << FAILURES_AT)
            | (u64::from(self.pause) << PAUSE_AT)
            | (u64::from(self.tried) << TRIED_AT)
    }

    fn of(word: u64) -> State {
        let field = |at: u32, end: u32| (word >> at) & ((1 << (end - at)) - 1);
        State {
            tags: field(0, FAILURES_AT),
            failures: field(FAILURES_AT, PAUSE_AT) as u32,
            pause: field(PAUSE_AT, TRIED_AT) as u32,
            tried: field(TRIED_AT, END) as u32,
        }
    }

    /// The number of a tag, from 1.
    fn number_of(self, tag: u64) -> Option<u32> {
        (1..=TAGS).find(|number| (self.tags >> ((number - 1) * TAG_BITS)) & TAG_MASK == tag)
    }

    fn succeeded(&mut self) {
        (self.failures, self.pause, self.tried) = (0, 0, 0);
    }

    fn failed(&mut self) {
        self.failures = (self.failures + 1).min(MOST_FAILURES);
        (self.pause, self.tried) = (1 << self.failures, 0);
    }

    /// After a look that found uncached memory. Returns true if the call is to make an attempt.
    fn attempt(&mut self, tag: u64) -> bool {
        let Some(number) = self.number_of(tag) else {
            self.tags = ((self.tags << TAG_BITS) | tag) & ((1 << FAILURES_AT) - 1);
            if self.tried == TAGS {
                self.failed();
            } else if self.tried > 0 {
                self.tried += 1;
            }
            return false;
        };
        if self.tried == number {
            self.failed();
            return false;
        }
        if self.pause > 0 {
            self.pause -= 1;
            if self.pause == 0 && self.tried > 0 {
                self.failed();
            }
            return false;
        }
        (self.tried, self.pause) = (number, PATIENCE);
        true
    }
}

impl Bypassed {
    pub(crate) const fn new() -> Bypassed {
        Bypassed(AtomicU64::new(0))
    }

    /// Returns the verdict to follow after a look found `verdict` in the memory that begins at an address.
    #[inline]
    pub(crate) fn reconsider(&self, address: usize, verdict: CacheVerdict) -> CacheVerdict {
        let before = State::of(self.0.load(Relaxed));
        let tag = ((address >> 6) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - TAG_BITS);
        let tag = tag.max(1);
        let mut state = before;
        let mut follow = verdict;
        match verdict {
            CacheVerdict::Unmapped => {}
            CacheVerdict::Cached => {
                if before.tried > 0 && before.number_of(tag) == Some(before.tried) {
                    state.succeeded();
                }
            }
            CacheVerdict::Uncached => {
                if state.attempt(tag) {
                    follow = CacheVerdict::Cached;
                }
            }
        }
        if state != before {
            self.0.store(state.word(), Relaxed);
        }
        follow
    }

    #[cfg(feature = "unstable-internals")]
    pub(crate) fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CacheVerdict::{Cached, Uncached, Unmapped};

    const SIZE: usize = 1 << 20;

    /// Buffers that are in the cache if they were last written through it and nothing has evicted them.
    struct Buffers {
        cached: Vec<bool>,
        bypassed: Bypassed,
    }

    impl Buffers {
        fn uncached(count: usize) -> Buffers {
            Buffers { cached: vec![false; count], bypassed: Bypassed::new() }
        }

        /// Writes a buffer; returns whether through the cache.
        fn write(&mut self, buffer: usize) -> bool {
            let found = if self.cached[buffer] { Cached } else { Uncached };
            self.cached[buffer] = self.bypassed.reconsider(buffer * SIZE, found) == Cached;
            self.cached[buffer]
        }

        /// Writes each buffer in turn so many times; returns how often through the cache.
        fn write_all(&mut self, rounds: usize) -> usize {
            let count = self.cached.len();
            (0..rounds * count).filter(|call| self.write(call % count)).count()
        }
    }

    #[test]
    fn memory_that_was_only_bypassed_comes_back_into_the_cache() {
        for count in 1..=TAGS as usize {
            let mut buffers = Buffers::uncached(count);
            buffers.write_all(10);
            assert_eq!(buffers.write_all(100), 100 * count, "{count} buffers");
            // Something evicts all of them, or one.
            for time in 0..20 {
                let evicted = if time % 2 == 0 { 0..count } else { 0..1 };
                buffers.cached[evicted].fill(false);
                buffers.write_all(10);
                assert_eq!(buffers.write_all(100), 100 * count, "{count} buffers");
            }
        }
    }

    #[test]
    fn memory_that_other_work_evicts_is_rarely_written_through_the_cache() {
        for count in 1..=TAGS as usize {
            let mut buffers = Buffers::uncached(count);
            let attempts = (0..10_000).map(|_| {
                buffers.cached.fill(false);
                buffers.write_all(1)
            });
            let attempts: usize = attempts.sum();
            assert!((1..=100 * count).contains(&attempts), "{attempts} of {} calls", 10_000 * count);
        }
    }

    #[test]
    fn other_memory_settles_no_attempt() {
        for hot in 1..4 {
            for new in 0..3 {
                let mut buffers = Buffers::uncached(1 + hot + 1_000_000);
                let mut attempts = 0;
                for round in 0..10_000 {
                    buffers.cached[0] = false;
                    attempts += usize::from(buffers.write(0));
                    for hot in 1..=hot {
                        buffers.cached[hot] = true;
                        buffers.write(hot);
                    }
                    (0..new).for_each(|at| _ = buffers.write(1 + hot + round * new + at));
                }
                assert!((1..=100).contains(&attempts), "{attempts} with {hot} hot and {new} new buffers");
            }
        }
    }

    #[test]
    fn an_attempt_whose_memory_never_comes_again_ends() {
        let bypassed = Bypassed::new();
        let look = |buffer: usize| bypassed.reconsider(buffer * SIZE, Uncached) == Cached;
        assert_eq!([0, 0].map(look), [false, true]);
        // Buffer 0 is never written again. Another one has its own attempt after a while.
        assert!((0..2 * PATIENCE).any(|_| look(1)));
    }

    #[test]
    fn memory_that_is_not_written_again_soon_is_never_tried() {
        let bypassed = Bypassed::new();
        for address in (0..1000).map(|at| at * SIZE) {
            assert_eq!(bypassed.reconsider(address, Uncached), Uncached, "{address:#x}");
        }
        for verdict in [Unmapped, Cached, Unmapped] {
            assert_eq!(bypassed.reconsider(999 * SIZE, verdict), verdict);
        }
    }

    #[test]
    fn a_word_keeps_the_state() {
        let (tags, failures, pause, tried) =
            ((1 << FAILURES_AT) - 1, MOST_FAILURES, 1 << MOST_FAILURES, TAGS);
        for state in [
            State::default(),
            State { tags, ..State::default() },
            State { failures, ..State::default() },
            State { pause, ..State::default() },
            State { tried, ..State::default() },
            State { tags, failures, pause, tried },
        ] {
            assert_eq!(State::of(state.word()), state);
        }
    }
}
