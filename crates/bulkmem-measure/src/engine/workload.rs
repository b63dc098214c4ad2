//! Samples of operations in an arena: batched so that reading the clock costs nothing, with warm or cold ranges, alone,
//! followed by reading the result, or next to a neighbour that lives in the cache.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::arena::{Arena, RawRange, read};
use crate::engine::clock::Clock;
use crate::engine::counters::Counting;
use crate::engine::implementation::{Implementation, Work};
use crate::engine::neighbour::Neighbour;
use crate::engine::positions::Permutation;
use crate::engine::{Candidate, FILL_BYTE, LINE};

/// The cost that a time stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// The operation alone.
    Throughput,
    /// The operation, and reading the destination back.
    Reuse,
    /// The operation, and what it does to a cache-resident neighbour beyond what the same time without touching
    /// memory does.
    Stream,
}

impl Cost {
    /// Returns the cost by which an intent is judged.
    pub fn of(intent: Intent) -> Cost {
        match intent {
            Intent::Throughput => Cost::Throughput,
            Intent::Reuse => Cost::Reuse,
            Intent::Stream => Cost::Stream,
        }
    }
}

/// The conditions under which an operation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// True if the ranges start on a cache line.
    pub aligned: bool,
    /// True if the ranges were in the cache before, as far as they fit.
    pub warm: bool,
    /// Threads that share the work.
    pub threads: usize,
}

/// A configuration in which candidates are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) cost: Cost,
    pub(crate) length: u64,
    pub(crate) condition: Condition,
}

/// One sample, per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    /// The cost, with the disturbance, nanoseconds.
    pub(crate) ns: f64,
    /// The part of [`Cost::Stream`] that is the neighbour's, nanoseconds.
    pub(crate) disturbance_ns: Option<f64>,
    /// How many operations were timed together.
    pub(crate) operations: usize,
}

/// Work that takes a sample.
struct Timed<'w> {
    workloads: &'w mut Workloads,
    cell: &'w Cell,
    candidate: Candidate,
}

impl Work for Timed<'_> {
    type Output = Timing;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> Timing {
        self.workloads.run(self.cell, self.candidate, call)
    }
}

/// A sample spans at least this long.
const SAMPLE_NS: f64 = 20_000.0;
/// And at most so many operations.
const MOST: usize = 4096;
/// From so many operations on, a batch warms its own ranges.
const SELF_WARMING: usize = 8;
/// The neighbour's size, and the second-level cache's, where the machine does not tell.
const USUAL_L2: u64 = 1 << 20;
/// The last-level cache's size where the machine does not tell.
const USUAL_LAST_LEVEL: u64 = 32 << 20;

/// The last-level cache, bytes; what is usual where the machine does not tell.
pub(crate) fn last_level(machine: &Machine) -> u64 {
    let caches = &machine.caches;
    match caches.l3.max(caches.l2) {
        0 => USUAL_LAST_LEVEL,
        known => known,
    }
}

/// The range that operations of up to `longest` bytes are spread over: 1 GiB, more for longer ones, less where all of
/// them fit the cache.
pub(crate) fn footprint(longest: u64, last_level: u64) -> u64 {
    const USUAL: u64 = 1 << 30;
    let least = if longest > last_level / 4 { USUAL } else { last_level.saturating_mul(8).min(USUAL) };
    longest.max(least)
}

/// The second-level cache, bytes; what is usual where the machine does not tell.
fn second_level(machine: &Machine) -> u64 {
    match machine.caches.l2 {
        0 => USUAL_L2,
        known => known,
    }
}

/// Source and destination of one operation.
#[derive(Clone, Copy, Debug)]
struct Range {
    dst: *mut u8,
    src: *const u8,
}

/// Takes samples of operations in an arena.
pub(crate) struct Workloads {
    clock: Clock,
    arena: Arena,
    neighbour: Neighbour,
    l2: usize,
    destinations: Permutation,
    sources: Permutation,
    random: fastrand::Rng,
    /// Operations in a sample, by cell and candidate.
    batches: HashMap<(Cell, Candidate), usize>,
    ranges: Vec<Range>,
    counting: Rc<Counting>,
}

impl Workloads {
    /// Takes samples in an arena; only the operations themselves are `counting`.
    pub(crate) fn new(clock: Clock, mut arena: Arena, counting: Rc<Counting>) -> Workloads {
        let l2 = usize::try_from(second_level(Machine::current())).unwrap_or(1 << 20);
        // SAFETY: the arena lives as long as the neighbour does, in the same struct; nothing else uses this range.
        let neighbour = unsafe { Neighbour::new(arena.neighbour(), l2) };
        Workloads {
            clock,
            arena,
            neighbour,
            l2,
            destinations: Permutation::new(1),
            sources: Permutation::new(2),
            random: fastrand::Rng::with_seed(3),
            batches: HashMap::new(),
            ranges: Vec::new(),
            counting,
        }
    }

    /// The bytes that the neighbour takes: what it is well to leave room for.
    pub(crate) fn neighbour_size(machine: &Machine) -> u64 {
        second_level(machine)
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Takes one sample of an implementation, which has the cell's operation.
    pub(crate) fn sample(&mut self, cell: &Cell, implementation: &Implementation<'_>) -> Timing {
        assert!(cell.length <= self.arena.longest(), "lengths are checked against the arena before");
        let work = Timed { candidate: implementation.candidate(), workloads: self, cell };
        // SAFETY: the ranges lie in the arena, source and destination apart, and nothing else uses it.
        unsafe { implementation.compile(cell.condition.threads, cell.operation, FILL_BYTE, work) }
    }

    /// Takes one sample of a call.
    fn run(
        &mut self,
        cell: &Cell,
        candidate: Candidate,
        operation: impl Fn(*mut u8, *const u8, usize),
    ) -> Timing {
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        if cell.cost == Cost::Stream {
            return self.beside_neighbour(cell, length, operation);
        }
        let whole = |range: &Range| {
            operation(range.dst, range.src, length);
            if cell.cost == Cost::Reuse {
                read(range.dst, length);
            }
        };
        let key = (*cell, candidate);
        let most = self.largest_batch(cell, length);
        let mut batch = self.batches.get(&key).copied().unwrap_or(1).min(most);
        loop {
            self.choose_ranges(cell, length, batch);
            if cell.condition.warm && batch < SELF_WARMING && cell.operation != Operation::Persist {
                self.ranges[..1].iter().for_each(&whole);
            }
            self.dirty_what_is_flushed(cell, length);
            let ns = self.counting.only(|| self.clock.time(|| self.ranges.iter().for_each(&whole)));
            if ns >= SAMPLE_NS / 2.0 || batch == most || self.counting.active() {
                self.batches.insert(key, batch);
                return Timing { ns: ns / batch as f64, disturbance_ns: None, operations: batch };
            }
            // Too short: this is the first sample, or the processor was away during the one that the size came from.
            let needed = (batch as f64 * SAMPLE_NS / ns.max(1.0)).ceil() as usize;
            batch = needed.max(batch + 1).min(most);
        }
    }

    /// The most operations in a sample. What is flushed must be in the cache before, all of it.
    fn largest_batch(&self, cell: &Cell, length: usize) -> usize {
        let most = if cell.operation == Operation::Persist { self.l2 / 2 / length.max(1) } else { MOST };
        most.clamp(1, MOST)
    }

    /// Writes, outside the timed part, to every line that is to be flushed.
    fn dirty_what_is_flushed(&self, cell: &Cell, length: usize) {
        if cell.operation == Operation::Persist {
            self.ranges.iter().for_each(|range| dirty(range.dst, length));
        }
    }

    /// Chooses the ranges of a batch.
    fn choose_ranges(&mut self, cell: &Cell, length: usize, batch: usize) {
        let (destination, source) = (self.arena.destination(), self.arena.source());
        let offset = if cell.condition.aligned { 0 } else { self.random.usize(1..LINE) };
        // Differently aligned, and never aligned alike.
        let source_offset = if offset == 0 { 0 } else { (offset + self.random.usize(1..LINE)) % LINE };
        let stay = |raw_range: RawRange, offset: usize| raw_range.start.wrapping_add(offset);
        let (warm, flush) = (cell.condition.warm, cell.operation == Operation::Persist);
        let source_warm = warm || cell.operation == Operation::CopyPersist;
        let stride = (length + LINE).next_multiple_of(LINE);
        self.ranges.clear();
        for index in 0..batch {
            let dst = match (warm, flush) {
                (true, false) => stay(destination, offset),
                // Each line once: a line flushed already has nothing to write back.
                (true, true) => stay(destination, index * stride + offset),
                (false, _) => self.destinations.next_address(destination, length, offset),
            };
            let src = if source_warm {
                stay(source, source_offset)
            } else {
                self.sources.next_address(source, length, source_offset)
            };
            self.ranges.push(Range { dst, src });
        }
    }

    /// The operation, and how much longer the neighbour's walk takes after it than after the same time without
    /// touching memory.
    fn beside_neighbour(
        &mut self,
        cell: &Cell,
        length: usize,
        operation: impl Fn(*mut u8, *const u8, usize),
    ) -> Timing {
        // Enough operations to show: half the cache that the neighbour lives in.
        let batch = (self.l2 / 2 / length.max(1)).clamp(1, MOST);
        self.choose_ranges(cell, length, batch);
        self.dirty_what_is_flushed(cell, length);
        let settle = || {
            self.neighbour.walk();
            self.neighbour.walk();
        };
        settle();
        let busy = self.counting.only(|| {
            self.clock.time(|| {
                self.ranges.iter().for_each(|range| operation(range.dst, range.src, length));
            })
        });
        let after = self.clock.time(|| self.neighbour.walk());
        settle();
        self.clock.spin(busy);
        let control = self.clock.time(|| self.neighbour.walk());
        // Below 0 it is noise, which must not pay for the operation.
        let disturbance = (after - control) / batch as f64;
        Timing {
            ns: busy / batch as f64 + disturbance.max(0.0),
            disturbance_ns: Some(disturbance),
            operations: batch,
        }
    }
}

/// Writes to every line of a range of the arena.
fn dirty(start: *mut u8, length: usize) {
    for at in (0..length).step_by(LINE) {
        // SAFETY: the range lies in the arena, and no other code uses it.
        unsafe { start.add(at).write_volatile(1) }
    }
    if let Some(last) = length.checked_sub(1) {
        // SAFETY: as above.
        unsafe { start.add(last).write_volatile(1) }
    }
}

#[cfg(test)]
mod tests;
