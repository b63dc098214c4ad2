//! `bulkmem bench`: each measurement with its arguments and the view of its rows.

mod all;
mod applications;
mod choice;
mod common;
mod counted;
mod disturbance;
mod fork;
mod iops;
mod numa;
mod persist;
mod pivot;
mod reuse;
mod rows;
mod sizes;
mod threshold;
mod vm;

use clap::{Args, Subcommand};

use super::placement::PlacementArgs;
use crate::failure::Outcome;

pub(super) use common::TargetArgs;
pub(super) use rows::remarks;

/// Measure memory: the tables of the sources, and how well the policy chooses
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(subcommand)]
    measurement: BenchCommand,
}

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "MEASUREMENT", subcommand_help_heading = "Measurements")]
pub(crate) enum BenchCommand {
    Clear(sizes::ClearArgs),
    Fill(sizes::FillArgs),
    Copy(sizes::CopyArgs),
    Chunks(sizes::ChunksArgs),
    Vm(vm::VmArgs),
    Persist(persist::PersistArgs),
    Pollution(disturbance::PollutionArgs),
    Corun(disturbance::CorunArgs),
    Reuse(reuse::ReuseArgs),
    Fork(fork::ForkArgs),
    Iops(iops::IopsArgs),
    Writecache(applications::WriteCacheArgs),
    Log(applications::LogArgs),
    Threshold(threshold::ThresholdArgs),
    Numa(numa::NumaArgs),
    All(all::AllArgs),
    Choice(choice::ChoiceArgs),
    Targets(choice::TargetsArgs),
}

pub(super) fn run(args: &BenchArgs) -> Outcome {
    args.placement.apply()?;
    match &args.measurement {
        BenchCommand::Clear(args) => sizes::clear(args),
        BenchCommand::Fill(args) => sizes::fill(args),
        BenchCommand::Copy(args) => sizes::copy(args),
        BenchCommand::Chunks(args) => sizes::chunks(args),
        BenchCommand::Vm(args) => vm::run(args),
        BenchCommand::Persist(args) => persist::run(args),
        BenchCommand::Pollution(args) => disturbance::pollution(args),
        BenchCommand::Corun(args) => disturbance::corun(args),
        BenchCommand::Reuse(args) => reuse::run(args),
        BenchCommand::Fork(args) => fork::run(args),
        BenchCommand::Iops(args) => iops::run(args),
        BenchCommand::Writecache(args) => applications::write_cache(args),
        BenchCommand::Log(args) => applications::log(args),
        BenchCommand::Threshold(args) => threshold::run(args),
        BenchCommand::Numa(args) => numa::run(args),
        BenchCommand::All(args) => all::run(args),
        BenchCommand::Choice(args) => choice::run(args),
        BenchCommand::Targets(args) => args.run(),
    }
}
