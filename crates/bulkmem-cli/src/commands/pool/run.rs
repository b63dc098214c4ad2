//! `bulkmem pool run`: starts a program with memory of the pool.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use bulkmem_pool::{Kind, PATIENCE, PageSize, Source, memory};
use clap::Args;
use rustix::io::{FdFlags, fcntl_setfd};

use super::{SocketArgs, kind};
use crate::failure::{Failure, Outcome, chain};
use crate::output;
use crate::parsers;

/// Run a program with memory of the pool
///
/// Replaces `{}` in the program's arguments by the path of a memory file, /proc/self/fd/N. If the pool has no such unit, or does
/// not answer within 50 ms, the file is a fresh one, which this command says once. The program replaces this command, so that
/// signals and its exit status are its own.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The memory belongs to the program, and to the processes that it gives the descriptor or a mapping. When all of them are done, it \
returns to the kernel, and the user's quota is free again.

If there are too few huge pages for a fresh file, it has base pages.

Example, a virtual machine of 2 GiB:
  bulkmem pool run --memory 2G --page-size 2M -- qemu-system-x86_64 -m 2G \\
    -object memory-backend-file,id=ram,size=2G,mem-path={},share=on \\
    -machine memory-backend=ram")]
pub(super) struct RunArgs {
    /// Length of the memory, that of a kind which the pool keeps (`bulkmem pool status`)
    #[arg(long, value_name = "SIZE", value_parser = parsers::size)]
    memory: u64,
    /// Page size of the memory: 4K, 2M or 1G
    #[arg(long, value_name = "PAGE", default_value = "2M", value_parser = kind::page_size)]
    page_size: PageSize,
    /// NUMA node of the memory [default: any]
    #[arg(long, value_name = "N")]
    node: Option<u32>,
    #[command(flatten)]
    socket: SocketArgs,
    /// Milliseconds to wait for the pool
    #[arg(long, value_name = "MS", default_value_t = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX))]
    patience: u64,
    /// Program and its arguments, with {} in place of the path of the memory
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns only if the program cannot be run.
pub(super) fn run(args: &RunArgs) -> Outcome {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::usage("no program"));
    };
    if !arguments.iter().any(|argument| replaced(argument, "").is_some()) {
        return Err(Failure::usage("no argument of the program contains {}")
            .help("write {} where the program expects the path of a memory file, such as mem-path={}"));
    }
    let kind = Kind::new(args.page_size, args.memory, args.node).map_err(Failure::usage)?;
    let memory =
        memory(&args.socket.client(), &kind, Duration::from_millis(args.patience)).map_err(|error| {
            Failure::new(format!("no memory for the program: {error}"))
                .help("ask for less memory, or for a page size and a node that exist")
        })?;
    match &memory.source {
        Source::Pool(_) => {}
        Source::Fresh(reason) => {
            // The program runs also if nothing can be printed.
            _ = output::warn(&format!("the memory is fresh, not from the pool: {}", chain(reason)));
        }
        Source::FreshBase(reason, error) => {
            _ = output::warn(&format!(
                "the memory is fresh and has pages of 4K, not {}: {}; the kernel has too few huge pages: {error}",
                kind.page,
                chain(reason),
            ));
        }
    }
    let path = inherited(memory.file)?;
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| replaced(argument, &path).unwrap_or_else(|| argument.clone())));
    Err(Failure::cannot_run(program, &command.exec()))
}

/// Leaves a file open for the program, and returns its path there.
fn inherited(file: OwnedFd) -> Result<String, Failure> {
    fcntl_setfd(&file, FdFlags::empty())
        .map_err(|error| Failure::new(format!("cannot pass the memory to the program: {error}")))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::mem::forget(file);
    Ok(path)
}

/// Replaces each {} of an argument. Returns `None` if there is none.
fn replaced(argument: &OsStr, path: &str) -> Option<OsString> {
    let bytes = argument.as_bytes();
    let mut result = Vec::new();
    let mut rest = 0;
    while let Some(at) = bytes[rest..].windows(2).position(|two| two == b"{}") {
        result.extend_from_slice(&bytes[rest..rest + at]);
        result.extend_from_slice(path.as_bytes());
        rest += at + 2;
    }
    if rest == 0 {
        return None;
    }
    result.extend_from_slice(&bytes[rest..]);
    Some(OsString::from_vec(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_braces_is_replaced() {
        for (argument, expected) in [
            ("{}", Some("/p")),
            ("mem-path={},share=on", Some("mem-path=/p,share=on")),
            ("{}{}x", Some("/p/px")),
            ("{{}}", Some("{/p}")),
            ("{ }", None),
            ("", None),
        ] {
            assert_eq!(replaced(OsStr::new(argument), "/p"), expected.map(OsString::from), "{argument}");
        }
    }
}
