//! `bulkmem kmod`: the Linux module.

mod apply;
mod status;

use std::path::PathBuf;

use bulkmem_kmod::Module;
use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// The Linux module: what it does and has done, and setting it as the profile says
///
/// The module clears huge pages at page faults by the method that was measured to be best here, on unmodified kernels, and
/// /dev/bulkmem gives memory of a chosen cache attribute. docs/kernel/README.md says how to get it and what to expect.
///
/// A process declares what it is about to fault in as a whole by itself, through the library (bulkmem_kmod::BulkHint): a
/// hint is of the caller's own memory, so no command can give one for another.
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

/// Where the module's files are.
#[derive(Args, Clone, Debug)]
struct Root {
    /// The folder below which /sys, /proc, /etc and /lib lie
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

impl Root {
    fn module(&self) -> Module {
        Module::below(&self.root)
    }
}

pub(super) fn run(args: &KmodArgs) -> Outcome {
    match &args.command {
        KmodCommand::Status(args) => status::run(args),
        KmodCommand::Apply(args) => apply::run(args),
    }
}
