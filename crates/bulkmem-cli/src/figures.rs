//! Measurements of a profile by series, and the names of candidates, parameters and values.

use std::collections::BTreeSet;

use bulkmem::Operation;
use bulkmem::method::{Parameters, c_library};
use bulkmem::policy::Situation;
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Condition, Cost, Figure, Profile, Rule};
use bulkmem_measure::engine::{CacheState, Candidate, Config, Dimension, LIBPMEM, Row};

use crate::output::{exact_size, plural};

/// The measurements of one operation, of one cost, under one condition.
#[derive(Clone, Debug)]
pub(crate) struct Series<'p> {
    pub(crate) operation: Operation,
    pub(crate) cost: Cost,
    pub(crate) condition: Condition,
    figures: Vec<&'p Figure>,
}

/// Returns what a cost includes, in words.
pub(crate) fn describe_cost(cost: Cost) -> &'static str {
    match cost {
        Cost::Throughput => "the operation alone",
        Cost::Reuse => "the operation and reading the result back",
        Cost::Stream => "the operation and the slowdown of a neighbour in the cache",
    }
}

pub(crate) fn describe_condition(condition: Condition) -> String {
    let Condition { warm, threads, source, .. } = condition;
    let cache = if warm { "warm" } else { "cold" };
    format!(
        "{}, {cache}{}, {}",
        describe_place(condition),
        describe_source(source),
        plural(threads, "thread")
    )
}

/// Returns the alignment, and the pages if they are not the largest ones.
pub(crate) fn describe_place(condition: Condition) -> &'static str {
    match (condition.aligned, condition.base_pages) {
        (true, false) => "aligned",
        (false, false) => "unaligned",
        (true, true) => "aligned, base pages",
        (false, true) => "unaligned, base pages",
    }
}

/// Returns the state of a source that differs from the destination's, to follow that.
pub(crate) fn describe_source(source: Option<CacheState>) -> &'static str {
    match source {
        Some(CacheState::Cold) => ", cold source",
        Some(CacheState::Warm) => ", warm source",
        Some(CacheState::Fresh) | None => "",
    }
}

/// Returns the library that calibration compares an operation with, by its name in figures and in words.
pub(crate) fn library(operation: Operation) -> (&'static str, &'static str) {
    if operation.persists() { (LIBPMEM, LIBPMEM) } else { (c_library().name, "C library") }
}

/// Returns every series of a profile, by operation, cost and condition; the plainest condition (one thread, aligned, cold)
/// comes first.
pub(crate) fn all(profile: &Profile) -> Vec<Series<'_>> {
    let key = |figure: &Figure| {
        let Condition { aligned, warm, threads, source, base_pages } = figure.condition;
        (figure.operation, figure.cost, threads, source, !aligned, base_pages, warm)
    };
    let mut figures: Vec<&Figure> = profile.figures.iter().collect();
    figures.sort_by_key(|figure| (key(figure), figure.length));
    let series = figures.chunk_by(|a, b| key(a) == key(b)).map(|chunk| {
        let Figure { operation, cost, condition, .. } = *chunk[0];
        Series { operation, cost, condition, figures: chunk.to_vec() }
    });
    series.collect()
}

/// Returns the series of one operation and cost, the plainest condition first.
pub(crate) fn of_kind(profile: &Profile, operation: Operation, cost: Cost) -> Vec<Series<'_>> {
    let mut series = all(profile);
    series.retain(|series| series.operation == operation && series.cost == cost);
    series
}

impl<'p> Series<'p> {
    pub(crate) fn lengths(&self) -> Vec<u64> {
        let mut lengths: Vec<u64> = self.figures.iter().map(|figure| figure.length).collect();
        lengths.dedup();
        lengths
    }

    /// Returns the nearest measured length and its distance, the logarithm of the ratio.
    pub(crate) fn nearest(&self, length: u64) -> Option<(u64, f64)> {
        let distance = |at: u64| (at as f64 / length.max(1) as f64).ln().abs();
        let lengths = self.lengths().into_iter().map(|at| (at, distance(at)));
        lengths.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the figures at a length: each method with its best parameters, the fastest first.
    pub(crate) fn ranking(&self, length: u64) -> Vec<&'p Figure> {
        let mut figures: Vec<&Figure> =
            self.figures.iter().copied().filter(|it| it.length == length).collect();
        figures.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
        let mut seen = BTreeSet::new();
        figures.retain(|figure| seen.insert(figure.method.as_str()));
        figures
    }

    /// Returns the figure of the fastest method at a length.
    pub(crate) fn best(&self, length: u64) -> Option<&'p Figure> {
        self.ranking(length).into_iter().find(|figure| figure.method != LIBPMEM)
    }

    /// Returns the figure of a method at a length with exactly these parameters.
    pub(crate) fn of(&self, length: u64, method: &str, parameters: &Parameters) -> Option<&'p Figure> {
        self.along(method, parameters).find(|figure| figure.length == length)
    }

    /// Returns how many times as fast as a library a figure is; `None` if that was not measured.
    pub(crate) fn times(&self, figure: &Figure, library: &str) -> Option<f64> {
        let baseline = self.of(figure.length, library, &Parameters::default())?;
        Some(baseline.median_ns / figure.median_ns).filter(|times| times.is_finite())
    }

    /// Returns the figures of a method with exactly these parameters, by rising length.
    pub(crate) fn along(&self, method: &str, parameters: &Parameters) -> impl Iterator<Item = &'p Figure> {
        let figures = self.figures.iter().copied();
        figures.filter(move |figure| figure.method == method && figure.parameters == *parameters)
    }
}

pub(crate) fn rule_at(
    profile: &Profile,
    operation: Operation,
    situation: impl Into<Situation>,
    length: u64,
) -> Option<&Rule> {
    profile.rules_of(operation, situation.into()).filter(|rule| rule.from <= length).last()
}

/// Returns a method with its parameters: `write_prefetch_avx512[write_distance=4096]`, as `BULKMEM_METHOD` takes it.
pub(crate) fn name_with(method: &str, parameters: &Parameters) -> String {
    format!("{method}{parameters}")
}

/// Returns the parameters that are not 0: `write_distance=4096 streams=4`.
pub(crate) fn describe_parameters(parameters: &Parameters) -> String {
    parameters.to_string().replace(',', " ").trim_matches(['[', ']']).to_owned()
}

pub(crate) fn candidate(candidate: &Candidate) -> String {
    match candidate.kind {
        Kind::Policy => candidate.name.replacen("policy", "the policy's choice", 1),
        Kind::Read => "(reading)".to_owned(),
        Kind::Control => format!("({})", candidate.name),
        Kind::Kernel => format!("kernel: {}", candidate.name),
        Kind::Method | Kind::Peer => name_with(&candidate.name, &candidate.parameters),
    }
}

/// Returns the value of a configuration in a dimension; empty if it is not set.
pub(crate) fn config_value(config: &Config, key: Dimension) -> String {
    value_text(key, config.get(key).unwrap_or_default())
}

fn value_text(key: Dimension, text: String) -> String {
    match text.parse() {
        Ok(bytes) if key.is_bytes() => exact_size(bytes),
        _ => text,
    }
}

/// Returns what is set of a configuration, of the dimensions that are wanted: `, size 4 KiB, page size thp`.
pub(crate) fn describe_config(config: &Config, wanted: impl Fn(Dimension) -> bool) -> String {
    let values = config.values().into_iter().filter(|(key, _)| wanted(*key));
    values.map(|(key, text)| format!(", {} {}", words(key), value_text(key, text))).collect()
}

/// Returns the name of a dimension in words: `page size`.
pub(crate) fn words(key: Dimension) -> String {
    key.name().replace('_', " ")
}

/// Returns the standard deviation in percent: `1.2%`, or `?` for a single sample.
pub(crate) fn deviation(row: &Row) -> String {
    if row.samples.len() < 2 { "?".to_owned() } else { format!("{:.1}%", row.stats.pstdev_percent()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_named() {
        let parameters = Parameters { write_distance: 4096, streams: 4, ..Parameters::default() };
        assert_eq!(describe_parameters(&parameters), "write_distance=4096 streams=4");
        assert_eq!(name_with("a", &parameters), "a[write_distance=4096,streams=4]");
        assert_eq!(describe_parameters(&Parameters::default()), "");
    }
}
