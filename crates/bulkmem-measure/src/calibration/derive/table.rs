//! Figures, laid out for choosing: by length, then by candidate, then by condition.

use std::collections::BTreeMap;

use crate::calibration::{Cost, Figure};
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

/// A condition that can be ordered: aligned, warm, threads.
pub(crate) type Place = (bool, bool, usize);

/// One candidate's figures at one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures(pub(crate) BTreeMap<Place, Line>);

/// One figure, without what the layout says already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) summary: Summary,
    pub(crate) disturbance_ns: f64,
}

impl Line {
    pub(crate) fn ns(&self) -> f64 {
        self.summary.median
    }

    /// The operation alone, of a figure of the cost `stream`.
    pub(crate) fn operation_ns(&self) -> f64 {
        (self.ns() - self.disturbance_ns.max(0.0)).max(f64::MIN_POSITIVE)
    }
}

/// All candidates at one length.
pub(crate) type Row = BTreeMap<Key, Figures>;

/// The figures of one operation and cost, by length. Figures that are no times (not finite, not above 0) are left
/// out; of two for the same thing, the one with more samples counts.
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
        let line = Line {
            summary: Summary { median: figure.median_ns, quartiles, samples: figure.samples },
            disturbance_ns: figure.disturbance_ns.filter(|ns| ns.is_finite()).unwrap_or_default(),
        };
        let place = (figure.condition.aligned, figure.condition.warm, figure.condition.threads);
        let candidate = Key::new(&figure.method, &figure.parameters);
        let lines = &mut rows.entry(figure.length).or_default().entry(candidate).or_default().0;
        match lines.get(&place) {
            Some(known) if known.summary.samples > line.summary.samples => {}
            _ => {
                lines.insert(place, line);
            }
        }
    }
    rows
}

/// The places that candidates of a row are compared in: those that most of them were measured in.
pub(crate) fn shared_places(row: &Row) -> Vec<Place> {
    let mut counts: BTreeMap<Place, usize> = BTreeMap::new();
    for figures in row.values() {
        for &place in figures.0.keys() {
            *counts.entry(place).or_default() += 1;
        }
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let places: Vec<Place> =
        counts.into_iter().filter(|(_, count)| *count == most).map(|(place, _)| place).collect();
    let somebody_has_all = row.values().any(|figures| figures.covers(&places));
    let shared = if somebody_has_all { places.len() } else { 1 };
    places.into_iter().take(shared).collect()
}

impl Figures {
    /// Whether there is a figure for each of these places.
    pub(crate) fn covers(&self, places: &[Place]) -> bool {
        places.iter().all(|place| self.0.contains_key(place))
    }

    /// The mean of the logarithms of the times in these places, which must all be covered.
    pub(crate) fn score(&self, places: &[Place], time: impl Fn(&Line) -> f64) -> f64 {
        let sum: f64 = places.iter().map(|place| time(&self.0[place]).ln()).sum();
        sum / places.len().max(1) as f64
    }
}
