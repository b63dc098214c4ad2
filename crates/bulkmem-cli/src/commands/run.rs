//! `bulkmem run`: a program with libraries of bulkmem in place of the system's.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::failure::{Failure, Outcome};

/// The name that programs load.
const LIBPMEM: &str = "libpmem.so.1";

/// Run a program with bulkmem's libpmem in place of the system's
///
/// The program replaces this command, so that signals and its exit status are its own. The system's library stays where it
/// is: without `bulkmem run`, programs use it as before. See docs/libpmem.md.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The library is libpmem.so.1 in the folder that BULKMEM_LIBDIR names, or else in ../lib/bulkmem next to the folder of this \
command, where `make install-c` puts it. Its folder comes first in LD_LIBRARY_PATH, also for programs that PROGRAM starts. \
Set-user-ID programs, and programs with an rpath of their own, do not look there.")]
pub(crate) struct RunArgs {
    /// Give the program bulkmem's libpmem.so.1
    #[arg(long, required = true)]
    libpmem: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns only if the program cannot be run.
pub(super) fn run(args: &RunArgs) -> Outcome {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::usage("no program"));
    };
    let path = before_others(&library_folder()?)?;
    let error = Command::new(program).args(arguments).env("LD_LIBRARY_PATH", path).exec();
    Err(Failure::new(format!("cannot run {}: {error}", program.display()))
        .help("give the program's path, or a name that is in one of the folders of PATH"))
}

/// The folder of the library.
fn library_folder() -> Result<PathBuf, Failure> {
    let (folder, remedy) = if let Some(folder) = env::var_os("BULKMEM_LIBDIR") {
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
    let absolute = folder.canonicalize().ok().filter(|folder| folder.join(LIBPMEM).is_file());
    absolute.ok_or_else(|| Failure::new(format!("{LIBPMEM} is not in {}", folder.display())).help(remedy))
}

/// `LD_LIBRARY_PATH` with the folder before the others.
fn before_others(folder: &Path) -> Result<OsString, Failure> {
    if folder.as_os_str().as_bytes().iter().any(|byte| b":;$".contains(byte)) {
        let problem = format!("{} cannot be in LD_LIBRARY_PATH: it has one of : ; $", folder.display());
        return Err(Failure::new(problem).help("install the library in another folder"));
    }
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    Ok(path)
}
