//! Memory that calls write past the cache again and again.
//!
//! A look finds such memory uncached, but perhaps only because the call before has bypassed the cache: if that had stored through
//! the cache, the memory would be there, and stores to it faster. The time of a look can't tell this from memory that other work
//! evicts. So a call makes an attempt: it writes through the cache, and the next looks at the same memory show whether it stays there.
//!
//! An attempt in uncached memory takes up to three times as long as bypassing the cache. So each one is a debt, which several looks
//! that find the memory cached pay off, and the more debts there are, the more looks pass until the next attempt.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::CacheVerdict;

/// So many ranges are remembered.
const RANGES: usize = 4;
const MOST_DEBTS: u32 = 7;
/// So many looks that find the memory cached pay off one attempt: each saves its call a third to a half of the time.
const REPAYMENT: u32 = 4;

/// The attempts of one stream of calls, by range, the one that was used last first. Threads that share it may overwrite it,
/// which costs time and nothing else.
#[derive(Debug)]
pub(crate) struct Bypassed([AtomicU64; RANGES]);

/// The attempts in a range that a look has found uncached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debts {
    /// The range's address and the class of its length, hashed; 0 means none. Two ranges that share a tag cost an attempt in vain.
    tag: u32,
    /// Attempts that have not been paid off, at most [`MOST_DEBTS`].
    debts: u32,
    /// Looks that find it uncached until the next attempt.
    pause: u32,
    /// Looks that found it cached since the last debt was paid off.
    cached: u32,
}

const FIELD_BITS: u32 = 8;
const _: () = assert!(1 << MOST_DEBTS < 1 << FIELD_BITS && REPAYMENT < 1 << FIELD_BITS);

impl Debts {
    fn word(self) -> u64 {
        let fields = [self.debts, self.pause, self.cached];
        fields.into_iter().fold(u64::from(self.tag), |word, field| (word << FIELD_BITS) | u64::from(field))
    }

    fn of(word: u64) -> Debts {
        let field = |number: u32| (word >> (number * FIELD_BITS)) as u32 & ((1 << FIELD_BITS) - 1);
        Debts { tag: (word >> (3 * FIELD_BITS)) as u32, debts: field(2), pause: field(1), cached: field(0) }
    }

    /// After a look that found it uncached. Returns true if the call is to make an attempt.
    fn attempt(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.debts = (self.debts + 1).min(MOST_DEBTS);
        self.pause = 1 << self.debts;
        true
    }

    /// After a look that found it cached.
    fn pay(&mut self) {
        if self.debts == 0 {
            return;
        }
        self.cached += 1;
        if self.cached == REPAYMENT {
            (self.debts, self.cached) = (self.debts - 1, 0);
            if self.debts == 0 {
                self.pause = 0;
            }
        }
    }
}

impl Bypassed {
    pub(crate) const fn new() -> Bypassed {
        Bypassed([const { AtomicU64::new(0) }; RANGES])
    }

    /// Returns the verdict to follow in a range that begins at an address, after a look there. Lengths of another class belong to
    /// another range, since a part of a range may be cached when all of it is not.
    #[inline(always)]
    pub(crate) fn reconsider(&self, address: usize, class: u8, verdict: CacheVerdict) -> CacheVerdict {
        if verdict == CacheVerdict::Unmapped {
            return verdict;
        }
        let key = ((address >> 6) as u64) ^ (u64::from(class) << 58);
        let tag = ((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32).max(1);
        let position = self.0.iter().position(|range| Debts::of(range.load(Relaxed)).tag == tag);
        let before = position.map(|at| Debts::of(self.0[at].load(Relaxed)));
        let mut range = before.unwrap_or(Debts { tag, ..Debts::default() });
        let follow = match (verdict, before) {
            (CacheVerdict::Uncached, Some(_)) if range.attempt() => CacheVerdict::Cached,
            (CacheVerdict::Cached, None) => return verdict,
            (CacheVerdict::Cached, Some(_)) => {
                range.pay();
                verdict
            }
            _ => verdict,
        };
        if Some(range) != before {
            self.put_first(range, position);
        }
        follow
    }

    /// Puts a range before the others, from its position, or in place of the one that was used longest ago.
    fn put_first(&self, range: Debts, position: Option<usize>) {
        let mut next = range.word();
        for word in &self.0[..=position.unwrap_or(RANGES - 1)] {
            let before = word.load(Relaxed);
            word.store(next, Relaxed);
            next = before;
        }
    }

    #[cfg(feature = "unstable-internals")]
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|range| range.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CacheVerdict::{Cached, Uncached, Unmapped};

    const SIZE: usize = 1 << 20;
    const CLASS: u8 = 20;

    /// Buffers that are in the cache if they were last written through it and nothing has evicted them.
    struct Buffers {
        cached: Vec<bool>,
        bypassed: Bypassed,
        /// Time of all calls: of one that bypasses the cache 1, in cached memory 0.6, through the cache in uncached memory 2.7, as on
        /// the machine with the most expensive attempts.
        time: f64,
        calls: usize,
        through_the_cache: usize,
    }

    impl Buffers {
        fn uncached(count: usize) -> Buffers {
            let cached = vec![false; count];
            Buffers { cached, bypassed: Bypassed::new(), time: 0.0, calls: 0, through_the_cache: 0 }
        }

        fn write_as(&mut self, buffer: usize, class: u8) {
            let found = if self.cached[buffer] { Cached } else { Uncached };
            let follow = self.bypassed.reconsider(buffer * SIZE, class, found);
            self.time += match (found, follow) {
                (Cached, _) => 0.6,
                (_, Cached) => 2.7,
                _ => 1.0,
            };
            self.calls += 1;
            self.through_the_cache += usize::from(follow == Cached);
            self.cached[buffer] = follow == Cached;
        }

        fn write(&mut self, buffer: usize) {
            self.write_as(buffer, CLASS);
        }

        /// Writes each buffer in turn so many times.
        fn write_all(&mut self, rounds: usize) {
            let count = self.cached.len();
            (0..rounds * count).for_each(|call| self.write(call % count));
        }

        /// The time of a call, where bypassing the cache takes 1.
        fn time(&self) -> f64 {
            self.time / self.calls as f64
        }

        fn restart(&mut self) {
            (self.time, self.calls, self.through_the_cache) = (0.0, 0, 0);
        }
    }

    #[test]
    fn memory_that_was_only_bypassed_comes_back_into_the_cache() {
        for count in 1..=RANGES {
            let mut buffers = Buffers::uncached(count);
            // Something evicts all of them, or one.
            for time in 0..20 {
                let evicted = if time % 2 == 0 { 0..count } else { 0..1 };
                buffers.cached[evicted].fill(false);
                buffers.write_all(5);
                buffers.restart();
                buffers.write_all(100);
                assert_eq!(buffers.through_the_cache, buffers.calls, "{count} buffers");
            }
        }
    }

    #[test]
    fn memory_that_other_work_evicts_costs_little() {
        for count in 1..=RANGES {
            for every in 1..=10 {
                let mut buffers = Buffers::uncached(count);
                for round in 0..10_000 {
                    if round % every == 0 {
                        buffers.cached.fill(false);
                    }
                    buffers.write_all(1);
                }
                let most = if every > 5 { 1.0 } else { 1.03 };
                assert!(buffers.time() < most, "{} of {count} evicted every {every}", buffers.time());
                assert!(buffers.through_the_cache > 0);
            }
        }
    }

    #[test]
    fn memory_that_is_evicted_at_random_costs_little() {
        let mut random = 1_u64;
        for percent in (5..100).step_by(5) {
            let mut buffers = Buffers::uncached(1);
            for _ in 0..20_000 {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                buffers.cached[0] &= random >> 33 & 1023 >= percent * 1024 / 100;
                buffers.write(0);
            }
            assert!(buffers.time() < 1.06, "{} at {percent} %", buffers.time());
        }
    }

    #[test]
    fn buffers_of_which_only_one_fits_the_cache_are_mostly_bypassed() {
        for count in 2..=RANGES {
            let mut buffers = Buffers::uncached(count);
            for call in 0..10_000 {
                let buffer = call % count;
                buffers.write(buffer);
                if buffers.cached[buffer] {
                    (0..count).filter(|it| *it != buffer).for_each(|it| buffers.cached[it] = false);
                }
            }
            assert!(buffers.time() < 1.03, "{} of {count}", buffers.time());
        }
    }

    #[test]
    fn memory_that_stays_comes_back_whatever_happens_to_other_memory() {
        for count in 2..=RANGES {
            for evicted in 0..count {
                let mut buffers = Buffers::uncached(count);
                for round in 0..5000 {
                    // First all of them, then one.
                    if round < 1000 {
                        buffers.cached.fill(false);
                    }
                    buffers.cached[evicted] = false;
                    if round == 4000 {
                        buffers.restart();
                    }
                    buffers.write_all(1);
                }
                let expected = buffers.calls * (count - 1) / count;
                let attempts = buffers.through_the_cache - expected.min(buffers.through_the_cache);
                assert!(
                    buffers.through_the_cache >= expected && attempts < 20,
                    "{count}, {evicted}: {attempts}"
                );
            }
        }
    }

    #[test]
    fn hot_and_new_memory_does_not_change_that() {
        for hot in 1..4 {
            for new in 0..3 {
                let mut buffers = Buffers::uncached(1 + hot + 20_000 * new);
                let mut attempts = 0;
                for round in 0..10_000 {
                    buffers.cached[0] = false;
                    let before = buffers.through_the_cache;
                    buffers.write(0);
                    attempts += buffers.through_the_cache - before;
                    for hot in 1..=hot {
                        buffers.cached[hot] = true;
                        buffers.write(hot);
                    }
                    (0..new).for_each(|at| buffers.write(1 + hot + round * new + at));
                }
                assert!((1..=100).contains(&attempts), "{attempts} with {hot} hot and {new} new buffers");
            }
        }
    }

    /// A long call finds the memory evicted; short ones at its beginning find that cached.
    #[test]
    fn short_calls_do_not_confirm_a_long_one() {
        let mut buffers = Buffers::uncached(1);
        let mut long = 0;
        for _ in 0..10_000 {
            buffers.cached[0] = false;
            let before = buffers.through_the_cache;
            buffers.write_as(0, 21);
            long += buffers.through_the_cache - before;
            for _ in 0..3 {
                buffers.cached[0] = true;
                buffers.write_as(0, 16);
            }
        }
        assert!((1..=100).contains(&long), "{long}");
    }

    #[test]
    fn memory_that_is_not_written_again_soon_is_never_tried() {
        let bypassed = Bypassed::new();
        for address in (0..1000).map(|at| at * SIZE) {
            assert_eq!(bypassed.reconsider(address, CLASS, Uncached), Uncached, "{address:#x}");
        }
        for verdict in [Unmapped, Cached, Unmapped] {
            assert_eq!(bypassed.reconsider(999 * SIZE, CLASS, verdict), verdict);
        }
    }

    #[test]
    fn a_word_keeps_the_range() {
        let most = Debts { tag: u32::MAX, debts: MOST_DEBTS, pause: 1 << MOST_DEBTS, cached: REPAYMENT };
        for range in [
            Debts::default(),
            Debts { tag: u32::MAX, ..Debts::default() },
            Debts { debts: MOST_DEBTS, ..Debts::default() },
            Debts { pause: 1 << MOST_DEBTS, ..Debts::default() },
            Debts { cached: REPAYMENT, ..Debts::default() },
            most,
        ] {
            assert_eq!(Debts::of(range.word()), range);
        }
    }
}
