//! Output files of commands: checked before any work, never one of the inputs, never replaced by less.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use bulkmem_measure::engine::Results;
use bulkmem_output::OutputFile;
use serde::Deserialize;

use crate::failure::Failure;

/// Bytes that must fit before work starts: a disk that is full already is reported then.
const ROOM: usize = 4096;

/// A file that is written once, when its content is complete.
#[derive(Debug)]
pub(crate) struct Sink {
    path: PathBuf,
    file: OutputFile,
}

impl Sink {
    /// Opens an output path and checks that it can be written; no file is made or changed.
    ///
    /// # Errors
    /// If it cannot be written, is one of the inputs, or holds measurements.
    pub(crate) fn open(path: &Path, inputs: &[&Path]) -> Result<Sink, Failure> {
        Sink::open_over(path, inputs, None)
    }

    /// The same for what may replace measurements of one format.
    fn open_over(path: &Path, inputs: &[&Path], replaces: Option<&str>) -> Result<Sink, Failure> {
        let file = OutputFile::open(path).map_err(|error| failure(path, &error))?;
        let sink = Sink { path: path.to_owned(), file };
        for input in inputs {
            sink.refuse_input(input)?;
        }
        if let Some(format) = sink.file.regular().and_then(format_of)
            && replaces != Some(&format)
        {
            let name = path.display();
            return Err(Failure::usage(format!("{name} holds measurements ({format}), which would be lost"))
                .help("name another file to write, or remove this one"));
        }
        sink.file.check(ROOM).map_err(|error| sink.failure(&error))?;
        Ok(sink)
    }

    /// Refuses an input that is the same file.
    fn refuse_input(&self, input: &Path) -> Result<(), Failure> {
        if !self.file.is_same_file(input) {
            return Ok(());
        }
        let [output, input] = [&self.path, input].map(|path| path.display().to_string());
        let name = if output == input { String::new() } else { format!(", {input}") };
        Err(Failure::usage(format!("{output} is also an input{name}: it would be overwritten"))
            .help("name another file to write"))
    }

    /// True if it is written through, and holds no file of its own: a device, a FIFO, stdout.
    pub(crate) fn is_stream(&self) -> bool {
        self.file.regular().is_none()
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.write(bytes)
    }


fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
        .help("name a file in a directory you may write to, with space left")
}

/// The format of a file, if it is one of ours.
fn format_of(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
    }
    let Head { format } = serde_json::from_reader(BufReader::new(File::open(path).ok()?)).ok()?;
    [bulkmem_measure::calibration::FORMAT, Results::FORMAT].contains(&format.as_str()).then_some(format)
}

/// The state of the result that a measurement saves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Nothing is left to measure.
    pub(crate) complete: bool,
    /// Nothing was measured yet.
    pub(crate) empty: bool,
}

/// A file that is written while measuring. One that already holds something is replaced only by a complete result;
/// until then, and if the measurement ends early, the result is next to it, in `NAME.partial.json`.
#[derive(Debug)]
pub(crate) struct LiveSink {
    sink: Sink,
    keeps_old: bool,
    partial: Option<PathBuf>,
    /// For streams, which are written once: the newest content.
    content: Option<Vec<u8>>,
    complete: bool,
}

impl LiveSink {
    /// As [`Sink::open`]; `replaces` is the format of measurements that it may replace.
    pub(crate) fn open(
        path: &Path,
        input: Option<&Path>,
        replaces: Option<&str>,
    ) -> Result<LiveSink, Failure> {
        let sink = Sink::open_over(path, input.as_slice(), replaces)?;
        let size = sink.file.regular().and_then(|target| fs::metadata(target).ok()).map(|about| about.len());
        Ok(LiveSink {
            sink,
            keeps_old: size.is_some_and(|size| size > 0),
            partial: None,
            content: None,
            complete: false,
        })
    }

    /// True if both replace the same file.
    pub(crate) fn same_as(&self, other: &LiveSink) -> bool {
        self.sink.file.replaces_the_same_as(&other.sink.file)
    }

    /// Saves the result so far.
    pub(crate) fn save(&mut self, bytes: &[u8], state: State) -> io::Result<()> {
        let Some(target) = self.sink.file.regular() else {
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
        self.sink.write(bytes)?;
        self.complete = true;
        match self.partial.take() {
            Some(partial) => fs::remove_file(partial),
            None => Ok(()),
        }
    }

    /// Writes a stream, and says where the result is if the old file was kept.
    pub(crate) fn finish(self) -> Result<Option<String>, Failure> {
        if let Some(content) = &self.content {
            self.sink.write(content).map_err(|error| self.sink.failure(&error))?;
        }
        let path = self.sink.path.display();
        Ok(match self.partial {
            Some(partial) => {
                Some(format!("{path} is unchanged; what was measured is in {}", partial.display()))
            }
            None if self.keeps_old && !self.complete => Some(format!("{path} is unchanged")),
            None => None,
        })
    }
}

/// The first name that no file has: `old.json` becomes `old.WORD.json`, then `old.WORD-2.json`, and so on.
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
