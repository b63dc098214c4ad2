//! `bulkmem bench`: one file a measurement, each with its arguments and how its rows are shown.

mod choice;
mod common;
mod pivot;
mod sizes;
mod targets;
mod vm;

use bulkmem::Operation;
use clap::Subcommand;

use super::Outcome;
use crate::args::{BenchArgs, ChoiceArgs, TargetsArgs};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Clear by size and method: mean ± standard deviation, and the speed-up against a baseline
    Clear(sizes::ClearArgs),
    /// Fill with a byte by size and method
    Fill(sizes::FillArgs),
    /// Copy by size and method
    Copy(sizes::CopyArgs),
    Vm(vm::VmArgs),
    Choice(ChoiceArgs),
    Targets(TargetsArgs),
}

pub(super) fn run(args: &BenchArgs) -> Outcome {
    match &args.measurement {
        BenchCommand::Clear(args) => sizes::run(&args.sizes, Operation::Clear, None),
        BenchCommand::Fill(args) => sizes::run(&args.sizes, Operation::Fill, Some(args.byte)),
        BenchCommand::Copy(args) => sizes::run(&args.sizes, Operation::Copy, None),
        BenchCommand::Vm(args) => vm::run(args),
        BenchCommand::Choice(args) => choice::run(args),
        BenchCommand::Targets(args) => targets::run(args),
    }
}
