//! Rows of results as tables show them: names, values, groups, marks, and differences from a control.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Config, Contrast, Dimension, Results, Row, control_of};

use crate::figures;
use crate::output::{FAINT, digits, faint, marked, styled, wrapped};
use crate::results::group;

pub(super) const MARKS: &str = "* best by median; ~ doubtful: the notes say why.";
pub(super) const DOUBTFUL: &str = "~ doubtful: the notes say why.";
const INDISTINCT: &str = "not distinguishable here";

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

/// Returns the difference of a row from the control of that name and its interval, as `number` formats them, with a mark
/// if no competing row is nearer to the control, within the noise.
pub(super) fn beyond(rows: &[&Row], control: &str, row: &Row, number: impl Fn(f64) -> String) -> String {
    if row.candidate.kind == Kind::Control && row.candidate.name == control {
        return styled(FAINT, "the control ");
    }
    let Some(found) = contrast(rows, control, row) else { return "– ".to_owned() };
    if !found.enough {
        return "too few runs to tell ".to_owned();
    }
    let [by, low, high] = [found.by, found.interval[0], found.interval[1]].map(number);
    let text =
        if found.distinguishable() { format!("{by} ({low} to {high})") } else { INDISTINCT.to_owned() };
    marked(&text, is_nearest(rows, control, row))
}

/// Returns true if no competing row is nearer to the control of that name, within the noise.
pub(super) fn is_nearest(rows: &[&Row], control: &str, row: &Row) -> bool {
    // Rows that are not distinguishable from the control are equal.
    let rank = |contrast: Contrast| if contrast.distinguishable() { contrast.by.max(0.0) } else { 0.0 };
    let Some(found) = contrast(rows, control, row).filter(|it| competes(row) && it.enough) else {
        return false;
    };
    let rivals = rows.iter().filter(|rival| competes(rival));
    rivals.filter_map(|rival| contrast(rows, control, rival)).all(|rival| rank(found) <= rank(rival))
}

fn contrast(rows: &[&Row], control: &str, row: &Row) -> Option<Contrast> {
    Contrast::of(row, control_of(rows, row, control)?)
}

/// Returns the name of a row's candidate, without parameters if no other row has the same name.
pub(super) fn short_name(row: &Row, among: &[&Row]) -> String {
    let alike = among.iter().filter(|other| other.candidate.name == row.candidate.name).count();
    if alike == 1 && matches!(row.candidate.kind, Kind::Method | Kind::Peer) {
        return row.candidate.name.clone();
    }
    name(row)
}

/// Returns the rows without the dimensions that follow from the target, to be compared by target.
pub(super) fn by_target<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<Row> {
    let config = |row: &Row| Config {
        size: None,
        page_size: None,
        attribute: None,
        durable: None,
        content: None,
        ..row.config.clone()
    };
    rows.into_iter().map(|row| Row { config: config(row), ..row.clone() }).collect()
}

/// Returns findings and notes, which stand below every table.
pub(crate) fn remarks(found: &Results, width: usize) -> String {
    let findings = found.findings.iter().map(|finding| finding.text.clone());
    let notes = found.notes.iter().map(|note| format!("Note: {note}"));
    findings.chain(notes).map(|text| wrapped(&text, "", width) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::engine::distinct;
    use bulkmem_measure::measurements::SAME_TIME;

    use super::*;
    use crate::output::signed;

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

    fn row(kind: Kind, name: &str, growth: f64) -> Row {
        let samples: Vec<f64> = [-2.0, -1.0, 0.0, 1.0, 2.0].iter().map(|noise| growth + noise).collect();
        serde_json::from_value(serde_json::json!({
            "measurement": "pollution",
            "candidate": { "kind": kind, "name": name },
            "config": {},
            "metric": "growth",
            "samples": samples,
            "stats": bulkmem_measure::stats::Stats::of(&samples),
        }))
        .expect("a row")
    }

    #[test]
    fn those_who_cannot_be_told_from_the_control_are_the_best() {
        let rows = [
            row(Kind::Method, "quiet", 0.5),
            row(Kind::Method, "quieter", -0.5),
            row(Kind::Method, "loud", 300.0),
            row(Kind::Control, SAME_TIME, 0.0),
            row(Kind::Control, "other", -9.0),
        ];
        let of = |rows: &[&Row], row: &Row| beyond(rows, SAME_TIME, row, signed);
        let all: Vec<&Row> = rows.iter().collect();
        let cell = |at: usize| anstream::adapter::strip_str(&of(&all, &rows[at])).to_string();
        assert_eq!((cell(0), cell(1)), (format!("{INDISTINCT}*"), format!("{INDISTINCT}*")));
        assert!(cell(2).starts_with("+300 (+29") && cell(2).ends_with(") "), "{}", cell(2));
        assert_eq!(cell(3), "the control ");
        assert!(cell(4).starts_with("-9.00 (") && cell(4).ends_with(") "), "{}", cell(4));
        assert!(of(&[&rows[2], &rows[3]], &rows[2]).contains(")*"), "the least of the loud");
        let helpful = row(Kind::Method, "helpful", -300.0);
        let helped = [&rows[0], &rows[3], &helpful];
        assert!(of(&helped, &rows[0]).contains('*') && of(&helped, &helpful).contains('*'));
        assert_eq!(of(&[&rows[2]], &rows[2]), "– ");
    }

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let mut rows =
            [row(Kind::Method, "a", 1.0), row(Kind::Method, "b", 1.0), row(Kind::Control, "c", 1.0)];
        for row in &mut rows {
            row.candidate.parameters.set("write_distance", 64);
        }
        let short = |at: usize, among: &[&Row]| short_name(&rows[at], among);
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!((short(0, &all), short(2, &all)), ("a".into(), "(c)".into()));
        assert_eq!(short(0, &[&rows[0], &rows[0]]), "a[write_distance=64]");
    }
}
