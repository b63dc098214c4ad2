//! `bulkmem compare`: compares two runs row by row.

mod files;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;

use bulkmem_measure::engine::{CompareOptions, Comparison, Differences, Measurement, Results, Row, Verdict};
use clap::Args;

use crate::failure::{Exit, Failure, Outcome};
use crate::sink::Sink;
use crate::{output, plain, results};

/// Compare two runs row by row: ratio, interval, verdict
///
/// Matches rows by measurement, candidate, configuration and metric. A row is better or worse if its medians differ by at
/// least the threshold, if the 95 % bootstrap interval of their ratio does not contain 1, and if the difference is
/// improbable (Yuen's test: Welch's test of trimmed means of the logarithms) after Benjamini and Hochberg's correction for
/// the number of rows: at most 5 % of the rows called better or worse are so by chance.
///
/// The samples of one run show only the noise within that run. Two runs differ by more, because the kernel places memory
/// elsewhere and the load of other users changes. Compare the same code with itself to learn by how much, and set a higher
/// threshold.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes, for scripts:
  0  nothing became worse
  1  failed: a file cannot be read, the machines differ, no row is in both
  2  invalid arguments
  3  at least one row became worse

How to read the table: `times` is how many times as good NEW is as OLD, for every metric: above 1 is better. ~ marks figures \
with a quality flag (noise, drift, other processes). Differences around 0 have no ratio; the table shows how much they \
changed.

JSON: `old` and `new` (`path`, `date`, `bulkmem`, `commit`, `complete`), `machine` and `settings` (what differs), `threshold`, \
`reading` (how many times as fast the machine reads memory), `rows` (each with `measurement`, `candidate`, `config`, `metric`, \
`old` and `new` (`median`, `samples`, `flags`), `times`, `difference`, `interval`, `probability`, `verdict`: better, worse, \
same or too_few), `only_old`, `only_new`.

Examples:
  bulkmem bench clear --runs 20 --output old.json
  bulkmem bench clear --runs 20 --output new.json
  bulkmem compare old.json new.json --threshold 3% --only policy

Method and limits: docs/compare.md.")]
pub(crate) struct CompareArgs {
    /// Results of the first run (`bulkmem bench … --output FILE`)
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// Results of the second run
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Smallest change that counts
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub(crate) threshold: f64,
    /// Only these measurements or candidates: clear,movnti
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Also list the rows that only one of the files has
    #[arg(long)]
    pub(crate) all: bool,
    /// Compare runs of different machines: the ratios then compare the machines
    #[arg(long)]
    pub(crate) different_machines: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the rows to this file as comma-separated values; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

/// Parses a percentage as a share.
fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("write a percentage from 0 to below 100: 5% or 2.5"),
    }
}

pub(super) fn run(args: &CompareArgs) -> Outcome {
    let sink = args.csv.as_ref().map(|path| Sink::open(path, &[&args.old, &args.new])).transpose()?;
    let (mut old, mut new) = (results::load(&args.old)?, results::load(&args.new)?);
    if !args.json {
        plain::clean_results(&mut old);
        plain::clean_results(&mut new);
    }
    check_names(&args.only, [&old, &new])?;
    let differences = Differences::between(&old.provenance, &new.provenance);
    if !differences.machine.is_empty() && !args.different_machines {
        let what = differences.machine.join("; ");
        return Err(Failure::new(format!("these are runs of different machines: {what}"))
            .help("--different-machines compares them anyway; the ratios then compare the machines"));
    }
    let options = CompareOptions { threshold: args.threshold, only: args.only.clone() };
    let found = Comparison::of(&old, &new, &options);
    if found.rows.is_empty() {
        return Err(Failure::new("there is nothing to compare: no row is in both files").help(
            "repeat the same measurement with the same sizes and methods (its arguments are `command` in the files)",
        ));
    }
    if let Some(sink) = &sink {
        sink.write(files::csv(&found)?.as_bytes())?;
    }
    if args.json {
        output::print_json(&files::Document::new(args, &old, &new, &differences, &found))?;
    } else if !sink.is_some_and(|sink| sink.is_stdout()) {
        let remarks = remarks([&old, &new], &differences, &found);
        output::print(&table::text(&found, args.all, &remarks, output::width()))?;
    }
    Ok(if found.count(Verdict::Worse) > 0 { Exit::Regressed } else { Exit::Done })
}

/// Checks that each name occurs in the files.
fn check_names(only: &[String], files: [&Results; 2]) -> Result<(), Failure> {
    let rows: Vec<&Row> = files.into_iter().flat_map(|file| &file.rows).collect();
    let measurements: BTreeSet<Measurement> = rows.iter().map(|row| row.measurement).collect();
    let candidates: BTreeSet<&str> = rows.iter().map(|row| row.candidate.name.as_str()).collect();
    let names: Vec<&str> =
        measurements.into_iter().map(|it| -> &str { it.name() }).chain(candidates).collect();
    match only.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!("--only: neither file has `{name}`"))
            .help(format!("they have {}", names.join(", ")))),
    }
}

/// Returns what a reader must know besides the figures.
fn remarks(files: [&Results; 2], differences: &Differences, found: &Comparison) -> Vec<String> {
    let mut remarks = Vec::new();
    for (file, name) in files.iter().zip(["OLD", "NEW"]) {
        if !file.complete {
            remarks.push(format!("{name} was interrupted: rows are missing."));
        }
    }
    if !differences.machine.is_empty() {
        remarks.push(format!("These are runs of different machines: {}.", differences.machine.join("; ")));
    }
    if !differences.settings.is_empty() {
        remarks.push(format!("Differences that may explain changes: {}.", differences.settings.join("; ")));
    }
    if let Some(times) = found.reading.filter(|times| (times - 1.0).abs() >= found.threshold.max(0.02)) {
        remarks.push(format!(
            "Reading memory, which no method changes, is {times:.2} times as fast: the machine itself or the load of other \
             users changed; measure both again, one after the other."
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages() {
        for (text, share) in [("5%", 0.05), ("5", 0.05), ("0", 0.0), ("2.5 %", 0.025)] {
            assert_eq!(percent(text), Ok(share), "{text}");
        }
        for text in ["", "%", "-1%", "100%", "NaN", "inf", "five", "5%%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
