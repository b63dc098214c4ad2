//! `bulkmem prefault`.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkmem_prefault::numa::NumberList;
use bulkmem_prefault::{Cause, Error, Options, Placement, Ready, prefault_file};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome, show};
use crate::interrupt;
use crate::output::{self, Progress, duration, rate, size};
use crate::parsers::{size as parse_size, threads};
use crate::plain::plain;

/// Allocate and clear the pages of a file in advance, for a virtual machine or a database that maps it
///
/// For files on hugetlbfs and tmpfs; files on disks and DAX work as well. The pages stay in the file after the command ends,
/// and programs that map it take short page faults and cannot run out of memory there. The contents and, without --create,
/// the length of the file stay as they are.
///
/// Stops before a memory limit is reached (of control groups, of the machine, of the tmpfs), and says how much is ready. A
/// second run continues where the first one stopped: pages that exist take next to no time. Ctrl-C ends it within a moment.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `path`, `size` (bytes to prefault), `ready` (bytes), `complete`, `interrupted`, `error` (null if complete), and if complete \
`page_size`, `threads`, `seconds`.

docs/prefault.md has examples, and the limits.")]
pub(crate) struct PrefaultArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Bytes from the start of the file [default: the whole file]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Create the file if there is none, for its owner only, and extend it to --size. Never truncates
    #[arg(long, requires = "size")]
    create: bool,
    /// Threads that share the work [default: one for each processor]
    #[arg(long, value_name = "NUMBER", value_parser = threads)]
    threads: Option<usize>,
    /// NUMA nodes that new pages come from: 0, 0-3 or 0,2; several get a contiguous piece each. Threads run on the node of
    /// their piece [default: as the file's memory policy says]
    #[arg(long, value_name = "NODES")]
    node: Option<NumberList>,
    /// Take the pages from the nodes in turn: those of --node, or all
    #[arg(long)]
    interleave: bool,
    /// Highest rate, bytes per second, for work in the background [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Highest share of its processor that each thread uses, percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100), default_value = "100")]
    cpu_share: u8,
    /// Bytes that stay free below every limit [default: 16M of memory, nothing of a tmpfs or of huge pages]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_free: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The bar appears after this time.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Document<'a> {
    path: &'a Path,
    size: u64,
    ready: u64,
    complete: bool,
    interrupted: bool,
    error: Option<String>,
    #[serde(flatten)]
    result: Option<Figures>,
}

#[derive(Serialize)]
struct Figures {
    page_size: u64,
    threads: usize,
    seconds: f64,
}

pub(super) fn run(args: &PrefaultArgs) -> Outcome {
    let file = open(args)?;
    let length = file.metadata().map_err(|error| unusable(args, &error))?.len();
    let bytes = args.size.unwrap_or(length);
    if bytes == 0 {
        let help = "name its size: bulkmem prefault FILE --create --size SIZE";
        return Err(Failure::usage(format!("{} is empty", args.file.display())).help(help));
    }
    let stop = interrupt::flag()?;
    let progress = RefCell::new(None);
    let show_progress = |state: &bulkmem_prefault::Progress| {
        if state.elapsed >= PATIENCE && state.ready < state.total {
            let mut progress = progress.borrow_mut();
            let speed = rate(state.ready, state.elapsed.as_nanos() as f64);
            progress.get_or_insert_with(|| Progress::new("prefault")).update(
                state.ready as f64 / state.total as f64,
                state.remaining.unwrap_or_default(),
                &format!("{} of {}, {speed} GB/s", size(state.ready), size(state.total)),
            );
        }
        ControlFlow::Continue(())
    };
    let options = options(args).cancel(&stop).progress(&show_progress);
    let result = prefault_file(&file, 0..bytes, &options);
    drop(progress.into_inner());
    finish(args, bytes, result)
}

fn options(args: &PrefaultArgs) -> Options<'static> {
    let placement = match (&args.node, args.interleave) {
        (nodes, true) => Placement::Interleave(nodes.clone().unwrap_or_default()),
        (Some(nodes), false) => Placement::Nodes(nodes.clone()),
        (None, false) => Placement::Default,
    };
    let options = Options::new()
        .threads(args.threads.unwrap_or(0))
        .placement(placement)
        .rate(args.rate.unwrap_or(0))
        .cpu_share(f64::from(args.cpu_share) / 100.0);
    args.keep_free.map_or(options.clone(), |bytes| options.keep_free(bytes))
}

fn unusable(args: &PrefaultArgs, error: &io::Error) -> Failure {
    Failure::new(format!("cannot use {}: {error}", args.file.display()))
}

/// Opens the file, and with --create creates or extends it.
fn open(args: &PrefaultArgs) -> Result<File, Failure> {
    let mut how = File::options();
    // Not a terminal's or a device's wait for the other side.
    how.read(true).write(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let (opened, is_new) = match how.open(&args.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.create => {
            (how.create_new(true).open(&args.file), true)
        }
        opened => (opened, false),
    };
    let file = opened.map_err(|error| {
        let failure = unusable(args, &error);
        match error.kind() {
            io::ErrorKind::NotFound if !args.create => failure.help("create it with --create --size SIZE"),
            _ => failure,
        }
    })?;
    let found = file.metadata().map_err(|error| unusable(args, &error))?;
    let wanted = args.size.filter(|size| args.create && found.is_file() && *size > found.len());
    if let Some(size) = wanted {
        file.set_len(size).map_err(|error| {
            if is_new {
                // If it cannot be removed, an empty file stays.
                _ = fs::remove_file(&args.file);
            }
            Failure::new(format!("cannot extend {} to {size} bytes: {error}", args.file.display()))
                .help("give a size that the file system can hold; on hugetlbfs, a whole number of its pages")
        })?;
    }
    Ok(file)
}

fn finish(args: &PrefaultArgs, bytes: u64, result: Result<Ready, Error>) -> Outcome {
    let path = plain(&args.file.display().to_string());
    let (ready, error) = match result {
        Ok(done) => {
            let seconds = done.elapsed.as_secs_f64();
            let (page_size, threads) = (done.page_size, done.threads);
            let result = Some(Figures { page_size, threads, seconds });
            let (ready, complete) = (done.bytes, true);
            let document = Document {
                path: &args.file,
                size: bytes,
                ready,
                complete,
                interrupted: false,
                error: None,
                result,
            };
            return show(args.json, &document, |_| {
                let speed = rate(ready, seconds * 1e9);
                let time = duration(done.elapsed);
                format!(
                    "{path}: {} are ready, in {} pages, after {time} ({speed} GB/s).\n",
                    size(ready),
                    size(page_size)
                )
            });
        }
        Err(error) => (error.ready, error),
    };
    let interrupted = matches!(error.cause, Cause::Cancelled);
    if args.json {
        let error = Some(crate::failure::chain(&error));
        let document = Document {
            path: &args.file,
            size: bytes,
            ready,
            complete: false,
            interrupted,
            error,
            result: None,
        };
        output::print_json(&document)?;
    }
    if interrupted {
        output::note(&format!(
            "interrupted: {} of {} are ready; run it again to continue",
            size(ready),
            size(bytes)
        ))?;
        return Ok(Exit::Interrupted);
    }
    let too_short = matches!(error.cause, Cause::TooShort { .. });
    let failure = Failure::new(error);
    Err(if too_short { failure.help("--create extends the file to --size") } else { failure })
}
