//! Results in files: reading them, and writing them as JSON and as comma-separated values.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bulkmem_measure::engine::{Candidate, Config, Dimension, Measurement, Results, ResultsError, Row};
use bulkmem_measure::{Counts, MemoryLeft, memory_left};

use crate::failure::Failure;
use crate::plain;

/// The largest file that is read. A long run of all measurements writes a few megabytes.
const MOST_BYTES: u64 = 1 << 28;
/// Memory for each byte of a file until its results are compared, at most.
const TO_COMPARE: u64 = 6;
/// The same until its results are part of a report.
pub(crate) const TO_REPORT: u64 = 18;

/// Reads results from a file, which may also be a pipe.
///
/// # Errors
/// If the file cannot be read, is larger than 256 MiB, is damaged (with line and column), contains something else, or has
/// another version of the format. Every error names the file and the remedy.
pub(crate) fn load(path: &Path) -> Result<Results, Failure> {
    understand(path, &read(path, TO_COMPARE)?)
}

/// Reads a file, which may also be a pipe; each byte needs `memory_a_byte` later.
///
/// # Errors
/// If it cannot be read, is larger than 256 MiB, or needs more memory than is left; with the remedy.
pub(crate) fn read(path: &Path, memory_a_byte: u64) -> Result<Vec<u8>, Failure> {
    read_within(path, memory_a_byte, &memory_left())
}

fn read_within(path: &Path, memory_a_byte: u64, left: &MemoryLeft) -> Result<Vec<u8>, Failure> {
    let name = path.display();
    let most = left.bytes / memory_a_byte;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most.min(MOST_BYTES) + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::new(format!("cannot read {name}: {error}")).help(REMEDY))?;
    if bytes.len() as u64 > most {
        let most = crate::output::size(most);
        return Err(Failure::new(format!(
            "{name} is too large for the memory that this process may use: reading more than {most} needs more than the \
             {left}"
        ))
        .help(format!("{}, or name a smaller file", left.limit.remedy())));
    }
    if bytes.len() as u64 > MOST_BYTES {
        let most = crate::output::size(MOST_BYTES);
        return Err(Failure::new(format!("{name} is larger than {most}: results are not")).help(REMEDY));
    }
    Ok(bytes)
}

/// Parses the bytes of a results file.
///
/// # Errors
/// As [`load`], except those of reading.
pub(crate) fn understand(path: &Path, bytes: &[u8]) -> Result<Results, Failure> {
    let name = path.display();
    parse(bytes).map_err(|(reason, remedy)| Failure::new(format!("{name} {reason}")).help(remedy))
}

const REMEDY: &str = "name a file that `bulkmem bench … --output FILE` wrote";
const AGAIN: &str =
    "measure again: `bulkmem bench … --output FILE` leaves a whole file even when interrupted";

/// Parses the bytes of a results file; fails with the reason and the remedy.
fn parse(bytes: &[u8]) -> Result<Results, (String, &'static str)> {
    Results::parse(bytes).map_err(|error| {
        let remedy = match error {
            ResultsError::Damaged(_) | ResultsError::NoSamples { .. } | ResultsError::Older { .. } => AGAIN,
            ResultsError::Newer { .. } => "install a newer bulkmem",
            _ => REMEDY,
        };
        (error.to_string(), remedy)
    })
}

/// Returns results as JSON.
pub(crate) fn json(found: &Results) -> io::Result<String> {
    Ok(plain::json(&serde_json::to_string_pretty(found)?) + "\n")
}

/// Returns results as comma-separated values, with a line for each row.
pub(crate) fn csv(found: &Results) -> io::Result<String> {
    let found = &plain::results(found);
    let Columns { dimensions, others } = Columns::of(found.rows.iter());
    let stats =
        ["metric", "median", "mean", "pstdev", "min", "max", "interval_low", "interval_high", "samples"];
    let head =
        identity_head(&dimensions).chain(stats).chain(["chosen", "flags"]).chain(others.iter().copied());
    let lines = found.rows.iter().map(|row| {
        let mut cells = identity_cells(row.measurement, &row.candidate, &row.config, &dimensions)?;
        let stats = &row.stats;
        let [low, high] = stats.interval;
        let numbers = [stats.median, stats.mean, stats.pstdev, stats.min, stats.max, low, high];
        cells.push(word(&row.metric)?);
        cells.extend(numbers.map(|it| it.to_string()));
        cells.push(row.samples.len().to_string());
        cells.push(row.chosen.clone().unwrap_or_default());
        cells.push(row.flags.iter().map(word).collect::<io::Result<Vec<String>>>()?.join(" "));
        cells.extend(others.iter().map(|name| optional(Columns::other(row, name))));
        Ok(cells)
    });
    table(head, lines)
}

/// The columns that only some rows have.
#[derive(Debug)]
pub(crate) struct Columns<'r> {
    pub(crate) dimensions: Vec<Dimension>,
    /// Names of hardware counters, then those of further figures.
    pub(crate) others: Vec<&'r str>,
}

impl<'r> Columns<'r> {
    pub(crate) fn of(rows: impl Iterator<Item = &'r Row> + Clone) -> Columns<'r> {
        let counted = |name: &&str| rows.clone().any(|row| Columns::other(row, name).is_some());
        let also: BTreeSet<&str> = rows.clone().flat_map(|row| row.also.keys()).map(String::as_str).collect();
        Columns {
            dimensions: dimensions(rows.clone().map(|row| &row.config)),
            others: Counts::NAMES.into_iter().filter(counted).chain(also).collect(),
        }
    }

    /// Returns the value of a row in one of the other columns.
    pub(crate) fn other(row: &Row, name: &str) -> Option<f64> {
        row.also.get(name).copied().or_else(|| row.counters.as_ref()?.get(name))
    }
}

/// Returns the dimensions that are set in any of the configurations.
pub(crate) fn dimensions<'c>(configs: impl Iterator<Item = &'c Config> + Clone) -> Vec<Dimension> {
    let set = |key: &Dimension| configs.clone().any(|config| config.get(*key).is_some());
    Dimension::ALL.into_iter().filter(set).collect()
}

/// Returns the titles of the columns that identify a row.
pub(crate) fn identity_head(dimensions: &[Dimension]) -> impl Iterator<Item = &str> {
    let first = ["measurement", "kind", "name", "parameters"];
    first.into_iter().chain(dimensions.iter().map(|key| key.name()))
}

/// Returns the cells of those columns.
pub(crate) fn identity_cells(
    measurement: Measurement,
    candidate: &Candidate,
    config: &Config,
    dimensions: &[Dimension],
) -> io::Result<Vec<String>> {
    let parameters = crate::figures::describe_parameters(&candidate.parameters);
    let mut cells = vec![measurement.to_string(), word(&candidate.kind)?, candidate.name.clone(), parameters];
    cells.extend(dimensions.iter().map(|key| config.get(*key).unwrap_or_default()));
    Ok(cells)
}

/// Returns a number as a cell, which is empty without one.
pub(crate) fn optional(number: Option<f64>) -> String {
    number.map(|it| it.to_string()).unwrap_or_default()
}

/// Groups items by a key, in the order in which the keys first occur.
pub(crate) fn group<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns comma-separated values: a line of names, then the lines.
pub(crate) fn table<H: AsRef<[u8]>>(
    head: impl IntoIterator<Item = H>,
    lines: impl Iterator<Item = io::Result<Vec<String>>>,
) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head)?;
    for line in lines {
        writer.write_record(line?)?;
    }
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Returns the word that stands for a value in files.
pub(crate) fn word(value: &impl serde::Serialize) -> io::Result<String> {
    Ok(serde_json::to_value(value)?.as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bulkmem_measure::MemoryLimit;

    use super::*;

    #[test]
    fn a_file_that_does_not_fit_the_memory_left_is_refused_with_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        fs::write(&path, vec![b' '; 4096]).unwrap();
        let within = |bytes| read_within(&path, 10, &MemoryLeft { bytes, limit: MemoryLimit::AddressSpace });
        assert_eq!(within(40960).unwrap().len(), 4096);
        let failure = format!("{:?}", within(40950).unwrap_err());
        for part in
            ["results.json is too large", "left by the address space limit (ulimit -v)", "raise that limit"]
        {
            assert!(failure.contains(part), "{part}: {failure}");
        }
    }

    fn refused(text: &str) -> (String, &'static str) {
        parse(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn what_is_no_results_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "is damaged: EOF while parsing a value at line 1 column 0"),
            ("{\n  \"format\": \"bulkmem-res", "is damaged: EOF while parsing a string at line 2 column 24"),
            ("[1, 2]", "is JSON, but no results"),
            ("{}", "is JSON, but no results"),
            (r#"{"format": 7, "version": 1}"#, "is JSON, but no results"),
            (r#"{"format": "bulkmem-profile", "version": 1}"#, "is a profile, not results"),
            (r#"{"format": "fio", "version": 1}"#, "is of the format `fio`, not `bulkmem-results`"),
            (r#"{"format": "bulkmem-results", "version": 99}"#, "written by a newer bulkmem: version 99"),
            (r#"{"format": "bulkmem-results", "version": 1}"#, "is of version 1"),
            (
                r#"{"format": "bulkmem-results", "version": 2}"#,
                "is damaged: missing field `provenance` at line 1",
            ),
        ] {
            let (said, remedy) = refused(text);
            assert!(said.contains(reason) && !remedy.is_empty(), "{text}: {said}");
        }
    }
}
