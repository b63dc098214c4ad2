//! `bulkmem bench`: one file for each measurement, with its arguments and the view of its rows.

mod all;
mod beyond;
mod by_attribute;
mod choice;
mod chunks;
mod common;
mod corun;
mod counted;
mod fork;
mod iops;
mod persist;
mod pivot;
mod pollution;
mod reuse;
mod rows;
mod sizes;
mod target;
mod targets;
mod vm;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

pub(super) use rows::remarks;

/// Measure memory: the tables of the sources, and how well the policy chooses
#[derive(Args, Debug)]
#[command(subcommand_value_name = "MEASUREMENT", subcommand_help_heading = "Measurements")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    measurement: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
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
        BenchCommand::Clear(args) => args.run(),
        BenchCommand::Fill(args) => args.run(),
        BenchCommand::Copy(args) => args.run(),
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
