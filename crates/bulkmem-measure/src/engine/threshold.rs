//! The length from which the C library's `memset` or `memcpy` bypasses the cache, located by how fast both ends of a result
//! are read.

use std::hint::black_box;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::policy::Choice;
use bulkmem::{Operation, method};

use crate::engine::clock::time;
use crate::engine::{Arena, Implementation, LINE, Permutation, Threshold};

/// The shortest length that is tried.
pub(crate) const SHORTEST: u64 = 32 << 10;
/// The longest.
pub(crate) const LONGEST: u64 = 512 << 20;
/// The interval is narrowed to 1 part in this many of the length.
const PRECISION: u64 = 64;
/// The most bytes at each end of a result that are not read: the C library writes up to four pages there by ordinary stores.
const UNREAD: usize = 16 << 10;
/// The most bytes next to those that are read.
const READ: usize = 48 << 10;
/// Memory whose lines are read less than so many times as fast from the cache cannot be told from cached memory.
const LEAST_RATIO: f64 = 1.5;
/// The least time in which even a short calibration finds a threshold of a few MiB.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);
/// The most calls to find out whether results of a length are in the cache.
const ATTEMPTS: usize = 10;

impl Threshold {
    /// Locates it between [`SHORTEST`] and `longest`: up from the shortest length, then, until the deadline, between the two
    /// lengths found. `uncached` tells whether a result of a length is not in the cache. `None` if it cannot.
    ///
    /// Upwards, because an interrupted string instruction starts again with the rest of its length, which the processor may
    /// write through the cache again.
    fn locate(
        operation: Operation,
        longest: u64,
        deadline: Instant,
        mut uncached: impl FnMut(u64) -> Option<bool>,
    ) -> Option<Threshold> {
        let mut found = Threshold { operation, cached: 0, uncached: None };
        let mut length = SHORTEST.min(longest);
        while !uncached(length)? {
            found.cached = length;
            if length == longest {
                return Some(found);
            }
            length = (2 * length).min(longest);
        }
        let mut above = length;
        while found.cached > 0 && above - found.cached > found.cached / PRECISION && Instant::now() < deadline
        {
            let middle = (found.cached + (above - found.cached) / 2).next_multiple_of(LINE as u64);
            *if uncached(middle)? { &mut above } else { &mut found.cached } = middle;
        }
        Some(Threshold { uncached: Some(above), ..found })
    }

    /// Locates those of `memset` and `memcpy` at lengths up to `longest` that fit the arena, in about so much time, unless it is
    /// stopped. Leaves out what cannot be told, also if the way up to the threshold takes four times as long.
    pub(crate) fn locate_all(
        arena: &Arena,
        longest: u64,
        time: Duration,
        stop: &AtomicBool,
    ) -> Vec<Threshold> {
        let locate = |(operation, share)| {
            let time = time.mul_f64(share);
            let deadline = Instant::now() + time;
            let give_up = deadline + (3 * time).max(LEAST_PATIENCE);
            Threshold::locate(operation, longest.min(arena.longest()), deadline, |length| {
                let go_on = !stop.load(Ordering::Relaxed) && Instant::now() < give_up;
                go_on.then(|| agreed(arena, operation, length))?
            })
        };
        [(Operation::Clear, 0.4), (Operation::Copy, 0.6)].into_iter().filter_map(locate).collect()
    }
}

/// True if a result is not in the cache, by four calls before two that say it is: an interrupt may evict it. `None` if too
/// many calls do not tell.
fn agreed(arena: &Arena, operation: Operation, length: u64) -> Option<bool> {
    let mut votes = [0, 0];
    for _ in 0..ATTEMPTS {
        if let Some(share) = uncached_share(arena, operation, length) {
            let uncached = share > 0.5;
            votes[usize::from(uncached)] += 1;
            if votes[0] == 2 || votes[1] == 4 {
                return Some(uncached);
            }
        }
    }
    None
}

/// Calls the C library's function on the arena's memory.
pub(crate) fn call(arena: &Arena, operation: Operation, length: u64) {
    let c_library = Implementation::Method(Choice::of(method::c_library(), operation));
    let ranges = (arena.destination.start, arena.source.start.cast_const(), length as usize);
    // SAFETY: the destination and the source are the arena's own, and at least as long.
    unsafe { c_library.run(1, operation, 0, ranges) };
}

/// Calls the function and reads lines near both ends of the result: it may write either last. Returns where the time of the faster
/// end lies between that of lines in the cache, 0, and that of evicted lines, 1; `None` if these cannot be told apart here.
pub(crate) fn uncached_share(arena: &Arena, operation: Operation, length: u64) -> Option<f64> {
    let evict = Implementation::Method(Choice::of(method::by_name("clflush")?, Operation::Persist));
    let length_read = length.min(arena.longest()) as usize;
    let unread = (length_read / 8).min(UNREAD) / LINE * LINE;
    let bytes = (length_read / 2 - unread).min(READ) / LINE * LINE;
    let at = |offset: usize| arena.destination.start.wrapping_add(offset);
    let ends = [at((length_read - unread - bytes) / LINE * LINE), at(unread)];
    call(arena, operation, length);
    let after = ends.map(|end| time(|| read_lines(end, bytes)));
    let shares = ends.into_iter().zip(after).map(|(end, after)| {
        let cached = time(|| read_lines(end, bytes));
        // SAFETY: the range lies in the arena's destination, and every x86-64 processor has CLFLUSH.
        unsafe { evict.run(1, Operation::Persist, 0, (end, null(), bytes)) };
        let evicted = time(|| read_lines(end, bytes));
        let share = (after / cached).ln() / (evicted / cached).ln();
        (evicted > cached * LEAST_RATIO).then_some(share.clamp(0.0, 1.0))
    });
    shares.reduce(|one, other| Some(one?.min(other?))).flatten()
}

/// Reads every line of a range of the arena, in an order that no prefetcher guesses, each load after the one before.
fn read_lines(start: *const u8, bytes: usize) {
    let lines = (bytes / LINE) as u64;
    // The compiler cannot know that it is 0.
    let zero = black_box(0);
    let (mut order, mut last) = (Permutation(1), 0);
    for _ in 0..lines {
        let at = order.next(lines) as usize * LINE + (last & zero);
        // SAFETY: the line lies in the range, which is the arena's own and initialized.
        last = unsafe { start.wrapping_add(at).cast::<usize>().read_volatile() };
    }
}

#[cfg(test)]
mod tests {
    use bulkmem::Pages;

    use super::*;

    fn located(longest: u64, uncached: impl FnMut(u64) -> Option<bool>) -> Option<(u64, Option<u64>)> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = Threshold::locate(Operation::Copy, longest, deadline, uncached);
        found.map(|found| (found.cached, found.uncached))
    }

    #[test]
    fn a_planted_threshold_is_located() {
        for planted in [SHORTEST + 1, 100_000, 0xc0_0000, 288 << 20, 300_000_001] {
            let (cached, uncached) = located(LONGEST, |length| Some(length >= planted)).unwrap();
            let uncached = uncached.unwrap();
            assert!(cached < planted && planted <= uncached, "{planted}: {cached} to {uncached}");
            assert!(uncached - cached <= cached / PRECISION, "{planted}: {cached} to {uncached}");
        }
    }

    #[test]
    fn no_threshold_in_reach_is_no_threshold() {
        assert_eq!(located(LONGEST, |_| Some(false)), Some((LONGEST, None)));
        assert_eq!(located(LONGEST, |_| Some(true)), Some((0, Some(SHORTEST))));
        let first = located(LONGEST, |length| Some(length == 32 << 20));
        assert_eq!(first, Some((127 << 18, Some(32 << 20))), "not the last");
        assert_eq!(located(LONGEST, |_| None), None);
        let now =
            Threshold::locate(Operation::Copy, LONGEST, Instant::now(), |length| Some(length >= 300 << 20));
        let coarse = Threshold { operation: Operation::Copy, cached: 256 << 20, uncached: Some(LONGEST) };
        assert_eq!(now, Some(coarse), "without time, between two lengths a factor of 2 apart");
    }

    /// The share depends on the machine, its bounds do not.
    #[test]
    fn a_share_is_one_at_any_length() {
        let arena = Arena::new(4 << 20, 1 << 20, Pages::Transparent, Duration::MAX).unwrap();
        for length in [SHORTEST, SHORTEST + 1, 1 << 20, arena.longest()] {
            for operation in [Operation::Clear, Operation::Copy] {
                let share = uncached_share(&arena, operation, length);
                assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{operation} of {length}");
            }
        }
        let all = |stop| Threshold::locate_all(&arena, 1 << 20, Duration::ZERO, &AtomicBool::new(stop));
        assert!(all(false).iter().all(|it| it.cached <= 1 << 20));
        assert_eq!(all(true), []);
    }
}
