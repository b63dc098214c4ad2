//! Rows as a table: subjects down, the values of one key across; a table for each combination of the other keys.

use std::fmt::Write as _;

use bulkmem_measure::Kind;
use bulkmem_measure::suite::{Key, Row};

use crate::figures::name_with;
use crate::output::{Column, FAINT, GOOD, HEADING, Table, exact_size, styled};

/// How to lay rows out.
pub(super) struct Pivot<'a> {
    /// What goes across.
    pub(super) across: Key,
    /// Whom to say the speed-up against, by name.
    pub(super) baseline: Option<&'a str>,
}

/// What a row's subject is called.
pub(super) fn name(row: &Row) -> String {
    match row.subject.kind {
        Kind::Policy => "the policy's choice".to_owned(),
        Kind::Read => "(reading)".to_owned(),
        Kind::Control => format!("({})", row.subject.name),
        Kind::Kernel => format!("kernel: {}", row.subject.name),
        Kind::Method | Kind::Peer => name_with(&row.subject.name, &row.subject.parameters),
    }
}

/// The value of a key, for people.
pub(super) fn value(row: &Row, key: Key) -> String {
    let text = row.place.get(key).unwrap_or_default();
    match text.parse() {
        Ok(bytes) if key.is_bytes() => exact_size(bytes),
        _ => text,
    }
}

/// A number to three digits.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Mean and standard deviation, as the sources print them.
fn mean_and_deviation(row: &Row) -> String {
    format!("{} ±{:.1}%", digits(row.stats.mean), row.stats.pstdev_percent())
}

impl Pivot<'_> {
    /// The tables, each under a heading, in lines of at most `width` columns.
    pub(super) fn text(&self, rows: &[&Row], width: usize) -> String {
        let mut text = String::new();
        // What varies besides the subject and what goes across tells the tables apart.
        let varies = |key: &Key| {
            *key != self.across && rows.iter().any(|row| row.place.get(*key) != rows[0].place.get(*key))
        };
        let apart: Vec<Key> = Key::ALL.into_iter().filter(varies).collect();
        let mut seen: Vec<Vec<Option<String>>> = Vec::new();
        for row in rows {
            let place: Vec<Option<String>> = apart.iter().map(|key| row.place.get(*key)).collect();
            if seen.contains(&place) {
                continue;
            }
            let of_place: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| apart.iter().zip(&place).all(|(key, value)| row.place.get(*key) == *value))
                .collect();
            text += &self.one(&of_place, &apart, width);
            seen.push(place);
        }
        text
    }

    fn one(&self, rows: &[&Row], apart: &[Key], width: usize) -> String {
        let row = rows[0];
        let mut heading = row.measurement.to_string();
        for key in apart {
            _ = write!(heading, ", {} {}", key.name().replace('_', " "), value(row, *key));
        }
        let mut text = format!("{}\n", styled(HEADING, format!("{heading}: {}", row.metric.unit())));
        let mut names: Vec<String> = Vec::new();
        let mut columns: Vec<String> = Vec::new();
        for row in rows {
            for (list, item) in [(&mut names, name(row)), (&mut columns, value(row, self.across))] {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        }
        let find = |of: &str, at: &str| {
            rows.iter().copied().find(|row| name(row) == of && value(row, self.across) == at)
        };
        let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        let cells = rows.iter().map(|row| mean_and_deviation(row).chars().count()).max().unwrap_or_default();
        // A mark, and the gap.
        let fit = (width.saturating_sub(widest) / (cells + 3)).max(1);
        for columns in columns.chunks(fit) {
            let titles = columns.iter().map(|title| Column::right(title.clone()));
            let mut table = Table::new([Column::left("")].into_iter().chain(titles));
            for of in &names {
                let cells = columns.iter().map(|at| match find(of, at) {
                    Some(row) if best(rows, self.across, at) == Some(row) => {
                        styled(GOOD, format!("{}*", mean_and_deviation(row)))
                    }
                    Some(row) => format!("{} ", mean_and_deviation(row)),
                    None => "– ".to_owned(),
                });
                table.row([of.clone()].into_iter().chain(cells));
            }
            text += &table.render(width);
            text.push('\n');
        }
        if let Some(baseline) = self.baseline.filter(|name| rows.iter().any(|row| row.subject.name == *name))
        {
            text += &self.speed_ups(rows, &names, &columns, baseline, width);
        }
        text
    }

    fn speed_ups(
        &self,
        rows: &[&Row],
        names: &[String],
        columns: &[String],
        baseline: &str,
        width: usize,
    ) -> String {
        let mut table = Table::new(
            [Column::left(format!("speed-up against {baseline}"))]
                .into_iter()
                .chain(columns.iter().map(Column::right)),
        );
        for of in names {
            let cells = columns.iter().map(|at| {
                let at_column = || rows.iter().filter(|row| value(row, self.across) == *at);
                let row = at_column().find(|row| name(row) == *of);
                let base = at_column().find(|row| row.subject.name == baseline);
                match (row, base) {
                    (Some(row), Some(base)) => {
                        let times = row.metric.times_as_good(row.stats.median, base.stats.median);
                        format!("{:+.1} %", (times - 1.0) * 100.0)
                    }
                    _ => "–".to_owned(),
                }
            });
            table.row([of.clone()].into_iter().chain(cells));
        }
        let note = "By medians. * marks the best of a column.";
        format!("{}{}\n\n", table.render(width), styled(FAINT, note))
    }
}

/// The best row of a column; reading and controls do not compete.
fn best<'r>(rows: &[&'r Row], across: Key, at: &str) -> Option<&'r Row> {
    let rivals = rows
        .iter()
        .copied()
        .filter(|row| value(row, across) == at && !matches!(row.subject.kind, Kind::Read | Kind::Control));
    rivals.reduce(|best, row| {
        if row.metric.times_as_good(row.stats.median, best.stats.median) > 1.0 { row } else { best }
    })
}
