//! The `bulkmem` command: arguments in; tables, progress and reports out. It measures nothing itself.

#![allow(dead_code)] // Until the commands that measure are here.

mod args;
mod commands;
mod failure;
mod figures;
mod output;
mod provenance;
mod served;
mod sizes;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    match commands::run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
