//! The policy's choice against every method and other libraries, and the project's performance targets, which are checked
//! by such comparisons.

mod choosing;
mod judge;
mod targets;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::policy::{Choice, Policy};
use bulkmem::{Intent, Operation};

use crate::calibration::plan::{self, LONG};
use crate::engine::arena::Arena;
use crate::engine::clock::Clock;
use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::interleave::StopRule;
use crate::engine::options::{bad, check_budget, check_length, check_threads};
use crate::engine::run::{OPERATIONS, Sample, Sampler};
use crate::engine::units::bytes;
use crate::engine::workload::{self, Cell, Workloads};
use crate::engine::{
    Alignment, CacheState, Condition, Config, Cost, Kind, Measure, MeasureError, Measurement, Metric,
    OptionName, Peers, Run,
};

pub use judge::{Overall, Regret, is_baseline, overall, regret, unmeasured_lengths};
pub use targets::TargetsOptions;

/// The share of the time that getting the memory ready may take.
const ARENA_TIME_SHARE: f64 = 0.3;
/// The share of a configuration's time in which every candidate is sampled; the rest is for the fastest.
const FIRST_LOOK_SHARE: f64 = 0.4;
/// How many of the fastest methods are sampled until they are separated.
const FRONT_METHODS: usize = 4;

/// How to compare the policy's choice with every method and other libraries.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceOptions {
    /// The operation.
    pub operation: Operation,
    /// Lengths, bytes.
    pub sizes: Vec<u64>,
    /// Measures lengths that calibration does not measure, between the smallest and the largest size, warm and cold: what
    /// the choice loses against the best in hindsight.
    pub unmeasured: bool,
    /// Intents; each is judged by its own cost.
    pub intents: Vec<Intent>,
    /// Numbers of threads, each at least 1.
    pub threads: Vec<usize>,
    /// Alignment of the ranges.
    pub alignments: Vec<Alignment>,
    /// State of the cache before an operation.
    pub caches: Vec<CacheState>,
    /// The methods besides the policy's choice.
    pub methods: MethodSet,
    /// The C library, libpmem and reading the same memory.
    pub peers: Peers,
    /// How long it may take.
    pub budget: Duration,
}

impl ChoiceOptions {
    /// 4 KiB to 256 MiB, cold and aligned, one thread, intent throughput, all methods and peers, 30 s.
    pub fn new(operation: Operation) -> ChoiceOptions {
        ChoiceOptions {
            operation,
            sizes: vec![4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20],
            unmeasured: false,
            intents: vec![Intent::Throughput],
            threads: vec![1],
            alignments: vec![Alignment::Aligned],
            caches: vec![CacheState::Cold],
            methods: MethodSet::All,
            peers: Peers::All,
            budget: Duration::from_secs(30),
        }
    }

    /// The lengths to measure, rising.
    fn lengths(&self) -> Vec<u64> {
        let mut lengths = self.sizes.clone();
        lengths.sort_unstable();
        lengths.dedup();
        match lengths.as_slice() {
            [least, .., most] if self.unmeasured => unmeasured_lengths(*least, *most),
            [only] if self.unmeasured => unmeasured_lengths(*only, *only),
            _ => lengths,
        }
    }
}

impl Measure for ChoiceOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Choice
    }

    fn validate(&self) -> Result<(), MeasureError> {
        check_budget(self.budget)?;
        for &length in &self.sizes {
            check_length(OptionName::Sizes, length)?;
        }
        for &threads in &self.threads {
            check_threads(threads)?;
            if threads == 0 {
                return Err(bad(OptionName::Threads, "0 threads do nothing; give 1 or more"));
            }
        }
        for (option, empty) in [
            (OptionName::Sizes, self.sizes.is_empty()),
            (OptionName::Intents, self.intents.is_empty()),
            (OptionName::Threads, self.threads.is_empty()),
        ] {
            if empty {
                return Err(bad(option, "none is given; name at least one"));
            }
        }
        if self.lengths().is_empty() {
            let reason = "calibration measures every length in this range; name a wider one";
            return Err(bad(OptionName::Sizes, reason));
        }
        if implementation::methods(&MethodSet::All, self.operation)?.is_empty() {
            let reason = format!("no method on this architecture can {}", self.operation);
            return Err(bad(OptionName::Operations, reason));
        }
        implementation::methods(&self.methods, self.operation).map(drop)
    }

    fn seconds(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        let end = run.elapsed() + self.budget;
        run.expect_end(end);
        let hurried = self.measure_until(run, end)?;
        if !hurried.is_empty() {
            run.leave_incomplete();
        }
        hurried.into_iter().for_each(|note| run.note(note));
        if run.rows().next().is_none() {
            return Err(MeasureError::Interrupted);
        }
        let rows: Vec<_> = run.rows().collect();
        let overall = overall(&rows);
        let findings = [regret(&overall).map(|regret| regret.text(self.operation)), choosing::text(&rows)];
        findings.into_iter().flatten().for_each(|text| run.add_finding(text));
        Ok(())
    }
}

impl ChoiceOptions {
    /// Measures until a time since the start of the run. Returns notes on what there was no time for.
    fn measure_until(&self, run: &mut Run<'_>, end: Duration) -> Result<Vec<String>, MeasureError> {
        let first_row = run.row_count();
        let machine = Machine::current();
        let last_level = workload::last_level(machine);
        let longest = self.lengths().last().copied().unwrap_or_default();
        run.say("getting memory ready", 0.0);
        let clock = Clock::new();
        let side = workload::footprint(longest, last_level);
        let time = end.saturating_sub(run.elapsed()).mul_f64(ARENA_TIME_SHARE);
        let arena = Arena::new(side, Workloads::neighbour_size(machine), &clock, time)?;
        run.backed_by(Some(arena.backing_page_size()));
        let (cells, left_out) = self.cells(last_level, arena.longest());
        if let Some(why) = arena.shortened().filter(|_| !left_out.is_empty()) {
            run.note(format!("lengths are left out {why}"));
        }
        left_out.into_iter().for_each(|note| run.note(note));
        if self.peers == Peers::All
            && let Err(missing) = implementation::libraries(self.operation)
        {
            run.note(missing);
        }
        let plain = answers_alike(run.policy(), Policy::global(), self.operation);
        let workloads = Rc::new(RefCell::new(Workloads::new(clock, arena, run.counting())));
        let mut hurried = Vec::new();
        for (index, (cell, intent)) in cells.iter().enumerate() {
            if run.stopped() {
                return Ok(hurried);
            }
            if run.elapsed() >= end {
                let (length, seconds) = (bytes(cell.length), self.budget.as_secs_f64());
                hurried.push(format!(
                    "time ran out at {} {length}: give more than {seconds:.0} s",
                    self.operation
                ));
                break;
            }
            let rest: f64 = cells[index..].iter().map(|(cell, _)| plan::weight(cell.length)).sum();
            let deadline = plan::deadline(run.elapsed(), end, plan::weight(cell.length), rest);
            let missing = self.compare(run, cell, *intent, plain, &workloads, deadline)?;
            if missing > 0 && !run.stopped() {
                hurried.push(format!("{}: no time for {missing} of the candidates", describe(cell, *intent)));
            }
        }
        choosing::measure(run, self.operation, plain)?;
        run.amend_rows(first_row, judge::annotate_overall)?;
        Ok(hurried)
    }

    /// Measures one cell: every candidate a little, the fastest until they are separated. Returns how many candidates
    /// there was no time for.
    fn compare(
        &self,
        run: &mut Run<'_>,
        cell: &Cell,
        intent: Intent,
        plain: bool,
        workloads: &Rc<RefCell<Workloads>>,
        deadline: Duration,
    ) -> Result<usize, MeasureError> {
        let first_row = run.row_count();
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        let config = config(cell, intent);
        let mut samplers = Vec::new();
        for implementation in self.candidates(run.policy(), intent, length, plain) {
            let candidate = implementation.candidate();
            run.chooses(&candidate, &config, implementation.chosen(self.operation, length));
            let (cell, workloads) = (*cell, workloads.clone());
            let sample = move || {
                let timing = workloads.borrow_mut().sample(&cell, &implementation);
                let mut also = vec![(OPERATIONS, timing.operations as f64)];
                also.extend(timing.disturbance_ns.map(|ns| ("disturbance_ns", ns)));
                Ok(Sample { value: cell.length as f64 / timing.ns, also })
            };
            // The counters are this thread's.
            let counted = cell.condition.threads == 1;
            samplers.push(Sampler { candidate, config: config.clone(), sample: Box::new(sample), counted });
        }
        let now = run.elapsed();
        let first = now + deadline.saturating_sub(now).mul_f64(FIRST_LOOK_SHARE);
        let (least, most) = if cell.length >= LONG { (7, 25) } else { (25, 51) };
        let rules = [
            StopRule::fixed(3).without_warm_up().until(first),
            StopRule::until_separated(least, most).until(deadline),
        ];
        let alone: Vec<bool> = samplers
            .iter()
            .map(|it| it.candidate.kind == Kind::Method && !is_baseline(&it.candidate, self.operation))
            .collect();
        let front = |medians: &[Option<f64>]| front(&alone, medians);
        let what = describe(cell, intent);
        let missing = run.interleave_front(&what, Metric::Bandwidth, rules, &mut samplers, front)?;
        run.amend_rows(first_row, judge::annotate)?;
        Ok(missing)
    }

    /// The cells to measure, by length, intent and condition, and notes on what is left out.
    fn cells(&self, last_level: u64, longest: u64) -> (Vec<(Cell, Intent)>, Vec<String>) {
        let operation = self.operation;
        let both = [CacheState::Cold, CacheState::Warm];
        let caches = if self.unmeasured { &both[..] } else { &self.caches };
        let (mut cells, mut left_out) = (Vec::new(), Vec::new());
        for length in self.lengths() {
            if length > longest {
                let (length, longest) = (bytes(length), bytes(longest));
                left_out.push(format!("{length}: left out, memory allows {longest} at most"));
                continue;
            }
            let caches = match operation {
                // Nothing is warm that is far larger than the caches.
                _ if length >= last_level.saturating_mul(2) => &[CacheState::Cold],
                // What is written back was written just before.
                Operation::Persist => &[CacheState::Warm],
                _ => caches,
            };
            for &intent in &self.intents {
                for &threads in &self.threads {
                    for cache in caches {
                        for alignment in &self.alignments {
                            let aligned = *alignment == Alignment::Aligned;
                            let condition = Condition { aligned, warm: *cache == CacheState::Warm, threads };
                            cells.push((
                                Cell { operation, cost: Cost::of(intent), length, condition },
                                intent,
                            ));
                        }
                    }
                }
            }
        }
        (cells, left_out)
    }

    /// The candidates of a cell; first those that must be measured even if time runs out. `plain` says that the
    /// process-wide policy chooses alike: then programs call the plain functions.
    fn candidates<'p>(
        &self,
        policy: &'p Policy,
        intent: Intent,
        length: usize,
        plain: bool,
    ) -> Vec<Implementation<'p>> {
        let operation = self.operation;
        let peers = self.peers == Peers::All;
        let mut all = vec![match intent {
            Intent::Throughput if plain => Implementation::PlainFunctions,
            _ => Implementation::policy(policy, intent, length),
        }];
        if peers && intent == Intent::Throughput {
            all.push(Implementation::Read);
        }
        let chosen = policy.choose(operation, length, intent);
        let mut choices: Vec<Choice> = chosen.into_iter().collect();
        choices.extend(judge::baselines(operation).iter().filter(|_| peers).filter_map(|name| {
            let method = method::by_name(name)?;
            (method.does(operation) && method.available()).then(|| Choice::of(method, operation))
        }));
        // With the parameters that were measured as good, for any intent, and with the default ones.
        let wanted = implementation::methods(&self.methods, operation).unwrap_or_default();
        let calibrated = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
        choices.extend(
            calibrated
                .map(|rule| rule.choice)
                .filter(|choice| wanted.iter().any(|wanted| wanted.method == choice.method)),
        );
        choices.extend(wanted);
        let mut seen: Vec<Choice> = Vec::new();
        for choice in choices {
            if seen.contains(&choice) {
                continue;
            }
            all.push(Implementation::Method(choice));
            if seen.is_empty() && peers {
                all.extend(implementation::libraries(operation).unwrap_or_default());
            }
            seen.push(choice);
        }
        all
    }
}

/// The policy, the peers, and the fastest of the other methods, which are `alone`.
fn front(alone: &[bool], medians: &[Option<f64>]) -> Vec<usize> {
    let measured = |alone_is: bool| {
        let candidates = alone.iter().zip(medians).enumerate();
        candidates.filter_map(move |(at, (alone, median))| {
            median.filter(|_| *alone == alone_is).map(|median| (at, median))
        })
    };
    let mut methods: Vec<(usize, f64)> = measured(true).collect();
    methods.sort_by(|a, b| b.1.total_cmp(&a.1));
    methods.truncate(FRONT_METHODS);
    measured(false).chain(methods).map(|(at, _)| at).collect()
}

/// True if two policies have the same rules for an operation.
fn answers_alike(one: &Policy, other: &Policy, operation: Operation) -> bool {
    let rules = |policy: &Policy| -> Vec<(usize, Choice)> {
        let all = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
        all.map(|rule| (rule.from, rule.choice)).collect()
    };
    rules(one) == rules(other)
}

fn config(cell: &Cell, intent: Intent) -> Config {
    let Cell { operation, length, condition, .. } = *cell;
    Config {
        operation: Some(operation),
        size: Some(length),
        threads: Some(condition.threads),
        alignment: Some(if condition.aligned { Alignment::Aligned } else { Alignment::Unaligned }),
        cache: Some(if condition.warm { CacheState::Warm } else { CacheState::Cold }),
        intent: Some(intent),
        ..Config::default()
    }
}

/// A cell, for people.
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

#[cfg(test)]
mod tests;
