//! The bench: the policy's choice against every method and the peers, place by place.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::calibration::Condition;
use bulkmem::machine::Machine;
use bulkmem::method::{self, Parameters};
use bulkmem::policy::{Basis, Choice, Policy};
use bulkmem::{Intent, Operation, Options};

use crate::calibration::bytes;
use crate::calibration::derive::cost_of;
use crate::calibration::plan::{self, LONG};
use crate::engine::arena::Arena;
use crate::engine::cell::{Measured, StopRule, interleave};
use crate::engine::clock::Clock;
use crate::engine::counters::{Counters, Counts};
use crate::engine::meter::{Cell, Meter, Sample, Session};
use crate::engine::peers::{self, Peer};
use crate::engine::stats::Summary;
use crate::engine::workload::{self, Workloads};
use crate::engine::{Kind, Provenance};
use crate::measurements::choice::choosing;
use crate::measurements::choice::interface;
use crate::measurements::choice::report::{BenchReport, BenchRow, Contestant};
use crate::measurements::choice::verdict;
use crate::{Alignment, BenchOptions, MeasureError, Methods, Progress, Temperature};

/// The share of the time that getting the memory ready may take.
const ARENA_TIME_SHARE: f64 = 0.3;
/// The share of a place's time in which everybody is sampled; the rest belongs to those near the front.
const FIRST_LOOK_SHARE: f64 = 0.4;
/// So many methods at the front are sampled with care.
const FRONT: usize = 4;

/// Who can be measured.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// A method, called directly.
    Direct(Choice),
    /// The policy's choice, through the public interface.
    Policy(Choice, Intent),
    Peer(Peer),
    Read,
}

/// The meter of the bench.
struct Contest<'p> {
    workloads: Workloads,
    policy: &'p Policy,
    /// Whether the process's own policy answers alike: then the plain functions are what users call.
    global: bool,
}

impl Contest<'_> {
    /// What the hardware counters show of one sample, which is not timed; `None` where there are none.
    fn counts(&mut self, cell: &Cell, trial: &(Trial, bool)) -> Option<Counts> {
        if !self.workloads.start_counting() {
            return None;
        }
        self.sample(cell, trial);
        self.workloads.stop_counting()
    }
}

impl Meter<(Trial, bool)> for Contest<'_> {
    fn sample(&mut self, cell: &Cell, (trial, _): &(Trial, bool)) -> Sample {
        let none = Parameters::default();
        match trial {
            // A user's call of memset goes through no table.
            Trial::Direct(choice) if choice.method == method::c_library() && cell.condition.threads == 1 => {
                let sample = interface::c_library(&mut self.workloads, cell, choice.method.name);
                sample.unwrap_or_else(|| self.workloads.sample(cell, choice))
            }
            Trial::Direct(choice) => self.workloads.sample(cell, choice),
            Trial::Policy(_, Intent::Throughput) if self.global && cell.condition.threads == 1 => {
                interface::plain(&mut self.workloads, cell, "policy")
            }
            Trial::Policy(_, intent) => {
                let bulk = Options::new().intent(*intent).policy(self.policy);
                let bulk = bulk.expect("bench checks that the policy runs here");
                interface::shared(&mut self.workloads, cell, "policy", none, bulk)
            }
            Trial::Peer(peer) => {
                let threads = cell.condition.threads;
                self.workloads.run(cell, peer.name, none, |dst, src, length| {
                    // SAFETY: the ranges lie in the arena, source and destination apart.
                    workload::split(threads, dst, src, length, |dst, src, length| unsafe {
                        peer.run(dst, src, length);
                    });
                })
            }
            Trial::Read => {
                let threads = cell.condition.threads;
                self.workloads.run(cell, "read", none, |dst, src, length| {
                    workload::split(threads, dst, src, length, |dst, _, length| workload::read(dst, length));
                })
            }
        }
    }

    fn elapsed(&self) -> Duration {
        Meter::<Choice>::elapsed(&self.workloads)
    }
}

/// Compares the policy's choice with every method and the peers.
///
/// In each place (length, intent, condition) all are sampled in turn; then those near the front, the peers and the
/// policy again with care. `progress` is called before each place. Once `stop` is set no further sample is taken,
/// and what was measured is returned with `complete` false.
///
/// # Errors
/// Where an option cannot be used, memory does not suffice, the policy was made for another machine, or it was
/// stopped before anything was measured.
pub fn bench(
    options: &BenchOptions,
    policy: &Policy,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<BenchReport, MeasureError> {
    options.validate()?;
    if !policy.runs_here() {
        return Err(MeasureError::Policy);
    }
    let clock = Clock::new();
    let machine = Machine::current();
    let last_level = workload::last_level(machine);
    let longest = options.lengths.iter().copied().max().unwrap_or_default();
    let side = workload::footprint(longest, last_level);
    let what = "getting memory ready".to_owned();
    progress(&Progress { done: 0.0, elapsed: Duration::ZERO, left: options.budget, what, note: None });
    let neighbour = Workloads::neighbour_size(machine);
    let arena = Arena::new(side, neighbour, &clock, options.budget.mul_f64(ARENA_TIME_SHARE))?;
    let mut notes = Vec::new();
    let trials = |intent, length| contestants(options, policy, intent, length);
    let configs = configs(options, last_level, arena.longest(), &mut notes);
    if !notes.is_empty() {
        notes.extend(arena.shortened().map(|why| format!("lengths are left out {why}")));
    }
    if options.peers {
        notes.extend(peers::peers(options.operation).err().map(str::to_owned));
    }
    let mut workloads = Workloads::new(clock, arena);
    match Counters::open() {
        Ok(counters) => workloads.count_with(counters),
        Err(reason) => notes.push(reason),
    }
    let global = answers_alike(policy, Policy::global(), options.operation);
    let choosing = choosing::cost(&clock, policy, global, options.operation);
    let mut session = Session::new(Contest { workloads, policy, global }, stop, progress, options.budget);
    let mut rows = Vec::new();
    let mut complete = true;
    for (index, (cell, intent)) in configs.iter().enumerate() {
        if session.over(options.budget) {
            complete = false;
            if !session.stopped() {
                notes.push(format!(
                    "time ran out at {} {}: give more than {:.0} s",
                    options.operation,
                    bytes(cell.length),
                    options.budget.as_secs_f64()
                ));
            }
            break;
        }
        let rest: f64 = configs[index..].iter().map(|(cell, _)| plan::weight(cell.length)).sum();
        let deadline = plan::deadline(session.elapsed(), options.budget, plan::weight(cell.length), rest);
        session.say(describe(cell, *intent));
        let trials = trials(*intent, cell.length);
        let (mut measured, missing) = config(&mut session, cell, *intent, &trials, deadline);
        if missing > 0 {
            complete = false;
            if !session.stopped() {
                notes.push(format!("{}: no time for {missing} of the contestants", describe(cell, *intent)));
            }
        }
        verdict::judge(&mut measured);
        rows.extend(measured);
    }
    if rows.is_empty() {
        return Err(MeasureError::Interrupted);
    }
    session.say("done".to_owned());
    let pages = session.meter().workloads.arena().backing_page_size();
    Ok(BenchReport {
        provenance: Provenance::collect(pages, session.elapsed().as_secs_f64(), session.samples()),
        operation: options.operation,
        policy: origin(policy),
        regret: verdict::summary(&rows),
        rows,
        choosing,
        notes,
        complete: complete && !session.stopped(),
    })
}

/// The bench at lengths that calibration does not measure: what the choice would have lost against the best in
/// hindsight. Of the options' lengths only the smallest and the largest count: between them lie the lengths that
/// are measured ([`unmeasured_lengths`](crate::unmeasured_lengths)), warm and cold, as calibration weighs both.
///
/// # Errors
/// As [`bench()`]; also where there is no such length in the range.
pub fn regret(
    options: &BenchOptions,
    policy: &Policy,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<BenchReport, MeasureError> {
    options.validate()?;
    let least = options.lengths.iter().copied().min().unwrap_or_default();
    let most = options.lengths.iter().copied().max().unwrap_or_default();
    let lengths = verdict::unmeasured_lengths(least, most);
    bench(
        &BenchOptions { lengths, temperature: Temperature::Both, ..options.clone() },
        policy,
        progress,
        stop,
    )
}

/// Whether two policies have the same rules for an operation.
fn answers_alike(one: &Policy, other: &Policy, operation: Operation) -> bool {
    let rules = |policy: &Policy| -> Vec<(usize, Choice)> {
        let all = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
        all.map(|rule| (rule.from, rule.choice)).collect()
    };
    rules(one) == rules(other)
}

/// A place, for people.
fn describe(cell: &Cell, intent: Intent) -> String {
    let Condition { aligned, warm, threads } = cell.condition;
    format!(
        "{} {}, {intent}, {}, {}, {threads} thread{}",
        cell.operation,
        bytes(cell.length),
        if aligned { "aligned" } else { "unaligned" },
        if warm { "warm" } else { "cold" },
        if threads == 1 { "" } else { "s" },
    )
}

/// Where a policy comes from, for people.
fn origin(policy: &Policy) -> String {
    let basis = match &policy.origin().basis {
        Basis::Profile { path } => {
            let path = path.as_ref().map_or("not saved".to_owned(), |path| path.display().to_string());
            format!("profile {path}")
        }
        Basis::Defaults { microarchitecture, .. } => format!("defaults for {microarchitecture}"),
        _ => "unknown".to_owned(),
    };
    match policy.origin().forced.as_slice() {
        [] => basis,
        forced => {
            let forced: Vec<String> =
                forced.iter().map(|(operation, choice)| format!("{operation}:{choice}")).collect();
            format!("{basis}; forced: {}", forced.join(","))
        }
    }
}

/// The places to measure, by length, intent and condition; what is left out is noted.
fn configs(
    options: &BenchOptions,
    last_level: u64,
    longest: u64,
    notes: &mut Vec<String>,
) -> Vec<(Cell, Intent)> {
    let operation = options.operation;
    let alignments: &[bool] = match options.alignment {
        Alignment::Aligned => &[true],
        Alignment::Unaligned => &[false],
        Alignment::Both => &[true, false],
    };
    let mut lengths = options.lengths.clone();
    lengths.sort_unstable();
    lengths.dedup();
    let mut configs = Vec::new();
    for length in lengths {
        if length > longest {
            notes.push(format!("{}: left out, memory allows {} at most", bytes(length), bytes(longest)));
            continue;
        }
        let warmths: &[bool] = match (options.temperature, operation) {
            // Past the caches nothing is warm.
            _ if length >= last_level.saturating_mul(2) => &[false],
            // What is flushed was written just before.
            (_, Operation::Persist) | (Temperature::Warm, _) => &[true],
            (Temperature::Cold, _) => &[false],
            (Temperature::Both, _) => &[false, true],
        };
        for &intent in &options.intents {
            for &threads in &options.threads {
                for &warm in warmths {
                    for &aligned in alignments {
                        let condition = Condition { aligned, warm, threads };
                        configs.push((Cell { operation, cost: cost_of(intent), length, condition }, intent));
                    }
                }
            }
        }
    }
    configs
}

/// Who takes part, each with whether it is a baseline; those that must be measured first.
fn contestants(options: &BenchOptions, policy: &Policy, intent: Intent, length: u64) -> Vec<(Trial, bool)> {
    let operation = options.operation;
    let chosen = policy.choose(operation, usize::try_from(length).unwrap_or(usize::MAX), intent);
    let chosen = chosen.unwrap_or_else(|| Choice::of(method::c_library(), operation));
    let mut trials = vec![(Trial::Policy(chosen, intent), false)];
    let wanted = |name: &str| match &options.methods {
        Methods::All => true,
        Methods::Named(names) => names.iter().any(|wanted| wanted == name),
    };
    let mut choices = vec![(chosen, false)];
    let mut add =
        |choice: Choice, baseline: bool| match choices.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, known)) => *known |= baseline,
            None => choices.push((choice, baseline)),
        };
    for name in verdict::baselines(operation).iter().filter(|_| options.peers) {
        let able = method::by_name(name).filter(|method| method.does(operation) && method.available());
        if let Some(method) = able {
            add(Choice::of(method, operation), true);
        }
    }
    // With the parameters that were measured as good, for any intent, and with the usual ones.
    let calibrated = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
    for choice in calibrated.map(|rule| rule.choice) {
        if wanted(choice.method.name) && choice.method.does(operation) {
            add(choice, false);
        }
    }
    for method in method::all().filter(|method| method.does(operation) && method.available()) {
        if wanted(method.name) {
            add(Choice::of(method, operation), false);
        }
    }
    // The front of the field first: what must be there when time runs out.
    trials.extend(choices.into_iter().map(|(choice, baseline)| (Trial::Direct(choice), baseline)));
    if options.peers {
        let peers = peers::peers(operation).unwrap_or_default();
        let at = trials.len().min(2);
        trials.splice(at..at, peers.into_iter().map(|peer| (Trial::Peer(peer), true)));
        if intent == Intent::Throughput {
            trials.insert(1, (Trial::Read, false));
        }
    }
    trials
}

/// Measures one place: everybody a little, the front with care. Returns the rows, and how many there was no time for.
fn config(
    session: &mut Session<'_, Contest<'_>>,
    cell: &Cell,
    intent: Intent,
    trials: &[(Trial, bool)],
    deadline: Duration,
) -> (Vec<BenchRow>, usize) {
    let at = |trials: &[(Trial, bool)]| -> Vec<(Cell, (Trial, bool))> {
        trials.iter().map(|trial| (*cell, *trial)).collect()
    };
    let now = session.elapsed();
    let first = now + deadline.saturating_sub(now).mul_f64(FIRST_LOOK_SHARE);
    let rounds = StopRule { least: 3, most: 3, everybody: false, deadline: first };
    let mut measured = interleave(session, &at(trials), rounds);
    let front = front(trials, &measured);
    let (least, most) = if cell.length >= LONG { (7, 25) } else { (25, 51) };
    let chosen: Vec<(Trial, bool)> = front.iter().map(|&index| trials[index]).collect();
    let again = interleave(session, &at(&chosen), StopRule { least, most, everybody: false, deadline });
    for (index, again) in front.into_iter().zip(again) {
        // The few samples that brought somebody to the front are biased: they count only where there is nothing else.
        let enough = again.as_ref().is_some_and(|again| again.summary.samples >= 3);
        if enough || measured[index].is_none() {
            measured[index] = again;
        }
    }
    let missing = measured.iter().filter(|measured| measured.is_none()).count();
    // The counters are this thread's.
    let counts = cell.condition.threads == 1 && !session.stopped();
    let mut rows = Vec::new();
    for ((trial, baseline), measured) in trials.iter().zip(measured) {
        let Some(Measured { summary, disturbance_ns }) = measured else { continue };
        let counters = counts.then(|| session.meter_mut().counts(cell, &(*trial, *baseline))).flatten();
        rows.push(row(cell, intent, contestant(trial, *baseline), summary, disturbance_ns, counters));
    }
    (rows, missing)
}

/// The policy, the peers, and the fastest methods.
fn front(trials: &[(Trial, bool)], measured: &[Option<Measured>]) -> Vec<usize> {
    let mut methods: Vec<(usize, f64)> = Vec::new();
    let mut front = Vec::new();
    for (index, ((trial, baseline), measured)) in trials.iter().zip(measured).enumerate() {
        let Some(measured) = measured else { continue };
        match trial {
            Trial::Direct(_) if !baseline => methods.push((index, measured.summary.median)),
            _ => front.push(index),
        }
    }
    methods.sort_by(|a, b| a.1.total_cmp(&b.1));
    front.extend(methods.into_iter().take(FRONT).map(|(index, _)| index));
    front
}

fn contestant(trial: &Trial, baseline: bool) -> Contestant {
    let of = |kind, name: &str, parameters| Contestant { kind, name: name.to_owned(), parameters, baseline };
    match trial {
        Trial::Policy(choice, _) => of(Kind::Policy, choice.method.name, choice.parameters),
        Trial::Direct(choice) if choice.method == method::c_library() => {
            of(Kind::Peer, choice.method.name, choice.parameters)
        }
        Trial::Direct(choice) => of(Kind::Method, choice.method.name, choice.parameters),
        Trial::Peer(peer) => of(Kind::Peer, peer.name, Parameters::default()),
        Trial::Read => of(Kind::Read, "read", Parameters::default()),
    }
}

fn row(
    cell: &Cell,
    intent: Intent,
    contestant: Contestant,
    summary: Summary,
    disturbance_ns: Option<f64>,
    counters: Option<Counts>,
) -> BenchRow {
    BenchRow {
        length: cell.length,
        intent,
        cost: cell.cost,
        condition: cell.condition,
        contestant,
        median_ns: summary.median,
        quartiles_ns: summary.quartiles,
        samples: summary.samples,
        gb_per_s: cell.length as f64 / summary.median,
        disturbance_ns,
        ratio_to_best_peer: None,
        regret: None,
        counters,
    }
}

#[cfg(test)]
mod tests;
