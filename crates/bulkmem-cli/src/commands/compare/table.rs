//! A comparison as a table.

use bulkmem_measure::engine::{CHANCE, Change, Comparison, Dimension, Identity, Side, Verdict};

use crate::figures::{candidate, config_value};
use crate::output::{BAD, Column, FAINT, GOOD, HEADING, Table, digits, signed, styled, wrapped};

/// Returns the comparison in lines of at most `width` columns: a table for each measurement and metric, then remarks.
pub(super) fn text(found: &Comparison, all: bool, remarks: &[String], width: usize) -> String {
    let mut text = too_few(found).map_or_else(String::new, |line| wrapped(&line, "", width) + "\n\n");
    let kind = |change: &Change| (change.row.measurement, change.row.metric);
    for changes in found.rows.chunk_by(|a, b| kind(a) == kind(b)) {
        let (measurement, metric) = kind(&changes[0]);
        let heading = format!("{measurement}: {}, medians", metric.unit());
        text += &format!("{}\n{}\n", styled(HEADING, heading), table(changes).render(width));
    }
    let mut lines = vec![summary(found)];
    for (rows, name) in [(&found.only_old, "OLD"), (&found.only_new, "NEW")] {
        let count = rows_of(rows.len());
        if !rows.is_empty() && all {
            lines.push(format!("Only in {name}: {count}."));
            lines.extend(rows.iter().map(|row| format!("  {}: {}", row.measurement, whole_name(row))));
        } else if !rows.is_empty() {
            lines.push(format!("Only in {name}: {count} (--all lists them)."));
        }
    }
    lines.extend(remarks.iter().map(|remark| format!("Note: {remark}")));
    text += &lines.iter().map(|line| wrapped(line, "", width) + "\n").collect::<String>();
    if found.rows.iter().any(|row| !row.old.flags.is_empty() || !row.new.flags.is_empty()) {
        let note = "~ marks figures with a quality flag; the notes in the file give the reason.";
        text += &format!("{}\n", styled(FAINT, wrapped(note, "", width)));
    }
    text
}

fn table(rows: &[Change]) -> Table {
    // Only the dimensions in which rows differ.
    let varies =
        |key: &Dimension| rows.iter().any(|row| row.row.config.get(*key) != rows[0].row.config.get(*key));
    let keys: Vec<Dimension> = Dimension::ALL.into_iter().filter(varies).collect();
    let titles = keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ").replace('_', " ");
    let config = (!keys.is_empty()).then(|| Column::left(titles).prose());
    let mut table = Table::new([Column::left("").prose()].into_iter().chain(config).chain([
        Column::right("old"),
        Column::right("new"),
        Column::right("times"),
        Column::right("95 %").optional(1),
        Column::left("verdict"),
    ]));
    for row in rows {
        let values = keys.iter().map(|key| config_value(&row.row.config, *key));
        let values = values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(", ");
        let [low, high] = row.interval;
        let (change, interval) = match row.times {
            Some(times) => (format!("{times:.2}"), format!("{low:.2}–{high:.2}")),
            None => (signed(row.difference), format!("{}…{}", signed(low), signed(high))),
        };
        let name = candidate(&row.row.candidate).replace('[', " [");
        let figures = [figure(&row.old), figure(&row.new), change, interval, verdict(row.verdict)];
        table.row([name].into_iter().chain((!keys.is_empty()).then_some(values)).chain(figures));
    }
    table
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
        _ => format!("{few} of {} have no verdict", rows_of(found.rows.len())),
    };
    Some(format!(
        "{which} (–): a verdict needs 5 samples on both sides. The ratios and intervals shown may be due to chance. Measure \
         both again with --runs 5 or more."
    ))
}

fn summary(found: &Comparison) -> String {
    let count = |verdict| found.count(verdict);
    let mut text = format!(
        "{} compared: {} better, {} worse, {} the same within noise and threshold",
        rows_of(found.rows.len()),
        count(Verdict::Better),
        count(Verdict::Worse),
        count(Verdict::Same),
    );
    if count(Verdict::TooFew) > 0 {
        text += &format!(", {} without a verdict", count(Verdict::TooFew));
    }
    text += &format!(". Changes below {} % are not counted;", number(found.threshold * 100.0));
    text + &format!(" of those that are, at most {} % are there by chance.", number(CHANCE * 100.0))
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

fn rows_of(count: usize) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// Returns the candidate and the configuration of a row in one line.
fn whole_name(row: &Identity) -> String {
    let configs = Dimension::ALL.into_iter().filter_map(|key| {
        row.config.get(key)?;
        Some(format!("{} {}", key.name().replace('_', " "), config_value(&row.config, key)))
    });
    [candidate(&row.candidate)].into_iter().chain(configs).collect::<Vec<_>>().join(", ")
}
