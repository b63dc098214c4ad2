//! The `bulkmem` command: reads arguments and shows tables, progress and reports. It measures nothing itself.

mod active_policy;
mod allocator;
mod commands;
mod failure;
mod figures;
mod interrupt;
mod output;
mod parsers;
mod plain;
mod provenance;
mod results;
mod sink;
mod thresholds;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

const AFTER: &str = "\
Sizes:
  4096, 4K, 4KiB, 256M and 1.5G are sizes; units are binary. Options that accept
  several sizes also accept ranges: 4K-1M is 4K and its doubles up to 1M.

Environment:
  BULKMEM_METHOD   forces methods: clear:movnti,copy:rep_movsb; with parameters:
                   clear:write_prefetch_avx512[write_distance=4096]
  BULKMEM_LOOK     off: operations do not look at the cache state of memory
  BULKMEM_PROFILE  the policy file to use instead of the user's and the system's
  NO_COLOR         any value turns colours off

Exit codes:
  0    success
  1    failure; stderr says why, and what to do about it
  2    invalid arguments or environment variables
  3    `compare` found rows that became worse
  126  `run`, `pool run`: the program cannot be executed; 127: it was not found
  130  interrupted; completed work was kept";

/// Clears, fills, copies and persists large memory at the limit of the machine, by measuring it
#[derive(Debug, Parser)]
#[command(name = "bulkmem", version, max_term_width = 100, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    allocator::share_one_heap();
    allocator::reserve_stack();
    match Cli::try_parse() {
        Ok(cli) => {
            commands::run(cli.command, Cli::command).map_or_else(|failure| failure.report(), ExitCode::from)
        }
        Err(error) => failure::usage(&error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_argument_definitions_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
