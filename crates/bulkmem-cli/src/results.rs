//! Results as files: JSON and comma-separated values.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bulkmem_measure::engine::{Dimension, Results, ResultsError, Row};
use bulkmem_measure::{Counts, MemoryLeft, memory_left};

use crate::failure::Failure;
use crate::plain;

/// A long run of everything writes some megabytes.
const MOST_BYTES: u64 = 1 << 28;
/// Memory that a byte of a file takes until its results are compared, at most.
const TO_COMPARE: u64 = 6;
/// The same until they are laid out as a report.
pub(crate) const TO_REPORT: u64 = 18;

/// Reads results from a file, which may also be a pipe.
///
/// # Errors
/// Where it cannot be read or is larger than 256 MiB, is damaged (with line and column), holds something else, or
/// was written in a version of the format that this one does not know. All name the file and the remedy.
pub(crate) fn load(path: &Path) -> Result<Results, Failure> {
    understand(path, &read(path, TO_COMPARE)?)
}

/// The bytes of a file, which may also be a pipe, and each of which takes so much memory later.
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

/// Results from the bytes of a file.
///
/// # Errors
/// As [`load`], but for reading.
pub(crate) fn understand(path: &Path, bytes: &[u8]) -> Result<Results, Failure> {
    let name = path.display();
    parse(bytes).map_err(|(reason, remedy)| Failure::new(format!("{name} {reason}")).help(remedy))
}

const REMEDY: &str = "name a file that `bulkmem bench … --output FILE` wrote";
const AGAIN: &str =
    "measure again: `bulkmem bench … --output FILE` leaves a whole file even when interrupted";

/// Results from the bytes of a file, or what is wrong with it and the remedy.
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

/// Results as JSON.
pub(crate) fn json(found: &Results) -> io::Result<String> {
    Ok(plain::json(&serde_json::to_string_pretty(found)?) + "\n")
}

/// Results as comma-separated values: a line a row, a column for each key that any row has.
pub(crate) fn csv(found: &Results) -> io::Result<String> {
    let found = &plain::results(found);
    let keys: Vec<Dimension> = Dimension::ALL
        .into_iter()
        .filter(|key| found.rows.iter().any(|row| row.config.get(*key).is_some()))
        .collect();
    let mut also: Vec<&str> = found.rows.iter().flat_map(|row| row.also.keys()).map(String::as_str).collect();
    also.sort_unstable();
    also.dedup();
    let counted = |name: &&str| found.rows.iter().any(|row| count(row, name).is_some());
    let counts: Vec<&str> = Counts::NAMES.into_iter().filter(counted).collect();
    let figures =
        ["metric", "median", "mean", "pstdev", "min", "max", "interval_low", "interval_high", "samples"];
    let head = ["measurement", "kind", "name", "parameters"].into_iter();
    let head = head.chain(keys.iter().map(|key| key.name())).chain(figures).chain(["chosen", "flags"]);
    let head = head.chain(counts.iter().copied()).chain(also.iter().copied()).map(str::to_owned).collect();
    let lines = found.rows.iter().map(|row| {
        let stats = &row.stats;
        let mut cells = vec![
            row.measurement.to_string(),
            word(&row.candidate.kind)?,
            row.candidate.name.clone(),
            crate::figures::describe_parameters(&row.candidate.parameters),
        ];
        cells.extend(keys.iter().map(|key| row.config.get(*key).unwrap_or_default()));
        cells.push(word(&row.metric)?);
        let [low, high] = stats.interval;
        let numbers = [stats.median, stats.mean, stats.pstdev, stats.min, stats.max, low, high];
        cells.extend(numbers.map(|it| it.to_string()));
        cells.push(row.samples.len().to_string());
        cells.push(row.chosen.clone().unwrap_or_default());
        cells.push(row.flags.iter().map(word).collect::<io::Result<Vec<String>>>()?.join(" "));
        let optional = |number: Option<f64>| number.map(|it| it.to_string()).unwrap_or_default();
        cells.extend(counts.iter().map(|name| optional(count(row, name))));
        cells.extend(also.iter().map(|name| optional(row.also.get(*name).copied())));
        Ok(cells)
    });
    table(head, lines)
}

fn count(row: &Row, name: &str) -> Option<f64> {
    row.counters.as_ref()?.get(name)
}

/// Lines of comma-separated values below a line of names.
pub(crate) fn table(
    head: Vec<String>,
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

/// The word that a value has in files.
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
            (r#"{"format": "bulkmem-results", "version": 0}"#, "is of version 0"),
            (
                r#"{"format": "bulkmem-results", "version": 1}"#,
                "is damaged: missing field `evidence` at line 1",
            ),
        ] {
            let (said, remedy) = refused(text);
            assert!(said.contains(reason) && !remedy.is_empty(), "{text}: {said}");
        }
    }
}
