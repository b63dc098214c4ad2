//! `bulkmem bench all`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem_measure::engine::{Measure, Measurement, Results};
use bulkmem_measure::measurements::all;
use clap::Args;

use super::common::{CountersArg, Display};
use super::rows::remarks;
use super::{applications, choice, counted, disturbance, fork, iops, persist, reuse, sizes, threshold, vm};
use crate::commands::runner::{self, Files};
use crate::failure::Outcome;
use crate::output::{self, duration};
use crate::plain::plain;

/// Run every measurement; the expected duration is printed first
///
/// Runs every measurement of this list except choice and targets with its default options, for a report (`bulkmem report
/// FILE`), for comparing machines, and for `bulkmem reproduce`. Takes some minutes, or about one with --quick. Leave the
/// machine idle. Results are saved after each step; Ctrl-C keeps those that are complete.
#[derive(Args, Debug)]
pub(crate) struct AllArgs {
    /// Take about a minute: fewer and smaller sizes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    counters: CountersArg,
    #[command(flatten)]
    display: Display,
    /// Save the results to this file after each step
    #[arg(long, value_name = "FILE", default_value = "bulkmem-results.json")]
    output: PathBuf,
}

pub(super) fn run(args: &AllArgs) -> Outcome {
    let measurements = all(args.quick);
    let measurements: Vec<&dyn Measure> = measurements.iter().map(AsRef::as_ref).collect();
    let seconds: f64 = measurements.iter().map(|it| it.seconds()).sum();
    output::note(&format!(
        "bench all: {} measurements, about {} on an idle machine; results are saved to {}",
        measurements.len(),
        duration(Duration::from_secs_f64(seconds)),
        plain(&args.output.display().to_string())
    ))?;
    let files = Files { json: Some(&args.output), csv: args.display.csv.as_deref(), inputs: &[] };
    runner::run("bench all", &measurements, args.counters.counters, files, |found| {
        args.display.print(found, &|found, width| text(found, &args.output, width))
    })
}

fn text(found: &Results, saved: &Path, width: usize) -> String {
    let tables = found.measurements().into_iter().map(|it| view(it)(&found.only(it), width) + "\n");
    let rest = Results { rows: Vec::new(), findings: Vec::new(), ..found.clone() };
    let path = plain(&saved.display().to_string());
    format!(
        "{}{}{}Saved to {path}. `bulkmem report {path}` shows it as a page, `bulkmem reproduce {path}` compares it with \
         published figures.\n",
        tables.collect::<String>(),
        counted::text(found, width),
        remarks(&rest, width),
    )
}

fn view(measurement: Measurement) -> fn(&Results, usize) -> String {
    match measurement {
        Measurement::Clear | Measurement::Fill | Measurement::Copy => {
            |found, width| sizes::view(found, sizes::BASELINE, width)
        }
        Measurement::Chunks => sizes::view_chunks,
        Measurement::Vm => vm::view,
        Measurement::Persist | Measurement::Blocks => persist::view,
        Measurement::Pollution => disturbance::view_pollution,
        Measurement::Corun => disturbance::view_corun,
        Measurement::Reuse => reuse::view,
        Measurement::Fork => fork::view,
        Measurement::Iops => iops::view,
        Measurement::WriteCache => applications::view_write_cache,
        Measurement::Log => applications::view_log,
        Measurement::Threshold => threshold::view,
        Measurement::Choice => choice::view,
        Measurement::Targets => choice::view_targets,
        Measurement::Tunables => |found, width| sizes::view(found, "unchanged, run 1", width),
    }
}
