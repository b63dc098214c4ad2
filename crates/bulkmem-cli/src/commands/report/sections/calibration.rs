//! The rules that calibration derived, and the measurements that support them.

use bulkmem::Intent;
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Cost, Figure, Profile};
use bulkmem_measure::engine::{LIBPMEM, Metric};

use super::super::input::Machine;
use super::super::layout::{hide_slow_methods, marks};
use super::super::model::{Axis, Chart, Grid, Point, Scale, Section, Series};
use crate::commands::choices;
use crate::figures::{self, Series as Measured, describe_condition, describe_cost, name_with, rule_at};
use crate::output::{exact_size, rate, ratio};
use crate::results::group;

const CHOICE: &str = "the policy's choice";

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section {
        id: "calibration",
        title: "The policy, and the reasons for it",
        intro: &[
            "Calibration measures every method at many lengths and derives the rules below, for each operation and \
                  intent: from this length on, use this method. The intent says how the bytes are used next: unknown \
                  (throughput), read soon (reuse), or not read soon, so that the cache is left to others (stream). Where \
                  the cache state of the memory matters, the operation finds it out by the time that stores to a few \
                  lines take (cached, uncached).",
        ],
        ..Section::default()
    };
    for machine in machines {
        let Some(profile) = machine.profile else { continue };
        let rules = choices::of(profile).into_iter().map(|row| {
            let kind = [row.operation.to_string(), row.situation.to_string()];
            kind.into_iter().chain(row.cells()).chain([row.why()]).collect()
        });
        section.tables.push(Grid {
            title: machine.titled("The rules"),
            caption: "Speeds are the slowest and the fastest of the lengths that a rule covers; ratios are their geometric \
                      mean.",
            ..Grid::new("operation|intent or state|from:|method|GB/s:|× C library:|reason¶", rules)
        });
        section.charts.extend(figures::all(profile).iter().filter_map(|it| chart(machine, profile, it)));
    }
    (!section.tables.is_empty()).then_some(section)
}

fn chart(machine: &Machine<'_>, profile: &Profile, measured: &Measured<'_>) -> Option<Chart> {
    let Measured { operation, cost, condition, .. } = *measured;
    let intent = Intent::ALL.into_iter().find(|it| Cost::of(*it) == cost)?;
    let condition = describe_condition(condition);
    let series = series(profile, measured, intent);
    if series.is_empty() {
        return None;
    }
    Some(Chart {
        higher_is_better: true,
        x_axis: Axis { name: "length".to_owned(), scale: Scale::Bytes },
        y_axis: Axis { name: format!("GB/s: {}", describe_cost(cost)), scale: Scale::Linear },
        marks: marks(machine.provenance.caches, &series),
        overview: overview(&series, measured),
        series,
        // The others would make the page too long.
        folded: !(cost == Cost::Throughput && condition.starts_with("aligned, cold, 1 ")),
        details: details(measured),
        ..machine.chart(
            &format!("calibration {operation} {intent} {condition}"),
            &format!("Calibration: {operation}, {intent}, {condition}"),
        )
    })
}

/// Returns the policy's choice, then the library to compare with, then the other methods, each with its best parameters.
fn series(profile: &Profile, measured: &Measured<'_>, intent: Intent) -> Vec<Series> {
    let point = |figure: &Figure, remark: String| {
        // Quartiles are not an interval of the median: they are not drawn.
        let [high, low] = figure.quartiles_ns.map(|ns| rate(figure.length, ns));
        let remark = if remark.is_empty() { remark } else { remark + "; " };
        Point {
            x: figure.length as f64,
            value: figure.length as f64 / figure.median_ns,
            interval: None,
            remark: format!("{remark}quartiles {low}–{high}"),
        }
    };
    let lengths = measured.lengths();
    let chosen = lengths.iter().filter_map(|&length| {
        let rule = rule_at(profile, measured.operation, intent, length)?;
        let figure = measured.of(length, &rule.method, &rule.parameters)?;
        Some(point(figure, name_with(&rule.method, &rule.parameters)))
    });
    let series = |name, kind, points| Series { name, kind, shown: true, points };
    let choice = series(CHOICE.to_owned(), Kind::Policy, chosen.collect());
    let figures = lengths.iter().flat_map(|length| measured.ranking(*length));
    let others = group(figures, |figure| figure.method.clone()).into_iter().map(|(name, figures)| {
        let peers = [figures::library(measured.operation).0, LIBPMEM];
        let kind = if peers.contains(&name.as_str()) { Kind::Peer } else { Kind::Method };
        let points = figures.iter().map(|it| point(it, figures::describe_parameters(&it.parameters)));
        series(name, kind, points.collect())
    });
    let mut series: Vec<Series> = [choice].into_iter().chain(others).collect();
    series.retain(|it| !it.points.is_empty());
    series.sort_by_key(|it| it.kind == Kind::Method);
    hide_slow_methods(&mut series, Metric::Bandwidth);
    series
}

/// Returns the policy's choice, the library to compare with, and the best method at each length.
fn overview(series: &[Series], measured: &Measured<'_>) -> Grid {
    let at = |name: &str, length: u64| {
        let mut points = series.iter().filter(|it| it.name == name).flat_map(|it| &it.points);
        let point = points.find(|point| point.x == length as f64);
        point.map_or_else(|| "–".to_owned(), |point| rate(1, 1.0 / point.value))
    };
    let (name, words) = figures::library(measured.operation);
    let rows = measured.lengths().into_iter().filter_map(|length| {
        let best = measured.best(length)?;
        Some(vec![
            exact_size(length),
            at(CHOICE, length),
            at(name, length),
            rate(length, best.median_ns),
            name_with(&best.method, &best.parameters),
        ])
    });
    let titles = format!("length:|the policy's choice, GB/s:|{words}, GB/s:|best, GB/s:|best method");
    Grid::new(&titles, rows)
}

fn details(measured: &Measured<'_>) -> Grid {
    let (name, words) = figures::library(measured.operation);
    let figures = measured.lengths().into_iter().flat_map(|length| measured.ranking(length));
    let rows = figures.map(|figure| {
        vec![
            exact_size(figure.length),
            name_with(&figure.method, &figure.parameters),
            rate(figure.length, figure.median_ns),
            ratio(measured.times(figure, name).unwrap_or(f64::NAN)),
            figure.quartiles_ns.map(|ns| format!("{ns:.0}")).join("–"),
            figure.samples.to_string(),
        ]
    });
    Grid::new(&format!("length:|method|GB/s:|× {words}:|quartiles, ns:|samples:"), rows)
}
