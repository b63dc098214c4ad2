//! `bulkmem run`: a program with libraries of bulkmem in place of the system's.

mod child;
mod histogram;
mod text;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use bulkmem::pointers::SHORTEST_BY_POLICY;
use bulkmem::policy::{Basis, Policy};
use clap::Args;

use crate::active_policy::{self, ActivePolicy};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, size};
use crate::parsers;
use crate::plain::pretty_json;
use crate::sink::Sink;

pub(super) use histogram::Histogram;

/// The library with memcpy, memset and their relatives.
const PRELOAD: &str = "libbulkmem_preload.so";
/// The library's variable for `--from`, in bytes.
const FROM: &str = "BULKMEM_FROM";
/// The library's variable for `--populate`.
const POPULATE: &str = "BULKMEM_POPULATE";
/// The library's variable for the policy file.
const PROFILE: &str = "BULKMEM_PROFILE";
/// The name that programs load.
const LIBPMEM: &str = "libpmem.so.1";

/// Run a program with bulkmem's memcpy and memset, or its libpmem, in place of the system's, or with a hint
///
/// Long copies, moves, fills and clears of the program then use the methods that `bulkmem calibrate` measured. The program
/// replaces this command (without --histogram), so that signals and its exit status are its own. The system's libraries are
/// not changed: without `bulkmem run`, programs use them as before. See docs/preload.md and docs/libpmem.md.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The library is libbulkmem_preload.so, first in LD_PRELOAD, or with --libpmem libpmem.so.1, whose folder is first in \
LD_LIBRARY_PATH. Both are in the folder that BULKMEM_LIBDIR names, or else in ../lib/bulkmem next to the folder of this command, \
where `make install-c` puts them. The variables also apply to programs that PROGRAM starts. Set-user-ID and static programs \
ignore them, and programs with an rpath of their own do not look for libpmem there.

With --histogram, the program is a child of this command, which passes SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 on, \
and exits with the program's status, or 128 plus the signal that ended it, or 1 if the report cannot be written. Counting adds about 10 ns to every call (measured on Zen \
5): do not measure the program's speed with it. See docs/preload.md. `bulkmem schema histogram` describes the JSON.

--bulk-hint needs the Linux module and the right to open /dev/bulkmem. Programs that PROGRAM starts are hinted too, up to 1024 \
processes at a time; the hint ends with each process. See docs/kernel/README.md.")]
pub(crate) struct RunArgs {
    /// Give the program bulkmem's libpmem.so.1, and the system's memcpy and memset
    #[arg(long)]
    libpmem: bool,
    /// Let the policy decide on calls of at least this length; the C library does shorter ones [default: a quarter of the
    /// last-level cache, or a shorter length from which a program gains even if it uses next what it wrote]. The C library always
    /// does calls shorter than 16 KiB
    #[arg(long, value_name = "SIZE", value_parser = parsers::size, conflicts_with = "libpmem", allow_negative_numbers = true)]
    from: Option<u64>,
    /// Have the kernel map the pages of new memory 512 KiB at a time, instead of one page fault for each 4 KiB, in copies, fills and
    /// clears of at least 128 KiB, or as --from says. Only for programs whose filter of system calls, if they have one, allows
    /// madvise. Not with --histogram, which changes nothing but counts
    #[arg(long, conflicts_with_all = ["libpmem", "histogram"])]
    populate: bool,
    /// Hint the program to the Linux module: the kernel clears all its huge pages as parts of large ranges. Without --from,
    /// --populate, --histogram and --libpmem, no library is preloaded
    #[arg(long)]
    bulk_hint: bool,
    /// Count calls and bytes by length, and report them when the program has ended
    #[arg(long, conflicts_with = "libpmem")]
    histogram: bool,
    /// Write the report to this file; - is stdout [default: stderr]
    #[arg(long, value_name = "FILE", requires = "histogram")]
    output: Option<PathBuf>,
    /// Report JSON
    #[arg(long, requires = "histogram")]
    json: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Without a histogram, returns only if the program cannot be run.
pub(super) fn run(args: &RunArgs) -> Outcome {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::usage("no program"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if args.libpmem {
        let folder = library_folder(LIBPMEM)?;
        command.env("LD_LIBRARY_PATH", before_others("LD_LIBRARY_PATH", b":;$", folder)?);
    }
    let preloads =
        !args.libpmem && (!args.bulk_hint || args.from.is_some() || args.populate || args.histogram);
    if preloads {
        let library = library_folder(PRELOAD)?.join(PRELOAD);
        command.env("LD_PRELOAD", before_others("LD_PRELOAD", b": $", library)?);
    }
    let from = match args.from {
        None if preloads => given_from()?,
        given => given,
    };
    // Programs may change their folder.
    let profile = env::var_os(PROFILE).filter(|path| !path.is_empty() && Path::new(path).is_relative());
    command.envs(profile.and_then(|path| Some((PROFILE, std::path::absolute(path).ok()?))));
    let populate = env::var_os(POPULATE).filter(|it| preloads && !it.is_empty());
    if let Some(value) = populate.as_ref().filter(|it| *it != "on" && *it != "off") {
        return Err(Failure::usage(format!(
            "{POPULATE} is `{}`, which is neither on nor off",
            value.display()
        ))
        .help(format!("unset {POPULATE}, and use --populate")));
    }
    if args.histogram && populate.is_some_and(|it| it == "on") {
        return Err(Failure::usage(format!("--histogram does not predict what {POPULATE}=on does"))
            .help(format!("unset {POPULATE}")));
    }
    command.envs(args.from.map(|from| (FROM, from.to_string())));
    command.envs(args.populate.then_some((POPULATE, "on")));
    let cannot_run = |error| Failure::cannot_run(program, &error);
    if args.bulk_hint {
        // This process's hint is inherited by the program, whether it is a child or takes this process's place.
        super::kmod::hint_process()?;
    }
    if !args.histogram {
        if preloads || args.libpmem {
            // The libraries say nothing.
            active_policy::check()?;
            // The program runs, also if a warning cannot be written.
            _ = active_policy::warn_of_refused();
            if preloads {
                _ = warn_of_c_library(from);
            }
        }
        return Err(cannot_run(command.exec()));
    }
    let active = ActivePolicy::load()?;
    // A script, for example.
    let inputs: Vec<&Path> = args.program.iter().map(Path::new).collect();
    let sink = args.output.as_ref().map(|path| Sink::open(path, &inputs, None)).transpose()?;
    let file = histogram::create()?;
    histogram::count_in(&file, &mut command);
    let ended = child::run(&mut command).map_err(cannot_run)?;
    let histogram = Histogram::read(&file, &ended, &args.program, &active, from)?;
    let report = if args.json { pretty_json(&histogram)? } else { histogram.text(output::width()) };
    match sink {
        Some(sink) => {
            let written = sink.write(anstream::adapter::strip_str(&report).to_string().as_bytes());
            // The program may have removed the folder, and the report is nowhere else.
            written.inspect_err(|_| _ = output::note(report.trim_end()))?;
        }
        // If stderr cannot be written to, the exit code is still that of the program.
        None => _ = output::note(report.trim_end()),
    }
    Ok(Exit::Program(ended.code))
}

/// Warns if the library leaves every call to the C library because nothing was measured here, nor is a method forced, or else if it leaves
/// it calls of the given length.
fn warn_of_c_library(from: Option<u64>) -> io::Result<()> {
    const SHORTEST: u64 = SHORTEST_BY_POLICY as u64;
    let origin = Policy::global().origin();
    if !matches!(origin.basis, Basis::Profile { .. }) && origin.forced.is_empty() {
        output::warn(
            "without a policy file of this machine, the C library executes every call; `bulkmem calibrate` writes one",
        )
    } else if let Some(from) = from.filter(|from| *from < SHORTEST) {
        let [from, shortest] = [from, SHORTEST].map(size);
        output::warn(&format!("the C library executes calls of {from} to {shortest}, whatever --from says"))
    } else {
        Ok(())
    }
}

/// The length that the library's variable gives.
fn given_from() -> Result<Option<u64>, Failure> {
    let Some(from) = env::var_os(FROM).filter(|from| !from.is_empty()) else { return Ok(None) };
    let number = from.to_str().and_then(|from| from.parse().ok());
    number.map(Some).ok_or_else(|| {
        let problem = format!("{FROM} is `{}`, which is not a number of bytes", from.display());
        Failure::usage(problem).help("unset it, and use --from SIZE")
    })
}

/// The folder of a library.
fn library_folder(library: &str) -> Result<PathBuf, Failure> {
    let (folder, remedy) = if let Some(folder) =
        env::var_os("BULKMEM_LIBDIR").filter(|folder| !folder.is_empty())
    {
        (PathBuf::from(folder), "correct BULKMEM_LIBDIR, or unset it".to_owned())
    } else {
        let command = env::current_exe().map_err(|error| Failure::new(format!("this command: {error}")))?;
        let prefix = command.ancestors().nth(2).unwrap_or(Path::new("/"));
        let install = format!("make install-c PREFIX={}", prefix.display());
        (
            prefix.join("lib/bulkmem"),
            format!("run `{install}`, or name the folder of the library in BULKMEM_LIBDIR"),
        )
    };
    // Programs may change their folder.
    let absolute = folder.canonicalize().ok().filter(|folder| folder.join(library).is_file());
    absolute.ok_or_else(|| Failure::new(format!("{library} is not in {}", folder.display())).help(remedy))
}

/// The variable of the dynamic linker with a path before the others. The linker reads some characters as its own.
fn before_others(variable: &str, special: &[u8], path: PathBuf) -> Result<OsString, Failure> {
    if path.as_os_str().as_bytes().iter().any(|byte| special.contains(byte)) {
        let special: Vec<_> = special.iter().map(|byte| format!("`{}`", char::from(*byte))).collect();
        let problem =
            format!("{} cannot be in {variable}: it has one of {}", path.display(), special.join(" "));
        return Err(Failure::new(problem).help("install the library in another folder"));
    }
    let mut value = path.into_os_string();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}
