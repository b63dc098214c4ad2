//! Addresses of operations, spread over a range: in turn, or in an order that looks random.

use crate::engine::{LINE, RawRange};

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

    /// An address in the range at which `length` bytes fit: the start of a line, or `offset` bytes after it.
    pub(crate) fn next_address(&mut self, raw_range: RawRange, length: usize, offset: usize) -> *mut u8 {
        let stride = (length + LINE).next_multiple_of(LINE);
        let slots = (raw_range.length / stride) as u64;
        raw_range.start.wrapping_add(self.next(slots) as usize * stride + offset)
    }
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

    #[test]
    fn places_fit() {
        let memory = [0u8; 4096];
        let raw_range = RawRange { start: memory.as_ptr().cast_mut(), length: memory.len() };
        let mut permutation = Permutation(1);
        for length in [1, 63, 64, 1000, 4000] {
            for offset in [0, 1, 63] {
                let at = permutation.next_address(raw_range, length, offset).addr() - raw_range.start.addr();
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
