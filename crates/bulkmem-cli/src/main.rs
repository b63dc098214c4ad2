//! The `bulkmem` command: arguments in; tables, progress and reports out. It measures nothing itself.

mod allocator;
mod args;
mod commands;
mod failure;
mod figures;
mod interrupt;
mod names;
mod output;
mod plain;
mod provenance;
mod results;
mod served;
mod sink;
mod sizes;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    allocator::share_one_heap();
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    match commands::run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
