//! `bulkmem compare`: compares two runs row by row.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bulkmem_measure::Provenance;
use bulkmem_measure::engine::{
    CHANCE, Change, Comparison, Differences, Identity, Measurement, Results, Side, Verdict, varying,
};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::figures::{candidate, config_value, describe_config, words};
use crate::output::{BAD, Column, GOOD, Table, digits, faint, plural, section, signed, styled, wrapped};
use crate::results::{optional, word};
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
    let sink = args.csv.as_ref().map(|path| Sink::open(path, &[&args.old, &args.new], None)).transpose()?;
    let load = |path: &Path| {
        let found = results::load(path)?;
        Ok::<_, Failure>(if args.json { found } else { plain::results(found) })
    };
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    check_names(&args.only, [&old, &new])?;
    let differences = Differences::between(&old.provenance, &new.provenance);
    if !differences.machine.is_empty() && !args.different_machines {
        let what = differences.machine.join("; ");
        return Err(Failure::new(format!("these are runs of different machines: {what}"))
            .help("--different-machines compares them anyway; the ratios then compare the machines"));
    }
    let found = Comparison::of(&old, &new, args.threshold, &args.only);
    if found.rows.is_empty() {
        return Err(Failure::new("there is nothing to compare: no row is in both files").help(
            "repeat the same measurement with the same sizes and methods (its arguments are `command` in the files)",
        ));
    }
    if let Some(sink) = &sink {
        sink.write(csv(&found)?.as_bytes())?;
    }
    if args.json {
        let [old, new] = [(&args.old, &old), (&args.new, &new)].map(|(path, file)| {
            let Provenance { date, bulkmem, commit, .. } = &file.provenance;
            File { path: path.display().to_string(), date, bulkmem, commit, complete: file.complete }
        });
        output::print_json(&Document { old, new, differences: &differences, found: &found })?;
    } else if sink.is_none_or(|sink| sink.file.is_some()) {
        let remarks = remarks([&old, &new], &differences, &found);
        output::print(&text(&found, args.all, &remarks, output::width()))?;
    }
    Ok(if found.count(Verdict::Worse) > 0 { Exit::Regressed } else { Exit::Done })
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    old: File<'a>,
    new: File<'a>,
    #[serde(flatten)]
    differences: &'a Differences,
    #[serde(flatten)]
    found: &'a Comparison,
}

#[derive(Serialize)]
struct File<'a> {
    path: String,
    date: &'a str,
    bulkmem: &'a str,
    commit: &'a str,
    complete: bool,
}

/// Returns the rows that both files have as comma-separated values.
fn csv(found: &Comparison) -> io::Result<String> {
    let lines = found.rows.iter().map(|change| {
        let Change { old, new, interval: [low, high], .. } = change;
        let samples = |side: &Side| Some(side.samples as f64);
        let sides = [Some(old.median), Some(new.median), samples(old), samples(new)];
        let change_of = [change.times, Some(change.difference), Some(*low), Some(*high), change.probability];
        let figures = sides.into_iter().chain(change_of).map(optional);
        (change.row.clone(), figures.chain([word(&change.verdict)]).collect())
    });
    let medians = ["old_median", "new_median", "old_samples", "new_samples"];
    let changes = ["times", "difference", "interval_low", "interval_high", "probability", "verdict"];
    results::table(lines.collect(), medians.into_iter().chain(changes))
}

/// Checks that each name occurs in the files.
fn check_names(only: &[String], files: [&Results; 2]) -> Result<(), Failure> {
    let rows = || files.into_iter().flat_map(|file| &file.rows);
    let measurements: BTreeSet<Measurement> = rows().map(|row| row.measurement).collect();
    let candidates: BTreeSet<&str> = rows().map(|row| row.candidate.name.as_str()).collect();
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
    let files = files.into_iter().zip(["OLD", "NEW"]).filter(|(file, _)| !file.complete);
    let mut remarks: Vec<String> =
        files.map(|(_, name)| format!("{name} was interrupted: rows are missing.")).collect();
    for (what, list) in [
        ("These are runs of different machines", &differences.machine),
        ("Differences that may explain changes", &differences.settings),
    ] {
        remarks.extend((!list.is_empty()).then(|| format!("{what}: {}.", list.join("; "))));
    }
    let reading = found.reading.filter(|times| (times - 1.0).abs() >= found.threshold.max(0.02));
    remarks.extend(reading.map(|times| {
        format!(
            "Reading memory, which no method changes, is {times:.2} times as fast: the machine itself or the load of other \
             users changed; measure both again, one after the other."
        )
    }));
    remarks
}

/// Returns the comparison in lines of at most `width` columns: a table for each measurement and metric, then remarks.
fn text(found: &Comparison, all: bool, remarks: &[String], width: usize) -> String {
    let mut text = too_few(found).map_or_else(String::new, |line| wrapped(&line, "", width) + "\n\n");
    let kind = |change: &Change| (change.row.measurement, change.row.metric);
    for changes in found.rows.chunk_by(|a, b| kind(a) == kind(b)) {
        let (measurement, metric) = kind(&changes[0]);
        let heading = format!("{measurement}: {}, medians", metric.unit());
        text += &section(&heading, &table(changes, width), width);
    }
    let mut lines = vec![summary(found)];
    for (rows, name) in [(&found.only_old, "OLD"), (&found.only_new, "NEW")] {
        let count = plural(rows.len(), "row");
        if !rows.is_empty() && all {
            lines.push(format!("Only in {name}: {count}."));
            lines.extend(rows.iter().map(|Identity { measurement, candidate: it, config, .. }| {
                format!("  {measurement}: {}{}", candidate(it), describe_config(config, |_| true))
            }));
        } else if !rows.is_empty() {
            lines.push(format!("Only in {name}: {count} (--all lists them)."));
        }
    }
    lines.extend(remarks.iter().map(|remark| format!("Note: {remark}")));
    text += &lines.iter().map(|line| wrapped(line, "", width) + "\n").collect::<String>();
    if found.rows.iter().any(|row| !row.old.flags.is_empty() || !row.new.flags.is_empty()) {
        let note = "~ marks figures with a quality flag; the notes in the file give the reason.";
        text += &faint(note, width);
    }
    text
}

fn table(rows: &[Change], width: usize) -> String {
    let keys = varying(rows.iter().map(|row| &row.row.config));
    let titles = keys.iter().map(|key| words(*key)).collect::<Vec<_>>().join(", ");
    let values = |it: &&Change| {
        let values = keys.iter().map(|key| config_value(&it.row.config, *key));
        values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let mut table = Table::of(rows)
        .column(Column::left("").prose(), |it| candidate(&it.row.candidate).replace('[', " ["));
    if !keys.is_empty() {
        table = table.column(Column::left(titles).prose(), values);
    }
    table
        .column(Column::right("old"), |it| figure(&it.old))
        .column(Column::right("new"), |it| figure(&it.new))
        .column(Column::right("times"), |it| it.times.map_or(signed(it.difference), |it| format!("{it:.2}")))
        .column(Column::right("95 %").optional(1), |it| match (it.times, it.interval) {
            (Some(_), [low, high]) => format!("{low:.2}–{high:.2}"),
            (None, [low, high]) => format!("{}…{}", signed(low), signed(high)),
        })
        .column(Column::left("verdict"), |it| verdict(it.verdict))
        .render(width)
}

/// Returns a median, marked if it has a quality flag.
fn figure(side: &Side) -> String {
    format!("{}{}", digits(side.median), if side.flags.is_empty() { " " } else { "~" })
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Better => styled(GOOD, "better"),
        Verdict::Worse => styled(BAD, "worse"),
        Verdict::Same => "same".to_owned(),
        Verdict::TooFew => "–".to_owned(),
    }
}

/// Explains rows without a verdict, and says what to do.
fn too_few(found: &Comparison) -> Option<String> {
    let few = found.count(Verdict::TooFew);
    let which = match few {
        0 => return None,
        _ if few == found.rows.len() => "No row has a verdict".to_owned(),
        _ => format!("{few} of {} have no verdict", plural(found.rows.len(), "row")),
    };
    Some(format!(
        "{which} (–): a verdict needs 5 samples on both sides. The ratios and intervals shown may be due to chance. Measure \
         both again with --runs 5 or more."
    ))
}

fn summary(found: &Comparison) -> String {
    use Verdict::{Better, Same, TooFew, Worse};
    let [better, worse, same, few] = [Better, Worse, Same, TooFew].map(|verdict| found.count(verdict));
    let rows = plural(found.rows.len(), "row");
    let mut text = format!(
        "{rows} compared: {better} better, {worse} worse, {same} the same within noise and threshold"
    );
    if few > 0 {
        text += &format!(", {few} without a verdict");
    }
    text += &format!(". Changes below {} % are not counted;", number(found.threshold * 100.0));
    text + &format!(" of those that are, at most {} % are there by chance.", number(CHANCE * 100.0))
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    ((value * 1000.0).round() / 1000.0).to_string()
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
