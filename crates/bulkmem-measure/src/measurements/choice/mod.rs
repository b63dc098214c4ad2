//! The policy's choice against every method and other libraries, and the project's performance targets, which are checked
//! by such comparisons.

mod choosing;
mod judge;
mod repeated;
mod targets;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::policy::{Policy, Unmapped};
use bulkmem::{Intent, Operation, Pages, look};

use crate::calibration::plan::{self, LONG};
use crate::engine::memory_state::MemoryState;
use crate::engine::options::{check_budget, check_length, check_threads, require};
use crate::engine::run::{ONE_THREAD, OPERATIONS};
use crate::engine::stats::median;
use crate::engine::units::{bytes, plural};
use crate::engine::{
    Alignment, Arena, CacheState, Candidate, Cell, Condition, Config, Cost, Implementation, Kind, Measure,
    MeasureError, Measurement, MethodSet, Metric, PageSize, Peers, Row, Run, Sample, Sampler, StopRule,
    Workloads, distinct, fits, implementation,
};
use crate::engine::{Result, threads, workload};
use crate::measurements::participants::participant;

pub use judge::{Overall, is_baseline, overall};
pub use targets::TargetsOptions;

/// The name of the time of an operation without the disturbance of a neighbour, nanoseconds.
const OPERATION_NS: &str = "operation_ns";
/// The share of the time that getting the memory ready may take.
const ARENA_TIME_SHARE: f64 = 0.3;
/// The share of a configuration's time in which every candidate is sampled; the rest is for the fastest.
const FIRST_LOOK_SHARE: f64 = 0.4;
/// How many of the fastest methods are sampled until they are separated.
const FRONT_METHODS: usize = 4;
/// A method that takes this many times as long as the fastest is not measured at longer lengths, in the same states. CLFLUSH
/// after each store is such a method: 512 MiB take as long as with all other methods together.
const HOPELESS: f64 = 50.0;
/// Up to this length, the cost of a look shows in a call, and is measured.
const LONGEST_BEHIND_LOOK: u64 = 512 << 10;
/// Looks whose median is that cost.
const LOOKS: usize = 25;

/// How to compare the policy's choice with every method and other libraries.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct ChoiceOptions {
    pub operation: Operation,
    /// Lengths, bytes.
    pub sizes: Vec<u64>,
    /// Measures lengths that calibration does not measure, between the smallest and the largest size: what the choice loses
    /// against the best in hindsight.
    pub unmeasured: bool,
    /// Intents; each is judged by its own cost.
    pub intents: Vec<Intent>,
    /// Numbers of threads, each at least 1.
    pub threads: Vec<usize>,
    pub alignments: Vec<Alignment>,
    /// States before an operation. Fresh destinations are measured from 64 KiB on, as shorter operations cannot observe
    /// the state.
    pub caches: Vec<CacheState>,
    /// States of the source of a copy, cold or warm, each with each state of the destination. If empty, the source is in the
    /// same state, and cold for fresh destinations; that of a copy_persist is warm.
    pub sources: Vec<CacheState>,
    /// Base or transparent huge pages. `None`: transparent huge ones, and base pages for fresh destinations. Fresh destinations of
    /// operations that persist are always in base pages, of a file in memory: persistent memory holds bytes before it is mapped.
    pub page_size: Option<PageSize>,
    /// The methods besides the policy's choice.
    pub methods: MethodSet,
    /// The C library, libpmem and reading the same memory.
    pub peers: Peers,
    /// How long it may take.
    pub budget: Duration,
}

impl ChoiceOptions {
    /// 4 KiB to 256 MiB; cold, warm and fresh; aligned, one thread, intent throughput, all methods and peers, 60 s.
    pub fn new(operation: Operation) -> ChoiceOptions {
        ChoiceOptions {
            operation,
            sizes: vec![4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20],
            unmeasured: false,
            intents: vec![Intent::Throughput],
            threads: vec![1],
            alignments: vec![Alignment::Aligned],
            caches: vec![CacheState::Cold, CacheState::Warm, CacheState::Fresh],
            sources: Vec::new(),
            page_size: None,
            methods: MethodSet::All,
            peers: Peers::All,
            budget: Duration::from_secs(60),
        }
    }

    /// The lengths to measure, rising.
    fn lengths(&self) -> Vec<u64> {
        let mut lengths = self.sizes.clone();
        lengths.sort_unstable();
        lengths.dedup();
        match (lengths.first(), lengths.last()) {
            (Some(least), Some(most)) if self.unmeasured => judge::unmeasured_lengths(*least, *most),
            _ => lengths,
        }
    }
}

impl Measure for ChoiceOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Choice
    }

    fn validate(&self) -> Result<()> {
        check_budget(self.budget)?;
        self.sizes.iter().try_for_each(|&length| check_length("--size", length))?;
        self.threads.iter().try_for_each(|&threads| check_threads(threads))?;
        let none = "none is given; name at least one";
        let all_measured = "calibration measures every length in this range; name a wider one";
        let working = !self.threads.contains(&0);
        require(working, "--threads", "0 threads do nothing; give 1 or more")?;
        require(!self.threads.is_empty(), "--threads", none)?;
        require(!self.intents.is_empty(), "--intent", none)?;
        require(!self.sizes.is_empty(), "--size", none)?;
        require(!self.lengths().is_empty(), "--size", all_measured)?;
        let has_source = self.sources.is_empty() || self.operation.has_source();
        require(has_source, "--source", format!("{} has no source; leave it out", self.operation))?;
        require(!self.sources.contains(&CacheState::Fresh), "--source", "a source is cold or warm")?;
        if let Some(pages) = self.page_size {
            let explicit = matches!(pages.0, Pages::Explicit(_));
            let reason = format!("{pages} pages are not compared here; give 4K or thp");
            require(!explicit, "--page-size", reason)?;
            pages.check()?;
        }
        let methods = implementation::methods(&MethodSet::All, self.operation)?;
        let reason = format!("no method on this architecture can {}", self.operation);
        require(!methods.is_empty(), "--op", reason)?;
        implementation::methods(&self.methods, self.operation).map(drop)
    }

    fn uncounted(&self) -> Option<&'static str> {
        (!self.threads.contains(&1)).then_some(ONE_THREAD)
    }

    fn seconds(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let end = run.elapsed() + self.budget;
        let hurried = self.measure_until(run, end)?;
        if !hurried.is_empty() {
            run.all_measured = false;
        }
        hurried.into_iter().for_each(|note| run.note(note));
        let rows: Vec<_> = run.rows().collect();
        if rows.is_empty() {
            // The arena takes at most a quarter of the memory left, for two ranges and a neighbour. If the shortest length
            // fits that, there was no time to get so much ready, or to measure it.
            let shortest = self.lengths().first().map_or(0, |length| length + (16 << 20));
            fits(shortest.saturating_mul(6))?;
            return Err(MeasureError::Interrupted);
        }
        let findings = [judge::regret(&overall(&rows)), choosing::text(&rows)];
        findings.into_iter().flatten().for_each(|text| run.add_finding(text));
        Ok(())
    }
}

impl ChoiceOptions {
    /// Measures until a time since the start of the run. Returns notes on what there was no time for.
    fn measure_until(&self, run: &mut Run<'_>, end: Duration) -> Result<Vec<String>> {
        let (first_row, operation) = (run.results.rows.len(), self.operation);
        let machine = Machine::current();
        let last_level = workload::last_level(machine);
        let longest = self.lengths().last().copied().unwrap_or_default();
        run.say("getting memory ready", 0.0);
        let started = Instant::now();
        let side = workload::footprint(longest, last_level);
        let time = end.saturating_sub(run.elapsed()).mul_f64(ARENA_TIME_SHARE);
        let arena = Arena::new(side, workload::second_level(machine), self.pages(Pages::Transparent), time)?;
        run.backed_by(Some(arena.backing_page_size()));
        let (cells, left_out) = self.cells(last_level, arena.longest());
        if let Some(why) = arena.shortened.as_ref().filter(|_| !left_out.is_empty()) {
            run.note(format!("lengths are left out {why}"));
        }
        left_out.into_iter().for_each(|note| run.note(note));
        let (_, missing) = implementation::libraries(operation, self.peers);
        missing.into_iter().for_each(|reason| run.note(reason));
        // If the process-wide policy has the same rules, programs call the plain functions.
        let rules = |policy: &Policy| {
            let rules = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
            rules.map(|rule| (rule.from, rule.choice)).collect::<Vec<_>>()
        };
        let plain = rules(run.policy) == rules(Policy::global());
        let mut workloads = Workloads::new(started, arena, run.counting.clone());
        match threads::ready(self.threads.iter().copied().max().unwrap_or(1)) {
            Ok(workers) => workloads.ready = workers.map(Rc::new),
            Err(error) => run.note(format!("each call starts its threads: {error}")),
        }
        let fresh = cells.iter().filter_map(|(cell, _)| Some((cell.length, cell.fresh?)));
        if let Some((length, pages)) = fresh.max_by_key(|(length, _)| *length) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            workloads.fresh.prepare(operation, length, pages)?;
        }
        let workloads = RefCell::new(workloads);
        let mut hurried = Vec::new();
        for (index, (cell, intent)) in cells.iter().enumerate() {
            if run.stopped() {
                return Ok(hurried);
            }
            if run.elapsed() >= end {
                let (length, seconds) = (bytes(cell.length), self.budget.as_secs_f64());
                hurried.push(format!("time ran out at {operation} {length}: give more than {seconds:.0} s"));
                break;
            }
            let rest: f64 = cells[index..].iter().map(|(cell, _)| weight(cell.length)).sum();
            let deadline = plan::after_share(weight(cell.length) / rest, run.elapsed(), end);
            hurried.extend(self.compare(run, cell, *intent, plain, &workloads, deadline)?);
        }
        if run.results.rows.len() > first_row {
            choosing::measure(run, operation, plain)?;
        }
        run.amend_rows(first_row, |rows| judge::annotate(rows, "overall_"))?;
        Ok(hurried)
    }

    /// Measures one cell: every candidate a little, the fastest until they are separated. Returns a note if there was no
    /// time for some candidates.
    fn compare(
        &self,
        run: &mut Run<'_>,
        cell: &Cell,
        intent: Intent,
        plain: bool,
        workloads: &RefCell<Workloads>,
        deadline: Duration,
    ) -> Result<Option<String>> {
        let first_row = run.results.rows.len();
        bulkmem::forget_verdicts();
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        let Condition { aligned, warm, threads, source, .. } = cell.condition;
        let cache = match (cell.fresh, warm) {
            (Some(_), _) => CacheState::Fresh,
            (None, true) => CacheState::Warm,
            (None, false) => CacheState::Cold,
        };
        let config = Config {
            operation: Some(cell.operation),
            size: Some(cell.length),
            threads: Some(threads),
            alignment: Some(if aligned { Alignment::Aligned } else { Alignment::Unaligned }),
            cache: Some(cache),
            source,
            page_size: Some(PageSize(cell.fresh.unwrap_or(self.pages(Pages::Transparent)))),
            intent: Some(intent),
            ..Config::default()
        };
        let mut candidates = self.candidates(run.policy, cell, cache, intent, plain);
        // Reading maps no pages of its own.
        candidates.retain(|it| cell.fresh.is_none() || !matches!(it, Implementation::Read));
        let (looks, calls) = (looks_of(self.operation), std::cell::Cell::new(0));
        let samplers = candidates.into_iter().map(|implementation| {
            let calls = &calls;
            // The counters are this thread's.
            participant(&implementation, &config, length, threads == 1, move || {
                let timing = workloads.borrow_mut().sample(cell, &implementation)?;
                if implementation.candidate().kind == Kind::Policy {
                    calls.set(calls.get() + timing.calls);
                }
                let mut also = vec![(OPERATIONS, timing.operations as f64)];
                if let Some(disturbance) = timing.disturbance_ns {
                    also.push(("disturbance_ns", disturbance));
                    also.push((OPERATION_NS, timing.ns - disturbance.max(0.0)));
                }
                Ok(Sample { value: cell.length as f64 / timing.ns, also })
            })
        });
        let mut samplers: Vec<Sampler<'_>> = samplers.collect();
        if self.methods == MethodSet::All {
            let hopeless = hopeless(&run.results.rows, &config);
            samplers.retain(|it| !hopeless.contains(&it.candidate));
            for candidate in hopeless {
                run.note(format!(
                    "{} is left out at lengths above one at which it took more than {HOPELESS} times as long as the fastest",
                    candidate.name
                ));
            }
        }
        let first = plan::after_share(FIRST_LOOK_SHARE, run.elapsed(), deadline);
        let (least, most) = if cell.length >= LONG { (7, 25) } else { (25, 51) };
        let rules = [
            StopRule { warm_up: false, deadline: Some(first), ..StopRule::fixed(3) },
            StopRule { deadline: Some(deadline), ..StopRule::until_separated(least, most) },
        ];
        let alone = |it: &Sampler<'_>| {
            it.candidate.kind == Kind::Method && !is_baseline(&it.candidate, self.operation)
        };
        let alone: Vec<bool> = samplers.iter().map(alone).collect();
        let front = |medians: &[Option<f64>]| front(&alone, medians);
        let (length, states, threads) = (bytes(cell.length), config.states(), plural(threads, "thread"));
        let aligned = if aligned { "aligned" } else { "unaligned" };
        let what = format!("{} {length}, {intent}, {aligned}, {states}, {threads}", cell.operation);
        let missing = run.interleave_front(&what, Metric::Bandwidth, rules, &mut samplers, front)?;
        drop(samplers);
        // Calls whose looks agree look less often.
        let share = ((looks_of(self.operation) - looks) as f64 / calls.get().max(1) as f64).min(1.0);
        let look_ns = self.look_ns(run, cell, cache, intent, &mut workloads.borrow_mut());
        let look_ns = look_ns.map(|ns| ns * share);
        run.amend_rows(first_row, |rows| {
            for row in rows.iter_mut().filter(|row| judge::is_choice(row)) {
                row.also.extend(look_ns.map(|ns| (judge::LOOK.to_owned(), ns)));
            }
            judge::annotate(rows, "");
        })?;
        let hurried = missing > 0 && !run.stopped();
        Ok(hurried.then(|| format!("{what}: no time for {missing} of the candidates")))
    }

    /// What one look of the choice takes in a cell, nanoseconds, at lengths at which that is a part of the whole that shows. Fresh
    /// memory is left out: there the look maps pages that the call maps anyway.
    fn look_ns(
        &self,
        run: &Run<'_>,
        cell: &Cell,
        cache: CacheState,
        intent: Intent,
        workloads: &mut Workloads,
    ) -> Option<f64> {
        let state = MemoryState::of(cache, cell.fresh);
        let look = run.policy.look(self.operation)?;
        let looks = look::is_on() && intent == Intent::Throughput && cell.condition.threads == 1;
        let lengths = look.from as u64..=LONGEST_BEHIND_LOOK;
        if !looks || cell.fresh.is_some() || !lengths.contains(&cell.length) || run.stopped() {
            return None;
        }
        let samples = (0..LOOKS).map_while(|_| workloads.look_ns(cell, state, look.cached_below));
        let samples: Vec<f64> = samples.collect();
        (!samples.is_empty()).then(|| median(&samples))
    }

    /// The pages to measure in, by default `usual` ones.
    fn pages(&self, usual: Pages) -> Pages {
        self.page_size.map_or(usual, |pages| pages.0)
    }

    /// The cells to measure, by length, intent and condition, and notes on what is left out.
    fn cells(&self, last_level: u64, longest: u64) -> (Vec<(Cell, Intent)>, Vec<String>) {
        let operation = self.operation;
        let (mut cells, mut left_out) = (Vec::new(), Vec::new());
        for length in self.lengths() {
            if length > longest {
                let (length, longest) = (bytes(length), bytes(longest));
                left_out.push(format!("{length}: left out, memory allows {longest} at most"));
                continue;
            }
            // Nothing is warm that is far larger than the caches.
            let possible = |cache: CacheState| match cache {
                CacheState::Cold => true,
                CacheState::Warm => length < last_level.saturating_mul(2),
                CacheState::Fresh => length >= judge::OBSERVABLE,
            };
            let states = |wanted: &[CacheState]| {
                let cold = |cache| if possible(cache) { cache } else { CacheState::Cold };
                distinct(wanted.iter().map(|cache| cold(*cache)))
            };
            // What is written back was written just before.
            let caches = match operation {
                Operation::Persist => states(&[CacheState::Warm]),
                _ => states(&self.caches),
            };
            let sources = |cache: CacheState| {
                let warm = cache == CacheState::Warm || operation == Operation::CopyPersist;
                let usual = if warm { CacheState::Warm } else { CacheState::Cold };
                match self.sources.as_slice() {
                    _ if !operation.has_source() => vec![None],
                    [] => states(&[usual]).into_iter().map(Some).collect(),
                    given => states(given).into_iter().map(Some).collect(),
                }
            };
            for &intent in &self.intents {
                for &threads in &self.threads {
                    for &cache in &caches {
                        for source in sources(cache) {
                            for alignment in &self.alignments {
                                let (aligned, warm) =
                                    (*alignment == Alignment::Aligned, cache == CacheState::Warm);
                                // Fresh destinations of operations that persist are base pages of a file.
                                let pages =
                                    if operation.persists() { Pages::Base } else { self.pages(Pages::Base) };
                                let fresh = (cache == CacheState::Fresh).then_some(pages);
                                let condition =
                                    Condition { source, ..Condition::new(aligned, warm, threads) };
                                let cell = Cell::new(operation, Cost::of(intent), length, condition);
                                cells.push((Cell { fresh, ..cell }, intent));
                            }
                        }
                    }
                }
            }
        }
        (cells, left_out)
    }

    /// The candidates of a cell; first those that must be measured even if time runs out.
    fn candidates<'p>(
        &self,
        policy: &'p Policy,
        cell: &Cell,
        cache: CacheState,
        intent: Intent,
        plain: bool,
    ) -> Vec<Implementation<'p>> {
        let operation = self.operation;
        let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
        let peers = self.peers == Peers::All;
        let wanted = implementation::methods(&self.methods, operation).unwrap_or_default();
        let baselines = judge::baselines(operation)
            .filter(|choice| peers && choice.method.does(operation) && choice.method.available());
        // With the parameters that were measured as good, for any intent, and with the default ones.
        let rules = Intent::ALL.into_iter().flat_map(|intent| policy.rules(operation, intent));
        let calibrated = rules
            .map(|rule| rule.choice)
            .filter(|choice| wanted.iter().any(|wanted| wanted.method == choice.method));
        let by_policy = choosing::by_policy(policy, intent, length, plain);
        let state = MemoryState::of(cache, cell.fresh);
        let chosen = by_policy.chosen(operation, length, Some(state), cell.condition.threads).into_iter();
        let choices = distinct(chosen.chain(baselines).chain(calibrated).chain(wanted.iter().copied()));
        let mut all = vec![by_policy];
        if peers && intent == Intent::Throughput {
            all.push(Implementation::Read);
        }
        // Without a look, it is the same choice.
        let looks = |_: &Unmapped| length >= policy.looks_from(operation, intent);
        let finds_unmapped = policy.look(operation).and_then(|look| look.unmapped).filter(looks).is_some();
        if peers && finds_unmapped && intent == Intent::Throughput && cache == CacheState::Fresh {
            all.push(Implementation::populating(policy));
        }
        let mut methods = choices.into_iter().map(Implementation::Method);
        all.extend(methods.next());
        all.extend(implementation::libraries(operation, self.peers).0);
        all.extend(methods);
        all
    }
}

/// The methods, other than peers, that took [`HOPELESS`] times as long as the fastest at a shorter length in the states of `config`.
/// Below 64 KiB that says nothing: a method that bypasses the cache waits there for its fence alone.
fn hopeless(rows: &[Row], config: &Config) -> Vec<Candidate> {
    let states = |it: &Config| (it.operation, it.intent, it.threads, it.cache);
    let shorter = judge::OBSERVABLE..config.size.unwrap_or_default();
    let alike =
        |it: &Config| states(it) == states(config) && it.size.is_some_and(|size| shorter.contains(&size));
    let mut hopeless = Vec::new();
    for group in rows.chunk_by(|a, b| a.config == b.config) {
        if group[0].metric != Metric::Bandwidth || !alike(&group[0].config) {
            continue;
        }
        let of_methods = || group.iter().filter(|row| row.candidate.kind == Kind::Method);
        let fastest = of_methods().map(|row| row.stats.median).fold(0.0, f64::max);
        let slow = of_methods().filter(|row| row.stats.median * HOPELESS < fastest && !judge::is_peer(row));
        hopeless.extend(slow.map(|row| row.candidate.clone()));
    }
    distinct(hopeless)
}

/// How often an operation has looked in this process.
fn looks_of(operation: Operation) -> u64 {
    let counts = look::counts(operation);
    counts.cached + counts.uncached + counts.unmapped
}

/// A length's weight in the distribution of the time. Samples of long ones take long, but short ones must not go without.
fn weight(length: u64) -> f64 {
    const SHORT: f64 = (1 << 20) as f64;
    1.0 + (length as f64 / SHORT).sqrt()
}

/// The policy, the peers, and the fastest of the other methods, which are `alone`.
fn front(alone: &[bool], medians: &[Option<f64>]) -> Vec<usize> {
    let medians = medians.iter().enumerate().filter_map(|(at, median)| Some((at, (*median)?)));
    let (mut methods, others): (Vec<_>, Vec<_>) = medians.partition(|(at, _)| alone[*at]);
    methods.sort_by(|a, b| b.1.total_cmp(&a.1));
    others.into_iter().chain(methods.into_iter().take(FRONT_METHODS)).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests;
