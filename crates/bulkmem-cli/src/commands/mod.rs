//! The commands, one file or folder each with its arguments.

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

use clap::Subcommand;

use crate::failure::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Calibrate(calibrate::CalibrateArgs),
    Bench(bench::BenchArgs),
    Info(info::InfoArgs),
    Explain(explain::ExplainArgs),
    Methods(methods::MethodsArgs),
    Reproduce(reproduce::ReproduceArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Kmod(kmod::KmodArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Runs a command; `definition` returns the definition of all commands, for completions and manual pages.
pub(crate) fn run(command: Command, definition: fn() -> clap::Command) -> Outcome {
    match command {
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
        Command::Completions(args) => completions::run(&args, definition()),
        Command::Man(args) => man::run(&args, definition()),
    }
}
