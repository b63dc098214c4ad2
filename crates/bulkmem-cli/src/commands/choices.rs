//! The table of what a profile chooses and why, which `calibrate` and `report` print.

use bulkmem::method::Parameters;
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Profile, Rule};
use bulkmem_measure::{cost_of, stats::geometric_mean};
use serde::Serialize;

use crate::figures::{self, describe_parameters};
use crate::output::{Column, HEADING, Table, rate, ratio, size, styled};
use crate::plain::plain;

/// A rule, and what was measured of it.
#[derive(Debug, Serialize)]
pub(super) struct ChoiceRow {
    pub(super) operation: Operation,
    pub(super) intent: Intent,
    from: u64,
    method: String,
    parameters: Parameters,
    /// The slowest and the fastest of the lengths that it holds for.
    gb_per_s: Option<[f64; 2]>,
    /// Geometric mean over those lengths.
    times_c_library: Option<f64>,
    reason: String,
    /// Whether anything was measured of what the intent asks for.
    #[serde(skip)]
    measured: bool,
}

/// The rules of a profile, with their figures.
pub(super) fn of(profile: &Profile) -> Vec<ChoiceRow> {
    let rows = profile.rules.iter().enumerate().map(|(at, rule)| {
        let same = |next: &&Rule| (next.operation, next.intent) == (rule.operation, rule.intent);
        let to = profile.rules.get(at + 1).filter(same).map_or(u64::MAX, |next| next.from);
        let all = figures::of_kind(profile, rule.operation, cost_of(rule.intent));
        // The plainest condition in which lengths were measured that it holds for.
        let within = all.iter().find_map(|series| {
            let figures = series.along(&rule.method, &rule.parameters);
            let within: Vec<_> = figures.filter(|figure| (rule.from..to).contains(&figure.length)).collect();
            (!within.is_empty()).then_some((series, within))
        });
        let figures =
            || within.iter().flat_map(|(series, figures)| figures.iter().map(move |it| (series, it)));
        let speeds: Vec<f64> = figures().map(|(_, it)| it.length as f64 / it.median_ns).collect();
        let times = figures().map(|(series, it)| series.times_c_library(it));
        ChoiceRow {
            operation: rule.operation,
            intent: rule.intent,
            from: rule.from,
            method: rule.method.clone(),
            parameters: rule.parameters,
            gb_per_s: (!speeds.is_empty()).then(|| {
                [
                    speeds.iter().copied().fold(f64::INFINITY, f64::min),
                    speeds.iter().copied().fold(0.0, f64::max),
                ]
            }),
            times_c_library: geometric_mean(times.filter(|times| times.is_finite())),
            reason: rule.reason.clone(),
            measured: !all.is_empty(),
        }
    });
    rows.collect()
}

impl ChoiceRow {
    /// Smallest length, method, GB/s, times the C library.
    pub(super) fn cells(&self) -> [String; 4] {
        let speed = |speed: f64| rate(1, 1.0 / speed);
        [
            size(self.from),
            self.method.clone(),
            match self.gb_per_s.map(|range| range.map(speed)) {
                None => "–".to_owned(),
                Some([slowest, fastest]) if slowest == fastest => slowest,
                Some([slowest, fastest]) => format!("{slowest}–{fastest}"),
            },
            ratio(self.times_c_library.unwrap_or(f64::NAN)),
        ]
    }

    /// With which parameters, and why.
    pub(super) fn why(&self) -> String {
        match describe_parameters(&self.parameters) {
            none if none.is_empty() => plain(&self.reason),
            parameters => format!("with {parameters}: {}", plain(&self.reason)),
        }
    }
}

/// The rows as tables, one for each operation and intent that was measured.
pub(super) fn text(rows: &[ChoiceRow], width: usize) -> String {
    let groups = rows.chunk_by(|a, b| (a.operation, a.intent) == (b.operation, b.intent));
    let group = |rows: &[ChoiceRow]| {
        let heading = styled(HEADING, format!("{}, intent {}", rows[0].operation, rows[0].intent));
        if !rows[0].measured {
            return format!("{heading}\nas for throughput: this was not measured by itself\n\n");
        }
        let mut table = Table::new([
            Column::right("from"),
            Column::left("method"),
            Column::right("GB/s"),
            Column::right("× C library"),
        ]);
        for row in rows {
            table.row(row.cells());
            table.remark(&row.why());
        }
        format!("{heading}\n{}\n", table.render(width))
    };
    groups.map(group).collect()
}
