//! The times that tell whether memory is cached.
//!
//! Stores to a few places that are scattered over a range, by the processor's own clock. They wait for the lines, and for
//! whatever else reaching a page may take: mapping it, the translation of its address, and earlier stores that are still on
//! their way to memory. If they were not fast, a second store to another line of each page waits for the line only, and that
//! time says where the line was. No bytes are written that the operation would not write there.
//!
//! The time of all stores is that of the slowest. A long range may be cached in part, and then stores that bypass the cache
//! lose more in that part than they gain in the rest; so if all together are slow, single ones follow, and the fastest tells.
#![cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]

use std::ops::Range;

use crate::kernel::Memory;
use crate::method;
use crate::policy::{CacheVerdict, LEAST_LOOKED, Look};

/// Shorter ranges have no room.
pub const LEAST: usize = LEAST_LOOKED;
/// Places. With all their misses under way at the same time, four take little longer than one, and four in a range of
/// which a part is cached say more.
const PLACES: usize = 4;
const PAGE: usize = 4096;
const LINE: usize = 64;
/// Bytes between the stores to a place, at least: no prefetcher fetches a line so far away after one miss.
const APART: usize = 512;
/// In longer ranges, which may be cached in part, single stores follow. They take half a microsecond in local memory.
pub const LONG: usize = 2 << 20;
/// Looks at longer ranges than a huge page begin with their first bytes: the kernel clears every page that a look reaches, and a
/// huge page that is cleared megabytes ahead has left the second-level cache when its bytes are written.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Bytes of that beginning.
pub const BEGINNING: usize = 64 << 10;

/// Times in ticks of the [clock](crate::clock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until the pages were reached, and lines in them.
    pub reaching: u64,
    /// Of the stores to lines of pages that had just been reached: of all together, or in a long range of the fastest one; `None` if
    /// reaching them was fast enough to tell.
    pub storing: Option<u64>,
}

/// What a look found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) verdict: CacheVerdict,
    /// Ticks until the pages were reached.
    pub(crate) reaching: u64,
    /// Whether the verdict is “cached” for all places, which are spread over the piece, and not for a part of them.
    pub(crate) cached_throughout: bool,
}

/// Looks at a piece. `None` if the clock fails.
///
/// # Safety
/// The piece has at least [`LEAST`] bytes and is valid for writes, and that of the source for reads, if there is one; they do not
/// overlap.
#[inline(always)]
pub(crate) unsafe fn look_at(
    look: &Look,
    memory: &Memory,
    piece: Range<usize>,
    clock: &mut impl FnMut() -> u64,
) -> Option<Found> {
    // SAFETY: passed on from the caller.
    unsafe {
        if piece.len() > HUGE_PAGE {
            look_at_long(look, memory, piece, clock)
        } else {
            take_and_judge(look, memory, piece, clock)
        }
    }
}

/// Looks at a piece, at its beginning first. Not inlined, since the code of a short call is part of its time.
///
/// # Safety
/// As [`look_at`], and the piece is longer than [`BEGINNING`].
#[inline(never)]
pub(crate) unsafe fn look_at_long(
    look: &Look,
    memory: &Memory,
    piece: Range<usize>,
    clock: &mut impl FnMut() -> u64,
) -> Option<Found> {
    // SAFETY: passed on from the caller.
    unsafe {
        if look.unmapped.is_some() {
            let beginning = piece.start..piece.start + BEGINNING;
            let found = take_and_judge(look, memory, beginning, clock);
            if found.is_some_and(|found| found.verdict == CacheVerdict::Unmapped) {
                return found;
            }
        }
        take_and_judge(look, memory, piece, clock)
    }
}

/// # Safety
/// As [`look_at`].
#[inline(always)]
unsafe fn take_and_judge(
    look: &Look,
    memory: &Memory,
    piece: Range<usize>,
    clock: &mut impl FnMut() -> u64,
) -> Option<Found> {
    // SAFETY: passed on from the caller.
    let (Times { reaching, storing }, of_all) = unsafe { take(memory, piece, look.cached_below, clock) };
    let verdict = look.judge(reaching, storing)?;
    Some(Found { verdict, reaching, cached_throughout: of_all && verdict == CacheVerdict::Cached })
}

/// Takes the times of a piece. The second stores are for pages that were not reached in fewer than `enough` ticks, and single
/// ones for long pieces that took so long, too. Returns also whether the times are those of all places, and not of the fastest.
///
/// # Safety
/// As [`look_at`].
#[inline(always)]
unsafe fn take(
    memory: &Memory,
    piece: Range<usize>,
    enough: u64,
    clock: &mut impl FnMut() -> u64,
) -> (Times, bool) {
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
    let (first, second) = (words(places.map(|it| it[0])), words(places.map(|it| it[1])));
    let start = clock();
    for ([place, ..], word) in places.iter().zip(first) {
        store(*place, word);
    }
    method::drain();
    let reached = clock();
    let reaching = reached.wrapping_sub(start);
    if reaching < enough {
        return (Times { reaching, storing: None }, true);
    }
    for ([_, place, _], word) in places.iter().zip(second) {
        store(*place, word);
    }
    method::drain();
    let together = clock().wrapping_sub(reached);
    let of_all = piece.len() <= LONG || together < enough;
    let storing = if of_all {
        together
    } else {
        let third = places.map(|it| it[2]);
        let words = words(third);
        let mut last = clock();
        third.iter().zip(words).fold(together, |fastest, (place, word)| {
            store(*place, word);
            method::drain_single();
            let now = clock();
            fastest.min(now.wrapping_sub(std::mem::replace(&mut last, now)))
        })
    };
    (Times { reaching, storing: Some(storing) }, of_all)
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
    unsafe { take(&memory, 0..length, 0, &mut crate::clock::ticks).0 }
}

/// The places of a range that begins at an address: for each, where its stores go, as offsets, at beginnings of lines of one page.
/// The third may lie outside of a short range. Looks a few megabytes apart have pages in common, where each has a third line of its
/// own: one that an earlier look stored to would be cached.
#[inline(always)]
fn places(start: usize, length: usize) -> [[usize; 3]; PLACES] {
    const THIRD: usize = PAGE / 2;
    std::array::from_fn(|at| {
        // Away from both ends, which are the most likely to have been used otherwise, and as far apart as from these.
        let first = (start + (at + 1) * (length / (PLACES + 1))).next_multiple_of(LINE);
        // Other bits of the address within its page.
        let third = first ^ (THIRD + start / LONG % 8 * 2 * LINE);
        [first, first ^ APART, third].map(|place| place.wrapping_sub(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_lie_within_the_range_in_threes_of_lines_of_one_page() {
        let lengths = (LEAST..LEAST + 200).chain([8191, 8192, 65_536, 100_003, LONG + 1, 1 << 30]);
        let (every, start_every) = if cfg!(miri) { (50, 500) } else { (1, 1) };
        for length in lengths.step_by(every) {
            for start in ((1 << 30)..(1 << 30) + 2 * PAGE).step_by(start_every) {
                for three in places(start, length) {
                    let used = if length > LONG { 3 } else { 2 };
                    assert!(three[..used].iter().all(|it| it + 8 <= length), "{length} at {start}");
                    let [first, second, third] = three.map(|it| it.wrapping_add(start));
                    assert!([first, second, third].iter().all(|it| it.is_multiple_of(LINE)));
                    assert_eq!((first / PAGE, first.abs_diff(second)), (second / PAGE, APART));
                    assert_eq!(first / PAGE, third / PAGE);
                    assert!(first.abs_diff(third) >= APART && first.abs_diff(third) < PAGE);
                    assert!(second.abs_diff(third) >= APART);
                }
            }
        }
    }

    /// A line that an earlier look of the same call stored to is in the cache, whatever the memory around.
    #[test]
    fn no_look_stores_to_a_single_line_that_an_earlier_one_stored_to() {
        const INTERVAL: usize = 4 << 20;
        for length in (3..=25).map(|intervals| intervals * INTERVAL + 12_345) {
            for start in [1 << 30, (1 << 30) + 77_777, (1 << 30) + 3 * LONG + 4096] {
                let mut stored = std::collections::BTreeSet::<usize>::new();
                for at in (0..length - LONG).step_by(INTERVAL) {
                    let part = start + at;
                    let all = places(part, (length - at).min(4 * INTERVAL)).map(|it| it.map(|it| it + part));
                    for [.., third] in all {
                        assert!(!stored.contains(&third), "{length} bytes at {start}: look at {at}");
                    }
                    stored.extend(all.as_flattened());
                }
            }
        }
    }

    /// Four different lines of the copy, twice, and nothing else; of a long piece, three times.
    #[test]
    fn a_probe_writes_some_bytes_of_the_copy_and_no_others() {
        let source: Vec<u8> = (0..3 * LEAST).map(|at| at as u8 | 1).collect();
        let mut copy = vec![0; source.len()];
        let piece = LEAST / 2 + 5..source.len() - 7;
        let memory = Memory::copied(copy.as_mut_ptr(), source.as_ptr(), source.len());
        let mut clock = [10, 15, 17].into_iter();
        // SAFETY: both ranges are valid, and apart.
        let (times, _) = unsafe { take(&memory, piece.clone(), 5, &mut || clock.next().unwrap()) };
        assert_eq!(times, Times { reaching: 5, storing: Some(2) });
        let written: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != 0).collect();
        assert_eq!(written.len(), 2 * PLACES * 8);
        assert!(written.iter().all(|at| piece.contains(at) && copy[*at] == source[*at]));

        let source: Vec<u8> = (0..2 * LONG).map(|at| (at % 251) as u8 + 1).collect();
        let mut copy = vec![0; source.len()];
        let piece = LONG / 2 + 5..source.len() - LONG / 4;
        let memory = Memory::copied(copy.as_mut_ptr(), source.as_ptr(), source.len());
        // SAFETY: as above.
        let (times, of_all) = unsafe { take(&memory, piece.clone(), 0, &mut || 0) };
        assert_eq!((times, of_all), (Times { reaching: 0, storing: Some(0) }, false));
        let written: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != 0).collect();
        assert_eq!(written.len(), 3 * PLACES * 8);
        assert!(written.iter().all(|at| piece.contains(at) && copy[*at] == source[*at]));
    }

    /// The fastest of the single stores counts if all of them together were slow.
    #[test]
    fn a_probe_of_a_long_range_stores_to_single_lines() {
        let mut bytes = vec![0; LONG + 1];
        let start = bytes.as_mut_ptr();
        let storing = |steps: &[u64], length: usize| {
            let memory = Memory::filled(start, length, 0xA5);
            let (mut now, mut steps) = (7, steps.iter());
            // SAFETY: the range is valid.
            let (times, of_all) = unsafe {
                take(&memory, 0..length, 100, &mut || {
                    now += steps.next().unwrap();
                    now
                })
            };
            assert_eq!((times.reaching, steps.next()), (500, None));
            (times.storing, of_all)
        };
        assert_eq!(storing(&[0, 500, 300, 9, 250, 240, 60, 290], LONG + 1), (Some(60), false));
        assert_eq!(storing(&[0, 500, 300, 9, 310, 340, 360, 390], LONG + 1), (Some(300), false));
        assert_eq!(storing(&[0, 500, 99], LONG + 1), (Some(99), true), "all together were fast");
        assert_eq!(storing(&[0, 500, 300], LONG), (Some(300), true), "a short range");
        assert_eq!(bytes.iter().filter(|byte| **byte == 0xA5).count() / 8, 3 * PLACES);
    }

    #[test]
    fn a_probe_of_a_fill_writes_its_byte() {
        let mut bytes = vec![0; LEAST];
        let memory = Memory::filled(bytes.as_mut_ptr(), LEAST, 0xA5);
        // SAFETY: the range is valid.
        let times = unsafe { take(&memory, 0..LEAST, 1, &mut || 0) };
        assert_eq!(times, (Times { reaching: 0, storing: None }, true));
        assert_eq!(
            bytes.iter().filter(|byte| **byte == 0xA5).count(),
            PLACES * 8,
            "the first stores are enough"
        );
    }
}
