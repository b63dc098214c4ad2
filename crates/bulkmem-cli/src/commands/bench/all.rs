//! `bulkmem bench all`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem_measure::engine::{Measure, Measurement, Results};
use bulkmem_measure::measurements::all;
use clap::Args;

use super::common::remarks;
use crate::commands::follow::{Files, follow, is_stdout};
use crate::failure::Outcome;
use crate::output::{self, duration};
use crate::{plain, results};

/// Where results go unless a file is named.
const USUAL: &str = "bulkmem-results.json";

/// Run every measurement, in a time that is stated first
///
/// Every measurement of this list with its usual options, for a page of them all (`bulkmem report FILE`), for comparing
/// machines, and for `bulkmem reproduce`. Takes as long as it says at its start: some minutes, with --quick about one. Leave
/// the machine quiet meanwhile. Results are saved whenever a part is complete; Ctrl-C keeps what there is.
#[derive(Args, Debug)]
pub(crate) struct AllArgs {
    /// Take about a minute: fewer and smaller sizes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the rows to this file as comma-separated values too; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
    /// Save the results to this file as they are measured
    #[arg(long, value_name = "FILE", default_value = USUAL)]
    pub(crate) output: PathBuf,
}

pub(super) fn run(args: &AllArgs) -> Outcome {
    let measurements = all(args.quick);
    let measurements: Vec<&dyn Measure> = measurements.iter().map(AsRef::as_ref).collect();
    let seconds: f64 = measurements.iter().map(|it| it.seconds()).sum();
    output::note(&format!(
        "bench all: {} measurements, about {} on a quiet machine; saved to {} as measured",
        measurements.len(),
        duration(Duration::from_secs_f64(seconds)),
        plain::plain(&args.output.display().to_string())
    ))?;
    let csv = args.csv.as_deref();
    let files = Files { json: Some(&args.output), csv, input: None };
    follow("bench all", &measurements, files, |found| {
        if args.json {
            output::print_raw(results::json(found)?.as_bytes())?;
        } else if csv.is_some_and(is_stdout) {
            output::print_raw(results::csv(found)?.as_bytes())?;
        } else {
            output::print(&text(&plain::results(found), &args.output, output::width()))?;
        }
        Ok(())
    })
}

/// One table after the other, as each command shows its own.
fn text(found: &Results, saved: &Path, width: usize) -> String {
    let mut text = String::new();
    for measurement in found.measurements() {
        text += &view(measurement)(&found.only(measurement), width);
        text.push('\n');
    }
    let rest = Results { rows: Vec::new(), findings: Vec::new(), ..found.clone() };
    let path = plain::plain(&saved.display().to_string());
    text + &remarks(&rest, width)
        + &format!(
            "Saved to {path}. `bulkmem report {path}` makes a page of it, `bulkmem reproduce {path}` compares it.\n"
        )
}

/// How a measurement is shown, findings included.
fn view(measurement: Measurement) -> fn(&Results, usize) -> String {
    match measurement {
        Measurement::Clear | Measurement::Fill | Measurement::Copy => {
            |found, width| super::sizes::text(found, "c_library", width)
        }
        Measurement::Chunks => super::chunks::text,
        Measurement::Vm => super::vm::text,
        Measurement::Persist => super::persist::view,
        Measurement::Pollution => {
            |found, width| super::pollution::tables(found, width) + &remarks(found, width)
        }
        Measurement::Corun => |found, width| super::corun::tables(found, width) + &remarks(found, width),
        Measurement::Reuse => |found, width| super::reuse::tables(found, width) + &remarks(found, width),
        Measurement::Fork => super::fork::text,
        Measurement::Iops => super::iops::view,
    }
}
