//! `bulkmem pool`: memory that is ready before it is requested.

mod kind;
mod logger;
mod run;
mod serve;
mod status;
mod user;

use std::path::{Path, PathBuf};

use bulkmem_pool::Client;
use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Keep zeroed memory ready, and start programs with it
///
/// `bulkmem pool serve` keeps memory files ready, with all their pages. `bulkmem pool run` starts an unmodified program, such as
/// QEMU, with one of them. Each is used once and never handed out again. See docs/pool.md.
#[derive(Args, Debug)]
#[command(subcommand_value_name = "COMMAND")]
pub(crate) struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    Serve(serve::ServeArgs),
    Run(run::RunArgs),
    Status(status::StatusArgs),
}

pub(super) fn run(args: &PoolArgs) -> Outcome {
    match &args.command {
        PoolCommand::Serve(args) => serve::run(args),
        PoolCommand::Run(args) => run::run(args),
        PoolCommand::Status(args) => status::run(args),
    }
}

/// The daemon to connect to.
#[derive(Args, Debug)]
struct SocketArgs {
    /// Socket of the daemon [default: /run/bulkmem-pool/UID.socket with this user's number if it exists, else
    /// /run/bulkmem-pool/socket]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl SocketArgs {
    fn client(&self) -> Client {
        let default = || Client::in_folder(Path::new(bulkmem_pool::RUNTIME_DIR));
        self.socket.as_ref().map_or_else(default, Client::new)
    }
}
