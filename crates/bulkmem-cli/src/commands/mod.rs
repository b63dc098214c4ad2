//! One file a command.

mod bench;
mod calibrate;
mod choices;
mod compare;
mod completions;
mod explain;
mod info;
mod kmod;
mod man;
mod methods;
mod report;
mod reproduce;
mod runner;
mod schema;

use std::sync::atomic::{AtomicBool, Ordering};

use bulkmem_measure::MeasureError;

use crate::args::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::output;

pub(crate) use bench::BenchCommand;
pub(crate) use compare::CompareArgs;
pub(crate) use kmod::KmodArgs;
pub(crate) use schema::SchemaArgs;

/// How a command ends.
type Outcome = Result<Exit, Failure>;

/// Runs what the arguments ask for.
pub(crate) fn run(cli: Cli) -> Outcome {
    match cli.command {
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Methods(args) => methods::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Kmod(args) => kmod::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// A measurement that ended before anything was measured: because the user said so, or because the time was up.
fn nothing_measured(stop: &AtomicBool) -> Outcome {
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted before anything was measured")?;
        return Ok(Exit::Interrupted);
    }
    Err(Failure::new("the time was up before anything was measured").help("give more: --budget TIME"))
}

/// A measurement that could not be made: bad options are bad usage.
fn measure_failure(error: MeasureError) -> Failure {
    match error {
        MeasureError::Option { .. } | MeasureError::Method { .. } => Failure::usage(error),
        _ => Failure::new(error),
    }
}
