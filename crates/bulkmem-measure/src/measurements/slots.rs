//! Equal parts of memory that successive operations use, so that none finds its memory where the last one left it.

use crate::engine::arena::RawRange;

/// Destinations and, for copies, their sources.
#[derive(Debug)]
pub(super) struct Slots {
    start: *mut u8,
    count: usize,
    length: usize,
    /// From a destination to its source; 0 if there are no sources.
    distance: usize,
    next: usize,
}

impl Slots {
    /// Divides memory into slots of `length` bytes: destinations and, with `sources`, in the second half as many sources.
    pub(super) fn new(memory: RawRange, length: usize, sources: bool) -> Slots {
        let side = if sources { memory.length / 2 } else { memory.length };
        let count = (side / length).max(1);
        let distance = if sources { count * length } else { 0 };
        Slots { start: memory.start, count, length, distance, next: 0 }
    }

    /// Returns the next destination and its source.
    pub(super) fn next(&mut self) -> (*mut u8, *const u8) {
        self.next = (self.next + 1) % self.count;
        let dst = self.start.wrapping_add(self.next * self.length);
        (dst, dst.wrapping_add(self.distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
