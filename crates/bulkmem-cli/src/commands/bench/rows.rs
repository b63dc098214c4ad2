//! Rows of results as tables show them: names, values, groups and marks.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Results, Row};

use crate::figures;
use crate::output::{digits, faint, wrapped};
use crate::results::group;

pub(super) const MARKS: &str = "* best by median; ~ doubtful: the notes say why.";

pub(super) fn name(row: &Row) -> String {
    figures::candidate(&row.candidate)
}

/// Returns a dimension of a row's configuration as text.
pub(super) fn value(row: &Row, dimension: Dimension) -> String {
    figures::config_value(&row.config, dimension)
}

/// Returns a further figure of a row, divided by `unit`; `–` if it has none of that name.
pub(super) fn also(row: &Row, name: &str, unit: f64) -> String {
    row.also.get(name).map_or("–".to_owned(), |figure| digits(figure / unit))
}

/// Returns the standard deviation, percent, and a mark if the row is doubtful: `±1.2% `, `±40.5%~`, `±? `.
pub(super) fn deviation(row: &Row) -> String {
    format!("±{}{}", figures::deviation(row), if row.flags.is_empty() { ' ' } else { '~' })
}

/// Returns each value once, in order of first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
    list
}

/// Groups rows by a key, in order of first appearance; no group is empty.
pub(super) fn group_by<'r, K: PartialEq>(
    rows: impl IntoIterator<Item = &'r Row>,
    key: impl Fn(&Row) -> K,
) -> Vec<Vec<&'r Row>> {
    group(rows, |row| key(row)).into_iter().map(|(_, group)| group).collect()
}

/// Returns a table for each configuration, and a note below them.
pub(super) fn tables_by_config<'r>(
    rows: impl Iterator<Item = &'r Row>,
    note: &str,
    width: usize,
    table: impl Fn(&[&Row], usize) -> String,
) -> String {
    let groups = group_by(rows, |row| row.config.clone());
    if groups.is_empty() {
        return String::new();
    }
    groups.iter().map(|group| table(group, width)).collect::<String>() + &faint(note, width) + "\n"
}

/// Returns true if a row competes for the best mark; reading and controls do not.
pub(super) fn competes(row: &Row) -> bool {
    !matches!(row.candidate.kind, Kind::Read | Kind::Control)
}

/// Returns true if no competing row of the group has a better median.
pub(super) fn is_best(group: &[&Row], row: &Row) -> bool {
    let beats = |other: &&&Row| {
        competes(other) && row.metric.times_as_good(other.stats.median, row.stats.median) > 1.0
    };
    competes(row) && !group.iter().any(|other| beats(&other))
}

/// Returns findings and notes, which stand below every table.
pub(crate) fn remarks(found: &Results, width: usize) -> String {
    let findings = found.findings.iter().map(|finding| finding.text.clone());
    let notes = found.notes.iter().map(|note| format!("Note: {note}"));
    findings.chain(notes).map(|text| wrapped(&text, "", width) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_once() {
        assert_eq!(distinct(vec![3, 1, 3, 2, 1]), [3, 1, 2]);
    }

    #[test]
    fn rows_of_one_configuration_are_one_group() {
        let row = |name: &str, list: Option<u64>| -> Row {
            serde_json::from_value(serde_json::json!({
                "measurement": "pollution", "candidate": { "kind": Kind::Method, "name": name },
                "config": { "list": list }, "metric": "growth", "samples": [1.0],
                "stats": bulkmem_measure::stats::Stats::of(&[1.0]),
            }))
            .expect("a row")
        };
        let rows = [row("a", None), row("b", Some(1)), row("c", None)];
        let names =
            |group: &Vec<&Row>| group.iter().map(|row| row.candidate.name.clone()).collect::<Vec<_>>();
        let groups = group_by(&rows, |row| row.config.clone());
        assert_eq!(groups.iter().map(names).collect::<Vec<_>>(), [vec!["a", "c"], vec!["b"]]);
    }
}
