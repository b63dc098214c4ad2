//! Derives rules and numbers of threads from figures.
//!
//! At each measured length the choice has the least geometric mean of its times over the conditions (aligned or not,
//! warm or cold, threads). It may not be slower than the C library in any condition by more than the noise, or by more
//! than an eighth of its gain in another (as logarithms: 2.6 times as fast for 0.9 times). A gain within the noise
//! changes nothing: the C library stays, then the choice at the neighbouring length.

mod pick;
mod saturation;
pub(crate) mod table;
mod threshold_table;

use std::collections::BTreeMap;

use crate::calibration::{Cost, Figure, Rule, Saturation};
use bulkmem::method::{self, Parameters};
use bulkmem::{Intent, Operation};

use pick::Pick;
pub(crate) use pick::{NOISE, allowed_loss};
use table::{Key, Row};
use threshold_table::Threshold;

/// Derives rules and numbers of threads from figures. Each operation with any figure of the cost throughput gets rules
/// for every intent, in rising order of length, the first from 0. An intent without figures of its own gets the rules
/// for throughput, and the reason says so.
pub fn derive_policy(figures: &[Figure]) -> (Vec<Rule>, Vec<Saturation>) {
    let mut rules = Vec::new();
    let mut threads = Vec::new();
    for operation in Operation::ALL {
        let throughput = table::rows(figures, operation, Cost::Throughput);
        threads.extend(saturation::saturation(operation, &throughput));
        for intent in Intent::ALL {
            let own = table::rows(figures, operation, Cost::of(intent));
            let (rows, note) = if own.is_empty() {
                (&throughput, format!(" (by throughput: {intent} was not measured)"))
            } else {
                (&own, String::new())
            };
            rules.extend(thresholds(rows, intent, has_c_library(&throughput)).into_iter().map(|threshold| {
                Rule {
                    operation,
                    intent,
                    from: threshold.from,
                    method: threshold.pick.key.method.clone(),
                    parameters: threshold.pick.key.parameters(),
                    reason: threshold.pick.reason + &note,
                }
            }));
        }
    }
    (rules, threads)
}

/// Returns the choice at each measured length of one operation and cost.
pub(crate) fn choices(figures: &[Figure], operation: Operation, cost: Cost) -> Vec<(u64, Key)> {
    let rows = table::rows(figures, operation, cost);
    threshold_table::picks(&rows, chooser(cost))
        .into_iter()
        .map(|(length, pick)| (length, pick.key))
        .collect()
}

/// Returns the function that chooses by a cost.
fn chooser(cost: Cost) -> fn(&Row, Option<&Key>) -> Option<Pick> {
    match cost {
        Cost::Throughput | Cost::Reuse => pick::fastest,
        Cost::Stream => pick::least_disturbing,
    }
}

fn has_c_library(rows: &BTreeMap<u64, Row>) -> bool {
    rows.values().any(|row| pick::c_library(row).is_some())
}

/// Returns the thresholds of one table, the first from 0. Below the shortest measured length the C library is chosen if
/// it is a candidate, and otherwise the choice for that length.
fn thresholds(rows: &BTreeMap<u64, Row>, intent: Intent, c_library: bool) -> Vec<Threshold> {
    let mut thresholds =
        threshold_table::build(rows, threshold_table::picks(rows, chooser(Cost::of(intent))));
    if let Some(first) = thresholds.first_mut() {
        if !c_library || first.pick.key.is_c_library() {
            first.from = 0;
        } else {
            let key = Key::new(method::c_library().name, &Parameters::default());
            let reason =
                format!("shorter than the shortest length measured for {intent}, {} bytes", first.from);
            thresholds.insert(0, Threshold { from: 0, pick: Pick { key, reason } });
        }
    }
    thresholds
}

#[cfg(test)]
mod tests;
