//! Latency percentiles of single operations, in rows that have them.

use bulkmem_measure::engine::{Metric, Row};

use super::super::input::Machine;
use super::super::labels;
use super::super::layout::{details, hide_slow_methods, values, varying};
use super::super::model::{Axis, Cells, Chart, Grid, Point, Scale, Series, Shape, slug};
use crate::figures::candidate;
use crate::output::digits;
use crate::results::group;

/// Returns a chart for each configuration, with a line for each candidate.
pub(super) fn charts(machine: &Machine<'_>, measurement: &str, rows: &[&Row]) -> Vec<Chart> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| !percentiles(row).is_empty()).collect();
    let split = varying(&rows);
    let charts = group(rows, |row| values(row, &split)).into_iter().map(|(_, part)| {
        let config: Vec<String> = split.iter().map(|key| labels::in_title(part[0], *key)).collect();
        chart(machine, &format!("{measurement} latency {}", config.join(" ")), &config, &part)
    });
    charts.collect()
}

/// Returns the percentiles of a row, rising: 99.9, `p99.9`, and nanoseconds.
fn percentiles(row: &Row) -> Vec<(f64, String, f64)> {
    let parse = |name: &str| {
        let digits = name.strip_prefix('p')?.strip_suffix("_ns")?;
        // Names have no decimal point: p999 is 99.9.
        let digits = match digits.split_at_checked(2) {
            Some((whole, rest)) if !rest.is_empty() && !rest.starts_with('.') => format!("{whole}.{rest}"),
            _ => digits.to_owned(),
        };
        Some((digits.parse::<f64>().ok()?, format!("p{digits}")))
    };
    let named = row.also.iter().filter_map(|(name, ns)| parse(name).map(|(rank, name)| (rank, name, *ns)));
    let mut found: Vec<(f64, String, f64)> = named.collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

fn chart(machine: &Machine<'_>, name: &str, config: &[String], rows: &[&Row]) -> Chart {
    let mut ranks: Vec<(f64, String)> =
        rows.iter().flat_map(|row| percentiles(row)).map(|(rank, name, _)| (rank, name)).collect();
    ranks.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranks.dedup();
    let point = |(rank, _, ns): (f64, String, f64)| Point {
        x: ranks.iter().position(|it| it.0 == rank).unwrap_or_default() as f64,
        value: ns,
        interval: None,
        remark: String::new(),
    };
    let mut series: Vec<Series> = rows
        .iter()
        .map(|row| Series {
            name: candidate(&row.candidate),
            kind: row.candidate.kind,
            shown: true,
            points: percentiles(row).into_iter().map(point).collect(),
        })
        .collect();
    hide_slow_methods(&mut series, Metric::Nanoseconds);
    let columns = ranks.iter().map(|(_, name)| (name.as_str(), Cells::Numbers));
    let mut overview = Grid::new([("ns", Cells::Words)].into_iter().chain(columns));
    for row in rows {
        let own = percentiles(row);
        let cells = ranks
            .iter()
            .map(|(rank, _)| own.iter().find(|it| it.0 == *rank).map(|it| digits(it.2)).unwrap_or_default());
        overview.rows.push([candidate(&row.candidate)].into_iter().chain(cells).collect());
    }
    Chart {
        name: slug(&machine.titled(name)),
        title: machine.titled(&[&["Latency of one operation".to_owned()], config].concat().join(", ")),
        shape: Shape::Lines,
        higher_is_better: false,
        x_axis: Axis {
            name: "percentile".to_owned(),
            scale: Scale::Named(ranks.into_iter().map(|(_, name)| name).collect()),
        },
        y_axis: Axis { name: "time, ns".to_owned(), scale: Scale::Decades },
        series,
        marks: Vec::new(),
        group: name.to_owned(),
        folded: false,
        overview,
        details: details(rows),
    }
}
