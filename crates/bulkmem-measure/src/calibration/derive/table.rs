//! Figures by length, candidate and condition.

use std::collections::BTreeMap;

use crate::calibration::{Condition, Cost, Figure};
use bulkmem::Operation;
use bulkmem::method::Parameters;

use crate::engine::stats::Summary;

/// A method with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) method: String,
    values: [u32; Parameters::NAMES.len()],
}

impl Key {
    pub(crate) fn new(method: &str, parameters: &Parameters) -> Key {
        Key {
            method: method.to_owned(),
            values: Parameters::NAMES.map(|name| parameters.get(name).unwrap_or_default()),
        }
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::default();
        for (name, value) in Parameters::NAMES.into_iter().zip(self.values) {
            parameters.set(name, value);
        }
        parameters
    }

    pub(crate) fn is_c_library(&self) -> bool {
        self.method == bulkmem::method::c_library().name
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

/// Returns the figures of one operation and cost, by length. Leaves out figures that are not finite and above 0. Of two
/// with the same configuration, the one with more samples counts.
pub(crate) fn rows(figures: &[Figure], operation: Operation, cost: Cost) -> BTreeMap<u64, Row> {
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for figure in figures {
        if figure.operation != operation || figure.cost != cost {
            continue;
        }
        if figure.length == 0 || !(figure.median_ns.is_finite() && figure.median_ns > 0.0) {
            continue;
        }
        let quartiles = if figure.quartiles_ns.iter().all(|quartile| quartile.is_finite()) {
            figure.quartiles_ns
        } else {
            [figure.median_ns; 2]
        };
        let timing = Timing {
            summary: Summary { median: figure.median_ns, quartiles, samples: figure.samples },
            disturbance_ns: figure.disturbance_ns.filter(|ns| ns.is_finite()).unwrap_or_default(),
        };
        let candidate = Key::new(&figure.method, &figure.parameters);
        let timings = &mut rows.entry(figure.length).or_default().entry(candidate).or_default().0;
        match timings.get(&figure.condition) {
            Some(known) if known.summary.samples > timing.summary.samples => {}
            _ => {
                timings.insert(figure.condition, timing);
            }
        }
    }
    rows
}

/// Returns the conditions in which the candidates of a row are compared: those that most of them were measured in.
pub(crate) fn shared_conditions(row: &Row) -> Vec<Condition> {
    let mut counts: BTreeMap<Condition, usize> = BTreeMap::new();
    for figures in row.values() {
        for &condition in figures.0.keys() {
            *counts.entry(condition).or_default() += 1;
        }
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let conditions: Vec<Condition> =
        counts.into_iter().filter(|(_, count)| *count == most).map(|(condition, _)| condition).collect();
    let covered = row.values().any(|figures| figures.covers(&conditions));
    let shared = if covered { conditions.len() } else { 1 };
    conditions.into_iter().take(shared).collect()
}

impl Figures {
    /// True if there is a figure for each of these conditions.
    pub(crate) fn covers(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.0.contains_key(condition))
    }

    /// Returns the mean logarithm of the times in these conditions, which must all be covered.
    pub(crate) fn score(&self, conditions: &[Condition], time: impl Fn(&Timing) -> f64) -> f64 {
        let sum: f64 = conditions.iter().map(|condition| time(&self.0[condition]).ln()).sum();
        sum / conditions.len().max(1) as f64
    }
}
