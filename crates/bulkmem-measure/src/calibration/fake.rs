//! A meter whose answers and clock are planted, for tests of everything that decides.

use std::ops::Range;
use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method;
use bulkmem::policy::{Choice, PageAliasing};
use bulkmem::probe::Times;

use crate::calibration::{Condition, Cost};

use crate::calibration::session::Meter;
use crate::engine::cell::{Cell, Extent, Timing};
use crate::engine::memory_state::MemoryState;

/// Aligned, cold, one thread.
pub(crate) const COLD: Condition = Condition::new(true, false, 1);

/// Times of looks in ticks: of storing to lines, and of reaching pages.
pub(crate) const CACHED_TICKS: u64 = 40;
pub(crate) const UNCACHED_TICKS: u64 = 400;
pub(crate) const REACHING_TICKS: u64 = 2000;
pub(crate) const UNMAPPED_TICKS: u64 = 20_000;
pub(crate) const HUGE_TICKS: u64 = 500_000;

/// The speed of touching a range that is to be warm.
const PASS_GB_PER_S: f64 = 12.0;
pub(crate) const LIBPMEM_GB_PER_S: f64 = 1000.0;

/// Answers by a function, with a noise of its own, and a clock that advances by what was answered.
pub(crate) struct Planted<F> {
    answer: F,
    noise: f64,
    random: fastrand::Rng,
    now_ns: f64,
    /// Copies of these lengths by the C library take so many times as long if they are aliased.
    aliased: (f64, Range<usize>),
    /// Calls in memory that was not mapped.
    unmapped: u32,
}

/// The method that takes the least time in memory whose pages are not mapped yet.
pub(crate) const FASTEST_UNMAPPED: &str = "store_sse2";

impl<F> Planted<F> {
    /// `noise` is the largest relative deviation.
    pub(crate) fn new(noise: f64, answer: F) -> Planted<F> {
        Planted {
            answer,
            noise,
            random: fastrand::Rng::with_seed(7),
            now_ns: 0.0,
            aliased: (1.0, 0..0),
            unmapped: 0,
        }
    }

    pub(crate) fn slow_when_aliased(self, times: f64, lengths: Range<usize>) -> Planted<F> {
        Planted { aliased: (times, lengths), ..self }
    }
}

impl<F: FnMut(&Cell, &Choice) -> f64> Meter for Planted<F> {
    fn sample(&mut self, cell: &Cell, trial: Option<&Choice>) -> Option<Timing> {
        let ns = match trial {
            Some(trial) => (self.answer)(cell, trial) * (1.0 + self.noise * (2.0 * self.random.f64() - 1.0)),
            // Faster than any method.
            None => cell.length as f64 / LIBPMEM_GB_PER_S,
        };
        // A short operation is batched to 20 µs, as the real meter does. From a cached source it calls twice, and warm ranges are touched
        // until that gets no faster.
        let calls = if cell.source_is_warm() { 2.0 } else { 1.0 };
        let warm = [cell.condition.warm, cell.source_is_warm()].into_iter().filter(|warm| *warm).count();
        let pass_ns = cell.length as f64 / PASS_GB_PER_S;
        self.now_ns += calls * (ns.max(20_000.0) + 2.0 * warm as f64 * pass_ns);
        let disturbance_ns = (cell.cost == Cost::Stream).then_some(ns / 2.0);
        Some(Timing { ns, disturbance_ns, operations: 1, calls: 1 })
    }

    fn look(&mut self, _: &Cell, state: MemoryState) -> Option<Times> {
        self.now_ns += 20_000.0;
        Some(match state {
            MemoryState::Cached => Times { reaching: 50, storing: Some(CACHED_TICKS) },
            MemoryState::Uncached => Times { reaching: REACHING_TICKS, storing: Some(UNCACHED_TICKS) },
            MemoryState::Unmapped => Times { reaching: UNMAPPED_TICKS, storing: Some(CACHED_TICKS) },
            MemoryState::UnmappedHuge => Times { reaching: HUGE_TICKS, storing: Some(CACHED_TICKS) },
        })
    }

    /// Every method takes a tick per byte, the fastest a twentieth less, MOVNTI a fifth less from 16 MiB on, and on a machine that
    /// becomes slower, each call more than the one before.
    fn unmapped(&mut self, cell: &Cell, choice: Choice) -> Option<u64> {
        self.unmapped += 1;
        let own = match choice.method.name {
            FASTEST_UNMAPPED => 0.95,
            "movnti" if cell.length >= 16 << 20 => 0.8,
            _ => 1.0,
        };
        let ticks = cell.length as f64 * own * (1.0 + f64::from(self.unmapped) / 2000.0);
        self.now_ns += ticks * 0.5;
        Some(ticks as u64)
    }

    fn ns_per_tick(&self) -> f64 {
        0.5
    }

    /// The planted time for a cold clear of the length, whatever the chunk.
    fn extent(&mut self, extent: &Extent) -> f64 {
        let cell = Cell::new(Operation::Clear, Cost::Throughput, extent.length as u64, COLD);
        self.sample(&cell, Some(&extent.choice)).map_or(f64::NAN, |timing| timing.ns)
    }

    /// The planted time for a cold copy of the length, and more where it is aliased.
    fn copy_at(&mut self, choice: &Choice, length: usize, distance: usize) -> f64 {
        let cell = Cell::new(Operation::Copy, Cost::Throughput, length as u64, COLD);
        let at = std::ptr::without_provenance(4096 + distance);
        let (times, lengths) = &self.aliased;
        let slow = choice.method == method::c_library()
            && lengths.contains(&length)
            && PageAliasing::is_between(at, std::ptr::without_provenance(4096));
        let times = if slow { *times } else { 1.0 };
        self.sample(&cell, Some(choice)).map_or(f64::NAN, |timing| timing.ns * times)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.now_ns / 1e9)
    }
}
