//! `bulkmem compare`: two runs side by side, and whether something became worse.

mod files;
mod table;

use std::path::PathBuf;

use bulkmem_measure::engine::{CompareOptions, Comparison, Differences, Measurement, Results, Verdict};
use clap::Args;

use super::follow::is_stdout;
use crate::failure::{Exit, Failure, Outcome};
use crate::sink::Sink;
use crate::{output, plain, results};

/// Compare two runs row by row: ratio, interval, verdict
///
/// Rows are matched by measurement, subject, place and metric. A row is better or worse where its medians differ by the
/// threshold or more, where the 95 % interval of their ratio (bootstrap) does not hold 1, and where the difference is
/// improbable (Yuen's test: Welch's, of trimmed means of the logarithms) after correction for the number of rows (Benjamini and Hochberg): of
/// the rows called better or worse, at most 5 % are so by chance.
///
/// The samples of a run know only the noise within that run, and two runs differ by more: the kernel places memory
/// elsewhere, neighbours come and go. Compare the same code with itself to learn by how much, and set the threshold
/// above that.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes, for scripts:
  0  nothing became worse
  1  failed: a file cannot be read, the machines differ, no row is in both
  2  the arguments make no sense
  3  at least one row became worse

How to read the table: `times` is how many times as good NEW is as OLD, whatever the metric: above 1 is better. ~ marks a \
figure that was doubtful where it was measured (noise, drift, other processes). Differences around 0 have no ratio; the \
table shows how much they changed.

JSON: `old` and `new` (`path`, `date`, `bulkmem`, `commit`, `complete`), `machine` and `settings` (what differs), `threshold`, \
`reading` (how many times as fast the machine reads memory), `rows` (each with `measurement`, `candidate`, `config`, `metric`, \
`old` and `new` (`median`, `samples`, `flags`), `times`, `difference`, `interval`, `probability`, `verdict`: better, worse, \
same or too_few), `only_old`, `only_new`.

Examples:
  bulkmem bench clear --runs 20 --output old.json
  bulkmem bench clear --runs 20 --output new.json
  bulkmem compare old.json new.json --threshold 3% --only policy

How it is done, and its limits: docs/compare.md.")]
pub(crate) struct CompareArgs {
    /// The results of before (`bulkmem bench … --output FILE`)
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The results of now
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Do not count smaller changes
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub(crate) threshold: f64,
    /// Only these measurements, or methods: clear,movnti
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the rows that only one of the files has, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Compare runs of different machines: the ratios are of the machines then
    #[arg(long)]
    pub(crate) different_machines: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the rows to this file as comma-separated values too; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

/// A share, from a percentage.
fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("write a percentage from 0 to below 100: 5% or 2.5"),
    }
}

pub(super) fn run(args: &CompareArgs) -> Outcome {
    let csv = args.csv.as_deref().filter(|path| !is_stdout(path));
    let sink = csv.map(|path| Sink::open(path, &[&args.old, &args.new])).transpose()?;
    let (old, new) = (results::load(&args.old)?, results::load(&args.new)?);
    check_names(&args.only, [&old, &new])?;
    let differences = Differences::between(&old.provenance, &new.provenance);
    if !differences.machine.is_empty() && !args.different_machines {
        let what = differences.machine.join("; ");
        return Err(Failure::new(format!("these are runs of different machines: {what}"))
            .help("--different-machines compares them all the same; the ratios are of the machines then"));
    }
    let options = CompareOptions { threshold: args.threshold, only: args.only.clone() };
    let found = Comparison::of(&old, &new, &options);
    if found.rows.is_empty() {
        return Err(Failure::new("there is nothing to compare: no row is in both files").help(
            "measure the same again: the same measurement, sizes and methods (their arguments are `command` in the files)",
        ));
    }
    if args.json {
        output::print_json(&files::Document::new(args, &old, &new, &differences, &found))?;
        return Ok(exit(&found));
    }
    let (found, differences) = plain::comparison(found, &differences);
    let csv = files::csv(&found)?;
    if let Some(sink) = &sink {
        sink.write(csv.as_bytes()).map_err(|error| sink.failure(&error))?;
    }
    if args.csv.as_deref().is_some_and(is_stdout) {
        output::print_raw(csv.as_bytes())?;
    } else {
        let remarks = remarks([&old, &new], &differences, &found);
        output::print(&table::text(&found, args.all, &remarks, output::width()))?;
    }
    Ok(exit(&found))
}

fn exit(found: &Comparison) -> Exit {
    if found.count(Verdict::Worse) > 0 { Exit::Regressed } else { Exit::Done }
}

/// Whether each name is that of something in the files.
fn check_names(only: &[String], files: [&Results; 2]) -> Result<(), Failure> {
    let rows = || files.iter().flat_map(|file| &file.rows);
    for name in only {
        if !rows().any(|row| row.candidate.name == *name || row.measurement.name() == name) {
            let measurements =
                Measurement::ALL.into_iter().filter(|it| rows().any(|row| row.measurement == *it));
            let mut names: Vec<&str> = measurements.map(Measurement::name).collect();
            let mut subjects: Vec<&str> = rows().map(|row| row.candidate.name.as_str()).collect();
            subjects.sort_unstable();
            subjects.dedup();
            names.extend(subjects);
            return Err(Failure::usage(format!("--only: neither file has `{name}`"))
                .help(format!("they have {}", names.join(", "))));
        }
    }
    Ok(())
}

/// What else must be known to read the figures.
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
        remarks.push(format!("What may explain changes: {}.", differences.settings.join("; ")));
    }
    if let Some(times) = found.reading.filter(|times| (times - 1.0).abs() >= found.threshold.max(0.02)) {
        remarks.push(format!(
            "Reading memory, which no method changes, runs {times:.2} times as fast: the machine itself changed, or who \
             shares it; measure both again, one after the other."
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
