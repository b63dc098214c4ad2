//! What is measured where, and the seam between deciding what to measure and measuring it.
//!
//! Everything that decides (search, interleaving, calibration) works with a [`Meter`]; tests give it one whose
//! answers and whose clock are planted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::calibration::{Condition, Cost};
use bulkmem::Operation;

use crate::Progress;

/// One place in which candidates are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) cost: Cost,
    pub(crate) length: u64,
    pub(crate) condition: Condition,
}

/// What one sample showed, nanoseconds an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The cost, the disturbance included.
    pub(crate) ns: f64,
    /// Of the cost `stream`: the neighbour's part.
    pub(crate) disturbance_ns: Option<f64>,
}

/// Takes samples of trials of type `T`, and owns the clock.
pub(crate) trait Meter<T> {
    /// Takes one sample.
    fn sample(&mut self, cell: &Cell, trial: &T) -> Sample;

    /// Time since the measuring began.
    fn elapsed(&self) -> Duration;
}

/// A meter with a time limit, a stop flag and somebody to report to.
pub(crate) struct Session<'a, M> {
    meter: M,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    budget: Duration,
    samples: u64,
}

impl<'a, M> Session<'a, M> {
    pub(crate) fn new(
        meter: M,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
        budget: Duration,
    ) -> Session<'a, M> {
        Session { meter, stop, progress, budget, samples: 0 }
    }

    /// How many samples were taken.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether somebody asked to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// When everything has to be over.
    pub(crate) fn budget(&self) -> Duration {
        self.budget
    }

    pub(crate) fn meter(&self) -> &M {
        &self.meter
    }

    pub(crate) fn meter_mut(&mut self) -> &mut M {
        &mut self.meter
    }

    pub(crate) fn elapsed<T>(&self) -> Duration
    where
        M: Meter<T>,
    {
        self.meter.elapsed()
    }

    /// Whether a deadline has passed, or somebody asked to stop.
    pub(crate) fn over<T>(&self, deadline: Duration) -> bool
    where
        M: Meter<T>,
    {
        self.stopped() || self.meter.elapsed() >= deadline
    }

    /// Takes one sample; `None` once somebody asked to stop.
    pub(crate) fn sample<T>(&mut self, cell: &Cell, trial: &T) -> Option<Sample>
    where
        M: Meter<T>,
    {
        if self.stopped() {
            return None;
        }
        self.samples += 1;
        Some(self.meter.sample(cell, trial))
    }

    /// Reports what is being measured.
    pub(crate) fn say<T>(&mut self, what: String)
    where
        M: Meter<T>,
    {
        self.report(what, None);
    }

    /// Reports something that results cannot be read rightly without.
    pub(crate) fn note<T>(&mut self, note: String)
    where
        M: Meter<T>,
    {
        self.report(String::new(), Some(note));
    }

    fn report<T>(&mut self, what: String, note: Option<String>)
    where
        M: Meter<T>,
    {
        let elapsed = self.meter.elapsed();
        (self.progress)(&Progress {
            done: (elapsed.as_secs_f64() / self.budget.as_secs_f64()).min(1.0),
            elapsed,
            left: self.budget.saturating_sub(elapsed),
            what,
            note,
        });
    }
}
