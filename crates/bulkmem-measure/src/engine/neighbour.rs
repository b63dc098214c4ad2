//! A neighbour that lives in the cache: a list of lines, linked in random order, that is walked from end to end.

use crate::engine::{LINE, RawRange};

#[derive(Debug)]
pub(crate) struct Neighbour {
    first: *const usize,
    lines: usize,
}

impl Neighbour {
    /// Links the first `bytes` of a range, in an order that no prefetcher guesses.
    ///
    /// # Safety
    /// The range is valid for reads and writes, and no other code writes to it, as long as the neighbour lives.
    pub(crate) unsafe fn new(raw_range: RawRange, bytes: usize) -> Neighbour {
        let lines = (bytes.min(raw_range.length) / LINE).max(2);
        // Sattolo's shuffle leaves one single cycle.
        let mut order: Vec<usize> = (0..lines).collect();
        let mut random = fastrand::Rng::with_seed(0x6275_6c6b);
        for index in (1..lines).rev() {
            order.swap(index, random.usize(..index));
        }
        let line = |index: usize| raw_range.start.wrapping_add(index * LINE).cast::<usize>();
        for (index, next) in order.iter().enumerate() {
            // SAFETY: the line lies in the range, which the caller vouches for; lines are aligned for a word.
            unsafe { line(index).write(line(*next).addr()) }
        }
        Neighbour { first: line(0), lines }
    }

    pub(crate) fn walk(&self) {
        let mut at = self.first;
        for _ in 0..self.lines {
            // SAFETY: `new` linked the lines in one cycle and its caller keeps others from writing to them; each holds
            // the address of another line of the same range.
            at = unsafe { self.first.with_addr(at.read_volatile()) };
        }
        assert_eq!(std::hint::black_box(at), self.first, "other code wrote to the neighbour's memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_walk_visits_every_line_once() {
        let mut memory = vec![0usize; 1000 * LINE / size_of::<usize>()];
        let raw_range = RawRange { start: memory.as_mut_ptr().cast(), length: 1000 * LINE };
        // SAFETY: the vector outlives the neighbour and is not touched at the same time, but for reading below.
        let neighbour = unsafe { Neighbour::new(raw_range, usize::MAX) };
        assert_eq!(neighbour.lines, 1000);
        neighbour.walk();
        let mut seen = std::collections::HashSet::new();
        let mut at = neighbour.first;
        for _ in 0..1000 {
            assert!(seen.insert(at.addr()));
            // SAFETY: as in `walk`.
            at = unsafe { neighbour.first.with_addr(at.read()) };
        }
        assert_eq!(at, neighbour.first);
    }
}
