//! Calibration: derives this machine's policy from measurements.
//!
//! For each operation and length, it searches for fast methods and measures the best of them precisely, also by their
//! effect on the cache. Then it measures lengths around each change of the choice, and numbers of threads.

mod clear_times;
pub(crate) mod derive;
#[cfg(test)]
mod fake;
pub(crate) mod merge;
mod operation;
mod options;
pub(crate) mod plan;
mod profile;
mod profile_error;
mod profile_file;
mod profile_policy;
pub(crate) mod search;
mod session;

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::policy::Choice;

pub use options::CalibrateOptions;
pub use profile::{Coverage, FORMAT, Figure, Mode, OperationProvenance, Profile, Rule, Saturation, VERSION};
pub use profile_error::ProfileError;

use crate::calibration::derive::table::Key;
use crate::calibration::operation::OperationRun;
use crate::calibration::plan::Setting;
use crate::calibration::session::{Meter, Session};
use crate::engine::Provenance;
use crate::engine::arena::Arena;
use crate::engine::clock::Clock;
use crate::engine::quality::host::LoadMeter;
use crate::engine::units::bytes;
use crate::engine::workload::{self, Workloads};
pub use crate::engine::{BusyProcess, Condition, Cost, Load};
use crate::{MeasureError, Progress};

/// Share of the time for preparing the memory.
const ARENA_TIME_SHARE: f64 = 0.3;

/// Measures this machine and returns the profile.
///
/// Measures one operation after the other and passes `save` the profile so far after each. Calls `progress` before each
/// length. Once `stop` is set, takes no further sample and returns what was measured; the coverage lists the operations
/// that were measured to the end.
///
/// # Errors
/// If an option is invalid, memory does not suffice, or `stop` was set before the first figure.
pub fn calibrate(
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
    save: &mut dyn FnMut(&Profile),
) -> Result<Profile, MeasureError> {
    options.validate()?;
    let clock = Clock::new();
    let machine = Machine::current();
    let last_level = workload::last_level(machine);
    let left = options.budget;
    let what = "preparing memory".to_owned();
    progress(&Progress { done: 0.0, elapsed: Duration::ZERO, left, what, note: None });
    let side = workload::footprint(options.max_length, last_level);
    let arena = Arena::new(side, Workloads::neighbour_size(machine), &clock, left.mul_f64(ARENA_TIME_SHARE))?;
    let max_length = options.max_length.min(arena.longest());
    let note = arena.shortened().map(|why| shortened(max_length, options.max_length, why));
    let threads =
        if options.threads == 0 { machine.processors } else { options.threads.min(machine.processors) };
    let setting = Setting { mode: options.mode, max_length, last_level, threads: threads.max(1) };
    let mut session =
        Session::new(Workloads::new(clock, arena, Rc::default()), stop, progress, options.budget);
    if let Some(note) = note {
        session.note(note);
    }
    let mut ledger = Ledger::default();
    run(&mut session, &setting, &options.operations, &mut ledger, &mut |session, ledger| {
        if !ledger.figures().is_empty() {
            save(&profile(session, ledger, options));
        }
    });
    if ledger.figures().is_empty() {
        return Err(MeasureError::Interrupted);
    }
    session.say("done".to_owned());
    Ok(profile(&session, &ledger, options))
}

/// The note about memory that is smaller than intended.
fn shortened(longest: u64, requested: u64, why: &str) -> String {
    if longest < requested {
        return format!("the longest length is {} instead of {}, {why}", bytes(longest), bytes(requested));
    }
    format!(
        "the measured memory is smaller than usual, {why}: figures for cold memory may include cached lines"
    )
}

/// Derives the profile from the figures so far.
fn profile(session: &Session<'_, Workloads>, ledger: &Ledger, options: &CalibrateOptions) -> Profile {
    let pages = session.meter().arena().backing_page_size();
    let seconds = session.elapsed().as_secs_f64();
    let (rules, threads) = derive::derive_policy(ledger.figures());
    let provenance = Provenance::collect(pages, seconds, session.samples());
    Profile {
        format: FORMAT.to_owned(),
        version: VERSION,
        coverage: Coverage::new(&provenance, options.mode, &ledger.finished),
        provenance,
        durability: options.durability,
        rules,
        threads,
        figures: ledger.figures().to_vec(),
    }
}

/// The figures measured so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    figures: Vec<Figure>,
    /// The operations that were measured to the end, with the time and the load.
    finished: Vec<(Operation, SystemTime, Option<Load>)>,
}

impl Ledger {
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Adds a figure. Of two with the same configuration, the one with more samples stays.
    fn add(&mut self, figure: Figure) {
        let same = |known: &&mut Figure| {
            known.operation == figure.operation
                && known.cost == figure.cost
                && known.method == figure.method
                && known.parameters == figure.parameters
                && known.length == figure.length
                && known.condition == figure.condition
        };
        match self.figures.iter_mut().find(same) {
            Some(known) if known.samples > figure.samples => {}
            Some(known) => *known = figure,
            None => self.figures.push(figure),
        }
    }

    /// Returns the choice at the largest length measured so far.
    fn winner(&self, operation: Operation, cost: Cost) -> Option<Choice> {
        derive::choices(&self.figures, operation, cost).last().and_then(|(_, key)| choice_of(key))
    }
}

fn choice_of(key: &Key) -> Option<Choice> {
    Some(Choice { method: method::by_name(&key.method)?, parameters: key.parameters() })
}

/// Measures the operations and calls `after` after each. Returns true if all were measured.
pub(crate) fn run<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operations: &[Operation],
    ledger: &mut Ledger,
    after: &mut dyn FnMut(&Session<'_, M>, &Ledger),
) -> bool {
    for (index, &operation) in operations.iter().enumerate() {
        let rest: f64 = operations[index..].iter().map(|&operation| plan::importance(operation)).sum();
        let end = plan::deadline(session.elapsed(), session.budget(), plan::importance(operation), rest);
        let meter = LoadMeter::start();
        OperationRun { session, setting, ledger, operation }.measure(end);
        let measured = ledger.figures.iter().any(|figure| figure.operation == operation);
        let impossible = search::every_method(operation).is_empty();
        if !session.stopped() && (measured || impossible) {
            ledger.finished.push((operation, SystemTime::now(), meter.load()));
        }
        after(session, ledger);
        if session.stopped() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
