//! Compares the candidates at one length, and says why one was chosen.

use std::collections::BTreeMap;

use bulkmem::method::{self, CacheEffect};

use crate::calibration::Condition;
use crate::calibration::derive::segments::Regrets;
use crate::calibration::derive::table::{
    FEWEST_SAMPLES, Figures, Key, Row, Timing, Weighted, shared_conditions, weigh,
};
use crate::calibration::search::spares_cache;
use crate::engine::stats::Summary;

/// Noise that is assumed of few samples, and wherever else two times are compared: where choices cross, of looks, threads and tunables.
pub(crate) const NOISE: f64 = 0.03;
/// Noise that is always assumed: a smaller gain changes nothing.
const LEAST_NOISE: f64 = 0.015;
/// So many samples show how much they vary.
const MANY_SAMPLES: u32 = 9;
/// The most noise that is assumed: a larger gain always counts.
const MOST_NOISE: f64 = 0.25;
/// Of equals, the C library is chosen.
const PREFERENCE: f64 = 0.001;
/// A method may lose to the C library in one condition by this share of its gain in another, both as logarithms. The
/// policy does not know whether a caller's memory is in the cache; being 2.6 times as fast if it is not is worth being
/// 0.9 times as fast if it is.
const LOSS_PER_GAIN: f64 = 0.125;
/// How often a lower speed than that counts.
const STREAM_PENALTY: f64 = 10.0;
/// Least speed of the choice for `Stream`, relative to the fastest method that does not fill the cache.
const STREAM_SLACK: f64 = 0.97;

/// A candidate with the mean logarithm of its times.
struct Scored<'a> {
    key: &'a Key,
    figures: &'a Figures,
    score: f64,
}

/// Returns the candidates of a row that can be compared, best first, and the conditions that they are compared in.
fn scored(row: &Row) -> (Vec<Scored<'_>>, Vec<Weighted>) {
    let conditions = shared_conditions(row);
    let comparable = row.iter().filter(|(_, figures)| figures.covers(&conditions));
    let conditions = weigh(row, &conditions);
    let mut scored: Vec<_> = comparable
        .map(|(key, figures)| Scored { key, figures, score: figures.score(&conditions, Timing::ns) })
        .collect();
    scored.sort_by(|a, b| a.score.total_cmp(&b.score));
    (scored, conditions)
}

/// Returns the least difference between two candidates that counts, as a ratio minus 1.
fn noise(a: &Figures, b: &Figures, conditions: &[Weighted]) -> f64 {
    let pairs: Vec<_> =
        conditions.iter().map(|(it, weight)| (*weight, &a.0[it].summary, &b.0[it].summary)).collect();
    noise_of(&pairs, least_noise(a, b, conditions))
}

/// Returns the noise of the weighted mean of such ratios, at least `least`, as a ratio minus 1.
pub(crate) fn noise_of(pairs: &[(f64, &Summary, &Summary)], least: f64) -> f64 {
    let relative = |it: &Summary| it.half_width() / it.median;
    let square = |(weight, a, b): &(f64, &Summary, &Summary)| {
        weight.powi(2) * (relative(a).powi(2) + relative(b).powi(2))
    };
    pairs.iter().map(square).sum::<f64>().sqrt().clamp(least, MOST_NOISE)
}

/// Returns the least noise to assume: few samples do not show how much they vary.
fn least_noise(a: &Figures, b: &Figures, conditions: &[Weighted]) -> f64 {
    let samples = |figures: &Figures| figures.samples(conditions.iter().map(|(it, _)| it));
    match samples(a).min(samples(b)) {
        0..FEWEST_SAMPLES => 4.0 * NOISE,
        FEWEST_SAMPLES..5 => 2.0 * NOISE,
        5..MANY_SAMPLES => NOISE,
        _ => LEAST_NOISE,
    }
}

/// Returns how much a method with these gains over the C library, by condition, may lose in another. All are logarithms.
pub(crate) fn allowed_loss(gains: impl Iterator<Item = f64>) -> f64 {
    LOSS_PER_GAIN * gains.fold(0.0, f64::max)
}

/// True if a candidate may be chosen: loses to the C library in no condition by more than the noise and by more than its
/// gain in another condition allows.
fn admissible(figures: &Figures, c_library: &Figures) -> bool {
    let gain = |(condition, timing): (&Condition, &Timing)| {
        Some((*condition, (c_library.0.get(condition)?.ns() / timing.ns()).ln()))
    };
    let telling = figures.0.iter().filter(|(_, timing)| timing.tells());
    let gains: Vec<(Condition, f64)> = telling.filter_map(gain).collect();
    let allowed = allowed_loss(gains.iter().map(|(_, gain)| *gain));
    let noise = |condition| {
        // A single sample of either may be a disturbed one.
        let single = figures.samples(&[condition]).min(c_library.samples(&[condition])) < 2;
        if single { MOST_NOISE } else { noise(figures, c_library, &[(condition, 1.0)]) }
    };
    let least = |condition| -noise(condition).ln_1p().max(allowed);
    gains.iter().all(|&(condition, gain)| gain >= least(condition))
}

pub(super) fn fastest(row: &Row) -> Regrets {
    let (scored, conditions) = scored(row);
    let c_library = row.get(&Key::c_library());
    let may_be_chosen = |candidate: &&Scored<'_>| {
        candidate.key.is_c_library() || c_library.is_none_or(|it| admissible(candidate.figures, it))
    };
    let open: Vec<_> = scored.iter().filter(may_be_chosen).collect();
    // The C library is always admissible, and so is every candidate if it was not measured.
    let Some(best) = open.first() else { return Regrets::new() };
    let regret = |candidate: &Scored<'_>| {
        let regret = candidate.score - best.score;
        // A gain within the noise is no gain.
        let noise = noise(best.figures, candidate.figures, &conditions).ln_1p();
        if candidate.key.is_c_library() { (regret - noise).max(0.0) } else { regret + PREFERENCE }
    };
    open.iter().map(|candidate| (candidate.key.clone(), regret(candidate))).collect()
}

/// Returns the regrets of all candidates by time, also of those that may not be chosen.
pub(super) fn regrets_of_all(row: &Row) -> Regrets {
    let (scored, _) = scored(row);
    let least = scored.first().map_or(0.0, |best| best.score);
    scored.iter().map(|it| (it.key.clone(), it.score - least)).collect()
}

/// Returns the reason for a choice by time, from the rows that it is for.
pub(super) fn why_fastest(key: &Key, rows: &[&Row]) -> String {
    let comparison = Comparison::of(key, rows);
    let next =
        comparison.others.iter().find(|(other, _)| !other.is_c_library() && other.method != key.method);
    let is_barred = |other: &Key, row: &&Row| {
        let both = row.get(other).zip(row.get(&Key::c_library()));
        both.is_some_and(|(own, c_library)| !admissible(own, c_library))
    };
    let takes = |(other, time): &(&Key, f64)| {
        let but = match time {
            // 1.00 in the text.
            0.995.. => "",
            _ if rows.iter().any(|row| is_barred(other, row)) => ", but loses to c_library in a condition",
            _ => ", but not over the whole range of lengths",
        };
        format!("next best {} takes {time:.2} × its time{but}", other.method)
    };
    if key.is_c_library() {
        return match next {
            None => "nothing else was measured".to_owned(),
            Some((other, time)) if *time < 1.0 => format!(
                "nothing is faster beyond the noise in every condition (nearest: {}, {:.2} × by geometric mean)",
                other.method,
                1.0 / time
            ),
            Some(next) => format!("the fastest; {}", takes(next)),
        };
    }
    let c_library = comparison.others.iter().find(|(other, _)| other.is_c_library());
    let gain = c_library.map(|(_, time)| format!("{time:.2} × c_library"));
    [gain, Some(comparison.basis()), next.map(takes)].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// A choice, compared with the other candidates over all rows that it is for.
struct Comparison<'r> {
    /// The others with their time in relation to the choice's, as a geometric mean; the fastest first.
    others: Vec<(&'r Key, f64)>,
    lengths: usize,
    conditions: usize,
    /// The least number of samples.
    samples: u32,
}

impl<'r> Comparison<'r> {
    fn of(key: &Key, rows: &[&'r Row]) -> Comparison<'r> {
        let mut times: BTreeMap<&Key, Vec<f64>> = BTreeMap::new();
        let (mut lengths, mut most, mut least) = (0, 0, u32::MAX);
        for row in rows {
            let (scored, conditions) = scored(row);
            let Some(own) = scored.iter().find(|candidate| candidate.key == key) else { continue };
            for other in scored.iter().filter(|other| other.key != key) {
                times.entry(other.key).or_default().push(other.score - own.score);
            }
            lengths += 1;
            most = most.max(conditions.len());
            least = least.min(own.figures.samples(conditions.iter().map(|(it, _)| it)));
        }
        // Those that were measured at most of the lengths, if there are any: the mean of one length says little.
        let longest = times.values().map(Vec::len).max().unwrap_or_default();
        times.retain(|_, times| times.len() * 2 >= longest);
        let mean = |times: &[f64]| (times.iter().sum::<f64>() / times.len() as f64).exp();
        let mut others: Vec<(&Key, f64)> =
            times.into_iter().map(|(key, times)| (key, mean(&times))).collect();
        others.sort_by(|a, b| a.1.total_cmp(&b.1));
        Comparison { others, lengths, conditions: most, samples: least }
    }

    fn basis(&self) -> String {
        if self.lengths == 0 {
            return "interpolated from the lengths around".to_owned();
        }
        let several = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        format!(
            "medians of at least {} interleaved samples at {} in {}",
            self.samples,
            several(self.lengths, "length"),
            several(self.conditions, "condition")
        )
    }
}

/// Returns the regrets for `Stream`: of the methods that do not fill the cache, by the time together with the
/// disturbance. They should be at most 3 % slower than the fastest that bypasses the cache, and not disturb more.
/// Without such a method, those by time.
pub(super) fn least_disturbing(row: &Row) -> Regrets {
    let effect = |key: &Key| method::by_name(&key.method).map(|method| method.effect);
    let bypasses = |key: &Key| effect(key) == Some(CacheEffect::Bypasses);
    let mut candidates = row.clone();
    candidates.retain(|key, _| bypasses(key) || effect(key) == Some(CacheEffect::Evicts));
    let any_bypasses = candidates.keys().any(bypasses);
    let (scored, conditions) = scored(&candidates);
    let operation = |it: &Scored<'_>| it.figures.score(&conditions, Timing::operation_ns);
    let references = scored.iter().filter(|candidate| !any_bypasses || bypasses(candidate.key));
    let Some(reference) = references.min_by(|a, b| operation(a).total_cmp(&operation(b))) else {
        return fastest(row);
    };
    // These weigh so much that they decide at all but single lengths, where a change would gain little; so the noise must not
    // count as a lower speed.
    let penalty = |it: &Scored<'_>| {
        let noise = noise(reference.figures, it.figures, &conditions).ln_1p();
        let slowest = operation(reference) + noise.max(-STREAM_SLACK.ln());
        let disturbs_more = disturbs_more(it.figures, reference.figures, &conditions);
        STREAM_PENALTY * (operation(it) - slowest).max(0.0) + if disturbs_more { 0.1 } else { 0.0 }
    };
    scored.iter().map(|it| (it.key.clone(), it.score - scored[0].score + penalty(it))).collect()
}

/// Returns the reason for a choice for `Stream`, from the rows that it is for.
pub(super) fn why_least_disturbing(key: &Key, rows: &[&Row]) -> String {
    let spares = key.choice().is_some_and(|choice| spares_cache(&choice));
    if !spares {
        return why_fastest(key, rows);
    }
    let own = rows.iter().filter_map(|row| row.get(key)).flat_map(|figures| figures.0.values());
    let disturbances: Vec<f64> = own.map(|timing| timing.disturbance_ns.max(0.0) / 1000.0).collect();
    format!(
        "of the methods that leave the cache alone, are at most {:.0} % slower than the fastest of them and disturb no more \
         than that one, the one that costs least together with what it costs a neighbour in the cache ({:.1} µs), over all \
         lengths; {}",
        (1.0 - STREAM_SLACK) * 100.0,
        disturbances.iter().sum::<f64>() / disturbances.len().max(1) as f64,
        Comparison::of(key, rows).basis()
    )
}

/// True if one candidate disturbs cached memory more than the other, by more than the samples vary.
fn disturbs_more(a: &Figures, b: &Figures, conditions: &[Weighted]) -> bool {
    conditions.iter().any(|(condition, _)| {
        let (a, b) = (&a.0[condition], &b.0[condition]);
        let blur = a.summary.half_width().hypot(b.summary.half_width()).max(NOISE / 3.0 * b.ns());
        a.disturbance_ns > b.disturbance_ns + blur
    })
}
