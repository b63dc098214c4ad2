//! From choices at measured lengths to rules for all lengths.

use std::collections::BTreeMap;

use crate::calibration::Condition;

use crate::calibration::derive::pick::{self, NOISE, Pick};
use crate::calibration::derive::table::{Figures, Key, Row, Timing};

/// Steps in which the range between two measured lengths is searched.
const STEPS: u32 = 16;

/// The choice from a length on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Threshold {
    pub(super) from: u64,
    pub(super) pick: Pick,
}

/// Returns the choices at all measured lengths. Each prefers the choice below it, and one that differs from both
/// neighbours then prefers the choice above it, so that there are few thresholds where they cost nothing.
pub(super) fn picks(
    rows: &BTreeMap<u64, Row>,
    choose: impl Fn(&Row, Option<&Key>) -> Option<Pick>,
) -> Vec<(u64, Pick)> {
    let mut picks: Vec<(u64, Pick)> = Vec::new();
    for (&length, row) in rows {
        let previous = picks.last().map(|(_, pick)| pick.key.clone());
        picks.extend(choose(row, previous.as_ref()).map(|pick| (length, pick)));
    }
    for index in (0..picks.len().saturating_sub(1)).rev() {
        let above = picks[index + 1].1.key.clone();
        let below = index.checked_sub(1).map(|below| picks[below].1.key.clone());
        let length = picks[index].0;
        if picks[index].1.key != above && below.as_ref() != Some(&picks[index].1.key) {
            picks[index].1 = choose(&rows[&length], Some(&above)).unwrap_or_else(|| picks[index].1.clone());
        }
    }
    picks
}

/// Returns the thresholds of the choices: equal neighbours become one, and between different ones the threshold is at the
/// length where their interpolated times cross.
pub(super) fn build(rows: &BTreeMap<u64, Row>, picks: Vec<(u64, Pick)>) -> Vec<Threshold> {
    let mut thresholds: Vec<Threshold> = Vec::new();
    let mut below = None;
    for (length, pick) in picks {
        match thresholds.last() {
            Some(threshold) if threshold.pick.key == pick.key => {}
            Some(threshold) => {
                let from = below.map_or(length, |below| {
                    crossing(rows, (below, &threshold.pick.key), (length, &pick.key))
                });
                thresholds.push(Threshold { from, pick });
            }
            None => thresholds.push(Threshold { from: length, pick }),
        }
        below = Some(length);
    }
    thresholds
}

/// Returns the length, above the lower and at most the upper one, from which the upper choice is better. Interpolates
/// times as straight lines between logarithms.
fn crossing(rows: &BTreeMap<u64, Row>, lower: (u64, &Key), upper: (u64, &Key)) -> u64 {
    let ((low, old), (high, new)) = (lower, upper);
    let at = |share: f64| {
        let (low_ln, high_ln) = ((low as f64).ln(), (high as f64).ln());
        let length = (low_ln + share * (high_ln - low_ln)).exp() as u64;
        // Round numbers are as good.
        let length = if length >= 1024 { length / 64 * 64 } else { length };
        length.clamp(low.saturating_add(1).min(high), high)
    };
    let ends = |key: &Key| Some((rows.get(&low)?.get(key)?, rows.get(&high)?.get(key)?));
    let (Some(old_ends), Some(new_ends)) = (ends(old), ends(new)) else { return at(0.5) };
    let plain = rows
        .get(&low)
        .zip(rows.get(&high))
        .and_then(|(low, high)| Some((pick::c_library(low)?.1, pick::c_library(high)?.1)));
    let conditions: Vec<Condition> =
        old_ends.0.0.keys().filter(|condition| common(old_ends, new_ends, condition)).copied().collect();
    if conditions.is_empty() {
        return at(0.5);
    }
    let serves = |share: f64| {
        let gain: f64 = conditions
            .iter()
            .map(|condition| between(old_ends, condition, share) - between(new_ends, condition, share))
            .sum::<f64>()
            / conditions.len() as f64;
        let barred = plain.is_some_and(|plain| {
            let compared = conditions.iter().filter(|condition| common(new_ends, plain, condition));
            let gains: Vec<f64> = compared
                .map(|condition| between(plain, condition, share) - between(new_ends, condition, share))
                .collect();
            let allowed = pick::allowed_loss(gains.iter().copied()).max(NOISE.ln_1p());
            gains.iter().any(|gain| *gain < -allowed)
        });
        gain > 0.0 && !barred
    };
    (1..STEPS).map(|step| f64::from(step) / f64::from(STEPS)).find(|&share| serves(share)).map_or(high, at)
}

/// True if both candidates were measured in a condition at both lengths.
fn common(a: (&Figures, &Figures), b: (&Figures, &Figures), condition: &Condition) -> bool {
    [a.0, a.1, b.0, b.1].iter().all(|figures| figures.0.contains_key(condition))
}

/// Interpolates the logarithm of the time at a share of the way between two lengths.
fn between(ends: (&Figures, &Figures), condition: &Condition, share: f64) -> f64 {
    let ln = |figures: &Figures| Timing::ns(&figures.0[condition]).ln();
    ln(ends.0) * (1.0 - share) + ln(ends.1) * share
}
