//! The choices of a profile and their reasons, as `calibrate` and `report` show them.

use std::cmp::Reverse;

use bulkmem::Operation;
use bulkmem::method::{Parameters, c_library};
use bulkmem::policy::Situation;
use bulkmem_measure::calibration::{Cost, Profile, Rule};
use bulkmem_measure::stats::geometric_mean;
use serde::Serialize;

use crate::figures::{self, describe_parameters};
use crate::output::{Column, Table, digits, section, size};
use crate::plain::plain;

/// A rule with its measurements.
#[derive(Debug, Serialize)]
pub(super) struct ChoiceRow {
    pub(super) operation: Operation,
    pub(super) situation: Situation,
    from: u64,
    method: String,
    parameters: Parameters,
    /// The slowest and the fastest over the lengths of the rule.
    gb_per_s: Option<[f64; 2]>,
    /// Geometric mean over the lengths of the rule.
    times_c_library: Option<f64>,
    reason: String,
    /// True if the intent was measured separately.
    #[serde(skip)]
    measured: bool,
}

/// Returns the rules of a profile with their measurements.
pub(super) fn of(profile: &Profile) -> Vec<ChoiceRow> {
    let row = |(at, rule): (usize, &Rule)| {
        let same = |next: &&Rule| (next.operation, next.situation) == (rule.operation, rule.situation);
        let to = profile.rules.get(at + 1).filter(same).map_or(u64::MAX, |next| next.from);
        let mut all = figures::of_kind(profile, rule.operation, Cost::of(rule.situation));
        match rule.situation {
            Situation::Cached | Situation::CachedReuse => all.retain(|series| series.condition.warm),
            Situation::UncachedReuse => all.retain(|series| !series.condition.warm),
            Situation::SeveralThreads => all.sort_by_key(|series| Reverse(series.condition.threads)),
            _ => {}
        }
        // GB/s and speed-up at each length, in the plainest condition that was measured.
        let of_series = |series: &figures::Series<'_>| -> Vec<(f64, Option<f64>)> {
            let figures = series.along(&rule.method, &rule.parameters);
            let within = figures.filter(|figure| (rule.from..to).contains(&figure.length));
            within.map(|it| (it.length as f64 / it.median_ns, series.times(it, c_library().name))).collect()
        };
        let figures = all.iter().map(of_series).find(|figures| !figures.is_empty()).unwrap_or_default();
        let (speeds, times): (Vec<f64>, Vec<_>) = figures.into_iter().unzip();
        let slowest = speeds.iter().copied().reduce(f64::min);
        ChoiceRow {
            operation: rule.operation,
            situation: rule.situation,
            from: rule.from,
            method: rule.method.clone(),
            parameters: rule.parameters,
            gb_per_s: slowest.map(|slowest| [slowest, speeds.iter().copied().fold(slowest, f64::max)]),
            times_c_library: geometric_mean(times.into_iter().flatten()),
            reason: rule.reason.clone(),
            measured: !all.is_empty(),
        }
    };
    profile.rules.iter().enumerate().map(row).collect()
}

impl ChoiceRow {
    /// Returns smallest length, method, GB/s, and speed-up over the C library.
    pub(super) fn cells(&self) -> [String; 4] {
        let speed = match self.gb_per_s.map(|range| range.map(digits)) {
            None => "–".to_owned(),
            Some([slowest, fastest]) if slowest == fastest => slowest,
            Some([slowest, fastest]) => format!("{slowest}–{fastest}"),
        };
        let times = digits(self.times_c_library.unwrap_or(f64::NAN));
        [size(self.from), self.method.clone(), speed, times]
    }

    /// Returns the parameters and the reason.
    pub(super) fn why(&self) -> String {
        match describe_parameters(&self.parameters) {
            none if none.is_empty() => plain(&self.reason),
            parameters => format!("with {parameters}: {}", plain(&self.reason)),
        }
    }
}

fn heading(operation: Operation, situation: Situation) -> String {
    match situation {
        Situation::Cached | Situation::Uncached => format!("{operation}, if a look finds memory {situation}"),
        Situation::SeveralThreads => {
            format!("{operation} on several threads, if a look finds memory uncached")
        }
        Situation::UncachedReuse => format!("{operation}, intent reuse, if a look finds memory uncached"),
        Situation::CachedReuse => format!("{operation}, intent reuse, if a look finds memory cached"),
        intent => format!("{operation}, intent {intent}"),
    }
}

pub(super) fn text(rows: &[ChoiceRow], width: usize) -> String {
    let group = |rows: &[ChoiceRow]| {
        let mut text = "as for throughput: this was not measured separately\n".to_owned();
        if rows[0].measured {
            text = Table::of(rows.iter().map(|row| (row.cells(), row.why())))
                .column(Column::right("from"), |(cells, _)| cells[0].clone())
                .column(Column::left("method"), |(cells, _)| cells[1].clone())
                .column(Column::right("GB/s"), |(cells, _)| cells[2].clone())
                .column(Column::right("× C library"), |(cells, _)| cells[3].clone())
                .remarks(|(_, why)| why.clone())
                .render(width);
        }
        section(&heading(rows[0].operation, rows[0].situation), &text, width)
    };
    rows.chunk_by(|a, b| (a.operation, a.situation) == (b.operation, b.situation)).map(group).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_situation_has_a_heading_of_its_own() {
        let headings: BTreeSet<String> = Situation::ALL.map(|it| heading(Operation::Copy, it)).into();
        assert_eq!(headings.len(), Situation::ALL.len(), "{headings:?}");
    }
}
