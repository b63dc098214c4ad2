//! `bulkmem bench`: one file a measurement, each with its arguments and how its rows are shown.

mod all;
mod beyond;
mod by_attribute;
mod choice;
mod chunks;
mod common;
mod corun;
mod counted;
mod fork;
mod groups;
mod iops;
mod persist;
mod pivot;
mod pollution;
mod reuse;
mod sizes;
mod target;
mod targets;
mod vm;

use bulkmem::Operation;
use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Measure memory: each table of the sources as one measurement, and how well the policy chooses
#[derive(Args, Debug)]
#[command(subcommand_value_name = "MEASUREMENT", subcommand_help_heading = "Measurements")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) measurement: BenchCommand,
}

pub(super) use common::remarks;
pub(super) use pivot::digits;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Clear(sizes::ClearArgs),
    Fill(sizes::FillArgs),
    Copy(sizes::CopyArgs),
    Chunks(chunks::ChunksArgs),
    Vm(vm::VmArgs),
    Persist(persist::PersistArgs),
    Pollution(pollution::PollutionArgs),
    Corun(corun::CorunArgs),
    Reuse(reuse::ReuseArgs),
    Fork(fork::ForkArgs),
    Iops(iops::IopsArgs),
    All(all::AllArgs),
    Choice(choice::ChoiceArgs),
    Targets(targets::TargetsArgs),
}

pub(super) fn run(args: &BenchArgs) -> Outcome {
    match &args.measurement {
        BenchCommand::Clear(args) => sizes::run(&args.sizes, Operation::Clear, None, &args.attributes.attr),
        BenchCommand::Fill(args) => {
            sizes::run(&args.sizes, Operation::Fill, Some(args.byte), &args.attributes.attr)
        }
        BenchCommand::Copy(args) => sizes::run(&args.sizes, Operation::Copy, None, &[]),
        BenchCommand::Chunks(args) => chunks::run(args),
        BenchCommand::Vm(args) => vm::run(args),
        BenchCommand::Persist(args) => persist::run(args),
        BenchCommand::Pollution(args) => pollution::run(args),
        BenchCommand::Corun(args) => corun::run(args),
        BenchCommand::Reuse(args) => reuse::run(args),
        BenchCommand::Fork(args) => fork::run(args),
        BenchCommand::Iops(args) => iops::run(args),
        BenchCommand::All(args) => all::run(args),
        BenchCommand::Choice(args) => choice::run(args),
        BenchCommand::Targets(args) => targets::run(args),
    }
}
