//! Output files of commands: checked before any work, never one of the inputs, and never replaced by fewer measurements.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use bulkmem_measure::engine::Results;
use bulkmem_output::OutputFile;
use serde::Deserialize;

use crate::failure::Failure;
use crate::output;

/// Bytes that must fit before work starts, so that a full disk is reported then.
const ROOM: usize = 4096;

/// An output that is written once, when its content is complete: a file, or stdout if the path is `-`.
#[derive(Debug)]
pub(crate) struct Sink {
    path: PathBuf,
    /// `None` for stdout.
    file: Option<OutputFile>,
}

impl Sink {
    /// Checks that an output path can be written; creates and changes no file.
    ///
    /// # Errors
    /// If it cannot be written, is one of the inputs, or contains measurements.
    pub(crate) fn open(path: &Path, inputs: &[&Path]) -> Result<Sink, Failure> {
        let file = if path == "-" { None } else { Some(open_over(path, inputs, None)?) };
        Ok(Sink { path: path.to_owned(), file })
    }

    /// Returns true if it is written through and not replaced: a device, a FIFO, stdout.
    pub(crate) fn is_stream(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.regular().is_none())
    }

    /// Returns true for `-`.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        match &self.file {
            Some(file) => file.write(bytes).map_err(|error| failure(&self.path, &error)),
            None => Ok(output::print_raw(bytes)?),
        }
    }
}

/// Opens a file that may replace measurements of one format.
fn open_over(path: &Path, inputs: &[&Path], replaces: Option<&str>) -> Result<OutputFile, Failure> {
    let file = OutputFile::open(path).map_err(|error| failure(path, &error))?;
    if let Some(input) = inputs.iter().find(|input| file.is_same_file(input)) {
        let name = if path == *input { String::new() } else { format!(", {}", input.display()) };
        let reason = format!("{} is also an input{name}: it would be overwritten", path.display());
        return Err(Failure::usage(reason).help("name another file to write"));
    }
    if let Some(format) = file.regular().and_then(format_of).filter(|format| replaces != Some(format)) {
        let reason = format!("{} contains measurements ({format}), which would be lost", path.display());
        return Err(Failure::usage(reason).help("name another file to write, or remove this one"));
    }
    file.check(ROOM).map_err(|error| failure(path, &error))?;
    Ok(file)
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
        .help("name a file in a directory you may write to, with space left")
}

/// Returns the format of a file with measurements.
fn format_of(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
    }
    let Head { format } = serde_json::from_reader(BufReader::new(File::open(path).ok()?)).ok()?;
    [bulkmem_measure::calibration::FORMAT, Results::FORMAT].contains(&format.as_str()).then_some(format)
}

/// The state of a result that is saved while measuring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Everything was measured.
    pub(crate) complete: bool,
    /// Nothing was measured yet.
    pub(crate) empty: bool,
}

/// A file that is written while measuring. If it has content already, only a complete result replaces that; until then,
/// and if the measurement ends early, the result is next to it, in `NAME.partial.json`.
#[derive(Debug)]
pub(crate) struct LiveSink {
    path: PathBuf,
    file: OutputFile,
    keeps_old: bool,
    partial: Option<PathBuf>,
    /// The newest content of a stream, which is written once.
    content: Option<Vec<u8>>,
    complete: bool,
}

impl LiveSink {
    /// Checks a path like [`Sink::open`]; `replaces` is the format of measurements that it may replace.
    pub(crate) fn open(
        path: &Path,
        input: Option<&Path>,
        replaces: Option<&str>,
    ) -> Result<LiveSink, Failure> {
        let file = open_over(path, input.as_slice(), replaces)?;
        let size = file.regular().and_then(|target| fs::metadata(target).ok()).map(|about| about.len());
        Ok(LiveSink {
            path: path.to_owned(),
            file,
            keeps_old: size.is_some_and(|size| size > 0),
            partial: None,
            content: None,
            complete: false,
        })
    }

    /// Returns true if both replace the same file.
    pub(crate) fn same_as(&self, other: &LiveSink) -> bool {
        self.file.replaces_the_same_as(&other.file)
    }

    /// Saves the result so far.
    pub(crate) fn save(&mut self, bytes: &[u8], state: State) -> io::Result<()> {
        let Some(target) = self.file.regular() else {
            self.content = Some(bytes.to_owned());
            return Ok(());
        };
        if state.empty && (self.keeps_old || !state.complete) {
            return Ok(());
        }
        if self.keeps_old && !state.complete {
            let partial = self.partial.get_or_insert_with(|| free_name(target, "partial"));
            return OutputFile::open(partial)?.write(bytes);
        }
        self.file.write(bytes)?;
        self.complete = true;
        match self.partial.take() {
            Some(partial) => fs::remove_file(partial),
            None => Ok(()),
        }
    }

    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        failure(&self.path, error)
    }

    /// Writes a stream. Returns where the result is if the old file was kept.
    pub(crate) fn finish(self) -> Result<Option<String>, Failure> {
        if let Some(content) = &self.content {
            self.file.write(content).map_err(|error| self.failure(&error))?;
        }
        let path = self.path.display();
        Ok(match self.partial {
            Some(partial) => {
                Some(format!("{path} is unchanged; what was measured is in {}", partial.display()))
            }
            None if self.keeps_old && !self.complete => Some(format!("{path} is unchanged")),
            None => None,
        })
    }
}

/// Returns the first name that no file has: `old.json` becomes `old.WORD.json`, then `old.WORD-2.json`, and so on.
pub(crate) fn free_name(path: &Path, word: &str) -> PathBuf {
    let extension = path.extension().map(|it| format!(".{}", it.display())).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().display().to_string();
    let name = |number: usize| {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        path.with_file_name(format!("{stem}.{word}{number}{extension}"))
    };
    (1..).map(name).find(|name| fs::symlink_metadata(name).is_err()).expect("a directory has an end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_free_and_keep_their_extension() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(free_name(&at("old.json"), "partial"), at("old.partial.json"));
        assert_eq!(free_name(&at("old"), "partial"), at("old.partial"));
        fs::write(at("old.partial.json"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", at("old.partial-2.json")).unwrap();
        assert_eq!(free_name(&at("old.json"), "partial"), at("old.partial-3.json"));
    }
}
