//! The time, the stop flag and the progress of a calibration, and the seam between deciding what to measure and
//! measuring it: tests plant the answers and the clock of a [`Meter`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::clock;
use bulkmem::policy::Choice;
use bulkmem::probe::Times;

use crate::calibration::plan;
use crate::engine::cell::{Cell, Extent, Timing};
use crate::engine::implementation::{Implementation, peers};
use crate::engine::interleave::{self, Source, StopRule};
use crate::engine::memory_state::MemoryState;
use crate::engine::workload::Workloads;
use crate::engine::{MeasureError, Progress};

/// A choice, or without one libpmem, for comparison; and the configuration to measure it in.
pub(crate) type Trial = (Cell, Option<Choice>);

/// Takes samples, and owns the clock.
pub(crate) trait Meter {
    /// Takes a sample of a choice, or without one of libpmem; `None` if that is not installed.
    fn sample(&mut self, cell: &Cell, choice: Option<&Choice>) -> Option<Timing>;

    /// Takes the times of a look at memory in that state; `None` without a usable clock, or without memory.
    fn look(&mut self, cell: &Cell, state: MemoryState) -> Option<Times>;

    /// Takes the time of a call in memory whose pages are not mapped yet, in ticks; `None` as for a look.
    fn unmapped(&mut self, cell: &Cell, choice: Choice) -> Option<u64>;

    /// Nanoseconds of a tick.
    fn ns_per_tick(&self) -> f64;

    /// Clears an extent; returns the time in nanoseconds.
    fn extent(&mut self, extent: &Extent) -> f64;

    /// Copies with the destination `distance` bytes after the source modulo the page size; returns the time in nanoseconds.
    fn copy_at(&mut self, choice: &Choice, length: usize, distance: usize) -> f64;

    /// Time since the measuring began.
    fn elapsed(&self) -> Duration;
}

impl Meter for Workloads {
    fn sample(&mut self, cell: &Cell, choice: Option<&Choice>) -> Option<Timing> {
        let implementation = match choice {
            // The policy will call it through the table.
            Some(choice) => Implementation::Dispatched(*choice),
            None => Implementation::Peer(*peers(cell.operation).ok()?.first()?),
        };
        let sample = Workloads::sample(self, cell, &implementation);
        Some(sample.expect("only fresh destinations are mapped for a sample, and calibration has none"))
    }

    fn look(&mut self, cell: &Cell, state: MemoryState) -> Option<Times> {
        Workloads::look(self, cell, state)
    }

    fn unmapped(&mut self, cell: &Cell, choice: Choice) -> Option<u64> {
        Workloads::unmapped(self, cell, choice)
    }

    fn ns_per_tick(&self) -> f64 {
        const DURATION: Duration = Duration::from_millis(1);
        let (start, first) = (Instant::now(), clock::ticks());
        while start.elapsed() < DURATION {}
        let ticks = clock::ticks().wrapping_sub(first).max(1);
        start.elapsed().as_nanos() as f64 / ticks as f64
    }

    fn extent(&mut self, extent: &Extent) -> f64 {
        Workloads::extent(self, extent)
    }

    fn copy_at(&mut self, choice: &Choice, length: usize, distance: usize) -> f64 {
        Workloads::copy_at(self, choice, length, distance)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A meter with a time limit, a stop flag and a progress callback.
pub(crate) struct Session<'a, M> {
    pub(crate) meter: M,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    pub(crate) budget: Duration,
    pub(crate) samples: u64,
}

impl<'a, M: Meter> Session<'a, M> {
    pub(crate) fn new(
        meter: M,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
        budget: Duration,
    ) -> Session<'a, M> {
        Session { meter, stop, progress, budget, samples: 0 }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.meter.elapsed()
    }

    /// True if a deadline has passed or the stop flag is set.
    pub(crate) fn over(&self, deadline: Duration) -> bool {
        self.stopped() || self.elapsed() >= deadline
    }

    pub(crate) fn after_share(&self, share: f64, end: Duration) -> Duration {
        plan::after_share(share, self.elapsed(), end)
    }

    /// Takes one sample of a choice, or without one of libpmem; `None` if that is not installed, or the stop flag is set.
    pub(crate) fn sample(&mut self, cell: &Cell, choice: Option<&Choice>) -> Option<Timing> {
        if self.stopped() {
            return None;
        }
        let sample = self.meter.sample(cell, choice)?;
        self.samples += 1;
        Some(sample)
    }

    /// Takes the time to clear an extent, in nanoseconds; `None` if the stop flag is set.
    pub(crate) fn extent(&mut self, extent: &Extent) -> Option<f64> {
        if self.stopped() {
            return None;
        }
        self.samples += 1;
        Some(self.meter.extent(extent))
    }

    /// Takes the time of a copy, in nanoseconds; `None` if the stop flag is set. See [`Meter::copy_at`].
    pub(crate) fn copy_at(&mut self, choice: &Choice, length: usize, distance: usize) -> Option<f64> {
        if self.stopped() {
            return None;
        }
        self.samples += 1;
        Some(self.meter.copy_at(choice, length, distance))
    }

    /// Samples trials, interleaved. Returns the samples of each.
    pub(crate) fn interleave(&mut self, trials: &[Trial], rule: StopRule) -> Vec<Vec<Timing>> {
        interleave::interleave(&mut Trials { session: self, trials }, trials.len(), rule).0
    }

    /// Reports what is being measured, or a note that results cannot be read rightly without.
    pub(crate) fn report(&mut self, what: impl Into<String>, note: Option<String>) {
        let elapsed = self.elapsed();
        (self.progress)(&Progress {
            done: (elapsed.as_secs_f64() / self.budget.as_secs_f64()).min(1.0),
            elapsed,
            left: self.budget.saturating_sub(elapsed),
            what: what.into(),
            note,
        });
    }
}

struct Trials<'t, 's, 'a, M> {
    session: &'s mut Session<'a, M>,
    trials: &'t [Trial],
}

impl<M: Meter> Source for Trials<'_, '_, '_, M> {
    type Sample = Timing;

    fn take(&mut self, candidate: usize, _done: f64) -> Result<Timing, MeasureError> {
        let (cell, choice) = &self.trials[candidate];
        self.session.sample(cell, choice.as_ref()).ok_or(MeasureError::Interrupted)
    }

    fn cost(&self, sample: &Timing) -> f64 {
        sample.ns
    }

    fn elapsed(&self) -> Duration {
        self.session.elapsed()
    }
}
