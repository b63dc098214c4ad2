//! The commands, one file or folder each with its arguments.

mod bench;
mod branches;
mod calibrate;
mod choices;
mod compare;
mod explain;
mod generate;
mod info;
mod kmod;
mod lengths;
mod methods;
mod placement;
mod pool;
mod prefault;
mod report;
mod reproduce;
mod run;
mod runner;
mod tunables;
mod ways;

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
    Run(run::RunArgs),
    Tunables(tunables::TunablesArgs),
    Prefault(prefault::PrefaultArgs),
    Kmod(kmod::KmodArgs),
    Pool(pool::PoolArgs),
    Schema(generate::SchemaArgs),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
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
        Command::Run(args) => run::run(&args),
        Command::Tunables(args) => tunables::run(&args),
        Command::Prefault(args) => prefault::run(&args),
        Command::Kmod(args) => kmod::run(&args),
        Command::Pool(args) => pool::run(&args),
        Command::Schema(args) => generate::schema(&args),
        Command::Completions(args) => generate::completions(&args, definition()),
        Command::Man(args) => generate::man(&args, definition()),
    }
}
