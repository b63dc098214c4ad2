//! The end of a command: exit codes, and errors with their remedy.

use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::AnsiColor;
use bulkmem_measure::MeasureError;
use serde::Serialize;

use crate::output::{self, labelled};

pub(crate) type Outcome = Result<Exit, Failure>;

/// The end of a command that did not fail, with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// A comparison found rows that became worse.
    Regressed,
    /// Interrupted; completed work was kept. 128 plus the number of SIGINT, as shells report it.
    Interrupted,
    /// That of the program that `bulkmem run` ran.
    Program(u8),
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> u8 {
        match exit {
            Exit::Done => 0,
            Exit::Regressed => 3,
            Exit::Interrupted => 130,
            Exit::Program(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(u8::from(exit))
    }
}

pub(crate) const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// The reason why a command failed, with a remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Error + Send + Sync>,
    help: Option<String>,
    code: u8,
}

impl Failure {
    /// Creates a failure with exit code 1.
    pub(crate) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { error: error.into(), help: None, code: FAILED }
    }

    /// Creates a failure because of invalid arguments or variables, with exit code 2.
    pub(crate) fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { code: USAGE, ..Failure::new(error) }
    }

    /// Creates the failure of a program that cannot be run, with the exit code of shells: 127 if it was not found, else 126.
    pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        let failure = Failure::new(format!("cannot run {}: {error}", program.display()));
        // A name without a slash is searched for in PATH.
        let is_there = Path::new(program).components().count() > 1 && Path::new(program).exists();
        let help = if is_there && code == 127 {
            "the file is there, but not the interpreter that its first line names, or the dynamic linker that it needs"
        } else {
            "give the path of an executable file, or a name that is in one of the folders of PATH"
        };
        Failure { code, ..failure }.help(help)
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }

    /// Prints the error, its causes and the remedy on stderr. Prints nothing, and succeeds, if the reader of stdout has
    /// closed it (`bulkmem … | head`).
    pub(crate) fn report(&self) -> ExitCode {
        let io_error = self.error.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Exit::Done.into();
        }
        let mut text = labelled(AnsiColor::Red, "error:", &chain(self.error.as_ref()));
        if let Some(help) = &self.help {
            text += &format!("\n{}", labelled(AnsiColor::Green, "help:", help));
        }
        // If stderr cannot be written to, only the exit code remains.
        _ = output::note(&text);
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(error);
        }
        Failure::new(format!("cannot write the output: {error}"))
    }
}

pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}

/// Ends a command that shows a document: prints it as JSON, or else as text, which depends on the width of a line.
pub(crate) fn show(json: bool, document: &impl Serialize, text: impl FnOnce(usize) -> String) -> Outcome {
    if json {
        output::print_json(document)?;
    } else {
        output::print(&text(output::width()))?;
    }
    Ok(Exit::Done)
}

/// Prints what clap returned instead of arguments: help and version on stdout, errors on stderr.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        // If stderr cannot be written to, only the exit code remains.
        return ExitCode::from(USAGE);
    }
    printed.map_or_else(|error| Failure::from(error).report(), |()| Exit::Done.into())
}

/// Ends a measurement that stopped before it measured anything: interrupted, or out of time.
pub(crate) fn nothing_measured(stop: &AtomicBool) -> Outcome {
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted before anything was measured")?;
        return Ok(Exit::Interrupted);
    }
    Err(Failure::new("the time was up before anything was measured").help("allow more: --budget TIME"))
}

/// Turns the error of a measurement into a failure; invalid options are invalid arguments.
pub(crate) fn measure_failure(error: MeasureError) -> Failure {
    match error {
        MeasureError::Option { .. } | MeasureError::Method { .. } => Failure::usage(error),
        _ => Failure::new(error),
    }
}
