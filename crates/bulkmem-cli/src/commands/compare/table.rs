//! A comparison as a table.

use bulkmem_measure::engine::{CHANCE, Change, Comparison, Dimension, Identity, Side, Verdict};

use crate::figures::{candidate, config_value};
use crate::output::{BAD, Column, FAINT, GOOD, HEADING, Table, digits, signed, styled, wrapped};

/// The comparison in lines of at most `width` columns: a table for each measurement and metric, and what follows.
pub(super) fn text(found: &Comparison, all: bool, remarks: &[String], width: usize) -> String {
    let mut text = too_few(found).map_or_else(String::new, |line| wrapped(&line, "", width) + "\n\n");
    for of_kind in found.rows.chunk_by(|a, b| kind(&a.row) == kind(&b.row)) {
        let (measurement, metric) = kind(&of_kind[0].row);
        let heading = format!("{measurement}: {}, medians", metric.unit());
        text += &format!("{}\n{}\n", styled(HEADING, heading), table(of_kind).render(width));
    }
    let mut say = |line: &str| text += &format!("{}\n", wrapped(line, "", width));
    say(&summary(found));
    for (rows, name) in [(&found.only_old, "OLD"), (&found.only_new, "NEW")] {
        match rows.len() {
            0 => {}
            count if all => {
                say(&format!("Only in {name}: {}.", rows_of(count)));
                for row in rows {
                    say(&format!("  {}: {}", row.measurement, whole_name(row)));
                }
            }
            count => say(&format!("Only in {name}: {} (--all lists them).", rows_of(count))),
        }
    }
    for remark in remarks {
        say(&format!("Note: {remark}"));
    }
    if found.rows.iter().any(|row| !row.old.flags.is_empty() || !row.new.flags.is_empty()) {
        let note = "~ was doubtful where it was measured; the file's notes say why.";
        text += &format!("{}\n", styled(FAINT, wrapped(note, "", width)));
    }
    text
}

fn kind(row: &Identity) -> (bulkmem_measure::engine::Measurement, bulkmem_measure::engine::Metric) {
    (row.measurement, row.metric)
}

fn table(rows: &[Change]) -> Table {
    // Only what tells the rows apart.
    let varies =
        |key: &Dimension| rows.iter().any(|row| row.row.config.get(*key) != rows[0].row.config.get(*key));
    let keys: Vec<Dimension> = Dimension::ALL.into_iter().filter(varies).collect();
    let titles: Vec<&str> = keys.iter().map(|key| key.name()).collect();
    let mut columns = vec![Column::left("").prose()];
    if !keys.is_empty() {
        columns.push(Column::left(titles.join(", ").replace('_', " ")).prose());
    }
    columns.extend([
        Column::right("old"),
        Column::right("new"),
        Column::right("times"),
        Column::right("95 %").optional(1),
        Column::left("verdict"),
    ]);
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = vec![candidate(&row.row.candidate).replace('[', " [")];
        if !keys.is_empty() {
            let values = keys.iter().map(|key| config_value(&row.row.config, *key));
            cells.push(values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(", "));
        }
        let [low, high] = row.interval;
        let (change, interval) = match row.times {
            Some(times) => (format!("{times:.2}"), format!("{low:.2}–{high:.2}")),
            None => (signed(row.difference), format!("{}…{}", signed(low), signed(high))),
        };
        cells.extend([figure(&row.old), figure(&row.new), change, interval, verdict(row.verdict)]);
        table.row(cells);
    }
    table
}

/// A side's median, and whether it was doubtful.
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

/// What to do about rows without a verdict, and what can be said of them all the same.
fn too_few(found: &Comparison) -> Option<String> {
    let few = found.count(Verdict::TooFew);
    let which = match few {
        0 => return None,
        _ if few == found.rows.len() => "No row has a verdict".to_owned(),
        _ => format!("{} of {} have no verdict", few, rows_of(found.rows.len())),
    };
    Some(format!(
        "{which} (–): a verdict takes 5 samples on both sides. The ratios and their intervals are shown, and may be \
         chance. Measure both again with --runs 5 or more."
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

/// A number without zeros at the end.
fn number(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

fn rows_of(count: usize) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// A row's subject and place in one line.
fn whole_name(row: &Identity) -> String {
    let configs = Dimension::ALL.into_iter().filter_map(|key| {
        row.config.get(key)?;
        Some(format!("{} {}", key.name().replace('_', " "), config_value(&row.config, key)))
    });
    [candidate(&row.candidate)].into_iter().chain(configs).collect::<Vec<_>>().join(", ")
}
