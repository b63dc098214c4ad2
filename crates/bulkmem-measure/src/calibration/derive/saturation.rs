//! The fewest threads that saturate memory, by length.

use std::collections::BTreeMap;

use crate::calibration::Saturation;
use bulkmem::Operation;

use crate::calibration::derive::pick::NOISE;
use crate::calibration::derive::table::{Figures, Row};

/// Returns the numbers of threads of one operation by length. Empty if one thread is enough, or if no figure has several.
pub(super) fn saturation(operation: Operation, rows: &BTreeMap<u64, Row>) -> Vec<Saturation> {
    let mut steps: Vec<Saturation> = Vec::new();
    let mut below: Option<(u64, BTreeMap<usize, f64>)> = None;
    for (&length, row) in rows {
        let Some(times) = by_threads(row) else { continue };
        let threads = fewest(&times);
        let known = steps.last().map_or(1, |step| step.threads);
        // Counts only grow with length: a decrease is noise.
        if threads > known {
            let from =
                below.map_or(length, |(low, before)| pays(low, &before, length, &times, known, threads));
            steps.push(Saturation { operation, from, threads });
        }
        below = Some((length, times));
    }
    steps
}

/// Returns the times by number of threads, of the candidate measured with most numbers of threads (the fastest of
/// those). Does not mix warm and cold memory.
fn by_threads(row: &Row) -> Option<BTreeMap<usize, f64>> {
    let times = |figures: &Figures, wanted: bool| -> BTreeMap<usize, f64> {
        let conditions = figures.0.iter().filter(|(it, _)| it.aligned && it.warm == wanted);
        conditions.map(|(it, timing)| (it.threads, timing.ns())).collect()
    };
    [false, true]
        .into_iter()
        .flat_map(|warm| row.values().map(move |figures| times(figures, warm)))
        .filter(|times| times.len() > 1 && times.contains_key(&1))
        .min_by(|a, b| b.len().cmp(&a.len()).then(a[&1].total_cmp(&b[&1])))
}

/// Returns the fewest threads whose time is within the noise of the best.
fn fewest(times: &BTreeMap<usize, f64>) -> usize {
    let best = times.values().copied().fold(f64::INFINITY, f64::min);
    times.iter().find(|(_, ns)| **ns <= best * (1.0 + NOISE)).map_or(1, |(threads, _)| *threads)
}

/// Returns the length at which `many` threads overtake `few`: the crossing of straight lines between logarithms.
fn pays(
    low: u64,
    before: &BTreeMap<usize, f64>,
    high: u64,
    after: &BTreeMap<usize, f64>,
    few: usize,
    many: usize,
) -> u64 {
    let ratio = |times: &BTreeMap<usize, f64>| Some((times.get(&few)? / times.get(&many)?).ln());
    match (ratio(before), ratio(after)) {
        (Some(under), Some(over)) if under < 0.0 && over > 0.0 => {
            let share = -under / (over - under);
            let (low, high) = ((low as f64).ln(), (high as f64).ln());
            ((low + share * (high - low)).exp() as u64).next_multiple_of(4096)
        }
        _ => high,
    }
}
