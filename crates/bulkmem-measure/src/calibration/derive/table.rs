//! Figures by length, candidate and condition.

use std::collections::BTreeMap;

use bulkmem::Operation;
use bulkmem::method::{self, Parameters};
use bulkmem::policy::Choice;

use crate::calibration::plan::LONG;
use crate::calibration::{Condition, Cost, Figure};
use crate::engine::LIBPMEM;
use crate::engine::stats::Summary;

/// A method, which may be unknown, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) method: String,
    pub(crate) parameters: Parameters,
}

impl Key {
    pub(crate) fn c_library() -> Key {
        Key { method: method::c_library().name.to_owned(), parameters: Parameters::default() }
    }

    pub(crate) fn is_c_library(&self) -> bool {
        self.method == method::c_library().name
    }

    pub(crate) fn choice(&self) -> Option<Choice> {
        Some(Choice { method: method::by_name(&self.method)?, parameters: self.parameters })
    }
}

/// One candidate's figures at one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures(pub(crate) BTreeMap<Condition, Timing>);

/// Times of one candidate at one length in one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) summary: Summary,
    pub(crate) disturbance_ns: f64,
}

impl Timing {
    pub(crate) fn ns(&self) -> f64 {
        self.summary.median
    }

    /// Time of the operation alone, for a figure of the cost `stream`.
    pub(crate) fn operation_ns(&self) -> f64 {
        (self.ns() - self.disturbance_ns.max(0.0)).max(f64::MIN_POSITIVE)
    }
}

/// All candidates at one length.
pub(crate) type Row = BTreeMap<Key, Figures>;

/// At long lengths, fewer samples decide nothing, unless an operation has no other lengths.
pub(crate) const FEWEST_SAMPLES: u32 = 3;

/// Returns the figures of one operation and cost, by length. Leaves out libpmem's, long lengths with too few samples, and figures that
/// are not finite, or leave no time for the operation itself. The pages of unaligned ranges depend on the length, so that they are no
/// condition to compare lengths by.
pub(crate) fn rows(figures: &[Figure], operation: Operation, cost: Cost) -> BTreeMap<u64, Row> {
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for it in figures.iter().filter(|it| (it.operation, it.cost) == (operation, cost) && it.length > 0) {
        let (median, quartiles, samples) = (it.median_ns, it.quartiles_ns, it.samples);
        let disturbance_ns = it.disturbance_ns.unwrap_or_default();
        let finite = [median, quartiles[0], quartiles[1], disturbance_ns].iter().all(|ns| ns.is_finite());
        if finite && median > disturbance_ns.max(0.0) && it.method != LIBPMEM {
            let key = Key { method: it.method.clone(), parameters: it.parameters };
            let timing = Timing { summary: Summary { median, quartiles, samples }, disturbance_ns };
            let condition = Condition { base_pages: false, ..it.condition };
            rows.entry(it.length).or_default().entry(key).or_default().0.insert(condition, timing);
        }
    }
    let decides = |length: u64, row: &Row| length < LONG || is_sampled(row);
    if rows.iter().any(|(length, row)| decides(*length, row)) {
        rows.retain(|length, row| decides(*length, row));
    }
    rows
}

/// True if all candidates that are compared have samples enough. Not single ones are left out: without the C library, nothing would
/// say that another method is slower.
fn is_sampled(row: &Row) -> bool {
    let conditions = shared_conditions(row);
    let mut compared = row.values().filter(|figures| figures.covers(&conditions));
    compared.all(|figures| figures.samples(&conditions) >= FEWEST_SAMPLES)
}

/// Returns the conditions in which the candidates of a row are compared: those that most of them were measured in.
pub(crate) fn shared_conditions(row: &Row) -> Vec<Condition> {
    let mut counts: BTreeMap<Condition, usize> = BTreeMap::new();
    for &condition in row.values().flat_map(|figures| figures.0.keys()) {
        *counts.entry(condition).or_default() += 1;
    }
    let most = counts.values().copied().max();
    let mut conditions: Vec<Condition> = counts.keys().copied().collect();
    conditions.retain(|condition| counts.get(condition).copied() == most);
    if !row.values().any(|figures| figures.covers(&conditions)) {
        conditions.truncate(1);
    }
    conditions
}

impl Figures {
    pub(crate) fn covers(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.0.contains_key(condition))
    }

    /// Returns the mean logarithm of the times in these conditions, which must all be covered.
    pub(crate) fn score(&self, conditions: &[Condition], time: impl Fn(&Timing) -> f64) -> f64 {
        let sum: f64 = conditions.iter().map(|condition| time(&self.0[condition]).ln()).sum();
        sum / conditions.len().max(1) as f64
    }

    pub(crate) fn samples(&self, conditions: &[Condition]) -> u32 {
        conditions.iter().map(|condition| self.0[condition].summary.samples).min().unwrap_or_default()
    }
}
