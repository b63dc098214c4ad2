//! Calibration: derives this machine's policy from measurements.
//!
//! For each operation and length, it searches for fast methods and measures the best of them precisely, also by their
//! effect on the cache. Then it measures lengths around each change of the choice, and numbers of threads.

mod aliasing;
pub(crate) mod derive;
#[cfg(test)]
mod fake;
mod ledger;
pub(crate) mod merge;
mod module;
mod operation;
pub(crate) mod plan;
mod prefetch;
mod profile;
mod profile_file;
pub(crate) mod search;
mod session;
mod unmapped;

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use bulkmem::machine::Machine;
use bulkmem::{Durability, Operation, Pages};
use serde::{Deserialize, Serialize};

pub use profile::{
    AliasingRule, Coverage, FORMAT, Figure, LookRule, Mode, ModuleFigure, NewHugeRule, OperationProvenance,
    Profile, Rule, Saturation, UnmappedRule, VERSION,
};
pub use profile_file::ProfileError;

use crate::calibration::derive::Derived;
use crate::calibration::derive::look::Samples;
use crate::calibration::ledger::Ledger;
use crate::calibration::operation::OperationRun;
use crate::calibration::plan::Setting;
use crate::calibration::session::{Meter, Session};
use crate::engine::arena::Arena;
use crate::engine::options::{bad, check_budget, check_length, check_threads};
use crate::engine::quality::host::Snapshot;
use crate::engine::units::bytes;
use crate::engine::workload::{self, Workloads};
pub use crate::engine::{BusyProcess, Condition, Cost, Load};
use crate::engine::{Provenance, Threshold, free_pages, threshold};
use crate::{MeasureError, Progress};

/// Lengths that summaries of a profile show, bytes: 64 KiB, 1 MiB, 16 MiB and 1 GiB.
pub const SUMMARY: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 1 << 30];

/// Returns how far a measured length is from one of a summary, the logarithm of the ratio; `None` if that is more than a factor of 2,
/// so that its figures do not stand for it.
pub fn distance(measured: u64, length: u64) -> Option<f64> {
    let distance = (measured as f64 / length as f64).ln().abs();
    (distance <= 2f64.ln()).then_some(distance)
}

/// Share of the time for preparing the memory.
const ARENA_TIME_SHARE: f64 = 0.3;
/// Share of the time for preparing memory in base pages.
const BASE_PAGES_TIME_SHARE: f64 = 0.1;
/// Share of the time for locating the C library's thresholds.
const THRESHOLDS_TIME_SHARE: f64 = 0.03;

/// Options for calibrating.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateOptions {
    /// How thoroughly to calibrate; decides how densely lengths and parameters are searched.
    pub mode: Mode,
    /// Wall-clock time limit.
    pub budget: Duration,
    /// The operations to measure, each once.
    pub operations: Vec<Operation>,
    /// The largest length, bytes. If memory does not suffice, calibration measures a smaller one and reports it in
    /// `Progress::note`.
    pub max_length: u64,
    /// The most threads to try; 0 for the number of processors.
    pub threads: usize,
    /// Storage that survives a power failure, which no measurement shows. `None` keeps what an earlier profile says.
    #[serde(default)]
    pub durability: Option<Durability>,
}

impl CalibrateOptions {
    /// Returns the options of a mode: its time limit, every operation, lengths up to 1 GiB (thorough: 4 GiB).
    pub fn new(mode: Mode) -> CalibrateOptions {
        let (seconds, max_length) = match mode {
            Mode::Quick => (9, 1 << 30),
            Mode::Default => (55, 1 << 30),
            Mode::Thorough => (600, 4 << 30),
        };
        CalibrateOptions {
            mode,
            budget: Duration::from_secs(seconds),
            operations: Operation::ALL.to_vec(),
            max_length,
            threads: 0,
            durability: None,
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`MeasureError::Option`] names the first option that cannot be used.
    pub fn validate(&self) -> Result<(), MeasureError> {
        check_budget(self.budget)?;
        check_length("--max-size", self.max_length)?;
        check_threads(self.threads)?;
        if self.operations.is_empty() {
            return Err(bad("--op", "none is given; name at least one"));
        }
        let twice = |it: &&Operation| self.operations.iter().filter(|other| other == it).count() > 1;
        match self.operations.iter().find(twice) {
            Some(twice) => Err(bad("--op", format!("{twice} is given twice"))),
            None => Ok(()),
        }
    }
}

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
    let started = Instant::now();
    let machine = Machine::current();
    let last_level = workload::last_level(machine);
    let left = options.budget;
    let what = "preparing memory".to_owned();
    progress(&Progress { done: 0.0, elapsed: Duration::ZERO, left, what, note: None });
    let side = workload::footprint(options.max_length, last_level);
    let arena = Arena::new(
        side,
        workload::second_level(machine),
        Pages::Transparent,
        left.mul_f64(ARENA_TIME_SHARE),
    )?;
    let max_length = options.max_length.min(arena.longest());
    let note = arena.shortened.as_deref().map(|why| match (bytes(max_length), bytes(options.max_length)) {
        (longest, requested) if max_length < options.max_length => {
            format!("the longest length is {longest} instead of {requested}, {why}")
        }
        _ => format!(
            "the measured memory is smaller than usual, {why}: figures for cold memory may include cached lines"
        ),
    });
    let most = if options.threads == 0 { usize::MAX } else { options.threads };
    let threads = most.min(machine.processors).max(1);
    let second_level = workload::second_level(machine);
    let base_pages = match options.mode {
        // Mapping so many pages takes too long.
        Mode::Quick => Ok(None),
        Mode::Default | Mode::Thorough => {
            base_pages(&arena, max_length, last_level, left.mul_f64(BASE_PAGES_TIME_SHARE))
        }
    };
    let without = base_pages.as_ref().err().map(|why| format!("base pages are not measured: {why}"));
    let in_base_pages = base_pages.unwrap_or_default();
    let longest_in_base_pages = in_base_pages.as_ref().map_or(0, |_| max_length.min(plan::LONG - 1));
    let setting =
        Setting { mode: options.mode, max_length, second_level, last_level, threads, longest_in_base_pages };
    let time = left.mul_f64(THRESHOLDS_TIME_SHARE);
    let thresholds = Threshold::locate_all(&arena, threshold::LONGEST, time, stop);
    let mut workloads = Workloads::new(started, arena, Rc::default());
    workloads.in_base_pages = in_base_pages;
    let mut session = Session::new(workloads, stop, progress, options.budget);
    let from_the_host = free_pages::go_back_to_the_host(Path::new("/")).then(|| {
        "free memory goes back to the host (free page reporting), so that figures of new memory are slower and vary"
            .to_owned()
    });
    for note in [note, without, from_the_host].into_iter().flatten() {
        session.report("", Some(note));
    }
    let looks = Samples { thresholds, ..Samples::default() };
    let mut ledger = Ledger { looks, ..Ledger::default() };
    run(&mut session, &setting, &options.operations, &mut ledger, &mut |session, ledger| {
        if !ledger.figures.is_empty() {
            save(&profile(session, ledger, options));
        }
    });
    if ledger.figures.is_empty() {
        return Err(MeasureError::Interrupted);
    }
    session.report("done", None);
    Ok(profile(&session, &ledger, options))
}

/// Prepares memory in base pages for lengths below [`plan::LONG`]; `None` if the other memory is in base pages, too. Only few candidates
/// are measured at longer lengths.
///
/// # Errors
/// The reason, if there is too little memory or time: in less memory, ranges might still be cached from before.
fn base_pages(
    other: &Arena,
    max_length: u64,
    last_level: u64,
    patience: Duration,
) -> Result<Option<Arena>, String> {
    if other.backing_page_size() <= Machine::current().page_size {
        return Ok(None);
    }
    // Less than the other memory has, because mapping base pages takes long: 2 s for 1 GiB on an Emerald Rapids.
    let side = last_level.saturating_mul(2).clamp(max_length.min(plan::LONG), 1 << 30);
    Arena::complete(side, Pages::Base, patience).map(Some)
}

/// Derives the profile from the figures so far.
fn profile(session: &Session<'_, Workloads>, ledger: &Ledger, options: &CalibrateOptions) -> Profile {
    let pages = session.meter.arena.backing_page_size();
    let Derived { rules, looks, threads } = derive::derive(&ledger.figures, &ledger.looks);
    let provenance = Provenance::collect(pages, session.elapsed().as_secs_f64(), session.samples);
    let provenance = Provenance { thresholds: ledger.looks.thresholds.clone(), ..provenance };
    Profile {
        format: FORMAT.to_owned(),
        version: VERSION,
        coverage: Coverage::new(&provenance, options.mode, &ledger.finished),
        provenance,
        durability: options.durability,
        rules,
        looks,
        aliasing: ledger.aliasing.clone(),
        threads,
        figures: ledger.figures.clone(),
        module: ledger.module.clone(),
    }
}

/// Measures the operations and calls `after` after each.
pub(crate) fn run<M: Meter>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operations: &[Operation],
    ledger: &mut Ledger,
    after: &mut dyn FnMut(&Session<'_, M>, &Ledger),
) {
    for (index, &operation) in operations.iter().enumerate() {
        if session.stopped() {
            break;
        }
        let rest: f64 = operations[index..].iter().map(|&operation| plan::importance(operation)).sum();
        let end = session.after_share(plan::importance(operation) / rest, session.budget);
        let before = Snapshot::here();
        if operation == Operation::Clear {
            let deadline = session.after_share(plan::MODULE_SHARE, end);
            ledger.module = module::measure(session, setting, deadline);
        }
        if operation == Operation::Copy {
            ledger.aliasing = aliasing::measure(session, setting);
        }
        OperationRun { session, setting, ledger, operation }.measure(end);
        let measured = ledger.figures.iter().any(|figure| figure.operation == operation);
        let impossible = search::every_method(operation).is_empty();
        if !session.stopped() && (measured || impossible) {
            ledger.finished.push((operation, SystemTime::now(), before.and_then(|before| before.load())));
        }
        after(session, ledger);
    }
}

#[cfg(test)]
mod tests;
