//! The choice at one measured length.

use std::collections::BTreeMap;

use bulkmem::method::{self, CacheEffect};

use crate::calibration::derive::table::{Figures, Key, Line, Place, Row, shared_places};

/// A gain smaller than this changes nothing, whatever the samples say.
pub(crate) const NOISE: f64 = 0.03;
/// However noisy the samples: a gain larger than this is one.
const MOST_NOISE: f64 = 0.25;
/// A neighbouring length's choice stays when it is as near to the best as this share of the least noise.
const NEAR: f64 = 0.5;
/// A method may lose to the C library in one condition by this share of what it gains in another, both as logarithms:
/// nobody knows whether a caller's memory is in the cache, and 2.6 times as fast where it is not is worth 0.9 times
/// where it is.
const LOSS_PER_GAIN: f64 = 0.125;
/// How much slower than the fastest non-caching method the choice for `Stream` may be.
const STREAM_SLACK: f64 = 0.97;

/// The choice at one length, and why.
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

/// The candidates of a row that can be compared, best first, and where they are compared.
fn scored(row: &Row) -> (Vec<Scored<'_>>, Vec<Place>) {
    let places = shared_places(row);
    let mut scored: Vec<_> = row
        .iter()
        .filter(|(_, figures)| figures.covers(&places))
        .map(|(key, figures)| Scored { key, figures, score: figures.score(&places, Line::ns) })
        .collect();
    scored.sort_by(|a, b| a.score.total_cmp(&b.score));
    (scored, places)
}

/// By how much two candidates must differ for the difference to count, as a ratio minus 1.
fn noise(a: &Figures, b: &Figures, places: &[Place]) -> f64 {
    let relative = |figures: &Figures, place| {
        let summary = figures.0[place].summary;
        summary.half_width() / summary.median
    };
    let sum: f64 = places.iter().map(|place| relative(a, place).hypot(relative(b, place))).sum();
    (sum / places.len().max(1) as f64).clamp(least_noise(a, b, places), MOST_NOISE)
}

/// The noise that is assumed at least: few samples cannot tell their own.
fn least_noise(a: &Figures, b: &Figures, places: &[Place]) -> f64 {
    let samples = |figures: &Figures| places.iter().map(|place| figures.0[place].summary.samples).min();
    match samples(a).min(samples(b)).unwrap_or_default() {
        0..3 => 4.0 * NOISE,
        3..5 => 2.0 * NOISE,
        _ => NOISE,
    }
}

/// What a method that gains so much over the C library, in one condition after the other, may lose in another. All
/// are logarithms.
pub(crate) fn allowed_loss(gains: impl Iterator<Item = f64>) -> f64 {
    LOSS_PER_GAIN * gains.fold(0.0, f64::max)
}

/// Whether a candidate loses to the C library, beyond the noise, in any condition that both were measured in, and
/// the loss is not small beside what it gains in another.
fn loses_to_c_library(figures: &Figures, c_library: Option<&Figures>) -> bool {
    let Some(c_library) = c_library else { return false };
    let gain = |place: &Place, line: &Line| Some((c_library.0.get(place)?.ns() / line.ns()).ln());
    let allowed = allowed_loss(figures.0.iter().filter_map(|(place, line)| gain(place, line)));
    figures.0.iter().any(|(place, line)| {
        gain(place, line).is_some_and(|gain| {
            let threshold = noise(figures, c_library, &[*place]).ln_1p();
            gain < -threshold.max(allowed)
        })
    })
}

/// The C library's figures in a row.
pub(super) fn c_library(row: &Row) -> Option<(&Key, &Figures)> {
    row.iter().find(|(key, _)| key.is_c_library())
}

/// Whether a candidate may be chosen in a row at all.
pub(super) fn admissible(row: &Row, figures: &Figures) -> bool {
    !loses_to_c_library(figures, c_library(row).map(|(_, figures)| figures))
}

/// The choice by time alone; `None` for a row without candidates.
pub(super) fn fastest(row: &Row, previous: Option<&Key>) -> Option<Pick> {
    let (scored, places) = scored(row);
    let c_library = scored.iter().find(|candidate| candidate.key.is_c_library());
    let open: Vec<_> = scored
        .iter()
        .filter(|candidate| candidate.key.is_c_library() || admissible(row, candidate.figures))
        .collect();
    // The C library itself is always open; without it nobody is barred.
    let best = open.first()?;
    if let Some(plain) = c_library {
        let threshold = noise(best.figures, plain.figures, &places);
        // Where the neighbouring length's choice holds its lead, to leave it for the C library would be a change that
        // no gain speaks for.
        let leads = open.iter().any(|other| Some(other.key) == previous && other.score < plain.score);
        if plain.score <= best.score + threshold.ln_1p() && !leads {
            return Some(Pick { key: plain.key.clone(), reason: stays(plain, &scored) });
        }
    }
    let chosen = open.iter().find(|candidate| stays_on(candidate, best, previous, &places)).unwrap_or(best);
    Some(Pick { key: chosen.key.clone(), reason: wins(chosen, &scored, &places) })
}

/// Whether a candidate is the neighbouring length's choice and near enough to the best.
fn stays_on(candidate: &Scored<'_>, best: &Scored<'_>, previous: Option<&Key>, places: &[Place]) -> bool {
    let near = NEAR * least_noise(best.figures, candidate.figures, places);
    Some(candidate.key) == previous && candidate.score <= best.score + near.ln_1p()
}

/// Why the C library stays.
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

/// Why a method wins.
fn wins(chosen: &Scored<'_>, scored: &[Scored<'_>], places: &[Place]) -> String {
    let mut parts = Vec::new();
    if let Some(plain) = scored.iter().find(|other| other.key.is_c_library()) {
        parts.push(format!("{:.2} × c_library", (plain.score - chosen.score).exp()));
    }
    parts.push(evidence(chosen.figures, places));
    if let Some(other) =
        scored.iter().find(|other| other.key.method != chosen.key.method && !other.key.is_c_library())
    {
        let ratio = (other.score - chosen.score).exp();
        parts.push(format!("next best {} takes {ratio:.2} × its time", other.key.method));
    }
    parts.join("; ")
}

/// How many samples in how many conditions.
fn evidence(figures: &Figures, places: &[Place]) -> String {
    let samples = places.iter().map(|place| figures.0[place].summary.samples).min().unwrap_or_default();
    match places.len() {
        1 => format!("median of {samples} interleaved samples"),
        several => format!("medians of at least {samples} interleaved samples in {several} conditions"),
    }
}

/// What a method leaves in the cache; `None` for a name this library does not know.
fn effect(key: &Key) -> Option<CacheEffect> {
    method::by_name(&key.method).map(|method| method.effect)
}

/// The choice for `Stream`: among those that leave the cache alone the one that costs least together with the
/// disturbance, neither slower than the fastest that bypasses the cache (3 %) nor disturbing more than it. Without
/// such a method the choice by time.
pub(super) fn least_disturbing(row: &Row, previous: Option<&Key>) -> Option<Pick> {
    let spares = |wanted: &[CacheEffect]| -> Row {
        row.iter()
            .filter(|(key, _)| effect(key).is_some_and(|effect| wanted.contains(&effect)))
            .map(|(key, figures)| (key.clone(), figures.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let bypassing = spares(&[CacheEffect::Bypasses]);
    let candidates = spares(&[CacheEffect::Bypasses, CacheEffect::Evicts]);
    let (scored, places) = scored(&candidates);
    let operation = |figures: &Figures| figures.score(&places, Line::operation_ns);
    let reference = scored
        .iter()
        .filter(|candidate| bypassing.is_empty() || bypassing.contains_key(candidate.key))
        .min_by(|a, b| operation(a.figures).total_cmp(&operation(b.figures)));
    let Some(reference) = reference else { return fastest(row, previous) };
    let open: Vec<_> = scored
        .iter()
        .filter(|candidate| {
            operation(candidate.figures) <= operation(reference.figures) - STREAM_SLACK.ln()
                && !disturbs_more(candidate.figures, reference.figures, &places)
        })
        .collect();
    let best = open.first()?;
    let chosen = open.iter().find(|candidate| stays_on(candidate, best, previous, &places)).unwrap_or(best);
    let disturbance: f64 = places.iter().map(|place| chosen.figures.0[place].disturbance_ns).sum();
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
        disturbance / places.len().max(1) as f64 / 1000.0,
        evidence(chosen.figures, &places)
    );
    Some(Pick { key: chosen.key.clone(), reason })
}

/// Whether one disturbs a neighbour more than the other, beyond what the samples can tell.
fn disturbs_more(a: &Figures, b: &Figures, places: &[Place]) -> bool {
    places.iter().any(|place| {
        let (a, b) = (&a.0[place], &b.0[place]);
        let blur = a.summary.half_width().hypot(b.summary.half_width()).max(NOISE / 3.0 * b.ns());
        a.disturbance_ns > b.disturbance_ns + blur
    })
}
