//! The memory to measure in: one range of huge pages where the kernel gives them, every page touched before
//! anything is timed.

use std::slice::from_raw_parts;
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::{Mapping, Pages};

use crate::engine::units::bytes;
use crate::engine::{LINE, MeasureError, MemoryLeft, Result, Share, memory_left, threads};

pub(crate) const HUGE: usize = 2 << 20;
/// Memory is touched in pieces of this size; between them the user may stop it, and a slow host is noticed in time.
const PIECE: usize = 16 << 20;
/// Less than this is not useful.
const LEAST: usize = 16 << 20;
/// The share of the memory left that is used: 1 part in this many, if that is enough.
const PART: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRange {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

#[derive(Debug)]
pub(crate) struct Arena {
    region: Mapping,
    pub(crate) neighbour: RawRange,
    pub(crate) destination: RawRange,
    pub(crate) source: RawRange,
    /// Why the sides are smaller than requested.
    pub(crate) shortened: Option<String>,
}

impl Arena {
    /// Takes memory for a destination and a source of `side` bytes each, and for a neighbour of `neighbour` bytes. Both
    /// sides are smaller if less memory is left, or if touching all of it would take longer than `patience`. Takes base
    /// pages if the kernel has no transparent ones.
    pub(crate) fn new(side: u64, neighbour: u64, pages: Pages, patience: Duration) -> Result<Arena> {
        Arena::of(&memory_left(), side, neighbour, pages, patience)
    }

    /// The same, with so much memory left.
    fn of(left: &MemoryLeft, side: u64, neighbour: u64, pages: Pages, patience: Duration) -> Result<Arena> {
        let (wanted, neighbour) = rounded(side, neighbour);
        let least = 2 * LEAST + neighbour;
        if left.most() < least as u64 {
            return Err(MeasureError::Memory { needed: least as u64, left: left.clone() });
        }
        let usable = usize::try_from((left.bytes / PART).max(least as u64)).unwrap_or(usize::MAX / 4);
        let fits = (usable - neighbour) / 2;
        let mut shortened = (fits < wanted).then(|| format!("to fit the {left}"));
        let whole = neighbour + wanted.min(fits) / HUGE * HUGE * 2;
        let mut region = Mapping::new(whole, pages)
            .or_else(|_| Mapping::new(whole, Pages::Base))
            .map_err(|source| MeasureError::Mapping { bytes: whole as u64, source })?;
        let started = Instant::now();
        let ready =
            touch(&mut region, write_something, |ready| ready < least || started.elapsed() < patience);
        if ready < whole {
            shortened = Some("as touching more memory would take too long".to_owned());
        }
        let length = (ready - neighbour) / 2 / HUGE * HUGE;
        let start = region.as_mut_ptr();
        let side = |at: usize| RawRange { start: start.wrapping_add(at), length };
        let (destination, source) = (side(neighbour), side(neighbour + length));
        let neighbour = RawRange { start, length: neighbour };
        Ok(Arena { region, neighbour, destination, source, shortened })
    }

    /// The same, but all of it or none.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) fn complete(side: u64, pages: Pages, patience: Duration) -> Result<Arena, String> {
        // The neighbour is not used.
        let (left, neighbour) = (memory_left(), 0);
        let (wanted, beside) = rounded(side, neighbour);
        let needed = (2 * wanted + beside) as u64;
        if left.bytes / PART < needed {
            return Err(format!("they would need {}, more than a quarter of the {left}", bytes(needed)));
        }
        let arena = Arena::of(&left, side, neighbour, pages, patience).map_err(|error| error.to_string())?;
        match arena.shortened {
            Some(_) => Err(format!("preparing {} of them takes too long", bytes(needed))),
            None => Ok(arena),
        }
    }

    /// The longest operation that fits at any alignment.
    pub(crate) fn longest(&self) -> u64 {
        (self.source.length - HUGE) as u64
    }

    /// The size of the pages that back it, as the kernel reports it; of a base page if it does not.
    pub(crate) fn backing_page_size(&self) -> usize {
        self.region.backing_page_size().unwrap_or(Machine::current().page_size)
    }
}

/// Returns how much is mapped for a side and for a neighbour, if there is enough.
fn rounded(side: u64, neighbour: u64) -> (usize, usize) {
    let neighbour = usize::try_from(neighbour).unwrap_or(LEAST).clamp(4096, LEAST);
    let side = usize::try_from(side).unwrap_or(usize::MAX).min(usize::MAX / 8);
    ((side + HUGE).next_multiple_of(HUGE).max(LEAST), neighbour.next_multiple_of(HUGE))
}

/// Writes to memory piece by piece, with all processors, while `go_on` accepts the bytes that are ready. Returns these.
pub(crate) fn touch(
    region: &mut Mapping,
    write: impl Fn(&mut [u8]) + Sync,
    mut go_on: impl FnMut(usize) -> bool,
) -> usize {
    let processors = Machine::current().processors.clamp(1, 16);
    let mut ready = 0;
    for piece in region.chunks_mut(PIECE) {
        if !go_on(ready) {
            break;
        }
        ready += piece.len();
        let share = piece.len().div_ceil(processors).next_multiple_of(HUGE);
        threads::share(processors, piece.chunks_mut(share), &write);
    }
    ready
}

/// Writes bytes of which no line is zero or like the next: some processors move lines of zeros faster than others
/// (Zen 4 writes them past the cache three times as fast), and a copy of them would measure that.
pub(crate) fn write_something(part: &mut [u8]) {
    for (index, word) in part.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (index as u64 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    }
}

/// Writes to every line of a range of the arena, and to its last byte.
pub(crate) fn dirty(start: *mut u8, length: usize) {
    for at in (0..length).step_by(LINE).chain(length.checked_sub(1)) {
        // SAFETY: the range lies in the arena, and no other code uses it.
        unsafe { start.add(at).write_volatile(1) }
    }
}

/// Reads a range of the arena once, as fast as plain code reads. Not inlined, so that loops that also read stay small.
#[inline(never)]
pub(crate) fn read(start: *const u8, length: usize) {
    // SAFETY: the range lies in the arena, which is initialized; no other thread writes to it.
    let bytes = unsafe { from_raw_parts(start, length) };
    let (groups, rest) = bytes.as_chunks::<64>();
    // Several sums, so that the additions do not wait for each other.
    let mut sums = [0u64; 8];
    for group in groups {
        for (sum, word) in sums.iter_mut().zip(group.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let tail = rest.iter().fold(0u64, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    std::hint::black_box((sums, tail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryLimit;

    #[test]
    fn a_side_of_any_length_fits() {
        for side in [32 << 20, (32 << 20) + 1, (33 << 20) - 1] {
            let arena = Arena::new(side, 1 << 20, Pages::Base, Duration::MAX).unwrap();
            assert!(arena.longest() >= side, "{side}");
        }
    }

    #[test]
    fn stretches_lie_apart_and_are_ready() {
        let arena = Arena::new(32 << 20, 1 << 20, Pages::Transparent, Duration::from_secs(60)).unwrap();
        assert!(arena.longest() >= 32 << 20);
        let Arena { neighbour, destination, source, .. } = arena;
        let end = |raw_range: RawRange| raw_range.start.wrapping_add(raw_range.length);
        assert!(end(neighbour) <= destination.start && end(destination) <= source.start);
        let ready = neighbour.length + 2 * source.length;
        let blank =
            arena.region[..ready].chunks(64).filter(|line| line.iter().all(|byte| *byte == 0)).count();
        assert_eq!(blank, 0, "every line was written, none with zeros");
        assert!(arena.backing_page_size().is_power_of_two());
    }

    #[test]
    fn a_limit_makes_it_smaller_and_is_named() {
        let of = |mebibytes: u64| {
            let left = MemoryLeft { bytes: mebibytes << 20, limit: MemoryLimit::AddressSpace };
            Arena::of(&left, 256 << 20, 1 << 20, Pages::Transparent, Duration::from_secs(60))
        };
        // A quarter; at least what is of use, as long as that is three quarters at most.
        for (mebibytes, longest) in [(400, 46), (140, 14), (46, 14)] {
            let arena = of(mebibytes).unwrap();
            assert_eq!(arena.longest() >> 20, longest, "{mebibytes} MiB");
            let why = arena.shortened.unwrap();
            assert_eq!(
                why,
                format!("to fit the {mebibytes} MiB left by the address space limit (ulimit -v)")
            );
        }
        assert!(matches!(of(45), Err(MeasureError::Memory { .. })));
        assert_eq!(of(4096).unwrap().shortened, None);
    }

    #[test]
    fn it_is_complete_or_refused() {
        let of = |side, patience| Arena::complete(side, Pages::Base, patience);
        assert!(of(32 << 20, Duration::MAX).unwrap().longest() >= 32 << 20);
        assert!(of(256 << 20, Duration::ZERO).unwrap_err().contains("takes too long"));
        let refused = of(u64::MAX, Duration::MAX).unwrap_err();
        assert!(refused.contains("more than a quarter of the"), "{refused}");
    }

    #[test]
    fn impatience_makes_it_smaller_but_never_useless() {
        let arena = Arena::new(256 << 20, 1 << 20, Pages::Transparent, Duration::ZERO).unwrap();
        assert!(arena.source.length >= LEAST && arena.source.length < 128 << 20, "{}", arena.source.length);
        assert!(arena.shortened.as_ref().unwrap().contains("too long"), "{arena:?}");
    }
}
