//! Output files of commands: checked before any work, never one of the inputs, and never replaced by fewer measurements.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use bulkmem_measure::engine::{Head, Results};
use bulkmem_output::OutputFile;

use crate::failure::Failure;
use crate::output;

/// Bytes that must fit before work starts, so that a full disk is reported then.
const ROOM: usize = 4096;

/// An output: a file, or stdout if the path is `-`. It is written once, or saved while measuring: if it has content then,
/// only a complete result replaces that; until then, and if the measurement ends early, the result is next to it, in
/// `NAME.partial.json`.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    path: PathBuf,
    /// `None` for stdout.
    pub(crate) file: Option<OutputFile>,
    keeps_old: bool,
    partial: Option<PathBuf>,
    /// The newest content of a stream, which is written once.
    content: Option<String>,
    complete: bool,
}

impl Sink {
    /// Checks that an output path can be written, is none of the inputs, and contains no measurements other than those of
    /// the format that it replaces; creates and changes no file.
    pub(crate) fn open(path: &Path, inputs: &[&Path], replaces: Option<&str>) -> Result<Sink, Failure> {
        let mut sink = Sink { path: path.to_owned(), ..Sink::default() };
        if path == "-" {
            return Ok(sink);
        }
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
        let about = file.regular().and_then(|target| fs::metadata(target).ok());
        sink.keeps_old = about.is_some_and(|about| about.len() > 0);
        sink.file = Some(file);
        Ok(sink)
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        match &self.file {
            Some(file) => file.write(bytes).map_err(|error| failure(&self.path, &error)),
            None => Ok(output::print_raw(bytes)?),
        }
    }

    /// Saves the results so far, as `text`.
    pub(crate) fn save(&mut self, text: String, found: &Results) -> io::Result<()> {
        let Some((file, target)) = self.file.as_ref().and_then(|file| Some((file, file.regular()?))) else {
            self.content = Some(text);
            return Ok(());
        };
        if found.rows.is_empty() && (self.keeps_old || !found.complete) {
            return Ok(());
        }
        if self.keeps_old && !found.complete {
            let partial = self.partial.get_or_insert_with(|| free_name(target, "partial"));
            return OutputFile::open(partial)?.write(text.as_bytes());
        }
        file.write(text.as_bytes())?;
        self.complete = true;
        self.partial.take().map_or(Ok(()), fs::remove_file)
    }

    /// Writes a stream. Returns where the result is if the old file was kept.
    pub(crate) fn finish(self) -> Result<Option<String>, Failure> {
        if let Some(content) = &self.content {
            self.write(content.as_bytes())?;
        }
        let partial = self.partial.map(|it| format!("; what was measured is in {}", it.display()));
        Ok((self.keeps_old && !self.complete)
            .then(|| format!("{} is unchanged{}", self.path.display(), partial.unwrap_or_default())))
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
        .help("name a file in a directory you may write to, with space left")
}

/// Returns the format of a file with measurements.
fn format_of(path: &Path) -> Option<String> {
    let Head { format, .. } = serde_json::from_reader(BufReader::new(File::open(path).ok()?)).ok()?;
    [bulkmem_measure::calibration::FORMAT, Results::FORMAT].contains(&format.as_str()).then_some(format)
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
