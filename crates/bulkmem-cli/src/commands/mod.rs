//! One file a command.

mod choices;
mod completions;
mod explain;
mod info;
mod man;
mod methods;
mod report;

use crate::args::{Cli, Command};
use crate::failure::{Exit, Failure};

/// How a command ends.
type Outcome = Result<Exit, Failure>;

/// Runs what the arguments ask for.
pub(crate) fn run(cli: Cli) -> Outcome {
    match cli.command {
        Command::Info(args) => info::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Methods(args) => methods::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
