//! What a report says, before it has a format.

use bulkmem::Intent;
use bulkmem::policy::{Cost, Profile};

use super::plot::Line;
use crate::commands::choices;
use crate::figures::{self, Series, describe_condition, describe_cost, name_with};
use crate::output::{exact_size, rate, ratio};
use crate::provenance;

/// Other methods that a plot shows besides the choice and the C library.
const OTHERS: usize = 4;

/// A report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) choices: Grid,
    pub(super) sections: Vec<Section>,
}

/// What was measured of one operation under one condition.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) caption: String,
    pub(super) lines: Vec<Line>,
    pub(super) figures: Grid,
}

/// A table.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) columns: Vec<(&'static str, Holds)>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Words,
    Numbers,
    Prose,
}

impl Report {
    pub(super) fn of(profile: &Profile) -> Report {
        let provenance = &profile.provenance;
        Report {
            title: format!("bulkmem on {}", provenance.cpu.name),
            summary: format!(
                "Measured on {} in {:.0} s, from {} samples.{}",
                provenance.date.split('T').next().unwrap_or_default(),
                provenance.seconds,
                provenance.samples,
                if provenance.complete {
                    ""
                } else {
                    " Calibration was interrupted: not everything was measured."
                },
            ),
            machine: provenance::rows(provenance),
            choices: choice_grid(profile),
            sections: figures::all(profile).iter().map(|series| section(profile, series)).collect(),
        }
    }
}

fn choice_grid(profile: &Profile) -> Grid {
    let rows = choices::of(profile).into_iter().map(|row| {
        let place = [row.operation.to_string(), row.intent.to_string()];
        place.into_iter().chain(row.cells()).chain([row.why()]).collect()
    });
    Grid {
        columns: vec![
            ("operation", Holds::Words),
            ("intent", Holds::Words),
            ("from", Holds::Numbers),
            ("method", Holds::Words),
            ("GB/s", Holds::Numbers),
            ("× C library", Holds::Numbers),
            ("why", Holds::Prose),
        ],
        rows: rows.collect(),
    }
}

fn section(profile: &Profile, series: &Series<'_>) -> Section {
    let intent = match series.cost {
        Cost::Throughput => Intent::Throughput,
        Cost::Reuse => Intent::Reuse,
        Cost::Stream => Intent::Stream,
    };
    let operation = series.operation;
    let mut title = operation.name().to_owned();
    title[..1].make_ascii_uppercase();
    Section {
        title: format!("{title}, {intent}: {}", describe_condition(series.condition)),
        caption: format!("GB/s over length. The time is that of {}.", describe_cost(series.cost)),
        lines: lines(profile, series, intent),
        figures: figure_grid(series),
    }
}

/// The choice first, then the C library, then the best others.
fn lines(profile: &Profile, series: &Series<'_>, intent: Intent) -> Vec<Line> {
    let speed = |length: u64, nanoseconds: f64| (length, length as f64 / nanoseconds);
    let lengths = series.lengths();
    let mut lines = Vec::new();
    let mut add = |name: &str, points: Vec<(u64, f64)>| {
        if !points.is_empty() {
            lines.push(Line { name: name.to_owned(), points });
        }
    };
    let chosen = lengths.iter().filter_map(|&length| {
        let rule = figures::rule_at(profile, series.operation, intent, length)?;
        let figure = series.of(length, &rule.method, &rule.parameters)?;
        Some(speed(length, figure.median_ns))
    });
    add("what the policy chooses", chosen.collect());
    let baseline =
        lengths.iter().filter_map(|&length| Some(speed(length, series.baseline(length)?.median_ns)));
    add("C library", baseline.collect());
    for method in best_methods(series).into_iter().take(OTHERS) {
        let points = lengths.iter().filter_map(|&length| {
            let figure = series.ranking(length).into_iter().find(|figure| figure.method == method)?;
            Some(speed(length, figure.median_ns))
        });
        add(&method, points.collect());
    }
    lines
}

/// Methods other than the C library, by how often and how nearly they were the fastest.
fn best_methods(series: &Series<'_>) -> Vec<String> {
    let mut scores: Vec<(String, f64)> = Vec::new();
    for length in series.lengths() {
        let ranking = series.ranking(length);
        let best = ranking[0].median_ns;
        for figure in &ranking {
            let score = (best / figure.median_ns).powi(8);
            match scores.iter_mut().find(|(method, _)| *method == figure.method) {
                Some((_, sum)) => *sum += score,
                None => scores.push((figure.method.clone(), score)),
            }
        }
    }
    scores.retain(|(method, _)| *method != bulkmem::method::c_library().name);
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores.into_iter().map(|(method, _)| method).collect()
}

fn figure_grid(series: &Series<'_>) -> Grid {
    let rows = series.lengths().into_iter().flat_map(|length| {
        series.ranking(length).into_iter().map(move |figure| {
            vec![
                exact_size(length),
                name_with(&figure.method, &figure.parameters),
                rate(length, figure.median_ns),
                ratio(series.times_c_library(figure)),
                format!("{:.0}–{:.0}", figure.quartiles_ns[0], figure.quartiles_ns[1]),
                figure.samples.to_string(),
            ]
        })
    });
    Grid {
        columns: vec![
            ("length", Holds::Numbers),
            ("method", Holds::Words),
            ("GB/s", Holds::Numbers),
            ("× C library", Holds::Numbers),
            ("quartiles, ns", Holds::Numbers),
            ("samples", Holds::Numbers),
        ],
        rows: rows.collect(),
    }
}
