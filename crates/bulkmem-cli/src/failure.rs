//! The end of a command: exit codes, and errors with their remedy.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use bulkmem_measure::MeasureError;

use crate::output;
use crate::plain::plain;

pub(crate) type Outcome = Result<Exit, Failure>;

/// The end of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// Interrupted; completed work was kept.
    Interrupted,
    /// A comparison found rows that became worse.
    Regressed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Interrupted => INTERRUPTED,
            Exit::Regressed => REGRESSED,
        })
    }
}

/// The exit code of an interrupted command: 128 plus the number of SIGINT, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;
pub(crate) const FAILED: u8 = 1;
const USAGE: u8 = 2;
const REGRESSED: u8 = 3;

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
        let label =
            |color: AnsiColor, word| output::styled(Style::new().fg_color(Some(color.into())).bold(), word);
        let mut text = format!("{} {}", label(AnsiColor::Red, "error:"), plain(&chain(self.error.as_ref())));
        if let Some(help) = &self.help {
            _ = write!(text, "\n{} {}", label(AnsiColor::Green, "help:"), plain(help));
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
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
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
