//! Addresses of operations, spread over a range: in turn, or in an order that looks random.

use crate::engine::arena::HUGE;
use crate::engine::{LINE, RawRange};

/// The fraction of the golden ratio, times 2⁶⁴.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Longer warm ranges stay where they are.
const FEW_PAGES: usize = 4 * HUGE;

/// Walks the slots of a range in an order that looks random and comes back to a slot only after all others. Starts at any number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation(pub(crate) u64);

impl Permutation {
    /// The next of `slots` slots.
    pub(crate) fn next(&mut self, slots: u64) -> u64 {
        // A linear congruential generator with a power of two as modulus, a - 1 divisible by 4 and an odd increment
        // runs through all residues; those that are no slots are skipped. The high bits differ most, and they are
        // the ones that make addresses differ most.
        let mask = slots.max(1).next_power_of_two() - 1;
        loop {
            self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x5851_f42d_4c95_7f2d);
            let slot = self.0 & mask;
            if slot < slots.max(1) {
                return slot;
            }
        }
    }
}

/// Places for operations in memory whose parts may differ in speed: that of a virtual machine often lies on several NUMA nodes
/// of its host, or in pages of several sizes there, which the guest does not see. Operations of the same turn get places in the same
/// part, so that candidates that are compared in turns have all used the same parts. Each place is used again only after all
/// others of its part.
#[derive(Debug)]
pub(crate) struct Spread {
    seed: u64,
    /// The least length of a part, bytes.
    part: u64,
    /// The order of places in each part.
    orders: Vec<Permutation>,
}

impl Spread {
    /// Parts have at least so many places, so that a candidate gets another one each time.
    const PLACES: u64 = 32;
    /// The last-level cache fits a part so often that nothing of a place is in the cache when it is used again.
    const CACHES: u64 = 4;
    /// Parts have several huge pages, because places in one page would share the translation of its address.
    const LEAST: u64 = 32 << 20;

    /// Places in memory from which operations take more lines than a last-level cache of that length keeps.
    pub(crate) fn new(seed: u64, last_level: u64) -> Spread {
        Spread { seed, part: last_level.saturating_mul(Self::CACHES).max(Self::LEAST), orders: Vec::new() }
    }

    /// An address in the range at which `length` bytes fit: the start of a line, or `offset` bytes after it.
    pub(crate) fn place(&mut self, range: RawRange, length: usize, offset: usize, turn: u64) -> *mut u8 {
        let stride = (length + LINE).next_multiple_of(LINE) as u64;
        let places = range.length as u64 / stride;
        let parts = (places / (self.part / stride).max(Self::PLACES)).max(1);
        let places = places / parts;
        // Fractions of multiples of the golden ratio: any few turns in a row are spread over the whole range.
        let fraction = turn.wrapping_mul(GOLDEN);
        let part = ((u128::from(fraction) * u128::from(parts)) >> 64) as u64;
        while self.orders.len() as u64 <= part {
            // Different seeds: with the same one, successive operations would use the same place of each part.
            let number = self.orders.len() as u64;
            self.orders.push(Permutation(self.seed.wrapping_add(number.wrapping_mul(GOLDEN))));
        }
        let place = part * places + self.orders[part as usize].next(places);
        range.start.wrapping_add((place * stride) as usize + offset)
    }
}

/// Returns the start of warm ranges: for each turn in other pages, which may differ in speed, as those of [`Spread`] may. All candidates
/// of a turn use the same pages. `needed` bytes fit there. More than [`FEW_PAGES`] lie in pages enough, and stay where they are, since
/// bringing them into the cache elsewhere takes long.
pub(crate) fn warm_start(range: RawRange, needed: usize, turn: u64) -> *mut u8 {
    let places = match range.length.checked_sub(needed) {
        Some(room) if needed <= FEW_PAGES => room / HUGE + 1,
        _ => 1,
    };
    let fraction = turn.wrapping_mul(GOLDEN);
    let place = ((u128::from(fraction) * places as u128) >> 64) as usize;
    range.start.wrapping_add(place * HUGE)
}

/// Equal parts of memory that successive operations use, so that none finds its memory where the last one left it:
/// destinations and, for copies, their sources.
#[derive(Debug)]
pub(crate) struct Slots {
    start: *mut u8,
    count: usize,
    length: usize,
    /// From a destination to its source; 0 if there are no sources.
    distance: usize,
    next: usize,
}

impl Slots {
    /// Divides memory into slots of `length` bytes: destinations and, with `sources`, in the second half as many sources.
    pub(crate) fn new(memory: RawRange, length: usize, sources: bool) -> Slots {
        let side = if sources { memory.length / 2 } else { memory.length };
        let count = (side / length).max(1);
        let distance = if sources { count * length } else { 0 };
        Slots { start: memory.start, count, length, distance, next: 0 }
    }

    pub(crate) fn next(&mut self) -> (*mut u8, *const u8) {
        self.next = (self.next + 1) % self.count;
        let dst = self.start.wrapping_add(self.next * self.length);
        (dst, dst.wrapping_add(self.distance))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_slot_comes_once_before_any_comes_again() {
        for slots in [1, 2, 3, 7, 64, 1000, 4096] {
            let mut permutation = Permutation(42);
            let seen: HashSet<u64> = (0..slots).map(|_| permutation.next(slots)).collect();
            assert_eq!(seen.len() as u64, slots);
        }
    }

    const MIB: usize = 1 << 20;

    fn gibibyte() -> RawRange {
        RawRange { start: std::ptr::without_provenance_mut(1 << 40), length: 1 << 30 }
    }

    #[test]
    fn places_of_a_turn_are_neighbours_and_those_of_many_turns_everywhere() {
        for (last_level, length, part) in [
            (8, 64, 64),
            (8, 64 << 10, 64),
            (8, MIB, 64),
            (8, 3 * MIB, 192),
            (32, MIB, 256),
            (300, MIB, 1024),
        ] {
            let mut spread = Spread::new(1, last_level << 20);
            let mut all = HashSet::new();
            for turn in 0..100 {
                let places: Vec<usize> =
                    (0..24).map(|_| spread.place(gibibyte(), length, 0, turn).addr()).collect();
                let (first, last) = (places.iter().min().unwrap(), places.iter().max().unwrap());
                assert!(last - first < part * MIB, "{length} bytes over {} MiB", (last - first) / MIB);
                assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len(), "none comes twice");
                all.extend(places);
            }
            let eighths: HashSet<usize> = all.iter().map(|it| (it - (1 << 40)) / (128 * MIB)).collect();
            assert_eq!(eighths.len(), 8, "{length} bytes");
        }
    }

    /// Also if all operations are of one turn.
    #[test]
    fn a_place_comes_again_only_after_several_times_the_cache() {
        for last_level in [8, 32, 260] {
            for length in [64 << 10, MIB, 5 * MIB, 100 * MIB] {
                let mut spread = Spread::new(1, last_level << 20);
                let mut last_use = std::collections::HashMap::new();
                for at in 0..3000 {
                    let place = spread.place(gibibyte(), length, 0, 7);
                    let before = last_use.insert(place, at);
                    let between = before.map_or(usize::MAX, |before: usize| (at - before - 1) * length);
                    let all = (1 << 30) - 3 * length;
                    assert!(
                        between >= (3 * MIB * last_level as usize).min(all),
                        "{last_level} {length}: {between}"
                    );
                }
            }
        }
    }

    #[test]
    fn successive_operations_do_not_use_the_same_place_of_each_part() {
        let mut spread = Spread::new(1, 8 << 20);
        let sets: HashSet<usize> =
            (0..32).map(|turn| spread.place(gibibyte(), 64, 0, turn).addr() / LINE % 64).collect();
        assert!(sets.len() > 16, "{} sets of a first-level cache", sets.len());
    }

    #[test]
    fn warm_ranges_of_a_turn_share_pages_and_those_of_many_turns_lie_everywhere() {
        let range = gibibyte();
        let starts: Vec<usize> =
            (0..100).map(|turn| warm_start(range, MIB, turn).addr() - range.start.addr()).collect();
        assert!(starts.iter().all(|start| start.is_multiple_of(HUGE) && start + MIB <= range.length));
        let eighths: HashSet<usize> = starts.iter().map(|start| start / (128 * MIB)).collect();
        assert_eq!(eighths.len(), 8);
        let places =
            |needed| (0..100).map(|turn| warm_start(range, needed, turn)).collect::<HashSet<_>>().len();
        let longer = [FEW_PAGES + 1, range.length, range.length + 1];
        assert_eq!((places(FEW_PAGES), longer.map(places)), (100, [1; 3]));
        let tight = RawRange { length: HUGE + MIB, ..range };
        assert!((0..100).all(|turn| warm_start(tight, MIB, turn).addr() <= range.start.addr() + HUGE));
    }

    #[test]
    fn places_fit() {
        let memory = [0u8; 4096];
        let raw_range = RawRange { start: memory.as_ptr().cast_mut(), length: memory.len() };
        let mut spread = Spread::new(1, 8 << 20);
        for length in [1, 63, 64, 1000, 4000] {
            for offset in [0, 1, 63] {
                let at = spread.place(raw_range, length, offset, 3).addr() - raw_range.start.addr();
                assert!(at + length <= memory.len(), "{length} bytes at {at}");
                assert_eq!(at % LINE, offset);
            }
        }
    }

    #[test]
    fn slots_repeat_after_all_others_and_lie_apart_from_their_sources() {
        let memory = RawRange { start: std::ptr::without_provenance_mut(4096), length: 600 };
        let mut slots = Slots::new(memory, 100, true);
        let seen: Vec<(usize, usize)> =
            (0..6).map(|_| slots.next()).map(|(d, s)| (d.addr(), s.addr())).collect();
        assert_eq!(seen[..3], [(4196, 4496), (4296, 4596), (4096, 4396)]);
        assert_eq!(seen[..3], seen[3..]);
        let mut slots = Slots::new(memory, 600, false);
        assert_eq!((slots.next().0.addr(), slots.next().1.addr()), (4096, 4096));
    }
}
