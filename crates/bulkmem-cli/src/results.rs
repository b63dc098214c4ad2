//! Results in files: reading them, and writing them as JSON and as comma-separated values.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bulkmem_measure::engine::{Dimension, Identity, Results, ResultsError, Row, dimensions};
use bulkmem_measure::stats::Stats;
use bulkmem_measure::{Counts, MemoryLeft, memory_left};

use crate::failure::Failure;
use crate::plain;

/// The largest file that is read. A long run of all measurements writes a few megabytes.
const MOST_BYTES: u64 = 1 << 28;
/// Memory for each byte of a file until its results are compared, at most.
const TO_COMPARE: u64 = 6;
/// The same until its results are part of a report.
pub(crate) const TO_REPORT: u64 = 18;

/// Reads results from a file, which may also be a pipe. Every error names the file and the remedy.
pub(crate) fn load(path: &Path) -> Result<Results, Failure> {
    understand(path, &read(path, TO_COMPARE, &memory_left())?)
}

/// Reads a file of at most 256 MiB, which may also be a pipe; each byte needs `memory_a_byte` of the memory left later.
pub(crate) fn read(path: &Path, memory_a_byte: u64, left: &MemoryLeft) -> Result<Vec<u8>, Failure> {
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

pub(crate) fn understand(path: &Path, bytes: &[u8]) -> Result<Results, Failure> {
    Results::parse(bytes).map_err(|error| {
        let remedy = match error {
            ResultsError::Damaged(_) | ResultsError::NoSamples { .. } | ResultsError::Older { .. } => AGAIN,
            ResultsError::Newer { .. } => "install a newer bulkmem",
            _ => REMEDY,
        };
        Failure::new(format!("{} {error}", path.display())).help(remedy)
    })
}

const REMEDY: &str = "name a file that `bulkmem bench … --output FILE` wrote";
const AGAIN: &str =
    "measure again: `bulkmem bench … --output FILE` leaves a whole file even when interrupted";

/// Returns results as comma-separated values, with a line for each row.
pub(crate) fn csv(found: &Results) -> io::Result<String> {
    let found = plain::results(found.clone());
    let others = Columns::of(found.rows.iter()).others;
    let stats = ["median", "mean", "pstdev", "min", "max", "interval_low", "interval_high"];
    let head = stats.into_iter().chain(["samples", "chosen", "flags"]).chain(others.iter().copied());
    let lines = found.rows.iter().map(|row| {
        let Stats { median, mean, pstdev, min, max, interval: [low, high] } = row.stats;
        let mut cells: Vec<String> =
            [median, mean, pstdev, min, max, low, high].map(|it| it.to_string()).into();
        cells.push(row.samples.len().to_string());
        cells.push(row.chosen.clone().unwrap_or_default());
        cells.push(row.flags.iter().map(word).collect::<Vec<_>>().join(" "));
        cells.extend(others.iter().map(|name| optional(Columns::other(row, name))));
        (row.identity(), cells)
    });
    table(lines.collect(), head)
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
            dimensions: dimensions(rows.clone().map(|row| &row.config)).into_iter().collect(),
            others: Counts::names().filter(counted).map(|name| -> &str { name }).chain(also).collect(),
        }
    }

    /// Returns the value of a row in one of the other columns.
    pub(crate) fn other(row: &Row, name: &str) -> Option<f64> {
        row.also.get(name).copied().or_else(|| row.counters.as_ref()?.get(name))
    }
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

/// Returns comma-separated values: a line of names, then a line for each row with its identity and further cells.
pub(crate) fn table<'h>(
    rows: Vec<(Identity, Vec<String>)>,
    head: impl IntoIterator<Item = &'h str>,
) -> io::Result<String> {
    let dimensions = dimensions(rows.iter().map(|(row, _)| &row.config));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = dimensions.iter().map(|key| key.name()).chain(["metric"]);
    writer
        .write_record(["measurement", "kind", "name", "parameters"].into_iter().chain(names).chain(head))?;
    for (Identity { measurement, candidate, config, metric }, cells) in rows {
        let parameters = crate::figures::describe_parameters(&candidate.parameters);
        let first = [measurement.to_string(), word(&candidate.kind), candidate.name, parameters];
        let values = dimensions.iter().map(|key| config.get(*key).unwrap_or_default()).chain([word(&metric)]);
        writer.write_record(first.into_iter().chain(values).chain(cells))?;
    }
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Returns the word that stands for a value in files.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(crate) mod testing {
    use bulkmem_measure::Provenance;

    use super::*;

    /// Complete results with these rows.
    pub(crate) fn results(rows: Vec<Row>) -> Results {
        Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance: Provenance::default(),
            command: Vec::new(),
            rows,
            findings: Vec::new(),
            notes: Vec::new(),
            complete: true,
        }
    }
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
        let within = |bytes| read(&path, 10, &MemoryLeft { bytes, limit: MemoryLimit::AddressSpace });
        assert_eq!(within(40960).unwrap().len(), 4096);
        let failure = format!("{:?}", within(40950).unwrap_err());
        for part in
            ["results.json is too large", "left by the address space limit (ulimit -v)", "raise that limit"]
        {
            assert!(failure.contains(part), "{part}: {failure}");
        }
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
            let failure = understand(Path::new("file"), text.as_bytes()).expect_err(text);
            let failure = format!("{failure:?}");
            assert!(failure.contains(reason) && failure.contains("help: Some"), "{text}: {failure}");
        }
    }
}
