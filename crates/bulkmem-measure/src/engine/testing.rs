//! What the tests of measurements share.

use std::sync::atomic::AtomicBool;

use bulkmem::machine::Machine;
use bulkmem::policy::Policy;

use crate::engine::stats::Stats;
use crate::engine::{
    Candidate, Config, Measure, Measurement, Metric, Observer, Results, Row, RunOptions, Validated,
};
use crate::{Kind, MeasureError};

/// Runs a measurement with the defaults as policy; `stop` is asked for before it begins. Returns the results, and how
/// often they were saved.
pub(crate) fn run(options: &dyn Measure, stop: bool) -> (Result<Results, MeasureError>, usize) {
    let (stop, mut saves) = (AtomicBool::new(stop), 0);
    let mut save = |_: &Results| {
        saves += 1;
        Ok(())
    };
    let watch = Observer { progress: &mut |_| {}, save: &mut save, stop: &stop };
    let policy = Policy::defaults(Machine::current());
    let run = RunOptions { command: vec!["bench".into()], ..RunOptions::default() };
    let results =
        Validated::new(&[options]).and_then(|measurements| measurements.measure(&policy, run, watch));
    (results, saves)
}

/// True if so many saves fit so many groups of rows: one after each, and one at the end. On a busy machine, a save that took long makes
/// the next ones wait.
pub(crate) fn saved_after_each(groups: usize, saves: usize) -> bool {
    (2..=groups + 1).contains(&saves)
}

/// A row of planted samples.
pub(crate) fn row(
    measurement: Measurement,
    (kind, name): (Kind, &str),
    config: Config,
    (metric, samples): (Metric, &[f64]),
    also: &[(&str, f64)],
) -> Row {
    Row {
        measurement,
        candidate: Candidate::named(kind, name),
        config,
        metric,
        samples: samples.to_vec(),
        stats: Stats::of(samples).expect("samples"),
        also: also.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        counters: None,
        flags: Vec::new(),
        chosen: None,
    }
}
