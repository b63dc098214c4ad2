//! Plans calibration: lengths, conditions, and each part's share of the time.

use std::time::Duration;

use bulkmem::Operation;

use crate::calibration::{Condition, Cost, Mode};
use crate::engine::CacheState;
use crate::engine::cell::Cell;

/// Shortest length at which reuse and stream are measured: anything shorter fits the first-level cache.
const SHORTEST_WITH_AFTERMATH: u64 = 4 << 10;
/// From this length on, samples take long and only candidates that did well at the length before are measured.
pub(crate) const LONG: u64 = 128 << 20;
/// Two huge pages of most machines.
pub(crate) const HUGE: u64 = 4 << 20;
/// From this length on, and from so much for each thread, starting threads, which may take until the kernel's next tick, does not
/// hide the difference between methods.
const SHORTEST_BY_THREADS: u64 = 64 << 20;
const SHORTEST_OF_A_THREAD: u64 = 16 << 20;

/// Length at which the prefetch of a copy's source is searched. The time to reach the first lines hardly counts, and a sample is short.
pub(crate) const PREFETCH_LENGTH: u64 = 1 << 20;

/// Share of the time for clearing that the Linux module's methods take.
pub(crate) const MODULE_SHARE: f64 = 0.1;

/// The properties of the machine and the request that the plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) mode: Mode,
    /// The largest length, bytes.
    pub(crate) max_length: u64,
    /// The second-level cache, bytes.
    pub(crate) second_level: u64,
    /// The last-level cache, bytes; never 0.
    pub(crate) last_level: u64,
    pub(crate) threads: usize,
    /// The longest range in base pages; 0 if there are none, or no others.
    pub(crate) longest_in_base_pages: u64,
}

impl Setting {
    /// Length from which memory is not measured warm: a warm cache makes no difference, or bringing so much into it for each sample takes
    /// too long.
    pub(crate) fn never_warm(&self) -> u64 {
        self.last_level.saturating_mul(2).min(LONG)
    }

    /// Returns the lengths to measure, rising by a factor of 4 (thorough: 2), always including the largest; one that just
    /// fits the second-level cache, where methods differ most in cached memory; and three quarters and all of the last-level cache,
    /// between which memory stops being cached and the best method changes. Those of caches only below [`LONG`], and if no other is near.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        let mut lengths = steps(64, if self.mode == Mode::Thorough { 2 } else { 4 }, self.max_length);
        let caches = [self.second_level / 4 * 3, self.last_level / 4 * 3, self.last_level];
        for length in caches.into_iter().filter(|length| *length < self.max_length.min(LONG)) {
            let near = |other: &u64| (other * 4 / 5..=other / 4 * 5).contains(&length);
            if self.mode != Mode::Quick && !lengths.iter().any(near) {
                lengths.push(length);
                lengths.sort_unstable();
            }
        }
        lengths
    }

    /// True if reuse and stream are measured at a length: from 4 KiB to beyond the caches (quick: at every second one).
    /// Durable lines stay in the cache or not by the instruction, not by a choice.
    pub(crate) fn has_aftermath(&self, operation: Operation, length: u64) -> bool {
        let every_second = (length / SHORTEST_WITH_AFTERMATH).max(1).ilog2().is_multiple_of(4);
        !operation.persists()
            && (SHORTEST_WITH_AFTERMATH..=LONG).contains(&length)
            && (self.mode != Mode::Quick || every_second)
    }

    /// Number of candidates that are measured precisely, including the C library.
    pub(crate) fn finalists(&self) -> usize {
        if self.mode == Mode::Quick { 4 } else { 6 }
    }

    /// Returns the configurations in which finalists are measured; for throughput at long lengths, also one of several threads.
    pub(crate) fn cells(&self, operation: Operation, cost: Cost, length: u64) -> Vec<Cell> {
        let can_be_warm = length < self.never_warm();
        let places: &[(bool, bool)] = match (cost, can_be_warm) {
            (Cost::Stream, _) | (Cost::Reuse, false) => &[(true, false)],
            (Cost::Reuse, true) => &[(true, false), (true, true)],
            (Cost::Throughput, false) => &[(true, false), (false, false)],
            // Persisting writes back lines that were written just before.
            (Cost::Throughput, true) if operation == Operation::Persist => &[(true, true), (false, true)],
            (Cost::Throughput, true) => &[(true, false), (true, true), (false, false), (false, true)],
        };
        // The policy distinguishes neither alignment nor page size. If their effects multiply, the mean over two of the four
        // combinations is that over all.
        let in_base_pages = cost == Cost::Throughput && length <= self.longest_in_base_pages;
        let condition = |&(aligned, warm): &(bool, bool)| Condition {
            base_pages: in_base_pages && !aligned,
            ..Condition::new(aligned, warm, 1)
        };
        let mut single: Vec<Condition> = places.iter().map(condition).collect();
        // What is copied into a cached buffer has often not been used for long, and a buffer that is copied again and again stays in
        // the cache, unless the method evicts it.
        let other_sources: &[(bool, CacheState)] = match (operation, cost, can_be_warm) {
            (Operation::Copy, Cost::Throughput, true) => {
                &[(true, CacheState::Cold), (false, CacheState::Warm)]
            }
            (Operation::Copy, Cost::Reuse, true) => &[(false, CacheState::Warm)],
            _ => &[],
        };
        single.extend(
            other_sources
                .iter()
                .map(|&(warm, source)| Condition { source: Some(source), ..Condition::new(true, warm, 1) }),
        );
        let mut cells: Vec<Cell> =
            single.into_iter().map(|condition| Cell::new(operation, cost, length, condition)).collect();
        let shortest = SHORTEST_BY_THREADS.max(SHORTEST_OF_A_THREAD * self.threads as u64);
        if cost == Cost::Throughput && self.threads > 1 && length >= shortest {
            cells.extend(self.threaded_cells(operation, length).pop());
        }
        cells
    }

    /// Returns roughly how long a sample takes in relation to what is timed of it: ranges that are warm are brought into the cache by two
    /// passes or more, and a call that is not timed comes first from a warm source.
    pub(crate) fn effort(&self, cell: &Cell) -> f64 {
        let destination = match cell.operation {
            // It is written once.
            Operation::Persist => 1.0,
            _ if cell.condition.warm => 2.0,
            _ => 0.0,
        };
        let source = if cell.source_is_warm() { 2.0 } else { 0.0 };
        let untimed =
            if cell.source_is_warm() && cell.length <= self.last_level { 1.0 + destination } else { 0.0 };
        1.0 + destination + source + untimed
    }

    /// Returns the configurations in which numbers of threads are compared: 1, 2, 4, …, all.
    pub(crate) fn threaded_cells(&self, operation: Operation, length: u64) -> Vec<Cell> {
        let warm = operation == Operation::Persist && length < self.never_warm();
        let cell = |threads| {
            let condition = Condition::new(true, warm, threads as usize);
            Cell::new(operation, Cost::Throughput, length, condition)
        };
        steps(1, 2, self.threads as u64).into_iter().map(cell).collect()
    }

    /// Returns the lengths at which numbers of threads are compared. Of 16 processors, 8 may be the fastest at 64 MiB and all of them
    /// at 1 GiB.
    pub(crate) fn threaded_lengths(&self) -> Vec<u64> {
        let longest = if self.mode == Mode::Quick { LONG } else { 4 * LONG };
        self.lengths().into_iter().filter(|length| (64 << 10..=longest).contains(length)).collect()
    }
}

/// Returns numbers that rise by a factor up to the last, which is always included.
fn steps(first: u64, factor: u64, last: u64) -> Vec<u64> {
    let rising = std::iter::successors(Some(first), |step| step.checked_mul(factor));
    rising.take_while(|step| *step < last).chain([last]).collect()
}

/// Returns an operation's weight in the distribution of time.
pub(crate) fn importance(operation: Operation) -> f64 {
    match operation {
        Operation::Clear | Operation::Copy => 30.0,
        Operation::CopyPersist => 18.0,
        Operation::FillPersist => 8.0,
        // Used less often. Differs from a clear in more than the byte: some processors write zeros faster.
        Operation::Fill => 14.0,
        // Few methods.
        Operation::Persist => 6.0,
    }
}

/// Returns a length's weight in the distribution of an operation's time: samples of long ones take long.
pub(crate) fn weight(length: u64) -> f64 {
    match length {
        0..=0x40_0000 => 1.0,
        0x40_0001..=0x100_0000 => 1.5,
        0x100_0001..=0x400_0000 => 2.5,
        0x400_0001..=0x1000_0000 => 4.0,
        // On slow machines, there is no time to compare methods anyway.
        _ => 2.0,
    }
}

/// Returns the time at which a share of what is left until `end` has passed.
pub(crate) fn after_share(share: f64, now: Duration, end: Duration) -> Duration {
    now + end.saturating_sub(now).mul_f64(share.clamp(0.0, 1.0))
}
