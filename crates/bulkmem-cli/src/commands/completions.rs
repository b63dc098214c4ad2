//! `bulkmem completions`.

use clap::CommandFactory;

use super::Outcome;
use crate::args::{Cli, CompletionsArgs};
use crate::failure::Exit;
use crate::output;

pub(super) fn run(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bulkmem", &mut script);
    output::print_raw(&script)?;
    Ok(Exit::Done)
}
