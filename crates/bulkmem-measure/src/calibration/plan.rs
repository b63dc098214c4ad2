//! Plans calibration: lengths, conditions, and each part's share of the time.

use std::time::Duration;

use crate::calibration::{Condition, Cost, Mode};
use bulkmem::{Intent, Operation};

/// Shortest length that is measured, bytes.
const SHORTEST: u64 = 64;
/// Shortest length at which reuse and stream are measured: anything shorter fits the first-level cache.
const SHORTEST_WITH_AFTERMATH: u64 = 4 << 10;
/// Shortest length at which several threads are measured.
const SHORTEST_THREADED: u64 = 64 << 10;
/// From this length on, samples take long and only candidates that did well at the length before are measured.
pub(crate) const LONG: u64 = 128 << 20;
/// From this length on, one warm condition is enough.
const LONGISH: u64 = 1 << 20;

/// The properties of the machine and the request that the plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) mode: Mode,
    /// The largest length, bytes.
    pub(crate) max_length: u64,
    /// The last-level cache, bytes; never 0.
    pub(crate) last_level: u64,
    /// The most threads.
    pub(crate) threads: usize,
}

impl Setting {
    /// Length from which a warm cache makes no difference.
    fn never_warm(&self) -> u64 {
        self.last_level.saturating_mul(2)
    }

    /// Returns the lengths to measure, rising by a factor of 4 (thorough: 2), always including the largest.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        let factor = if self.mode == Mode::Thorough { 2 } else { 4 };
        let mut lengths: Vec<u64> =
            std::iter::successors(Some(SHORTEST), |length| length.checked_mul(factor))
                .take_while(|length| *length < self.max_length)
                .collect();
        lengths.push(self.max_length);
        lengths
    }

    /// True if reuse and stream are measured at a length: from 4 KiB to beyond the caches (quick: at every second one).
    pub(crate) fn has_aftermath(&self, length: u64) -> bool {
        let every_second = (length / SHORTEST_WITH_AFTERMATH).max(1).ilog2().is_multiple_of(4);
        (SHORTEST_WITH_AFTERMATH..=self.never_warm().max(LONG)).contains(&length)
            && (self.mode != Mode::Quick || every_second)
    }

    /// Number of candidates that are measured precisely, including the C library.
    pub(crate) fn finalists(&self) -> usize {
        if self.mode == Mode::Quick { 4 } else { 6 }
    }

    /// Returns the conditions of the search.
    pub(crate) fn search_conditions(&self, operation: Operation, length: u64) -> Vec<Condition> {
        self.single(operation, length).into_iter().filter(|condition| condition.aligned).collect()
    }

    /// Returns the conditions in which finalists are measured. Includes several threads only if starting them, which may
    /// take until the kernel's next tick, does not hide the difference between methods.
    pub(crate) fn final_conditions(&self, operation: Operation, length: u64) -> Vec<Condition> {
        let mut conditions = self.single(operation, length);
        if self.threads > 1 && length >= LONG {
            conditions.push(self.threaded(operation, length, self.threads));
        }
        conditions
    }

    /// Returns the condition in which a number of threads is measured.
    pub(crate) fn threaded(&self, operation: Operation, length: u64, threads: usize) -> Condition {
        let warm = operation == Operation::Persist && length < self.never_warm();
        Condition { aligned: true, warm, threads }
    }

    fn single(&self, operation: Operation, length: u64) -> Vec<Condition> {
        let warmths: &[bool] = if length >= self.never_warm() {
            &[false]
        } else if operation == Operation::Persist {
            // Persisting writes back lines that were written just before.
            &[true]
        } else {
            &[false, true]
        };
        let mut conditions = Vec::new();
        for aligned in [true, false] {
            conditions.extend(warmths.iter().map(|&warm| Condition { aligned, warm, threads: 1 }));
        }
        // Here alignment matters for cold as much as for warm memory, and samples begin to take long.
        if length >= LONGISH && warmths.len() > 1 {
            conditions.retain(|condition| condition.aligned || !condition.warm);
        }
        conditions
    }

    /// Returns the conditions of a cost other than throughput.
    pub(crate) fn aftermath_conditions(&self, cost: Cost, length: u64) -> Vec<Condition> {
        let cold = Condition { aligned: true, warm: false, threads: 1 };
        match cost {
            Cost::Reuse if length < self.never_warm() => vec![cold, Condition { warm: true, ..cold }],
            _ => vec![cold],
        }
    }

    /// Returns the numbers of threads to measure: 1, 2, 4, …, all.
    pub(crate) fn thread_counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = std::iter::successors(Some(1usize), |count| count.checked_mul(2))
            .take_while(|count| *count < self.threads)
            .collect();
        counts.push(self.threads.max(1));
        counts
    }

    /// Returns the lengths at which numbers of threads are compared.
    pub(crate) fn threaded_lengths(&self) -> Vec<u64> {
        self.lengths().into_iter().filter(|length| (SHORTEST_THREADED..=LONG).contains(length)).collect()
    }
}

/// Returns the costs other than throughput that an operation is measured by.
pub(crate) fn aftermath_costs(operation: Operation) -> Vec<Cost> {
    match operation {
        // Whether durable lines stay in the cache depends on the instruction, not on a choice.
        Operation::FillPersist | Operation::CopyPersist | Operation::Persist => Vec::new(),
        _ => Intent::ALL.into_iter().map(Cost::of).filter(|cost| *cost != Cost::Throughput).collect(),
    }
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
        0x400_0001..=0x1000_0000 => 3.0,
        _ => 4.0,
    }
}

/// Returns the time at which a part of weight `weight` out of `remaining` (including itself) must end.
pub(crate) fn deadline(now: Duration, end: Duration, weight: f64, remaining: f64) -> Duration {
    let left = end.saturating_sub(now);
    now + left.mul_f64((weight / remaining.max(weight)).clamp(0.0, 1.0))
}
