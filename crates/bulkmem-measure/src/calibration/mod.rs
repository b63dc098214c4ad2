//! Calibration: for each operation and length a search, then the finalists with care, then what they do to others,
//! then the lengths where the choice changes, then threads.

pub(crate) mod derive;
#[cfg(test)]
mod fake;
pub(crate) mod merge;
mod module_settings;
mod options;
pub(crate) mod plan;
mod profile;
mod profile_error;
mod profile_file;
pub(crate) mod search;
mod session;

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem::method::{self, Parameters};
use bulkmem::policy::Choice;

pub use module_settings::{Plan, PlanError, Reason};
pub use options::CalibrateOptions;
pub use profile::{Coverage, FORMAT, Figure, Mode, OperationProvenance, Profile, Rule, Saturation, VERSION};
pub use profile_error::ProfileError;

use crate::calibration::derive::table::Key;
use crate::calibration::plan::{LONG, Setting};
use crate::calibration::search::{Field, Ranked};
use crate::calibration::session::{Meter, Session, interleave};
use crate::engine::Provenance;
use crate::engine::arena::Arena;
use crate::engine::clock::Clock;
use crate::engine::interleave::StopRule;
use crate::engine::quality::host::LoadMeter;
use crate::engine::units::bytes;
use crate::engine::workload::{self, Cell, Workloads};
pub use crate::engine::{BusyProcess, Condition, Cost, Load};
use crate::{MeasureError, Progress};

/// The share of an operation's time that lengths get; the rest goes to where the choice changes, then threads.
const LENGTHS_SHARE: f64 = 0.76;
/// The share of the remaining time that the changes get; the rest goes to threads.
const CHANGES_SHARE: f64 = 0.65;
/// Lengths nearer than this factor are not told apart.
const NEAR: f64 = 1.25;

/// The share of the time that getting the memory ready may take.
const ARENA_TIME_SHARE: f64 = 0.3;

/// Measures this machine and returns what follows.
///
/// Operations are measured one after the other; after each, `save` gets a profile with all that is known so far.
/// `progress` is called before each length. Once `stop` is set, no further sample is taken, and what was measured is
/// returned; the provenance lists the operations that were measured to the end.
///
/// # Errors
/// Where an option cannot be used, memory does not suffice, or it was stopped before anything was measured.
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
    let what = "getting memory ready".to_owned();
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

/// What the user must know about memory that is smaller than wanted.
fn shortened(longest: u64, asked: u64, why: &str) -> String {
    if longest < asked {
        return format!("the longest length is {} instead of {}, {why}", bytes(longest), bytes(asked));
    }
    format!("less memory than usual is measured in, {why}: what should not be in the cache may be, in part")
}

/// The profile that follows from what is known.
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
    /// The operations that were measured to the end, when, and under which load.
    finished: Vec<(Operation, SystemTime, Option<Load>)>,
}

impl Ledger {
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Adds a figure; of two for the same thing the one with more samples stays.
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

    /// The choice at the largest length measured so far.
    fn winner(&self, operation: Operation, cost: Cost) -> Option<Choice> {
        derive::choices(&self.figures, operation, cost).last().and_then(|(_, key)| choice_of(key))
    }
}

fn choice_of(key: &Key) -> Option<Choice> {
    Some(Choice { method: method::by_name(&key.method)?, parameters: key.parameters() })
}

/// Measures every operation in turn; calls `after` after each. Returns whether all were measured.
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
        measure(session, setting, operation, ledger, end);
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

/// Measures one operation.
fn measure<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operation: Operation,
    ledger: &mut Ledger,
    end: Duration,
) {
    let now = session.elapsed();
    let until = |share: f64| now + end.saturating_sub(now).mul_f64(share);
    let lengths = setting.lengths();
    let mut ranked: Vec<Ranked> = Vec::new();
    let mut candidates = search::every_method(operation);
    for (index, &length) in lengths.iter().enumerate() {
        if session.over(end) {
            break;
        }
        let rest: f64 = lengths[index..].iter().map(|&length| plan::weight(length)).sum();
        let deadline = plan::deadline(session.elapsed(), until(LENGTHS_SHARE), plan::weight(length), rest);
        session.say(format!("{operation}, {}", bytes(length)));
        if length < LONG || ranked.is_empty() {
            let field = Field { operation, length, conditions: setting.search_conditions(operation, length) };
            let now = session.elapsed();
            let searched = now + deadline.saturating_sub(now).mul_f64(0.35);
            ranked = search::explore(session, &field, &candidates, searched);
        }
        finals(session, setting, operation, length, &ranked, ledger, deadline);
        candidates = search::seeds(&ranked, lengths.get(index + 1).copied().unwrap_or(length), operation);
    }
    let changes = until(LENGTHS_SHARE + (1.0 - LENGTHS_SHARE) * CHANGES_SHARE);
    refine(session, setting, operation, ledger, changes);
    threads(session, setting, operation, ledger, end);
}

/// Measures the best of a search with care, by every cost.
fn finals<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operation: Operation,
    length: u64,
    ranked: &[Ranked],
    ledger: &mut Ledger,
    deadline: Duration,
) {
    let costs = if setting.has_aftermath(length) { plan::aftermath_costs(operation) } else { Vec::new() };
    let now = session.elapsed();
    let share = if costs.is_empty() { 1.0 } else { 0.65 };
    let throughput = now + deadline.saturating_sub(now).mul_f64(share);
    let conditions = setting.final_conditions(operation, length);
    let also: Vec<Choice> = ledger.winner(operation, Cost::Throughput).into_iter().collect();
    // As many as get three samples in each condition.
    let sample =
        ranked.first().map_or(1.0, |best| best.score().exp()) * if length >= LONG { 4.0 } else { 1.0 };
    let room = throughput.saturating_sub(now).as_nanos() as f64 / (sample * 3.0 * conditions.len() as f64);
    let most = (room as usize).clamp(3, setting.finalists());
    let finalists = search::finalists(ranked, &also, operation, most);
    for (index, &condition) in conditions.iter().enumerate() {
        let cell = Cell { operation, cost: Cost::Throughput, length, condition };
        let deadline = plan::deadline(session.elapsed(), throughput, 1.0, (conditions.len() - index) as f64);
        compare(session, cell, &finalists, ledger, deadline);
    }
    for (index, &cost) in costs.iter().enumerate() {
        let contestants = aftermath(ranked, ledger, operation, cost, setting.finalists());
        let conditions = setting.aftermath_conditions(cost, length);
        for (step, &condition) in conditions.iter().enumerate() {
            let cell = Cell { operation, cost, length, condition };
            let rest = (costs.len() - index) * conditions.len() - step;
            let deadline = plan::deadline(session.elapsed(), deadline, 1.0, rest as f64);
            compare(session, cell, &contestants, ledger, deadline);
        }
    }
}

/// Who takes part where more than the operation's own time counts.
fn aftermath(
    ranked: &[Ranked],
    ledger: &Ledger,
    operation: Operation,
    cost: Cost,
    most: usize,
) -> Vec<Choice> {
    let also: Vec<Choice> = ledger.winner(operation, cost).into_iter().collect();
    let caching = |entry: &&Ranked| !search::spares_cache(&entry.choice);
    match cost {
        Cost::Stream => {
            let sparing: Vec<Ranked> = ranked.iter().filter(|entry| !caching(entry)).cloned().collect();
            search::finalists(&sparing, &also, operation, most)
        }
        _ => {
            let caching: Vec<Ranked> = ranked.iter().filter(caching).cloned().collect();
            let mut both = search::finalists(&caching, &also, operation, most);
            both.extend(ranked.first().map(|best| best.choice).filter(|best| !both.contains(best)));
            both
        }
    }
}

/// Measures some choices in one cell and notes the figures.
fn compare<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    cell: Cell,
    choices: &[Choice],
    ledger: &mut Ledger,
    deadline: Duration,
) {
    let trials: Vec<(Cell, Choice)> = choices.iter().map(|&choice| (cell, choice)).collect();
    note(session, &trials, ledger, deadline);
}

/// Measures some trials, interleaved, and notes the figures.
fn note<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    trials: &[(Cell, Choice)],
    ledger: &mut Ledger,
    deadline: Duration,
) {
    let long = trials.iter().any(|(cell, _)| cell.length >= LONG);
    let (least, most) = if long { (3, 15) } else { (9, 31) };
    let measured = interleave(
        session,
        trials,
        StopRule::until_separated(least, most).until(deadline).with_first_round(),
    );
    for ((cell, choice), measured) in trials.iter().zip(measured) {
        let Some(measured) = measured else { continue };
        ledger.add(Figure {
            operation: cell.operation,
            cost: cell.cost,
            method: choice.method.name.to_owned(),
            parameters: choice.parameters,
            length: cell.length,
            condition: cell.condition,
            median_ns: measured.summary.median,
            quartiles_ns: measured.summary.quartiles,
            samples: measured.summary.samples,
            disturbance_ns: measured.disturbance_ns,
        });
    }
}

/// Halves the widest interval in which the choice changes, again and again; when none is wide, those in which it
/// stays, with the choices around it, as long as there is time.
fn refine<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operation: Operation,
    ledger: &mut Ledger,
    deadline: Duration,
) {
    let costs = [vec![Cost::Throughput], plan::aftermath_costs(operation)].concat();
    let mut tried: Vec<(Cost, u64)> = Vec::new();
    while !session.over(deadline) {
        let interval = costs
            .iter()
            .flat_map(|&cost| intervals(ledger, operation, cost))
            .filter(|interval| !tried.contains(&(interval.cost, interval.middle)))
            .max_by(|a, b| a.urgency().total_cmp(&b.urgency()));
        let Some(interval) = interval else { break };
        tried.push((interval.cost, interval.middle));
        session.say(format!("{operation}, {} (between)", bytes(interval.middle)));
        let conditions = match interval.cost {
            Cost::Throughput => setting.final_conditions(operation, interval.middle),
            cost => setting.aftermath_conditions(cost, interval.middle),
        };
        for condition in conditions {
            if session.over(deadline) {
                break;
            }
            let cell = Cell { operation, cost: interval.cost, length: interval.middle, condition };
            compare(session, cell, &interval.choices, ledger, deadline);
        }
    }
}

/// A interval between two measured lengths.
#[derive(Clone, Debug)]
struct Interval {
    cost: Cost,
    middle: u64,
    /// The logarithm of the ratio of its ends.
    width: f64,
    changes: bool,
    choices: Vec<Choice>,
}

impl Interval {
    fn urgency(&self) -> f64 {
        if self.changes { 100.0 + self.width } else { self.width }
    }
}

/// The intervals of an operation and cost that are wide enough to look into.
fn intervals(ledger: &Ledger, operation: Operation, cost: Cost) -> Vec<Interval> {
    let choices = derive::choices(ledger.figures(), operation, cost);
    let plain = Key::new(method::c_library().name, &Parameters::default());
    choices
        .windows(2)
        .filter_map(|pair| {
            let [(low, old), (high, new)] = pair else { return None };
            let width = (*high as f64 / *low as f64).ln();
            let middle = round((*low as f64 * *high as f64).sqrt());
            let worth = width > 2.0 * NEAR.ln() && middle > *low && middle < *high;
            if !worth || middle >= LONG * 4 {
                return None;
            }
            let mut keys = vec![old.clone(), new.clone()];
            keys.extend(method::c_library().does(operation).then(|| plain.clone()));
            keys.sort();
            keys.dedup();
            let choices = keys.iter().filter_map(choice_of).collect();
            Some(Interval { cost, middle, width, changes: old != new, choices })
        })
        .collect()
}

/// A length without fractions of a line, where it has lines.
fn round(length: f64) -> u64 {
    let length = length as u64;
    if length >= 128 { length / 64 * 64 } else { length }
}

/// Compares numbers of threads at the lengths where they may pay, with the choice that serves there.
fn threads<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    operation: Operation,
    ledger: &mut Ledger,
    deadline: Duration,
) {
    let counts = setting.thread_counts();
    if counts.len() < 2 {
        return;
    }
    let choices = derive::choices(ledger.figures(), operation, Cost::Throughput);
    let lengths = setting.threaded_lengths();
    for (index, &length) in lengths.iter().enumerate() {
        let Some((_, key)) = choices.iter().rev().find(|(from, _)| *from <= length) else { continue };
        let Some(choice) = choice_of(key) else { continue };
        if session.over(deadline) {
            break;
        }
        session.say(format!("{operation}, {}, threads", bytes(length)));
        let rest: f64 = lengths[index..].iter().map(|&length| plan::weight(length)).sum();
        let deadline = plan::deadline(session.elapsed(), deadline, plan::weight(length), rest);
        let trials: Vec<(Cell, Choice)> = counts
            .iter()
            .map(|&threads| {
                let condition = setting.threaded(operation, length, threads);
                (Cell { operation, cost: Cost::Throughput, length, condition }, choice)
            })
            .collect();
        note(session, &trials, ledger, deadline);
    }
}

#[cfg(test)]
mod tests;
