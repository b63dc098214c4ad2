//! Samples of operations in an arena: batched so that reading the clock costs nothing, with warm or cold ranges, alone,
//! followed by reading the result, or next to a neighbour that lives in the cache.

use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use bulkmem::machine::{Caches, Machine};
use bulkmem::method::{self, Ordering, fence};
use bulkmem::policy::Choice;
use bulkmem::{Operation, Pages, Workers, clock, probe};

use crate::engine::arena::{HUGE, dirty, read};
use crate::engine::cell::{Cell, Condition, Cost, Extent, Timing};
use crate::engine::clock::{spin, time};
use crate::engine::fresh::Fresh;
use crate::engine::implementation::Work;
use crate::engine::memory_state::MemoryState;
use crate::engine::positions::warm_start;
use crate::engine::threads::Team;
use crate::engine::{
    Arena, Candidate, Counting, FILL_BYTE, Implementation, LINE, Neighbour, RawRange, Result, Spread,
};

/// Candidates of a cell that had their sample since the turn began. It ends when one of them comes again.
#[derive(Debug)]
struct Turn {
    number: u64,
    sampled: Vec<Candidate>,
}

impl Turn {
    /// The number of the turn in which the candidate takes its next sample.
    fn next(&mut self, candidate: &Candidate) -> u64 {
        if self.sampled.contains(candidate) {
            self.number += 1;
            self.sampled.clear();
        }
        self.sampled.push(candidate.clone());
        self.number
    }
}

struct Timed<'w> {
    workloads: &'w mut Workloads,
    cell: &'w Cell,
    candidate: Candidate,
}

impl Work for Timed<'_> {
    type Output = Result<Timing>;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> Result<Timing> {
        self.workloads.run(self.cell, self.candidate, call)
    }
}

/// One call, timed in ticks.
struct Ticks {
    dst: *mut u8,
    src: *const u8,
    length: usize,
}

impl Work for Ticks {
    type Output = u64;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> u64 {
        let Ticks { dst, src, length } = self;
        let start = clock::ticks();
        call(dst, src, length);
        clock::ticks().wrapping_sub(start)
    }
}

/// The same call several times, after one that is not timed. Its output is the time of one, in nanoseconds.
pub(crate) struct Repeated {
    pub(crate) dst: *mut u8,
    pub(crate) src: *const u8,
    pub(crate) length: usize,
    pub(crate) calls: usize,
}

impl Work for Repeated {
    type Output = f64;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> f64 {
        let Repeated { dst, src, length, calls } = self;
        call(dst, src, length);
        time(|| {
            for _ in 0..calls {
                call(black_box(dst), black_box(src), black_box(length));
            }
        }) / calls as f64
    }
}

/// Page aliasing is that of the low 12 bits of addresses, whatever the size of pages.
const PAGE: usize = 4096;
/// So many bytes are copied for a sample of short copies.
const COPIED: usize = 64 << 10;
/// A sample spans at least this long.
const SAMPLE_NS: f64 = 20_000.0;
/// And at most so many operations.
const MOST: usize = 4096;
/// A batch of as many operations as possible is repeated at most so often.
const MOST_REPEATS: usize = 8;
/// From this length on, each operation of a warm batch has ranges of its own, which were touched just before: a method that
/// bypasses the cache would leave nothing of them in it for the next operation. Together they fit the second-level cache.
/// In the first-level one, Zen 5 executes even non-temporal stores, so that short ranges would say nothing about long ones.
pub(crate) const WARMED_EACH: usize = 16 << 10;

/// The last-level cache, bytes; what is usual where the machine does not tell.
pub(crate) fn last_level(machine: &Machine) -> u64 {
    match machine.caches.l3.max(machine.caches.l2) {
        0 => Caches::FALLBACK.l3,
        known => known,
    }
}

/// The second-level cache, bytes, which is the neighbour's size; what is usual where the machine does not tell.
pub(crate) fn second_level(machine: &Machine) -> u64 {
    machine.caches.sane().l2
}

/// The range that operations of up to `longest` bytes are spread over: 1 GiB, more for longer ones, less if all fit the cache.
pub(crate) fn footprint(longest: u64, last_level: u64) -> u64 {
    const USUAL: u64 = 1 << 30;
    let least = if longest > last_level / 4 { USUAL } else { last_level.saturating_mul(8).min(USUAL) };
    longest.max(least)
}

pub(crate) struct Workloads {
    pub(crate) started: Instant,
    pub(crate) arena: Arena,
    /// The same in base pages, for cells that are in these.
    pub(crate) in_base_pages: Option<Arena>,
    neighbour: Neighbour,
    l2: usize,
    last_level: usize,
    destinations: Spread,
    sources: Spread,
    turns: HashMap<Cell, Turn>,
    /// Looks so far, each a turn of its own.
    looks: u64,
    random: fastrand::Rng,
    /// Operations in a sample, by cell and candidate.
    batches: HashMap<(Cell, Candidate), usize>,
    ranges: Vec<(*mut u8, *const u8)>,
    pub(crate) fresh: Fresh,
    /// Bytes of the destination that extents have cleared since it was last written.
    cleared: usize,
    counting: Rc<Counting>,
    /// The threads of calls on several; `None` if each call starts them.
    pub(crate) ready: Option<Rc<Workers>>,
}

impl Workloads {
    /// Takes samples in an arena; only the operations themselves are `counting`.
    pub(crate) fn new(started: Instant, arena: Arena, counting: Rc<Counting>) -> Workloads {
        let l2 = second_level(Machine::current()) as usize;
        // SAFETY: the arena lives as long as the neighbour does, in the same struct; nothing else uses this range.
        let neighbour = unsafe { Neighbour::new(arena.neighbour, l2) };
        let last_level = last_level(Machine::current());
        let spread = (2 * last_level).min(arena.longest());
        let fresh = Fresh::new(usize::try_from(spread).unwrap_or(usize::MAX));
        Workloads {
            started,
            arena,
            in_base_pages: None,
            neighbour,
            l2,
            last_level: usize::try_from(last_level).unwrap_or(usize::MAX),
            destinations: Spread::new(1, last_level),
            sources: Spread::new(2, last_level),
            turns: HashMap::new(),
            looks: 0,
            random: fastrand::Rng::with_seed(3),
            batches: HashMap::new(),
            ranges: Vec::new(),
            fresh,
            cleared: 0,
            counting,
            ready: None,
        }
    }

    /// Takes one sample of an implementation, which has the cell's operation. Fails only if fresh memory cannot be mapped.
    pub(crate) fn sample(&mut self, cell: &Cell, implementation: &Implementation<'_>) -> Result<Timing> {
        assert!(cell.length <= self.arena_of(cell).longest(), "lengths are checked against the arena before");
        let ready = self.ready.clone();
        let threads = cell.condition.threads;
        let team = ready.as_deref().map_or(Team::Started(threads), |workers| Team::Ready(threads, workers));
        let work = Timed { candidate: implementation.candidate(), workloads: self, cell };
        // SAFETY: the ranges lie in an arena, or destinations in a mapping that lives until the next sample, source and
        // destination apart, and nothing else uses them.
        unsafe { implementation.run(team, cell.operation, FILL_BYTE, work) }
    }

    /// Takes the times of a look at the cell's length; `None` if the clock cannot be used or memory cannot be mapped.
    pub(crate) fn look(&mut self, cell: &Cell, state: MemoryState) -> Option<probe::Times> {
        Some(self.timed_look(cell, state)?.0)
    }

    /// Takes the time that a look adds to a call of the cell's length, in nanoseconds, if pages reached in fewer than
    /// `cached_below` ticks tell enough; `None` as for a look.
    pub(crate) fn look_ns(&mut self, cell: &Cell, state: MemoryState, cached_below: u64) -> Option<f64> {
        let (times, ns) = self.timed_look(cell, state)?;
        let all = times.reaching + times.storing.unwrap_or(0);
        let needed = if times.reaching < cached_below { times.reaching } else { all };
        (all > 0).then(|| ns * needed as f64 / all as f64)
    }

    /// Takes the times of a look, and the nanoseconds that all of it took.
    fn timed_look(&mut self, cell: &Cell, state: MemoryState) -> Option<(probe::Times, f64)> {
        let warm = state == MemoryState::Cached;
        let cell =
            Cell { condition: Condition { warm, ..cell.condition }, fresh: state.new_pages(), ..*cell };
        self.looks += 1;
        let (dst, src, mut length) = self.timed_range(&cell, self.looks)?;
        self.warm(&cell, length, cell.source_is_warm());
        if state == MemoryState::UnmappedHuge {
            length = length.min(probe::BEGINNING);
        }
        let src = if cell.operation.has_source() { src } else { std::ptr::null() };
        let mut times = None;
        // SAFETY: as in `sample`.
        let ns = time(|| times = Some(unsafe { probe::times(dst, src, length, FILL_BYTE) }));
        Some((times?, ns))
    }

    /// The number of the turn in which a candidate takes its next sample of a cell. Each cell begins elsewhere.
    fn turn(&mut self, cell: &Cell, candidate: &Candidate) -> u64 {
        let number = self.turns.len() as u64;
        let turn = self.turns.entry(*cell).or_insert_with(|| Turn { number, sampled: Vec::new() });
        turn.next(candidate)
    }

    /// Takes the time of a call of the cell's length in memory whose pages are not mapped yet, in ticks; `None` as for a look.
    pub(crate) fn unmapped(&mut self, cell: &Cell, choice: Choice) -> Option<u64> {
        let turn = self.turn(cell, &Candidate::method(&choice));
        let (dst, src, length) = self.timed_range(cell, turn)?;
        let work = Ticks { dst, src, length };
        // SAFETY: as in `sample`.
        Some(unsafe { Implementation::Dispatched(choice).run(1, cell.operation, FILL_BYTE, work) })
    }

    /// Chooses the ranges of one call for the processor's clock; `None` if that cannot be used, or memory not be mapped.
    fn timed_range(&mut self, cell: &Cell, turn: u64) -> Option<(*mut u8, *const u8, usize)> {
        let length = usize::try_from(cell.length).ok().filter(|_| clock::is_usable())?;
        self.choose_ranges(cell, length, 1, turn, 0).ok()?;
        let (dst, src) = *self.ranges.first()?;
        Some((dst, src, length))
    }

    /// Clears the next part of the destination, which is not in the cache and holds other bytes than zero; returns the time in
    /// nanoseconds.
    pub(crate) fn extent(&mut self, extent: &Extent) -> f64 {
        let Extent { choice, length, chunk } = *extent;
        let RawRange { start, length: room } = self.arena.destination;
        if room - self.cleared < length {
            let rewriter = Implementation::Method(Choice::of(method::c_library(), Operation::Fill));
            let threads = Machine::current().processors.clamp(1, 16);
            // SAFETY: the range lies in the arena, and nothing else uses it.
            unsafe { rewriter.run(threads, Operation::Fill, FILL_BYTE, (start, start.cast_const(), room)) };
            self.cleared = 0;
        }
        let start = start.wrapping_add(self.cleared);
        self.cleared += length;
        let clear = choice.method.code().clear.expect("extents are cleared").unfenced;
        time(|| {
            for from in (0..length).step_by(chunk) {
                // SAFETY: as above; the choice was checked against this machine.
                unsafe { clear(start.wrapping_add(from), chunk.min(length - from), 0, &choice.parameters) };
            }
            if choice.method.ordering == Ordering::Weak {
                fence();
            }
        })
    }

    /// Copies again and again, with the destination `distance` bytes after the source modulo [`PAGE`], within the caches if
    /// the length allows. Returns the time of one copy in nanoseconds.
    pub(crate) fn copy_at(&mut self, choice: &Choice, length: usize, distance: usize) -> f64 {
        let Arena { destination, source, .. } = self.arena;
        let behind = source.start.addr().wrapping_add(distance).wrapping_sub(destination.start.addr()) % PAGE;
        let length = length.min(destination.length - behind).min(source.length);
        let dst = destination.start.wrapping_add(behind);
        let calls = (COPIED / length.max(1)).max(1);
        let work = Repeated { dst, src: source.start, length, calls };
        // SAFETY: the ranges lie in the arena, source and destination apart, and nothing else uses them; the choice was
        // checked against this machine.
        unsafe { Implementation::Method(*choice).run(1, Operation::Copy, FILL_BYTE, work) }
    }

    fn run(
        &mut self,
        cell: &Cell,
        candidate: Candidate,
        call: impl Fn(*mut u8, *const u8, usize),
    ) -> Result<Timing> {
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        let turn = self.turn(cell, &candidate);
        if cell.cost == Cost::Stream {
            return self.beside(cell, length, turn, call);
        }
        let whole = |&(dst, src): &(*mut u8, *const u8)| {
            call(dst, src, length);
            if cell.cost == Cost::Reuse {
                read(dst, length);
            }
        };
        let key = (*cell, candidate);
        // What is warmed or flushed must be in the cache, all of it.
        let most = if cell.operation == Operation::Persist {
            self.half_the_cache(cell, length)
        } else if cell.condition.warm && length >= WARMED_EACH {
            self.half_the_cache(cell, if cell.operation.has_source() { 2 * length } else { length })
        } else {
            MOST
        };
        let mut batch = self.batches.get(&key).copied().unwrap_or(1).min(most);
        // Batches that are short because no more fits the cache are repeated.
        let (mut total, mut repeats) = (0.0, 0);
        loop {
            self.choose_ranges(cell, length, batch, turn, repeats)?;
            self.warm(cell, length, cell.source_is_warm());
            let fits = (WARMED_EACH..=self.last_level).contains(&length);
            let untimed = fits && cell.source_is_warm() && cell.fresh.is_none();
            if untimed {
                // The source is as cached as such a call leaves it, not as a read does.
                self.ranges.iter().for_each(whole);
                self.move_destinations(cell, length, turn);
                self.warm(cell, length, false);
            }
            // Not by for_each(&whole), which would be a function of its own: 1.5 ns a call.
            let ns = self.counting.only(|| {
                time(|| {
                    for range in &self.ranges {
                        whole(range);
                    }
                })
            });
            if ns < SAMPLE_NS / 2.0 && batch < most && !self.counting.active() {
                // Too short: this is the first sample, or the processor was away during the one that the size came from.
                let needed = (batch as f64 * SAMPLE_NS / ns.max(1.0)).ceil() as usize;
                batch = needed.max(batch + 1).min(most);
                (total, repeats) = (0.0, 0);
                continue;
            }
            (total, repeats) = (total + ns, repeats + 1);
            if total >= SAMPLE_NS / 2.0 || repeats == MOST_REPEATS || self.counting.active() {
                let operations = repeats * batch;
                self.batches.insert(key, batch);
                let calls = if untimed { 2 * operations } else { operations };
                return Ok(Timing { ns: total / operations as f64, disturbance_ns: None, operations, calls });
            }
        }
    }

    /// Brings the ranges into the cache that are to be warm there, whatever the candidate before left of them; the sources only if
    /// `reads`.
    ///
    /// A third-level cache that takes what the second level evicts keeps few lines of a range that was touched once: on a Zen 3,
    /// a range of 4 MiB that non-temporal stores had evicted was then cleared at 25 GB/s, after a second pass at 41, and after a few
    /// more at 60, as one that had been in use all the time. So passes follow as long as each takes clearly less time than the one
    /// before, but not in ranges that take so long that they hardly fit a cache, which would use up a calibration's time.
    fn warm(&self, cell: &Cell, length: usize, reads: bool) {
        const MOST_PASSES: usize = 8;
        const FASTER: f64 = 0.9;
        const LONGEST_NS: f64 = 2e6;
        let writes = cell.condition.warm && cell.operation != Operation::Persist;
        if !reads && !writes {
            return;
        }
        let (mut before, mut total) = (f64::INFINITY, 0.0);
        for pass in 0..MOST_PASSES {
            let ns = time(|| {
                for same in self.ranges.chunk_by(|a, b| a == b) {
                    let (dst, src) = same[0];
                    if reads {
                        read(src, length);
                    }
                    if writes {
                        dirty(dst, length);
                    }
                }
            });
            // The first brings what is not cached from memory, for the first candidate of a turn and few others.
            total += if pass == 0 { 0.0 } else { ns };
            if ns > FASTER * before || total > LONGEST_NS {
                break;
            }
            before = ns;
        }
    }

    /// How many operations of a cell fill half the second-level cache, of `length` bytes each; they fit its arena.
    fn half_the_cache(&self, cell: &Cell, length: usize) -> usize {
        let fits = self.arena_of(cell).longest() as usize / (length + 2 * LINE);
        (self.l2 / 2 / length.max(1)).min(fits).clamp(1, MOST)
    }

    fn arena_of(&self, cell: &Cell) -> &Arena {
        if cell.condition.base_pages {
            self.in_base_pages.as_ref().expect("cells are planned by the arenas that there are")
        } else {
            &self.arena
        }
    }

    /// Chooses the ranges of a batch, and writes to every line that is to be flushed. How often a batch is repeated depends on the
    /// candidate, so warm ranges, which lie in a few pages, depend on the turn alone.
    fn choose_ranges(
        &mut self,
        cell: &Cell,
        length: usize,
        batch: usize,
        turn: u64,
        repeats: usize,
    ) -> Result<()> {
        let Arena { destination, source, .. } = *self.arena_of(cell);
        let offset = if cell.condition.aligned { 0 } else { self.random.usize(1..LINE / 2) };
        // Never aligned alike. Warm ranges begin near the beginning of a page: there no destination may lie a few bytes behind
        // its source modulo 4096, which slows down REP MOVSB and is measured on its own.
        let source_offset = if offset == 0 { 0 } else { self.random.usize(offset + 1..LINE) };
        let (warm, flush) = (cell.condition.warm, cell.operation == Operation::Persist);
        // Fresh destinations share no pages, or only the first would be fresh.
        let unit = match cell.fresh {
            Some(Pages::Base) => Machine::current().page_size,
            Some(_) => HUGE,
            None => LINE,
        };
        let stride = (length + LINE).next_multiple_of(unit);
        // Warm ranges lie in the same place, apart only if they are warmed or dirtied each.
        let warmed_each = length >= WARMED_EACH && cell.cost != Cost::Stream;
        let distance = if warm && (flush || warmed_each) { stride } else { 0 };
        let needed = (batch - 1) * distance + length + LINE;
        let [warm_destination, warm_source] = [destination, source].map(|it| warm_start(it, needed, turn));
        self.ranges.clear();
        let fresh = cell.fresh.map(|pages| self.fresh.memory(cell.operation, stride * batch, pages));
        let fresh = fresh.transpose()?;
        for (index, turn) in (0..batch).zip(turn + (repeats * batch) as u64..) {
            let dst = match (fresh, warm) {
                (Some(start), _) => start.wrapping_add(index * stride + offset),
                (None, true) => warm_destination.wrapping_add(index * distance + offset),
                (None, false) => self.destinations.place(destination, length, offset, turn),
            };
            let src = if cell.source_is_warm() {
                warm_source.wrapping_add(index * distance + source_offset)
            } else {
                self.sources.place(source, length, source_offset, turn)
            };
            self.ranges.push((dst, src));
            if flush {
                dirty(dst, length);
            }
        }
        Ok(())
    }

    /// Chooses other destinations for the same sources, unless they are warm.
    fn move_destinations(&mut self, cell: &Cell, length: usize, turn: u64) {
        if cell.condition.warm {
            return;
        }
        let destination = self.arena_of(cell).destination;
        for ((dst, _), turn) in self.ranges.iter_mut().zip(turn..) {
            let offset = dst.addr() % LINE;
            *dst = self.destinations.place(destination, length, offset, turn);
        }
    }

    /// The operation, and how much longer the neighbour's walk takes after it than after as long without touching memory.
    fn beside(
        &mut self,
        cell: &Cell,
        length: usize,
        turn: u64,
        call: impl Fn(*mut u8, *const u8, usize),
    ) -> Result<Timing> {
        // Enough operations to show: half the cache that the neighbour lives in.
        let batch = self.half_the_cache(cell, length);
        self.choose_ranges(cell, length, batch, turn, 0)?;
        self.warm(cell, length, cell.source_is_warm());
        let settle = || {
            self.neighbour.walk();
            self.neighbour.walk();
        };
        settle();
        let whole = || self.ranges.iter().for_each(|(dst, src)| call(*dst, *src, length));
        let busy = self.counting.only(|| time(whole));
        let after = time(|| self.neighbour.walk());
        settle();
        spin(busy);
        let control = time(|| self.neighbour.walk());
        // Below 0 it is noise, which must not pay for the operation.
        let disturbance = (after - control) / batch as f64;
        Ok(Timing {
            ns: busy / batch as f64 + disturbance.max(0.0),
            disturbance_ns: Some(disturbance),
            operations: batch,
            calls: batch,
        })
    }
}

#[cfg(test)]
mod tests;
