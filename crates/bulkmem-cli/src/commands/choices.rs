//! The table of what a profile chooses and why, which `calibrate` and `report` print.

use bulkmem::method::Parameters;
use bulkmem::policy::Profile;
use bulkmem::{Intent, Operation};
use serde::Serialize;

use crate::figures::{self, cost_of, describe_parameters};
use crate::output::{Column, Table, exact_size, rate, ratio};

pub(super) const TITLES: [&str; 8] =
    ["operation", "intent", "from", "method", "parameters", "GB/s", "× C library", "why"];
pub(super) const NUMERIC: [bool; 8] = [false, false, true, false, false, true, true, false];

/// A rule, and what was measured of it.
#[derive(Debug, Serialize)]
pub(super) struct ChoiceRow {
    operation: Operation,
    intent: Intent,
    from: u64,
    method: String,
    parameters: Parameters,
    /// At the smallest length measured from there on.
    gb_per_s: Option<f64>,
    times_c_library: Option<f64>,
    reason: String,
}

/// The rules of a profile, with their figures.
pub(super) fn of(profile: &Profile) -> Vec<ChoiceRow> {
    let row = |rule: &bulkmem::policy::Rule| {
        let series = figures::plainest(profile, rule.operation, cost_of(rule.intent));
        let figure = series.as_ref().and_then(|series| series.behind(rule));
        let times = series.as_ref().zip(figure).map(|(series, figure)| series.times_c_library(figure));
        ChoiceRow {
            operation: rule.operation,
            intent: rule.intent,
            from: rule.from,
            method: rule.method.clone(),
            parameters: rule.parameters,
            gb_per_s: figure.map(|figure| figure.length as f64 / figure.median_ns),
            times_c_library: times.filter(|times| times.is_finite()),
            reason: rule.reason.clone(),
        }
    };
    profile.rules.iter().map(row).collect()
}

impl ChoiceRow {
    /// Under [`TITLES`].
    pub(super) fn cells(&self) -> [String; 8] {
        let speed = self.gb_per_s.map_or(f64::NAN, |speed| 1.0 / speed);
        [
            self.operation.to_string(),
            self.intent.to_string(),
            exact_size(self.from),
            self.method.clone(),
            describe_parameters(&self.parameters),
            rate(1, speed),
            ratio(self.times_c_library.unwrap_or(f64::NAN)),
            self.reason.clone(),
        ]
    }
}

/// The rows as a table.
pub(super) fn table(rows: &[ChoiceRow]) -> Table {
    let mut table = Table::new(TITLES.iter().zip(NUMERIC).map(|(title, number)| {
        let column = if number { Column::right(*title) } else { Column::left(*title) };
        match *title {
            "why" => column.prose().optional(2),
            "parameters" => column.prose().optional(1),
            _ => column,
        }
    }));
    for row in rows {
        table.row(row.cells());
    }
    table
}
