//! Makes the choice at one measured length.

use std::collections::BTreeMap;

use crate::calibration::Condition;

use bulkmem::method::{self, CacheEffect};

use crate::calibration::derive::table::{Figures, Key, Row, Timing, shared_conditions};

/// Noise that is always assumed: a smaller gain changes nothing.
pub(crate) const NOISE: f64 = 0.03;
/// The most noise that is assumed: a larger gain always counts.
const MOST_NOISE: f64 = 0.25;
/// The choice at the neighbouring length stays if it is within this share of the least noise of the best.
const NEAR: f64 = 0.5;
/// A method may lose to the C library in one condition by this share of its gain in another, both as logarithms. The
/// policy does not know whether a caller's memory is in the cache; being 2.6 times as fast if it is not is worth being
/// 0.9 times as fast if it is.
const LOSS_PER_GAIN: f64 = 0.125;
/// Least speed of the choice for `Stream`, relative to the fastest method that does not fill the cache.
const STREAM_SLACK: f64 = 0.97;

/// The choice at one length, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pick {
    pub(super) key: Key,
    pub(super) reason: String,
}

/// A candidate with the mean logarithm of its times.
#[derive(Clone, Debug)]
struct Scored<'a> {
    key: &'a Key,
    figures: &'a Figures,
    score: f64,
}

/// Returns the candidates of a row that can be compared, best first, and the conditions that they are compared in.
fn scored(row: &Row) -> (Vec<Scored<'_>>, Vec<Condition>) {
    let conditions = shared_conditions(row);
    let mut scored: Vec<_> = row
        .iter()
        .filter(|(_, figures)| figures.covers(&conditions))
        .map(|(key, figures)| Scored { key, figures, score: figures.score(&conditions, Timing::ns) })
        .collect();
    scored.sort_by(|a, b| a.score.total_cmp(&b.score));
    (scored, conditions)
}

/// Returns the least difference between two candidates that counts, as a ratio minus 1.
fn noise(a: &Figures, b: &Figures, conditions: &[Condition]) -> f64 {
    let relative = |figures: &Figures, condition| {
        let summary = figures.0[condition].summary;
        summary.half_width() / summary.median
    };
    let sum: f64 =
        conditions.iter().map(|condition| relative(a, condition).hypot(relative(b, condition))).sum();
    (sum / conditions.len().max(1) as f64).clamp(least_noise(a, b, conditions), MOST_NOISE)
}

/// Returns the least noise to assume: few samples do not show how much they vary.
fn least_noise(a: &Figures, b: &Figures, conditions: &[Condition]) -> f64 {
    let samples =
        |figures: &Figures| conditions.iter().map(|condition| figures.0[condition].summary.samples).min();
    match samples(a).min(samples(b)).unwrap_or_default() {
        0..3 => 4.0 * NOISE,
        3..5 => 2.0 * NOISE,
        _ => NOISE,
    }
}

/// Returns how much a method with these gains over the C library, by condition, may lose in another. All are logarithms.
pub(crate) fn allowed_loss(gains: impl Iterator<Item = f64>) -> f64 {
    LOSS_PER_GAIN * gains.fold(0.0, f64::max)
}

/// True if a candidate loses to the C library in any condition by more than the noise, and by more than its gain in
/// another condition allows.
fn loses_to_c_library(figures: &Figures, c_library: Option<&Figures>) -> bool {
    let Some(c_library) = c_library else { return false };
    let gain =
        |condition: &Condition, timing: &Timing| Some((c_library.0.get(condition)?.ns() / timing.ns()).ln());
    let allowed = allowed_loss(figures.0.iter().filter_map(|(condition, timing)| gain(condition, timing)));
    figures.0.iter().any(|(condition, timing)| {
        gain(condition, timing).is_some_and(|gain| {
            let threshold = noise(figures, c_library, &[*condition]).ln_1p();
            gain < -threshold.max(allowed)
        })
    })
}

/// Returns the C library's figures in a row.
pub(super) fn c_library(row: &Row) -> Option<(&Key, &Figures)> {
    row.iter().find(|(key, _)| key.is_c_library())
}

/// True if a candidate may be chosen.
pub(super) fn admissible(row: &Row, figures: &Figures) -> bool {
    !loses_to_c_library(figures, c_library(row).map(|(_, figures)| figures))
}

/// Chooses by time alone; `None` for a row without candidates.
pub(super) fn fastest(row: &Row, previous: Option<&Key>) -> Option<Pick> {
    let (scored, conditions) = scored(row);
    let c_library = scored.iter().find(|candidate| candidate.key.is_c_library());
    let open: Vec<_> = scored
        .iter()
        .filter(|candidate| candidate.key.is_c_library() || admissible(row, candidate.figures))
        .collect();
    // The C library is always admissible, and so is every candidate if it was not measured.
    let best = open.first()?;
    if let Some(plain) = c_library {
        let threshold = noise(best.figures, plain.figures, &conditions);
        // While the choice at the neighbouring length is ahead of the C library, a change to the latter gains nothing.
        let leads = open.iter().any(|other| Some(other.key) == previous && other.score < plain.score);
        if plain.score <= best.score + threshold.ln_1p() && !leads {
            return Some(Pick { key: plain.key.clone(), reason: stays(plain, &scored) });
        }
    }
    let chosen =
        open.iter().find(|candidate| stays_on(candidate, best, previous, &conditions)).unwrap_or(best);
    Some(Pick { key: chosen.key.clone(), reason: wins(chosen, &scored, &conditions) })
}

/// True if a candidate is the choice at the neighbouring length and close enough to the best.
fn stays_on(
    candidate: &Scored<'_>,
    best: &Scored<'_>,
    previous: Option<&Key>,
    conditions: &[Condition],
) -> bool {
    let near = NEAR * least_noise(best.figures, candidate.figures, conditions);
    Some(candidate.key) == previous && candidate.score <= best.score + near.ln_1p()
}

/// The reason for which the C library stays.
fn stays(plain: &Scored<'_>, scored: &[Scored<'_>]) -> String {
    match scored.iter().find(|other| !other.key.is_c_library()) {
        None => "nothing else was measured".to_owned(),
        Some(other) if other.score < plain.score => format!(
            "nothing is faster beyond the noise in every condition (nearest: {}, {:.2} × by geometric mean)",
            other.key.method,
            (plain.score - other.score).exp()
        ),
        Some(other) => format!(
            "the fastest; next best {} takes {:.2} × its time",
            other.key.method,
            (other.score - plain.score).exp()
        ),
    }
}

/// The reason for which a method is chosen.
fn wins(chosen: &Scored<'_>, scored: &[Scored<'_>], conditions: &[Condition]) -> String {
    let mut parts = Vec::new();
    if let Some(plain) = scored.iter().find(|other| other.key.is_c_library()) {
        parts.push(format!("{:.2} × c_library", (plain.score - chosen.score).exp()));
    }
    parts.push(basis(chosen.figures, conditions));
    if let Some(other) =
        scored.iter().find(|other| other.key.method != chosen.key.method && !other.key.is_c_library())
    {
        let ratio = (other.score - chosen.score).exp();
        parts.push(format!("next best {} takes {ratio:.2} × its time", other.key.method));
    }
    parts.join("; ")
}

/// Describes the number of samples and conditions.
fn basis(figures: &Figures, conditions: &[Condition]) -> String {
    let samples =
        conditions.iter().map(|condition| figures.0[condition].summary.samples).min().unwrap_or_default();
    match conditions.len() {
        1 => format!("median of {samples} interleaved samples"),
        several => format!("medians of at least {samples} interleaved samples in {several} conditions"),
    }
}

/// Returns the effect of a method on the cache; `None` for an unknown name.
fn effect(key: &Key) -> Option<CacheEffect> {
    method::by_name(&key.method).map(|method| method.effect)
}

/// Chooses for `Stream`: of the methods that do not fill the cache, the one that costs least together with its
/// disturbance. It may be at most 3 % slower than the fastest that bypasses the cache, and must not disturb more. Without
/// such a method, chooses by time.
pub(super) fn least_disturbing(row: &Row, previous: Option<&Key>) -> Option<Pick> {
    let spares = |wanted: &[CacheEffect]| -> Row {
        row.iter()
            .filter(|(key, _)| effect(key).is_some_and(|effect| wanted.contains(&effect)))
            .map(|(key, figures)| (key.clone(), figures.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let bypassing = spares(&[CacheEffect::Bypasses]);
    let candidates = spares(&[CacheEffect::Bypasses, CacheEffect::Evicts]);
    let (scored, conditions) = scored(&candidates);
    let operation = |figures: &Figures| figures.score(&conditions, Timing::operation_ns);
    let reference = scored
        .iter()
        .filter(|candidate| bypassing.is_empty() || bypassing.contains_key(candidate.key))
        .min_by(|a, b| operation(a.figures).total_cmp(&operation(b.figures)));
    let Some(reference) = reference else { return fastest(row, previous) };
    let open: Vec<_> = scored
        .iter()
        .filter(|candidate| {
            operation(candidate.figures) <= operation(reference.figures) - STREAM_SLACK.ln()
                && !disturbs_more(candidate.figures, reference.figures, &conditions)
        })
        .collect();
    let best = open.first()?;
    let chosen =
        open.iter().find(|candidate| stays_on(candidate, best, previous, &conditions)).unwrap_or(best);
    let disturbance: f64 =
        conditions.iter().map(|condition| chosen.figures.0[condition].disturbance_ns).sum();
    let reason = if chosen.key == reference.key {
        "the fastest that leaves the cache alone".to_owned()
    } else {
        format!(
            "leaves the cache alone at {:.2} × the speed of {}, the fastest that does",
            (operation(reference.figures) - operation(chosen.figures)).exp(),
            reference.key.method
        )
    };
    let reason = format!(
        "{reason}; costs a neighbour in the cache {:.1} µs; {}",
        disturbance / conditions.len().max(1) as f64 / 1000.0,
        basis(chosen.figures, &conditions)
    );
    Some(Pick { key: chosen.key.clone(), reason })
}

/// True if one candidate disturbs cached memory more than the other, by more than the samples vary.
fn disturbs_more(a: &Figures, b: &Figures, conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| {
        let (a, b) = (&a.0[condition], &b.0[condition]);
        let blur = a.summary.half_width().hypot(b.summary.half_width()).max(NOISE / 3.0 * b.ns());
        a.disturbance_ns > b.disturbance_ns + blur
    })
}
