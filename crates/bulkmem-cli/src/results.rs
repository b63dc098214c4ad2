//! Results as files: JSON and comma-separated values, written aside and moved into place.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bulkmem_measure::suite::{Key, Results};

use crate::failure::Failure;

/// Where results go: a file that is always whole.
#[derive(Debug)]
pub(crate) struct Sink {
    path: PathBuf,
}

impl Sink {
    /// Checks that the file can be written; it is not made or changed before there is something to write.
    pub(crate) fn create(path: &Path) -> Result<Sink, Failure> {
        let sink = Sink { path: path.to_owned() };
        match tempfile::NamedTempFile::new_in(sink.folder()) {
            _ if path.is_dir() => Err(sink.failure(&io::Error::from(io::ErrorKind::IsADirectory))),
            Ok(_) => Ok(sink),
            Err(error) => Err(sink.failure(&error)),
        }
    }

    /// Replaces the file's content.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut aside = tempfile::NamedTempFile::new_in(self.folder())?;
        aside.write_all(bytes)?;
        // As files that were not written aside: readable by others as the umask has it.
        fs::set_permissions(aside.path(), permissions())?;
        aside.persist(&self.path).map(drop).map_err(|error| error.error)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot write {}: {error}", self.path.display()))
            .help("name a file in a folder you may write to")
    }
}

fn permissions() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o644)
}

/// Results as JSON.
pub(crate) fn json(found: &Results) -> io::Result<String> {
    let mut text = serde_json::to_string_pretty(found)?;
    text.push('\n');
    Ok(text)
}

/// Results as comma-separated values: a line a row, a column for each key that any row has.
pub(crate) fn csv(found: &Results) -> io::Result<String> {
    let keys: Vec<Key> = Key::ALL
        .into_iter()
        .filter(|key| found.rows.iter().any(|row| row.place.get(*key).is_some()))
        .collect();
    let mut also: Vec<&str> = found.rows.iter().flat_map(|row| row.also.keys()).map(String::as_str).collect();
    also.sort_unstable();
    also.dedup();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fixed = ["measurement", "kind", "name", "parameters"];
    let figures =
        ["metric", "median", "mean", "pstdev", "min", "max", "interval_low", "interval_high", "samples"];
    let names = keys.iter().map(|key| key.name());
    writer.write_record(fixed.into_iter().chain(names).chain(figures).chain(also.iter().copied()))?;
    for row in &found.rows {
        let stats = &row.stats;
        let subject = [
            row.measurement.to_string(),
            word(&row.subject.kind)?,
            row.subject.name.clone(),
            crate::figures::describe_parameters(&row.subject.parameters),
        ];
        let [low, high] = stats.interval;
        let numbers = [stats.median, stats.mean, stats.pstdev, stats.min, stats.max, low, high]
            .map(|it| it.to_string());
        let places = keys.iter().map(|key| row.place.get(*key).unwrap_or_default());
        let others = also.iter().map(|name| row.also.get(*name).map(f64::to_string).unwrap_or_default());
        let cells = subject.into_iter().chain(places).chain([word(&row.metric)?]).chain(numbers);
        writer.write_record(cells.chain([row.samples.len().to_string()]).chain(others))?;
    }
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// The word that a value has in files.
pub(crate) fn word(value: &impl serde::Serialize) -> io::Result<String> {
    Ok(serde_json::to_value(value)?.as_str().unwrap_or_default().to_owned())
}
