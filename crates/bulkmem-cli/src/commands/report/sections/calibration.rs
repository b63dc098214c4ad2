//! What calibration chose, and why.

use bulkmem::Intent;
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Cost, Profile};
use bulkmem_measure::engine::Metric;

use super::super::input::Machine;
use super::super::lay;
use super::super::model::{Axis, Chart, Grid, Holds, Point, Scale, Section, Series, Shape, Table, slug};
use super::super::names::capital;
use crate::commands::choices;
use crate::figures::{self, Series as Measured, describe_condition, describe_cost, name_with};
use crate::output::{exact_size, rate, ratio};

pub(super) fn section(machines: &[Machine<'_>]) -> Option<Section> {
    let mut section = Section::new(
        "calibration",
        "What was chosen, and why",
        &[
            "Calibration measured every method at many lengths and kept, for each operation and intent, the rules \
             below: from a length on, use this method. The intent says what happens to the bytes next: nothing is \
             known (throughput), they are read soon (reuse), or they are not, and the cache is left to others \
             (stream).",
        ],
    );
    for machine in machines {
        let Some(profile) = machine.profile else { continue };
        let machine_name = (machines.len() > 1).then_some(machine.label.as_str());
        section.tables.push(Table {
            title: ["The rules"].into_iter().chain(machine_name).collect::<Vec<_>>().join(", "),
            caption:
                "Speeds and ratios are the slowest and the fastest of the lengths that a rule holds for."
                    .into(),
            grid: rules(profile),
        });
        for measured in figures::all(profile) {
            section.charts.extend(chart(machine, profile, &measured, machine_name));
        }
    }
    (!section.tables.is_empty()).then_some(section)
}

fn rules(profile: &Profile) -> Grid {
    let mut grid = Grid::new([
        ("operation", Holds::Words),
        ("intent", Holds::Words),
        ("from", Holds::Numbers),
        ("method", Holds::Words),
        ("GB/s", Holds::Numbers),
        ("× C library", Holds::Numbers),
        ("why", Holds::Prose),
    ]);
    for row in choices::of(profile) {
        let config = [row.operation.to_string(), row.intent.to_string()];
        grid.rows.push(config.into_iter().chain(row.cells()).chain([row.why()]).collect());
    }
    grid
}

fn chart(
    machine: &Machine<'_>,
    profile: &Profile,
    measured: &Measured<'_>,
    of: Option<&str>,
) -> Option<Chart> {
    let intent = match measured.cost {
        Cost::Throughput => Intent::Throughput,
        Cost::Reuse => Intent::Reuse,
        Cost::Stream => Intent::Stream,
    };
    let condition = describe_condition(measured.condition);
    let series = lines(profile, measured, intent);
    if series.iter().all(|it| it.points.is_empty()) {
        return None;
    }
    let title = format!("{}, {intent}: {condition}", capital(measured.operation.name()));
    let name = format!("calibration {} {intent} {condition} {}", measured.operation, of.unwrap_or_default());
    Some(Chart {
        name: slug(&name),
        title: [title.as_str()].into_iter().chain(of).collect::<Vec<_>>().join(", "),
        shape: Shape::Lines,
        more: true,
        configs: Axis { name: "length".to_owned(), scale: Scale::Bytes },
        values: Axis { name: format!("GB/s: {}", describe_cost(measured.cost)), scale: Scale::Even },
        marks: lay::marks(machine.caches, &series),
        brief: brief(&series, measured),
        series,
        group: format!("{} {intent} {condition}", measured.operation),
        // The plainest first; nobody wants to scroll through all the others.
        folded: !(measured.cost == Cost::Throughput && condition.starts_with("aligned, cold, 1 ")),
        figures: figure_grid(measured),
    })
}

/// The choice first, then the C library, then the others.
fn lines(profile: &Profile, measured: &Measured<'_>, intent: Intent) -> Vec<Series> {
    let point = |length: u64, nanoseconds: f64, quartiles: [f64; 2], remark: String| {
        let speed = |ns: f64| length as f64 / ns;
        let [low, high] = quartiles;
        // A quartile is not the interval of the median: it is said, not drawn.
        let remark = [remark, format!("quartiles {}–{}", rate(length, high), rate(length, low))];
        let remark = remark.iter().filter(|it| !it.is_empty()).cloned().collect::<Vec<_>>().join("; ");
        Point { config: length as f64, value: speed(nanoseconds), interval: None, remark }
    };
    let lengths = measured.lengths();
    let chosen = lengths.iter().filter_map(|&length| {
        let rule = figures::rule_at(profile, measured.operation, intent, length)?;
        let figure = measured.of(length, &rule.method, &rule.parameters)?;
        Some(point(length, figure.median_ns, figure.quartiles_ns, name_with(&rule.method, &rule.parameters)))
    });
    let c_library = bulkmem::method::c_library().name;
    let mut series = vec![Series {
        name: "bulkmem's choice".to_owned(),
        kind: Kind::Policy,
        shown: true,
        points: chosen.collect(),
    }];
    for &length in &lengths {
        for figure in measured.ranking(length) {
            let own = figure.method == c_library;
            let name = if own { "C library" } else { figure.method.as_str() };
            let with = name_with(&figure.method, &figure.parameters);
            let remark = if with == figure.method { String::new() } else { with };
            let point = point(length, figure.median_ns, figure.quartiles_ns, remark);
            match series.iter_mut().find(|it| it.name == name) {
                Some(known) => known.points.push(point),
                None => {
                    let kind = if own { Kind::Peer } else { Kind::Method };
                    series.push(Series { name: name.to_owned(), kind, shown: true, points: vec![point] });
                }
            }
        }
    }
    series.retain(|it| !it.points.is_empty());
    series.sort_by_key(|it| it.kind != Kind::Policy && it.kind != Kind::Peer);
    lay::choose_shown(&mut series, Metric::Bandwidth);
    series
}

/// The choice, the C library, and the best, at each length.
fn brief(series: &[Series], measured: &Measured<'_>) -> Grid {
    let mut grid = Grid::new([
        ("length", Holds::Numbers),
        ("bulkmem's choice, GB/s", Holds::Numbers),
        ("C library, GB/s", Holds::Numbers),
        ("best, GB/s", Holds::Numbers),
        ("best method", Holds::Words),
    ]);
    let at = |name: &str, length: u64| {
        let points = series.iter().filter(|it| it.name == name).flat_map(|it| &it.points);
        let point = points.into_iter().find(|point| point.config == length as f64);
        point.map_or_else(|| "–".to_owned(), |point| rate(1, 1.0 / point.value))
    };
    for length in measured.lengths() {
        let Some(best) = measured.ranking(length).first().copied() else { continue };
        grid.rows.push(vec![
            exact_size(length),
            at("bulkmem's choice", length),
            at("C library", length),
            rate(length, best.median_ns),
            name_with(&best.method, &best.parameters),
        ]);
    }
    grid
}

fn figure_grid(measured: &Measured<'_>) -> Grid {
    let mut grid = Grid::new([
        ("length", Holds::Numbers),
        ("method", Holds::Words),
        ("GB/s", Holds::Numbers),
        ("× C library", Holds::Numbers),
        ("quartiles, ns", Holds::Numbers),
        ("samples", Holds::Numbers),
    ]);
    for length in measured.lengths() {
        for figure in measured.ranking(length) {
            let [low, high] = figure.quartiles_ns;
            grid.rows.push(vec![
                exact_size(length),
                name_with(&figure.method, &figure.parameters),
                rate(length, figure.median_ns),
                ratio(measured.times_c_library(figure)),
                format!("{low:.0}–{high:.0}"),
                figure.samples.to_string(),
            ]);
        }
    }
    grid
}
