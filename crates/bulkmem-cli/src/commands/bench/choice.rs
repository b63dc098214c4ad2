//! `bulkmem bench choice`.

mod table;

use crate::names::names;
use crate::parsers::{intent, operation, sizes};
use bulkmem::{Intent, Operation};
use clap::Args;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bulkmem_measure::{
    Alignment, BenchOptions, BenchReport, MeasureError, Methods, Overall, Temperature, bench, regret,
};
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::commands::runner::is_stdout;
use crate::failure::{Exit, Failure, Outcome, measure_failure, nothing_measured};
use crate::interrupt;
use crate::output::{self, Progress};
use crate::results::{self, word};
use crate::sink::{LiveSink, State};

/// Compare the policy's choice with every method and with other libraries
///
/// Contestants are measured in turns, so that a change of the machine's speed strikes them all; compare the ratios
/// within one run rather than figures of two runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `evidence` (machine, date, commit), `operation`, `policy`, `rows` (each with `length`, `intent`, `cost`, \
`condition`, `contestant`, `median_ns`, `quartiles_ns`, `samples`, `gb_per_s`, `ratio_to_best_peer`, `regret`), `regret`, \
`overall` (each length over the conditions: `length`, `intent`, `threads`, `conditions`, `ratio_to_best_peer`, `best_peer`, \
`regret`, `best_method`), `choosing`, `notes`, `complete`.")]
pub(crate) struct ChoiceArgs {
    /// What to compare
    #[arg(value_parser = operation())]
    pub(crate) operation: Operation,
    /// Lengths, or ranges of them [default: 4K,64K,1M,16M,256M]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) size: Vec<Vec<u64>>,
    /// Between the smallest and the largest of the lengths, those that calibration does not measure
    #[arg(long)]
    pub(crate) unmeasured: bool,
    /// What happens to the bytes next [default: throughput]
    #[arg(long, value_name = "INTENT", value_delimiter = ',', value_parser = intent())]
    pub(crate) intent: Vec<Intent>,
    /// Numbers of threads that share the work [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Start ranges off the cache lines
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// Ranges that are not in the cache [default]
    #[arg(long)]
    pub(crate) cold: bool,
    /// Ranges that are in the cache, as far as they fit; with --cold both are measured
    #[arg(long)]
    pub(crate) warm: bool,
    /// Only these methods beside the choice, or `all` [default: all]
    #[arg(long, value_name = "METHODS", value_parser = names)]
    pub(crate) method: Vec<Vec<String>>,
    /// Leave out libpmem, reading, and the ratios to peers
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// The time it may take [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every row to this file as comma-separated values too; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

pub(super) fn run(args: &ChoiceArgs) -> Outcome {
    let options = options(args);
    options.validate().map_err(measure_failure)?;
    let file = args.csv.as_deref().filter(|path| !is_stdout(path));
    let sink = file.map(|path| LiveSink::open(path, None, None)).transpose()?;
    let served = ActivePolicy::load()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("bench choice");
    let run = if args.unmeasured { regret } else { bench };
    let report = run(&options, &served.policy, &mut |it| progress.update(it.done, it.left, &it.what), &stop);
    drop(progress);
    let report = match report {
        Ok(report) => report,
        Err(MeasureError::Interrupted) => return nothing_measured(&stop),
        Err(error) => return Err(measure_failure(error)),
    };
    let written = sink.map(|sink| write(sink, &report)).transpose();
    if args.json {
        output::print_json(&Document { overall: report.overall(), report: &report })?;
    } else if args.csv.as_deref().is_some_and(is_stdout) {
        output::print_raw(csv(&report)?.as_bytes())?;
    } else {
        output::print(&table::text(&report, output::width()))?;
    }
    if let Some(note) = written?.flatten() {
        output::note(&note)?;
    }
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted: only what was measured by then is shown")?;
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// Writes the rows; returns where they are if the file that was there was kept.
fn write(mut sink: LiveSink, report: &BenchReport) -> Result<Option<String>, Failure> {
    let state = State { complete: report.complete, empty: report.rows.is_empty() };
    sink.save(csv(report)?.as_bytes(), state).map_err(|error| sink.failure(&error))?;
    sink.finish()
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a BenchReport,
    overall: Vec<Overall>,
}

fn options(args: &ChoiceArgs) -> BenchOptions {
    let mut options = BenchOptions::new(args.operation);
    if !args.size.is_empty() {
        options.lengths = args.size.concat();
        options.lengths.sort_unstable();
        options.lengths.dedup();
    }
    if !args.intent.is_empty() {
        options.intents.clone_from(&args.intent);
    }
    if !args.threads.is_empty() {
        options.threads = args.threads.iter().map(|threads| threads.get()).collect();
    }
    options.alignment = if args.unaligned { Alignment::Unaligned } else { Alignment::Aligned };
    options.temperature = match (args.cold, args.warm) {
        (true, true) => Temperature::Both,
        (false, true) => Temperature::Warm,
        (_, false) => Temperature::Cold,
    };
    let methods = args.method.concat();
    if !methods.is_empty() && !methods.iter().any(|method| method == "all") {
        options.methods = Methods::Named(methods);
    }
    options.peers = !args.no_peers;
    options.budget = args.budget.unwrap_or(options.budget);
    options
}

/// The rows as comma-separated values.
fn csv(report: &BenchReport) -> io::Result<String> {
    let head = [
        "operation",
        "length",
        "intent",
        "cost",
        "aligned",
        "warm",
        "threads",
        "kind",
        "name",
        "parameters",
        "median_ns",
        "first_quartile_ns",
        "third_quartile_ns",
        "samples",
        "gb_per_s",
        "disturbance_ns",
        "ratio_to_best_peer",
        "regret",
    ];
    let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let lines = report.rows.iter().map(|row| {
        Ok(vec![
            report.operation.to_string(),
            row.length.to_string(),
            row.intent.to_string(),
            word(&row.cost)?,
            row.condition.aligned.to_string(),
            row.condition.warm.to_string(),
            row.condition.threads.to_string(),
            word(&row.contestant.kind)?,
            row.contestant.name.clone(),
            crate::figures::describe_parameters(&row.contestant.parameters),
            row.median_ns.to_string(),
            row.quartiles_ns[0].to_string(),
            row.quartiles_ns[1].to_string(),
            row.samples.to_string(),
            row.gb_per_s.to_string(),
            optional(row.disturbance_ns),
            optional(row.ratio_to_best_peer),
            optional(row.regret),
        ])
    });
    results::table(head.map(str::to_owned).to_vec(), lines)
}
