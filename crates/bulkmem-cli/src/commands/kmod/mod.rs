//! `bulkmem kmod`: the Linux module.

mod apply;
mod root;
mod status;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Show the state of the Linux module, or set its parameters from the profile
///
/// The module clears huge pages at page faults with the method that measured best here, on unmodified kernels. Its device
/// /dev/bulkmem gives memory of a chosen cache attribute. See docs/kernel/README.md.
///
/// A process declares memory that it is about to touch as one range through the library (bulkmem_kmod::BulkHint). Such a
/// hint is for the caller's own memory, so that no command can give it for another process.
#[derive(Args, Debug)]
#[command(subcommand_value_name = "COMMAND")]
pub(crate) struct KmodArgs {
    #[command(subcommand)]
    command: KmodCommand,
}

#[derive(Debug, Subcommand)]
enum KmodCommand {
    Status(status::StatusArgs),
    Apply(apply::ApplyArgs),
}

pub(super) fn run(args: &KmodArgs) -> Outcome {
    match &args.command {
        KmodCommand::Status(args) => status::run(args),
        KmodCommand::Apply(args) => apply::run(args),
    }
}
