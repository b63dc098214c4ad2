//! Derives whether and how an operation looks at the cache state: the part whose time it takes, the threshold, and the
//! lengths for which it pays.

use std::collections::BTreeMap;

use bulkmem::Operation;

use crate::calibration::derive::pick::NOISE;
use crate::calibration::derive::table::{Key, Row};
use crate::calibration::{Condition, LookRule, UnmappedMethod};
use crate::engine::stats::median;
use crate::engine::workload::MemoryState;

/// Times of the first part of calls, by the method for parts, in ticks of the time stamp counter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartTimes {
    pub(crate) operation: Operation,
    /// Length of the calls, bytes.
    pub(crate) length: u64,
    pub(crate) part: u64,
    pub(crate) state: MemoryState,
    pub(crate) ticks: Vec<u64>,
}

/// Times of whole calls of one length in memory whose pages are not mapped yet, in the same ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnmappedTimes {
    pub(crate) operation: Operation,
    pub(crate) key: Key,
    pub(crate) ticks: Vec<u64>,
}

/// Shorter calls do not look: they take little longer than the look.
const LEAST_LENGTH: u64 = 64 << 10;
/// A look must gain so much, as a mean over the lengths it is for that can be cached, and the three states. Successive
/// calibrations of one machine differ by less, and a wrong verdict may cost more than that.
const LEAST_GAIN: f64 = 0.03;
/// A look that gains in unmapped memory may lose so much in mapped memory, as a mean over the lengths and the cache states.
const MOST_LOSS: f64 = 0.01;
/// A threshold is judged together with those that are larger and smaller by this factor. One that is close to the times of
/// a state would be passed by whatever makes memory a little slower or faster than during the calibration.
const MARGIN: f64 = 1.2;
/// Thresholds whose gains differ by less, as a mean over the lengths, gain the same: the one that tells the states apart is
/// chosen.
const SAME_GAIN: f64 = 0.005;
/// A part of memory that is not mapped must take so many times as long as one that is not cached.
const LEAST_RATIO: f64 = 1.5;

/// Logarithms of the times of one length in one state, by the method for the part, by that for cached memory, by that for
/// uncached memory, and by the rule by length.
#[derive(Clone, Copy)]
struct Times {
    part: f64,
    cached: f64,
    uncached: f64,
    by_length: f64,
}

/// One length with its times in both cache states. Beyond the caches there is only one.
struct Length {
    length: u64,
    when_cached: Option<Times>,
    when_uncached: Times,
    /// Gain of the method for unmapped pages over the rule by length, as a logarithm.
    when_unmapped: f64,
}

/// The methods at a length: for the part, for cached memory, for uncached memory, and by length alone.
pub(super) struct Methods<'k> {
    pub(super) part: &'k Key,
    pub(super) cached: &'k Key,
    pub(super) uncached: &'k Key,
    pub(super) by_length: &'k Key,
}

/// Returns how an operation looks; `None` if no look gains anything. `methods` returns the methods at a length.
pub(super) fn derive<'k>(
    operation: Operation,
    rows: &BTreeMap<u64, Row>,
    (times, unmapped): (&[PartTimes], &[UnmappedTimes]),
    methods: impl Fn(u64) -> Option<Methods<'k>>,
) -> Option<LookRule> {
    let unmapped = unmapped.iter().filter(|it| it.operation == operation);
    let unmapped: BTreeMap<&Key, f64> = unmapped.map(|it| (&it.key, middle(&it.ticks).ln())).collect();
    let part_key = rows.keys().find_map(|length| methods(*length))?.part;
    // Of equals, the method of the part.
    let gains = |(_, least): &(&&Key, &f64)| unmapped.get(part_key).is_none_or(|own| own - **least > NOISE);
    let fastest = unmapped.iter().min_by(|a, b| a.1.total_cmp(b.1));
    let for_unmapped = fastest.filter(gains).map_or(part_key, |(key, _)| *key);
    let lengths: Vec<Length> = rows
        .iter()
        .filter_map(|(&length, row)| {
            let methods = methods(length)?;
            let by_length = unmapped.get(methods.by_length);
            let when_unmapped = by_length.zip(unmapped.get(for_unmapped)).map_or(0.0, |(old, new)| old - new);
            let at = |warm| {
                let ln = |key: &Key| {
                    let condition = Condition { aligned: true, warm, threads: 1 };
                    Some(row.get(key)?.0.get(&condition)?.ns().ln())
                };
                let Methods { part, cached, uncached, by_length } = &methods;
                Some(Times {
                    part: ln(part)?,
                    cached: ln(cached)?,
                    uncached: ln(uncached)?,
                    by_length: ln(by_length)?,
                })
            };
            Some(Length { length, when_cached: at(true), when_uncached: at(false)?, when_unmapped })
        })
        .collect();
    let times: Vec<&PartTimes> = times.iter().filter(|it| it.operation == operation).collect();
    let mut parts: Vec<u64> = times.iter().map(|it| it.part).collect();
    parts.sort_unstable();
    parts.dedup();
    let looks = parts.into_iter().filter_map(|part| {
        let of_part: Vec<&PartTimes> = times.iter().copied().filter(|it| it.part == part).collect();
        look(operation, (part, part_key, for_unmapped), &lengths, &of_part)
    });
    looks.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, look)| look)
}

/// Returns the look with one length of the part, and the sum of what it gains over the lengths.
fn look(
    operation: Operation,
    (part, key, for_unmapped): (u64, &Key, &Key),
    lengths: &[Length],
    times: &[&PartTimes],
) -> Option<(f64, LookRule)> {
    let pooled = |states: &[MemoryState]| -> Vec<u64> {
        let of_states = times.iter().filter(|it| states.contains(&it.state));
        let mut all: Vec<u64> = of_states.flat_map(|it| &it.ticks).copied().collect();
        all.sort_unstable();
        all
    };
    let cached = pooled(&[MemoryState::Cached]);
    let uncached = pooled(&[MemoryState::Uncached, MemoryState::UncachedInStream]);
    let unmapped = pooled(&[MemoryState::Unmapped]);
    let slow = share(&uncached, 0.95)?;
    let fast = share(&unmapped, 0.05).filter(|fast| *fast as f64 >= LEAST_RATIO * slow as f64);
    let lengths: Vec<&Length> = lengths.iter().filter(|it| it.length >= LEAST_LENGTH.max(4 * part)).collect();
    // The mean of the gains in mapped memory with the threshold, a smaller one and a larger one.
    let mapped = |cached_below: u64, length: &Length| {
        let beside = [1.0 / MARGIN, 1.0, MARGIN].map(|factor| (cached_below as f64 * factor) as u64);
        beside.map(|below| gain(length, part, below, times, &uncached)).iter().sum::<f64>() / 3.0
    };
    let gains = |cached_below: u64| -> Vec<f64> {
        let mean = |length: &&Length| match mapped(cached_below, length) {
            mapped if fast.is_some() => (2.0 * mapped + length.when_unmapped) / 3.0,
            mapped => mapped,
        };
        lengths.iter().map(mean).collect()
    };
    let total = |cached_below: u64| gains(cached_below).iter().sum::<f64>();
    let right = |cached_below: u64| below(&cached, cached_below) - below(&uncached, cached_below);
    let thresholds = thresholds(&cached, &uncached).into_iter().map(|it| (it, total(it)));
    let thresholds: Vec<(u64, f64)> = thresholds.collect();
    let most = thresholds.iter().map(|(_, total)| *total).max_by(f64::total_cmp)?;
    let same = thresholds.into_iter().filter(|it| it.1 >= most - SAME_GAIN * lengths.len() as f64);
    let (cached_below, _) =
        same.max_by(|a, b| right(a.0).total_cmp(&right(b.0)).then(a.1.total_cmp(&b.1)))?;
    let gains = gains(cached_below);
    // From the length on where the sum of the gains is largest.
    let sum_from = |at: usize| gains[at..].iter().sum::<f64>();
    let first = (0..lengths.len()).max_by(|a, b| sum_from(*a).total_cmp(&sum_from(*b)))?;
    // Judged by the lengths that can be cached: at the others, the states hardly differ.
    let judged = (first..lengths.len()).filter(|at| lengths[*at].when_cached.is_some());
    let (judged, in_mapped): (Vec<f64>, Vec<f64>) =
        judged.map(|at| (gains[at], mapped(cached_below, lengths[at]))).unzip();
    let mean = |gains: &[f64]| gains.iter().sum::<f64>() / gains.len() as f64;
    if judged.is_empty() || mean(&judged) < LEAST_GAIN || mean(&in_mapped) < -MOST_LOSS {
        return None;
    }
    // Nearer to the times of uncached memory: the kernel maps pages faster for a program that just had some mapped.
    let between = |fast: u64| (slow as f64).powf(0.75) * (fast as f64).powf(0.25);
    let unmapped_from = fast.map(|fast| (between(fast) as u64).max(cached_below + 1));
    let mut reason = format!(
        "{:.2} × the rule by length as a geometric mean of the states; {part} bytes take {:.0} ticks cached, {:.0} uncached",
        mean(&judged).exp(),
        middle(&cached),
        middle(&uncached),
    );
    if !unmapped.is_empty() {
        reason += &format!(", {:.0} if the kernel must map pages", middle(&unmapped));
    }
    let (from, Key { method, parameters }) = (lengths[first].length, key.clone());
    let unmapped = (fast.is_some() && for_unmapped != key).then(|| {
        let Key { method, parameters } = for_unmapped.clone();
        UnmappedMethod { method, parameters }
    });
    let look =
        LookRule { operation, from, part, method, parameters, cached_below, unmapped_from, unmapped, reason };
    Some((sum_from(first), look))
}

fn middle(ticks: &[u64]) -> f64 {
    median(&ticks.iter().map(|it| *it as f64).collect::<Vec<_>>())
}

/// Returns the thresholds worth trying: between any two neighbouring times of the two states.
fn thresholds(cached: &[u64], uncached: &[u64]) -> Vec<u64> {
    let mut all = [cached, uncached].concat();
    all.sort_unstable();
    all.dedup();
    all.windows(2).map(|pair| ((pair[0] as f64 * pair[1] as f64).sqrt() as u64).max(pair[0] + 1)).collect()
}

/// Returns the share of the times that a threshold takes for cached memory.
fn below(ticks: &[u64], cached_below: u64) -> f64 {
    ticks.iter().filter(|it| **it < cached_below).count() as f64 / ticks.len().max(1) as f64
}

/// Returns what a look gains over the rule by length, as a logarithm, the mean of both cache states.
fn gain(length: &Length, part: u64, cached_below: u64, times: &[&PartTimes], uncached: &[u64]) -> f64 {
    let gain = |it: Times, found_cached: f64| {
        let looked = part as f64 / length.length as f64;
        let then = |rest: f64| (looked * it.part.exp() + (1.0 - looked) * rest.exp()).ln();
        it.by_length - (found_cached * then(it.cached) + (1.0 - found_cached) * then(it.uncached))
    };
    let cold = gain(length.when_uncached, below(uncached, cached_below));
    let own = times.iter().find(|it| (it.state, it.length) == (MemoryState::Cached, length.length));
    match (length.when_cached, own) {
        (Some(warm), Some(own)) => (gain(warm, below(&own.ticks, cached_below)) + cold) / 2.0,
        _ => cold,
    }
}

/// Returns the time that this share of the rising times does not exceed.
fn share(rising: &[u64], share: f64) -> Option<u64> {
    rising.get((share * rising.len().saturating_sub(1) as f64).round() as usize).copied()
}

#[cfg(test)]
mod tests;
