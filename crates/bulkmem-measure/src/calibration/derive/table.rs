//! Figures by length, candidate and condition.

use std::collections::{BTreeMap, BTreeSet};

use bulkmem::Operation;
use bulkmem::method::{self, Parameters};
use bulkmem::policy::Choice;

use crate::calibration::plan::LONG;
use crate::calibration::{Condition, Cost, Figure};
use crate::engine::LIBPMEM;
use crate::engine::stats::{ENOUGH, Summary, median};

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
    /// How much samples vary in its condition, at all lengths and with all candidates: the standard deviation of the logarithm.
    pub(crate) spread: f64,
}

impl Timing {
    pub(crate) fn ns(&self) -> f64 {
        self.summary.median
    }

    /// False if samples of its condition vary by so much that they have more than one speed: the median may be that of either, and
    /// bars nothing.
    pub(crate) fn tells(&self) -> bool {
        self.spread <= LITTLE_SPREAD
    }

    /// Time of the operation alone, for a figure of the cost `stream`.
    pub(crate) fn operation_ns(&self) -> f64 {
        (self.ns() - self.disturbance_ns.max(0.0)).max(f64::MIN_POSITIVE)
    }
}

/// Conditions that vary less than that count about equally. Candidates differ between conditions as much, so that a better known
/// one would not tell more of all.
pub(crate) const LITTLE_SPREAD: f64 = 0.3;
/// Interquartile ranges of a normal distribution are so many standard deviations.
const QUARTILES: f64 = 1.35;

/// A condition with how much it counts; all together count 1.
pub(crate) type Weighted = (Condition, f64);

/// All candidates at one length.
pub(crate) type Row = BTreeMap<Key, Figures>;

/// At long lengths, fewer samples decide nothing, unless an operation has no other lengths.
pub(crate) const FEWEST_SAMPLES: u32 = 3;

/// Returns the figures of one operation and cost, by length. Leaves out libpmem's, long lengths with too few samples, and figures that
/// are not finite, or leave no time for the operation itself. The pages of unaligned ranges depend on the length, so that they are no
/// condition to compare lengths by.
pub(crate) fn rows(figures: &[Figure], operation: Operation, cost: Cost) -> BTreeMap<u64, Row> {
    let own = || figures.iter().filter(|it| (it.operation, it.cost) == (operation, cost) && it.length > 0);
    let spreads = spreads(own());
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for it in own() {
        let (median, quartiles, samples) = (it.median_ns, it.quartiles_ns, it.samples);
        let disturbance_ns = it.disturbance_ns.unwrap_or_default();
        let finite = [median, quartiles[0], quartiles[1], disturbance_ns].iter().all(|ns| ns.is_finite());
        if finite && median > disturbance_ns.max(0.0) && it.method != LIBPMEM {
            let key = Key { method: it.method.clone(), parameters: it.parameters };
            let spread = spreads.get(&it.condition).copied().unwrap_or_default();
            let timing = Timing { summary: Summary { median, quartiles, samples }, disturbance_ns, spread };
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

/// Returns how much samples vary in each condition: the median of all candidates and lengths. Where no condition of the same cache state
/// varies little, as on a busy machine, all of them count as if they did.
pub(crate) fn spreads<'f>(figures: impl Iterator<Item = &'f Figure>) -> BTreeMap<Condition, f64> {
    let mut spreads: BTreeMap<Condition, Vec<f64>> = BTreeMap::new();
    for it in figures.filter(|it| it.samples >= ENOUGH && it.method != LIBPMEM) {
        let spread = (it.quartiles_ns[1] / it.quartiles_ns[0]).ln() / QUARTILES;
        if spread.is_finite() {
            spreads.entry(it.condition).or_default().push(spread);
        }
    }
    let mut spreads: BTreeMap<Condition, f64> =
        spreads.into_iter().map(|(condition, all)| (condition, median(&all))).collect();
    let state = |it: &Condition| Condition { aligned: true, base_pages: false, ..*it };
    let little = spreads.iter().filter(|(_, spread)| **spread <= LITTLE_SPREAD);
    let steady: BTreeSet<Condition> = little.map(|(condition, _)| state(condition)).collect();
    for (condition, spread) in &mut spreads {
        if !steady.contains(&state(condition)) {
            *spread = spread.min(LITTLE_SPREAD);
        }
    }
    spreads
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

/// Returns how much each condition counts: all the same, but for aligned and unaligned ranges in the same condition otherwise, which share
/// their part by how much their samples vary. Some virtual machines take ten times as long for one sample of small pages as for the
/// next: by chance, a candidate would gain or lose more there than it can elsewhere.
pub(crate) fn weigh(row: &Row, conditions: &[Condition]) -> Vec<Weighted> {
    let certainty = |condition: &Condition| {
        let spread = row.values().find_map(|figures| figures.0.get(condition)).map_or(0.0, |it| it.spread);
        1.0 / (LITTLE_SPREAD.powi(2) + spread.powi(2))
    };
    let group = |condition: &Condition| Condition { aligned: true, ..*condition };
    let weight = |condition: &Condition| {
        let own = conditions.iter().filter(|other| group(other) == group(condition));
        let (count, all) = own.fold((0.0, 0.0), |(count, all), it| (count + 1.0, all + certainty(it)));
        count / conditions.len() as f64 * certainty(condition) / all
    };
    conditions.iter().map(|condition| (*condition, weight(condition))).collect()
}

impl Figures {
    pub(crate) fn covers(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.0.contains_key(condition))
    }

    /// Returns the mean logarithm of the times in these conditions, which must all be covered.
    pub(crate) fn score(&self, conditions: &[Weighted], time: impl Fn(&Timing) -> f64) -> f64 {
        conditions.iter().map(|(condition, weight)| weight * time(&self.0[condition]).ln()).sum()
    }

    pub(crate) fn samples<'c>(&self, conditions: impl IntoIterator<Item = &'c Condition>) -> u32 {
        conditions.into_iter().map(|it| self.0[it].summary.samples).min().unwrap_or_default()
    }
}
