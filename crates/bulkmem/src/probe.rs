//! The times that tell whether memory is cached.
//!
//! Stores to a few places that are scattered over a range, by the processor's own clock. They wait for the lines, and for
//! whatever else reaching a page may take: mapping it, the translation of its address, and earlier stores that are still on
//! their way to memory. If they were not fast, a second store to another line of each page waits for the line only, and that
//! time says where the line was. No bytes are written that the operation would not write there.
#![cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]

use std::ops::Range;

use crate::kernel::Memory;
use crate::method;
use crate::policy::LEAST_LOOKED;

/// Shorter ranges have no room.
pub const LEAST: usize = LEAST_LOOKED;
/// Places. With all their misses under way at the same time, four take little longer than one, and four in a range of
/// which a part is cached say more.
const PLACES: usize = 4;
const PAGE: usize = 4096;
const LINE: usize = 64;
/// Bytes between the two stores to a place: no prefetcher fetches a line so far away after one miss.
const APART: usize = 512;

/// Times in ticks of the [clock](crate::clock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until the pages were reached, and lines in them.
    pub reaching: u64,
    /// Of the stores to lines of pages that had just been reached; `None` if reaching them was fast enough to tell.
    pub storing: Option<u64>,
}

/// Takes the times of a piece that has at least [`LEAST`] bytes. The second stores are for pages that were not reached in
/// fewer than `enough` ticks.
///
/// # Safety
/// The piece is valid for writes, and that of the source for reads, if there is one; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn take(
    memory: &Memory,
    piece: Range<usize>,
    enough: u64,
    clock: &mut impl FnMut() -> u64,
) -> Times {
    debug_assert!(piece.len() >= LEAST);
    let places = places(memory.dst.addr().wrapping_add(piece.start), piece.len());
    let store = |place: usize, word: u64| {
        let to = memory.dst.wrapping_add(piece.start + place).cast::<u64>();
        debug_assert!(to.is_aligned());
        // SAFETY: the place lies within the piece with its 8 bytes, at the beginning of a line.
        unsafe { to.write_volatile(word) }
    };
    // Read before the clock, which waits for it: the state of the source is not what the times are to tell.
    // SAFETY: as above.
    let words = |of: [usize; PLACES]| of.map(|place| unsafe { memory.word(piece.start + place) });
    let (first, second) = (words(places.map(|it| it.0)), words(places.map(|it| it.1)));
    let start = clock();
    for ((place, _), word) in places.iter().zip(first) {
        store(*place, word);
    }
    method::drain();
    let reached = clock();
    let reaching = reached.wrapping_sub(start);
    if reaching < enough {
        return Times { reaching, storing: None };
    }
    for ((_, place), word) in places.iter().zip(second) {
        store(*place, word);
    }
    method::drain();
    Times { reaching, storing: Some(clock().wrapping_sub(reached)) }
}

/// Takes both times of a fill's destination, or of a copy's, as a call that looks at it.
///
/// # Safety
/// `dst` is valid for writes of `length` bytes, at least [`LEAST`], and `src`, if it is not null, for reads of as many;
/// they do not overlap.
#[cfg(feature = "unstable-internals")]
#[inline(never)]
pub unsafe fn times(dst: *mut u8, src: *const u8, length: usize, byte: u8) -> Times {
    let memory =
        if src.is_null() { Memory::filled(dst, length, byte) } else { Memory::copied(dst, src, length) };
    // SAFETY: passed on from the caller.
    unsafe { take(&memory, 0..length, 0, &mut crate::clock::ticks) }
}

/// The places of a range that begins at an address: for each, where its two stores go, as offsets, at beginnings of lines
/// of one page.
#[inline(always)]
fn places(start: usize, length: usize) -> [(usize, usize); PLACES] {
    std::array::from_fn(|at| {
        // Away from both ends, which are the most likely to have been used otherwise.
        let first = (start + (at + 1) * (length / (PLACES + 2))).next_multiple_of(LINE);
        let second = if first % PAGE < PAGE - APART { first + APART } else { first - APART };
        (first - start, second - start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_lie_within_the_range_in_pairs_of_lines_of_one_page() {
        let lengths = (LEAST..LEAST + 200).chain([8191, 8192, 65_536, 100_003, 1 << 30]);
        let (every, start_every) = if cfg!(miri) { (50, 500) } else { (1, 1) };
        for length in lengths.step_by(every) {
            for start in ((1 << 30)..(1 << 30) + 2 * PAGE).step_by(start_every) {
                for (first, second) in places(start, length) {
                    assert!(first + 8 <= length && second + 8 <= length, "{length} at {start}");
                    let [first, second] = [first + start, second + start];
                    assert!(first.is_multiple_of(LINE) && second.is_multiple_of(LINE));
                    assert_eq!((first / PAGE, first.abs_diff(second)), (second / PAGE, APART));
                }
            }
        }
    }

    /// Four different lines of the copy, twice, and nothing else.
    #[test]
    fn a_probe_writes_some_bytes_of_the_copy_and_no_others() {
        let source: Vec<u8> = (0..3 * LEAST).map(|at| at as u8 | 1).collect();
        let mut copy = vec![0; source.len()];
        let piece = LEAST / 2 + 5..source.len() - 7;
        let memory = Memory::copied(copy.as_mut_ptr(), source.as_ptr(), source.len());
        let mut clock = [10, 15, 17].into_iter();
        // SAFETY: both ranges are valid, and apart.
        let times = unsafe { take(&memory, piece.clone(), 5, &mut || clock.next().unwrap()) };
        assert_eq!(times, Times { reaching: 5, storing: Some(2) });
        let written: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != 0).collect();
        assert_eq!(written.len(), 2 * PLACES * 8);
        assert!(written.iter().all(|at| piece.contains(at) && copy[*at] == source[*at]));
    }

    #[test]
    fn a_probe_of_a_fill_writes_its_byte() {
        let mut bytes = vec![0; LEAST];
        let memory = Memory::filled(bytes.as_mut_ptr(), LEAST, 0xA5);
        // SAFETY: the range is valid.
        let times = unsafe { take(&memory, 0..LEAST, 1, &mut || 0) };
        assert_eq!(times, Times { reaching: 0, storing: None });
        assert_eq!(
            bytes.iter().filter(|byte| **byte == 0xA5).count(),
            PLACES * 8,
            "the first stores are enough"
        );
    }
}
