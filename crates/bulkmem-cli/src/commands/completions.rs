//! `bulkmem completions`.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Exit, Outcome};
use crate::output;

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "bulkmem", &mut script);
    output::print_raw(&script)?;
    Ok(Exit::Done)
}
