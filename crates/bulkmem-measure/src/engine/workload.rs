//! Takes samples for real: operations on the arena, batched so that the clock costs nothing, warm or cold, alone,
//! with reading back, or beside a neighbour.

use std::collections::HashMap;
use std::slice::from_raw_parts;
use std::time::Duration;

use crate::calibration::Cost;
use bulkmem::machine::Machine;
use bulkmem::method::Parameters;
use bulkmem::policy::Choice;
use bulkmem::{Operation, Options};

use crate::calibration::neighbour::Neighbour;
use crate::engine::arena::{Arena, RawRange};
use crate::engine::clock::Clock;
use crate::engine::counters::{Counters, Counts};
use crate::engine::meter::{Cell, Meter, Sample};
use crate::engine::positions::Permutation;
use crate::engine::threads;
use crate::measurements::choice::interface;

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
/// What a fill fills with.
pub(crate) const FILL_BYTE: u8 = 0xA5;
const LINE: usize = 64;

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

/// Where one operation happens.
#[derive(Clone, Copy, Debug)]
struct Range {
    dst: *mut u8,
    src: *const u8,
}

/// The meter that measures.
pub(crate) struct Workloads {
    clock: Clock,
    arena: Arena,
    neighbour: Neighbour,
    l2: usize,
    destinations: Permutation,
    sources: Permutation,
    random: fastrand::Rng,
    /// How many operations make a sample, by cell and contestant.
    batches: HashMap<(Cell, &'static str, Parameters), usize>,
    ranges: Vec<Range>,
    counters: Option<Counters>,
    counting: bool,
    counted: Option<Counts>,
}

impl Workloads {
    pub(crate) fn new(clock: Clock, mut arena: Arena) -> Workloads {
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
            counters: None,
            counting: false,
            counted: None,
        }
    }

    /// Uses these counters from now on.
    pub(crate) fn count_with(&mut self, counters: Counters) {
        self.counters = Some(counters);
    }

    /// Has the samples to come counted; false where there are no counters.
    pub(crate) fn start_counting(&mut self) -> bool {
        self.counting = self.counters.is_some();
        self.counting
    }

    /// Ends the counting, and returns what the last sample showed, an operation.
    pub(crate) fn stop_counting(&mut self) -> Option<Counts> {
        self.counting = false;
        self.counted.take()
    }

    /// The bytes that the neighbour takes: what it is well to leave room for.
    pub(crate) fn neighbour_size(machine: &Machine) -> u64 {
        second_level(machine)
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes one sample of `operation`, which is called with a destination, a source and a length. `name` and
    /// `parameters` tell contestants apart.
    pub(crate) fn run(
        &mut self,
        cell: &Cell,
        name: &'static str,
        parameters: Parameters,
        operation: impl Fn(*mut u8, *const u8, usize),
    ) -> Sample {
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        assert!(cell.length <= self.arena.longest(), "lengths are checked against the arena before");
        if cell.cost == Cost::Stream {
            return self.beside_neighbour(cell, length, operation);
        }
        let whole = |range: &Range| {
            operation(range.dst, range.src, length);
            if cell.cost == Cost::Reuse {
                read(range.dst, length);
            }
        };
        let key = (*cell, name, parameters);
        let most = self.largest_batch(cell, length);
        let mut batch = self.batches.get(&key).copied().unwrap_or(1).min(most);
        loop {
            self.config(cell, length, batch);
            if cell.condition.warm && batch < SELF_WARMING && cell.operation != Operation::Persist {
                self.ranges[..1].iter().for_each(&whole);
            }
            let ns = self.time(cell, length, &whole);
            if ns >= SAMPLE_NS / 2.0 || batch == most {
                self.batches.insert(key, batch);
                return Sample { ns: ns / batch as f64, disturbance_ns: None };
            }
            // Too short, be it because this is the first, or because the processor was away during the one that the
            // size came from.
            let needed = (batch as f64 * SAMPLE_NS / ns.max(1.0)).ceil() as usize;
            batch = needed.max(batch + 1).min(most);
        }
    }

    /// The most operations in a sample. What is flushed must be in the cache before, all of it.
    fn largest_batch(&self, cell: &Cell, length: usize) -> usize {
        let most = if cell.operation == Operation::Persist { self.l2 / 2 / length.max(1) } else { MOST };
        most.clamp(1, MOST)
    }

    /// Times the operations at the places chosen before.
    fn time(&mut self, cell: &Cell, length: usize, whole: &impl Fn(&Range)) -> f64 {
        self.dirty_what_is_flushed(cell, length);
        let ranges = &self.ranges;
        let all = || ranges.iter().for_each(whole);
        match &mut self.counters {
            Some(counters) if self.counting => self.clock.time(|| {
                let mut counts = Counts::default();
                // Cycles, instructions and last-level misses: the first group.
                if let Some(reading) = counters.during(0, all) {
                    counts.add(&reading, ranges.len() as f64);
                }
                self.counted = counts.any();
            }),
            _ => self.clock.time(all),
        }
    }

    /// Writes, outside the timed part, to every line that is to be flushed.
    fn dirty_what_is_flushed(&self, cell: &Cell, length: usize) {
        if cell.operation == Operation::Persist {
            self.ranges.iter().for_each(|range| dirty(range.dst, length));
        }
    }

    /// Chooses the places of a batch.
    fn config(&mut self, cell: &Cell, length: usize, batch: usize) {
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
                (false, _) => self.destinations.config(destination, length, offset),
            };
            let src = if source_warm {
                stay(source, source_offset)
            } else {
                self.sources.config(source, length, source_offset)
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
    ) -> Sample {
        // Enough operations to show: half the cache that the neighbour lives in.
        let batch = (self.l2 / 2 / length.max(1)).clamp(1, MOST);
        self.config(cell, length, batch);
        self.dirty_what_is_flushed(cell, length);
        let settle = || {
            self.neighbour.walk();
            self.neighbour.walk();
        };
        settle();
        let busy = self.clock.time(|| {
            self.ranges.iter().for_each(|range| operation(range.dst, range.src, length));
        });
        let after = self.clock.time(|| self.neighbour.walk());
        settle();
        self.clock.spin(busy);
        let control = self.clock.time(|| self.neighbour.walk());
        // Below 0 it is noise, which must not pay for the operation.
        let disturbance = (after - control) / batch as f64;
        Sample { ns: busy / batch as f64 + disturbance.max(0.0), disturbance_ns: Some(disturbance) }
    }
}

/// Calls a method directly. `None` where it cannot do the operation, or with that many threads not be asked to.
pub(crate) fn direct(workloads: &mut Workloads, cell: &Cell, choice: &Choice) -> Option<Sample> {
    let Choice { method, parameters } = *choice;
    if cell.condition.threads > 1 {
        let bulk = Options::new().method(cell.operation, *choice).ok()?;
        return Some(interface::shared(workloads, cell, method.name, parameters, bulk));
    }
    // SAFETY (of the four calls below): the ranges lie in the arena, source and destination apart; the caller's
    // choices come from the table, are available here, and their parameters fit.
    let sample = match cell.operation {
        Operation::Clear => {
            let kernel = method.code().clear?.fenced;
            // SAFETY: see above.
            workloads.run(cell, method.name, parameters, |dst, _, length| unsafe {
                kernel(dst, length, 0, &parameters)
            })
        }
        Operation::Fill | Operation::FillPersist => {
            let entry = if cell.operation == Operation::Fill {
                method.code().fill
            } else {
                method.code().fill_persist
            };
            let kernel = entry?.fenced;
            workloads.run(cell, method.name, parameters, |dst, _, length| {
                // SAFETY: see above.
                unsafe { kernel(dst, length, FILL_BYTE, &parameters) }
            })
        }
        Operation::Copy | Operation::CopyPersist => {
            let entry = if cell.operation == Operation::Copy {
                method.code().copy
            } else {
                method.code().copy_persist
            };
            let kernel = entry?.fenced;
            // SAFETY: see above.
            workloads.run(cell, method.name, parameters, |dst, src, length| unsafe {
                kernel(dst, src, length, &parameters);
            })
        }
        Operation::Persist => {
            let kernel = method.code().persist?.fenced;
            // SAFETY: see above.
            workloads.run(cell, method.name, parameters, |dst, _, length| unsafe {
                kernel(dst, length, &parameters)
            })
        }
    };
    Some(sample)
}

impl Meter<Choice> for Workloads {
    fn sample(&mut self, cell: &Cell, choice: &Choice) -> Sample {
        let nothing = Sample { ns: f64::INFINITY, disturbance_ns: None };
        direct(self, cell, choice).unwrap_or(nothing)
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

/// Gives each of so many threads, the calling one included, a part of the ranges, in whole pages.
pub(crate) fn split(
    threads: usize,
    dst: *mut u8,
    src: *const u8,
    length: usize,
    work: impl Fn(*mut u8, *const u8, usize) + Sync,
) {
    let part = length.div_ceil(threads.max(1)).next_multiple_of(Machine::current().page_size);
    if threads < 2 || part >= length {
        return work(dst, src, length);
    }
    let ends = (Sendable(dst), Sendable(src.cast_mut()));
    let (work, ends) = (&work, &ends);
    std::thread::scope(|scope| {
        for from in (part..length).step_by(part) {
            let piece = move || {
                work(ends.0.0.wrapping_add(from), ends.1.0.wrapping_add(from), part.min(length - from));
            };
            // As in the library: if the system has no more threads, this one does their pieces.
            if threads::spawn(scope, piece).is_err() {
                piece();
            }
        }
        work(dst, src, part);
    });
}

/// An address that another thread is given to work on.
struct Sendable(*mut u8);

// SAFETY: an address alone does nothing; what is done with it is the affair of whoever dereferences it.
unsafe impl Sync for Sendable {}

/// Reads a range of the arena once, as fast as plain code reads.
pub(crate) fn read(start: *const u8, length: usize) {
    // SAFETY: the range lies in the arena, which is initialized; nobody writes while it is read.
    let bytes = unsafe { from_raw_parts(start, length) };
    let (words, rest) = bytes.as_chunks::<8>();
    // Several sums, so that the additions do not wait for each other.
    let (groups, last) = words.as_chunks::<8>();
    let mut sums = [0u64; 8];
    for group in groups {
        for (sum, word) in sums.iter_mut().zip(group) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let few = last.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    let tail = rest.iter().fold(0u64, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    std::hint::black_box((sums, few, tail));
}

/// Writes to every line of a range of the arena.
fn dirty(start: *mut u8, length: usize) {
    for at in (0..length).step_by(LINE) {
        // SAFETY: the range lies in the arena, and nobody else uses it.
        unsafe { start.add(at).write_volatile(1) }
    }
    if let Some(last) = length.checked_sub(1) {
        // SAFETY: as above.
        unsafe { start.add(last).write_volatile(1) }
    }
}

#[cfg(test)]
mod tests;
