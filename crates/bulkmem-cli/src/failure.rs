//! How the command ends: the exit codes, and errors that name their remedy.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use crate::output;
use crate::plain::plain;

/// How a command that ran to its end left things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done,
    /// Interrupted; what was finished by then was kept.
    Interrupted,
    /// What was compared became worse.
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

/// The exit code of an interrupted command: 128 and the number of SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;
/// The exit code of a command that failed.
pub(crate) const FAILED: u8 = 1;
const USAGE: u8 = 2;
const REGRESSED: u8 = 3;

/// Why a command failed, and what the user can do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Error + Send + Sync>,
    help: Option<String>,
    code: u8,
}

impl Failure {
    /// The command could not do what was asked.
    pub(crate) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { error: error.into(), help: None, code: FAILED }
    }

    /// The command was asked for something that makes no sense.
    pub(crate) fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { code: USAGE, ..Failure::new(error) }
    }

    /// Says what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }

    /// Prints the error, its causes and the remedy on stderr. A reader that went away (`bulkmem … | head`) is no
    /// failure and nothing is printed.
    pub(crate) fn report(&self) -> ExitCode {
        if is_broken_pipe(self.error.as_ref()) {
            return Exit::Done.into();
        }
        let mut text = plain(&chain(self.error.as_ref()));
        if let Some(help) = &self.help {
            let help = plain(help);
            let style = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
            _ = write!(text, "\n{style}help:{style:#} {help}");
        }
        complain(&text);
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

/// An error and its causes, in one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn complain(text: &str) {
    let style = Style::new().fg_color(Some(AnsiColor::Red.into())).bold();
    // Where stderr itself cannot be written to, the exit code is all that is left to say it with.
    _ = output::note(&format!("{style}error:{style:#} {text}"));
}

/// What clap has to say about the arguments: help and version on stdout, complaints on stderr.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // As in `complain`.
        _ = error.print();
        return ExitCode::from(USAGE);
    }
    match error.print() {
        Ok(()) => Exit::Done.into(),
        Err(error) => Failure::from(error).report(),
    }
}
