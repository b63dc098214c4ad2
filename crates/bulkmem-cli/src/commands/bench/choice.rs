//! `bulkmem bench choice`.

mod table;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use bulkmem_measure::{
    Alignment, BenchOptions, BenchReport, MeasureError, Methods, Overall, Temperature, bench, regret,
};
use serde::Serialize;

use crate::args::ChoiceArgs;
use crate::commands::{Outcome, measure_failure, nothing_measured};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::output::{self, Progress};
use crate::served::Served;

pub(super) fn run(args: &ChoiceArgs) -> Outcome {
    let options = options(args);
    options.validate().map_err(measure_failure)?;
    // A file that can't be made is found out before measuring.
    let csv = args.csv.as_deref().map(open_csv).transpose()?;
    let served = Served::load()?;
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
    if let Some(csv) = csv {
        write_csv(&report, csv).map_err(|error| match args.csv.as_deref() {
            Some(path) if path.as_os_str() != "-" => cannot_write(path, &error),
            _ => Failure::from(error),
        })?;
    }
    if args.json {
        output::print_json(&Document { overall: report.overall(), report: &report })?;
    } else if args.csv.as_deref() != Some(Path::new("-")) {
        output::print(&table::text(&report, output::width()))?;
    }
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted: only what was measured by then is shown")?;
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
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

fn open_csv(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(cannot_write(path, &error)),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
        .help("name a file you may write: --csv FILE, or --csv - for stdout")
}

fn write_csv(report: &BenchReport, sink: Box<dyn Write>) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(sink);
    csv.write_record([
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
    ])?;
    let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for row in &report.rows {
        csv.write_record([
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
        ])?;
    }
    csv.flush()
}

/// The word that a value has in JSON.
fn word(value: &impl serde::Serialize) -> io::Result<String> {
    Ok(serde_json::to_value(value)?.as_str().unwrap_or_default().to_owned())
}
