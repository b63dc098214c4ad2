//! The time, the stop flag and the progress of a calibration, and the seam between deciding what to measure and
//! measuring it: tests plant the answers and the clock of a [`Meter`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkmem::policy::Choice;

use crate::engine::implementation::Implementation;
use crate::engine::interleave::{self, Source, StopRule};
use crate::engine::stats::Summary;
use crate::engine::workload::{Cell, Timing, Workloads};
use crate::engine::{MeasureError, Progress};

/// Takes samples of trials of type `T`, and owns the clock.
pub(crate) trait Meter<T> {
    /// Takes one sample.
    fn sample(&mut self, cell: &Cell, trial: &T) -> Timing;

    /// Time since the measuring began.
    fn elapsed(&self) -> Duration;
}

/// A meter with a time limit, a stop flag and a progress callback.
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

    /// True if the stop flag is set.
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

    pub(crate) fn elapsed<T>(&self) -> Duration
    where
        M: Meter<T>,
    {
        self.meter.elapsed()
    }

    /// True if a deadline has passed or the stop flag is set.
    pub(crate) fn over<T>(&self, deadline: Duration) -> bool
    where
        M: Meter<T>,
    {
        self.stopped() || self.meter.elapsed() >= deadline
    }

    /// Takes one sample; `None` if the stop flag is set.
    pub(crate) fn sample<T>(&mut self, cell: &Cell, trial: &T) -> Option<Timing>
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

impl Meter<Choice> for Workloads {
    fn sample(&mut self, cell: &Cell, choice: &Choice) -> Timing {
        // The policy will call it through the table.
        Workloads::sample(self, cell, &Implementation::Dispatched(*choice))
    }

    fn elapsed(&self) -> Duration {
        Workloads::elapsed(self)
    }
}

/// The samples of one candidate, summarized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) summary: Summary,
    /// Median of the neighbour's part.
    pub(crate) disturbance_ns: Option<f64>,
}

/// Candidates of a session, each in its cell.
struct Trials<'t, 's, 'a, T, M> {
    session: &'s mut Session<'a, M>,
    trials: &'t [(Cell, T)],
}

impl<T, M: Meter<T>> Source for Trials<'_, '_, '_, T, M> {
    type Sample = Timing;

    fn take(&mut self, candidate: usize, _done: f64) -> Result<Timing, MeasureError> {
        let (cell, trial) = &self.trials[candidate];
        self.session.sample(cell, trial).ok_or(MeasureError::Interrupted)
    }

    fn cost(&self, sample: &Timing) -> f64 {
        sample.ns
    }

    fn elapsed(&self) -> Duration {
        self.session.elapsed()
    }

    fn stopped(&self) -> bool {
        self.session.stopped()
    }
}

/// Samples trials, interleaved. Returns the results in the order of the trials; `None` for a trial without samples.
pub(crate) fn interleave<T, M: Meter<T>>(
    session: &mut Session<'_, M>,
    trials: &[(Cell, T)],
    rule: StopRule,
) -> Vec<Option<Measured>> {
    let (samples, _) = interleave::interleave(&mut Trials { session, trials }, trials.len(), rule);
    let measured = |samples: &Vec<Timing>| {
        let times: Vec<f64> = samples.iter().map(|it| it.ns).collect();
        let disturbances: Vec<f64> = samples.iter().filter_map(|it| it.disturbance_ns).collect();
        Some(Measured {
            summary: Summary::of(&times)?,
            disturbance_ns: Summary::of(&disturbances).map(|summary| summary.median),
        })
    };
    samples.iter().map(measured).collect()
}
