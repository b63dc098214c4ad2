//! The ranges of memory that are persistent because of how `pmem_map_file` mapped them. Sorted; none overlap.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::failure::{Failed, fail};

/// Why a range is persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file mapped with MAP_SYNC.
    Synchronous,
    /// Device DAX, with the number of the region if it is known.
    Device(Option<u32>),
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) struct Ranges(Vec<Range>);

/// Those of this process.
static RANGES: RwLock<Ranges> = RwLock::new(Ranges(Vec::new()));

pub(crate) fn read() -> RwLockReadGuard<'static, Ranges> {
    RANGES.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write() -> RwLockWriteGuard<'static, Ranges> {
    RANGES.write().unwrap_or_else(PoisonError::into_inner)
}

impl Ranges {
    /// Makes room for what `add` and `remove` may need.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn reserve(&mut self) -> Result<(), Failed> {
        let more = size_of::<Range>() * 2 * (self.0.len() + 2);
        // Not from the allocator's reserve, which would not get it back.
        let reserved = self.0.capacity() >= self.0.len() + 2
            || (bulkmem_reserve::system_has(more) && self.0.try_reserve(2).is_ok());
        if reserved { Ok(()) } else { Err(fail(libc::ENOMEM, format_args!("no memory to note a mapping"))) }
    }

    /// Adds a range, in place of those that it overlaps: they have been unmapped by other means.
    pub(crate) fn add(&mut self, range: Range) {
        self.remove(range.start, range.end);
        let at = self.0.partition_point(|other| other.start < range.start);
        self.0.insert(at, range);
    }

    /// Removes the addresses from `start` to `end`; a range can lose its middle.
    pub(crate) fn remove(&mut self, start: usize, end: usize) {
        let Some(at) = self.0.iter().position(|range| range.start < end && start < range.end) else { return };
        let range = self.0.remove(at);
        if end < range.end {
            self.0.insert(at, Range { start: end, ..range });
        } else {
            self.remove(start, end);
        }
        if range.start < start {
            self.0.insert(at, Range { end: start, ..range });
        }
    }

    /// The first range with an address from `start` to `end`.
    pub(crate) fn first(&self, start: usize, end: usize) -> Option<Range> {
        self.0.iter().copied().find(|range| range.start < end && start < range.end)
    }

    /// True if every address is in a range.
    pub(crate) fn contain(&self, start: usize, end: usize) -> bool {
        let mut reached = start;
        for range in self.0.iter().filter(|range| range.end > start) {
            if range.start > reached || reached >= end {
                break;
            }
            reached = range.end;
        }
        reached >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::Synchronous;

    /// Against a table of flags, one for each address.
    #[test]
    fn ranges_are_those_that_were_added_and_not_removed() {
        const MOST: usize = 12;
        let steps = |seed: usize| {
            (0..6).map(move |step| {
                let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(11 * step as u32 + 7);
                let start = bits % MOST;
                (bits >> 8 & 1 == 0, start, start + 1 + (bits >> 16) % (MOST - start))
            })
        };
        for seed in 1..3000 {
            let (mut ranges, mut flags) = (Ranges(Vec::new()), [false; MOST + 1]);
            for (add, start, end) in steps(seed) {
                flags[start..end].fill(add);
                if add {
                    ranges.add(Range { start, end, kind: KIND })
                } else {
                    ranges.remove(start, end)
                }
                assert!(ranges.0.is_sorted_by(|a, b| a.end <= b.start), "{seed}: {ranges:?}");
                for from in 0..MOST {
                    for to in from + 1..=MOST {
                        let all = flags[from..to].iter().all(|flag| *flag);
                        assert_eq!(ranges.contain(from, to), all, "{seed}: {from}..{to} in {ranges:?}");
                        let any = flags[from..to].iter().any(|flag| *flag);
                        assert_eq!(
                            ranges.first(from, to).is_some(),
                            any,
                            "{seed}: {from}..{to} in {ranges:?}"
                        );
                    }
                }
            }
        }
    }
}
