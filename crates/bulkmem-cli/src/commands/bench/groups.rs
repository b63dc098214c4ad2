//! Rows that were measured in turns, and so stand in one table.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Config, Row};

use crate::figures;

/// The rows of one table; never empty.
pub(super) type Group<'r> = Vec<&'r Row>;

/// Rows by place, whatever the width of stores, in the order in which they were measured.
pub(super) fn groups<'r>(rows: &[&'r Row]) -> Vec<Group<'r>> {
    let config = |row: &Row| Config { width: None, ..row.config.clone() };
    let mut groups: Vec<Group<'r>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| config(group[0]) == config(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The standard deviation, percent, and a mark where the row is doubtful: `±1.2% `, `±40.5%~`, `±? `.
pub(super) fn deviation(row: &Row) -> String {
    format!("±{}{}", figures::deviation(row), if row.flags.is_empty() { ' ' } else { '~' })
}

/// What the marks in a table mean.
pub(super) const MARKS: &str = "* the best, by median; ~ doubtful, as the notes say.";

/// Whether nobody else in the group has a better median; reading and controls do not compete.
pub(super) fn is_best(group: &Group<'_>, row: &Row) -> bool {
    let competes = |row: &Row| !matches!(row.candidate.kind, Kind::Read | Kind::Control);
    let beats = |other: &&&Row| {
        competes(other) && row.metric.times_as_good(other.stats.median, row.stats.median) > 1.0
    };
    competes(row) && !group.iter().any(|other| beats(&other))
}
