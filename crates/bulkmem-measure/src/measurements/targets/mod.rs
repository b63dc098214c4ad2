//! The project's promises, checked against the machine at hand: each is a bench and a judgement of its rows.
//!
//! Everything is judged by ratios within one run; nothing is compared with a stored figure.

mod judge;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation};
use serde::{Deserialize, Serialize};

use crate::measurements::choice::bench::bench;
use crate::{
    Alignment, BenchOptions, BenchReport, MeasureError, Methods, OptionName, Progress, Provenance,
    Temperature, regret,
};

/// How to check the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetOptions {
    /// How long it may take, wall clock.
    pub budget: Duration,
    /// The largest length, bytes, at least 256; promises about larger ones are not checked.
    pub max_length: u64,
}

impl Default for TargetOptions {
    /// Five minutes, up to 4 GiB.
    fn default() -> Self {
        TargetOptions { budget: Duration::from_secs(300), max_length: 4 << 30 }
    }
}

/// A promise, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What is promised, for people.
    pub what: String,
    /// What was promised of it.
    pub bound: Bound,
    /// What the bound and the measured value are.
    pub unit: Unit,
    /// What was measured: the worst of all places. None where nothing was.
    pub measured: Option<f64>,
    /// Whether the promise was kept; None where nothing was measured.
    pub met: Option<bool>,
    /// Where the worst was, or why nothing was measured.
    pub note: String,
}

/// The limit of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// What a measured value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// How many times as fast.
    Ratio,
    /// A share of 1.
    Share,
    /// Nanoseconds.
    Nanoseconds,
}

/// The promises, and what came of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Where, when and with what; None where nothing was measured.
    pub provenance: Option<Provenance>,
    /// Where the policy came from, for people.
    pub policy: String,
    /// One for each promise.
    pub targets: Vec<Target>,
    /// What was left out and why.
    pub notes: Vec<String>,
    /// False where it was stopped before every promise was checked.
    pub complete: bool,
}

/// [`bench()`] or [`regret`].
type Run =
    fn(&BenchOptions, &Policy, &mut dyn FnMut(&Progress), &AtomicBool) -> Result<BenchReport, MeasureError>;

/// A part of the check: the benches to run, and who judges their reports.
struct Part {
    run: Run,
    benches: Vec<BenchOptions>,
    judge: fn(&[BenchReport]) -> Vec<Target>,
    /// Its share of the time.
    weight: f64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Checks every promise. `progress` hears how far it is; raising `stop` ends it early with what is known by then.
///
/// # Errors
/// As [`bench()`]; where it is stopped before anything is known, [`MeasureError::Interrupted`].
pub fn targets(
    options: &TargetOptions,
    policy: &Policy,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<TargetReport, MeasureError> {
    if options.max_length < 256 {
        let reason = "less than 256 bytes leaves nothing to check; give more".to_owned();
        return Err(MeasureError::Option { option: OptionName::MaxSize, reason });
    }
    let parts = parts(options.max_length);
    let start = Instant::now();
    let mut left: f64 = parts.iter().map(|part| part.weight).sum();
    let whole = left;
    let mut hurried = 0;
    let mut report = TargetReport {
        provenance: None,
        policy: String::new(),
        targets: Vec::new(),
        notes: Vec::new(),
        complete: true,
    };
    for part in &parts {
        let mut reports = Vec::new();
        let weight = part.weight / part.benches.len().max(1) as f64;
        for bench_options in &part.benches {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let time_left = options.budget.saturating_sub(start.elapsed());
            let share = time_left.mul_f64((weight / left).clamp(0.0, 1.0)).max(Duration::from_millis(200));
            let bench_options = BenchOptions { budget: share, ..bench_options.clone() };
            let before = 1.0 - left / whole;
            let mut inner = |inner: &Progress| {
                let done = before + inner.done * weight / whole;
                let elapsed = start.elapsed();
                let left = options.budget.saturating_sub(elapsed);
                progress(&Progress { done, elapsed, left, what: inner.what.clone(), note: None });
            };
            match (part.run)(&bench_options, policy, &mut inner, stop) {
                Ok(one) => reports.push(one),
                Err(MeasureError::Interrupted) => break,
                Err(error @ MeasureError::Memory { .. }) => report.notes.push(error.to_string()),
                Err(error) => return Err(error),
            }
            left = (left - weight).max(f64::MIN_POSITIVE);
        }
        for one in &reports {
            hurried += usize::from(!one.complete);
            // Where there was no time for somebody is too much to tell here: the whole is told below.
            let notes = one.notes.iter().filter(|note| !note.contains("no time for"));
            for note in notes {
                if !report.notes.contains(note) {
                    report.notes.push(note.clone());
                }
            }
        }
        report.targets.extend((part.judge)(&reports));
        if let Some(last) = reports.pop() {
            report.provenance = Some(last.provenance);
            report.policy = last.policy;
        }
    }
    if report.provenance.is_none() {
        return Err(MeasureError::Interrupted);
    }
    if hurried > 0 && !stop.load(Ordering::Relaxed) {
        let seconds = options.budget.as_secs_f64();
        report.notes.push(format!(
            "in {hurried} of the benches not everybody could be measured: give more than {seconds:.0} s"
        ));
    }
    report.complete = !stop.load(Ordering::Relaxed);
    if let Some(provenance) = &mut report.provenance {
        provenance.seconds = start.elapsed().as_secs_f64();
    }
    Ok(report)
}

/// What is measured for which promise.
fn parts(max_length: u64) -> Vec<Part> {
    let up_to = |lengths: &[u64]| -> Vec<u64> {
        lengths.iter().copied().filter(|length| *length <= max_length).collect()
    };
    let named = |names: &[&str], operation: Operation| {
        let here =
            |name: &&&str| method::by_name(name).is_some_and(|it| it.does(operation) && it.available());
        Methods::Named(names.iter().filter(here).map(|name| (*name).to_owned()).collect())
    };
    let clear = BenchOptions {
        lengths: up_to(&[256 * MIB, GIB]),
        methods: Methods::Named(Vec::new()),
        ..BenchOptions::new(Operation::Clear)
    };
    let copy = BenchOptions {
        lengths: up_to(&[256 * MIB, GIB]),
        methods: named(&["nontemporal_sse2", "nontemporal_avx", "nontemporal_avx512"], Operation::Copy),
        ..BenchOptions::new(Operation::Copy)
    };
    let persist = BenchOptions {
        lengths: up_to(&[64, 128, 256, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB]),
        methods: Methods::Named(Vec::new()),
        ..BenchOptions::new(Operation::CopyPersist)
    };
    let any = |operation| BenchOptions {
        lengths: up_to(&[64, 200, KIB, 5000, 32 * KIB, 200_000, MIB, 8 * MIB, 64 * MIB, 512 * MIB, 4 * GIB]),
        alignment: Alignment::Both,
        temperature: Temperature::Both,
        methods: Methods::Named(Vec::new()),
        ..BenchOptions::new(operation)
    };
    // No choice knows its condition, so it is judged over all of them.
    let between = |operation| BenchOptions {
        lengths: vec![64, max_length.min(256 * MIB)],
        alignment: Alignment::Both,
        temperature: Temperature::Both,
        ..BenchOptions::new(operation)
    };
    let stream = |operation| BenchOptions {
        lengths: up_to(&[MIB, 16 * MIB, 256 * MIB]),
        intents: vec![Intent::Stream],
        peers: false,
        ..BenchOptions::new(operation)
    };
    let most = [Operation::Clear, Operation::Fill, Operation::Copy, Operation::CopyPersist];
    let two = if Machine::current().processors < 2 {
        Vec::new()
    } else {
        vec![BenchOptions { threads: vec![2], ..clear.clone() }]
    };
    let mut parts = vec![
        Part { run: bench, benches: vec![clear], judge: judge::clear_one_thread, weight: 1.0 },
        Part { run: bench, benches: two, judge: judge::clear_two_threads, weight: 1.0 },
        Part { run: bench, benches: vec![copy], judge: judge::copy, weight: 1.0 },
        Part { run: bench, benches: vec![persist], judge: judge::persist, weight: 1.0 },
        Part { run: bench, benches: most.map(any).to_vec(), judge: judge::never_below, weight: 3.0 },
        Part {
            run: regret,
            benches: [Operation::Clear, Operation::Copy, Operation::CopyPersist].map(between).to_vec(),
            judge: judge::regret,
            weight: 4.0,
        },
        Part {
            run: bench,
            benches: [Operation::Clear, Operation::Copy].map(stream).to_vec(),
            judge: judge::stream,
            weight: 2.0,
        },
        Part {
            run: bench,
            benches: vec![BenchOptions {
                lengths: up_to(&[4 * KIB]),
                temperature: Temperature::Warm,
                methods: Methods::Named(Vec::new()),
                ..BenchOptions::new(Operation::Clear)
            }],
            judge: judge::choosing,
            weight: 0.3,
        },
    ];
    // A part whose every length is too large has nothing to run; its judge says so.
    for part in &mut parts {
        part.benches.retain(|bench| !bench.lengths.is_empty());
    }
    parts
}
