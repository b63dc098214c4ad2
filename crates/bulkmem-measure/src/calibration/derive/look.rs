//! Derives whether and how an operation looks at the cache state: the thresholds, and the lengths for which it pays.

use std::collections::BTreeMap;

use bulkmem::Operation;
use bulkmem::probe::{self, Times as LookTimes};

use crate::calibration::derive::pick::{NOISE, allowed_loss, noise_of};
use crate::calibration::derive::table::{Figures, Key, Row};
use crate::calibration::{Condition, LookRule, NewHugeRule, UnmappedRule};
use crate::engine::Threshold;
use crate::engine::memory_state::MemoryState;
use crate::engine::stats::{Summary, median};
use crate::engine::units::bytes;

/// What was measured besides the figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    pub(crate) looks: Vec<Looked>,
    pub(crate) unmapped: Vec<UnmappedTimes>,
    /// At rising lengths of each operation.
    pub(crate) new_huge: Vec<NewHugeTimes>,
    pub(crate) ns_per_tick: f64,
    /// The second-level cache, bytes.
    pub(crate) second_level: u64,
    /// The lengths from which the C library bypasses the cache.
    pub(crate) thresholds: Vec<Threshold>,
}

impl Samples {
    /// Returns the length from which the C library's function for an operation bypasses the cache, if that was located.
    pub(super) fn c_library_bypasses_from(&self, operation: Operation) -> Option<u64> {
        let of_function = match operation {
            // Both are memset.
            Operation::Fill => Operation::Clear,
            other => other,
        };
        let threshold = self.thresholds.iter().find(|it| it.operation == of_function)?;
        // Not if there was no time to narrow it down, nor if every length that was tried lies above.
        threshold.uncached.filter(|above| above.saturating_sub(threshold.cached) <= threshold.cached / 16)
    }

    /// Returns the rising times that looks of an operation took to reach pages in a state.
    ///
    /// Every operation that does not persist reaches them by the same stores. A disturbance only makes that longer, for example a host
    /// that gives a virtual machine its memory when it is first touched, or moves it. So the operation whose slow times are the
    /// shortest counts for all that were measured in that state. Not in new huge pages, of which the kernel may have had none: base
    /// pages are faster to reach. Pages of a long range take longer to reach, but whether such a range is mapped is found out at its
    /// beginning.
    fn reaching(&self, operation: Operation, state: MemoryState) -> Vec<u64> {
        let huge = state == MemoryState::UnmappedHuge;
        let of = |operation: Operation| {
            let own = || self.looks.iter().filter(move |it| it.operation == operation);
            let shortest = own().map(|it| it.length).min();
            let own = own().filter(|it| it.state == state && (huge || Some(it.length) == shortest));
            rising(own.flat_map(|it| &it.times).map(|it| it.reaching))
        };
        let own = of(operation);
        if own.is_empty() || huge {
            return own;
        }
        let others = Operation::ALL.into_iter().filter(|it| it.persists() == operation.persists());
        let others = others.map(of).filter(|it| !it.is_empty());
        others.min_by_key(|it| usual(it).map(|[_, slow]| slow)).unwrap_or(own)
    }
}

/// Times of looks at memory in a known state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Looked {
    pub(crate) operation: Operation,
    /// Length of the calls, bytes.
    pub(crate) length: u64,
    pub(crate) state: MemoryState,
    pub(crate) times: Vec<LookTimes>,
}

/// Times of whole calls in memory whose pages are not mapped yet, in ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnmappedTimes {
    pub(crate) operation: Operation,
    pub(crate) key: Key,
    /// For each of the configurations.
    pub(crate) ticks: Vec<Vec<u64>>,
}

/// Times of whole calls in new huge pages, in ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewHugeTimes {
    pub(crate) operation: Operation,
    /// Length of the calls, bytes.
    pub(crate) length: u64,
    /// By the method for unmapped memory, and by that for memory that is not cached.
    pub(crate) ticks: [Vec<u64>; 2],
    /// The latter.
    pub(crate) bypassing: Key,
}

impl NewHugeTimes {
    /// Returns what the method for memory that is not cached gains, as a logarithm.
    fn gain(&self) -> f64 {
        let [through_cache, bypassing] = self.ticks.each_ref().map(|ticks| middle(ticks.iter().copied()));
        (through_cache / bypassing).ln()
    }
}

impl UnmappedTimes {
    /// Returns the summaries of the times, one for each configuration. Each has samples.
    fn summaries(&self) -> Vec<Summary> {
        let of = |ticks: &Vec<u64>| Summary::of(&ticks.iter().map(|it| *it as f64).collect::<Vec<_>>());
        let summaries: Vec<Summary> = self.ticks.iter().filter_map(of).collect();
        debug_assert_eq!(summaries.len(), self.ticks.len(), "configurations are compared by their place");
        summaries
    }

    /// Returns the mean of the medians' logarithms.
    pub(crate) fn mean(&self) -> f64 {
        mean_of_medians(&self.summaries())
    }
}

/// Shorter calls do not look: they take little longer than the look.
pub(crate) const LEAST_LENGTH: u64 = 64 << 10;
/// A look must gain so much, as a mean over the lengths it is for that can be cached, and the three states: a wrong
/// verdict may cost more than a smaller gain.
const LEAST_GAIN: f64 = 0.02;
/// A look may lose so much in mapped memory, as a mean over the lengths and the cache states; more if that is small beside its
/// gain in unmapped memory.
const MOST_LOSS: f64 = 0.01;
/// A threshold is judged together with one that is smaller by this factor and one that is larger by its square root. One that is
/// close to the times of a state would be passed by whatever makes memory a little slower or faster than during the calibration.
/// There is more room on the cache's side: lower clocks, load, and lines that move to the third level make caches slower, and on a
/// host that rested during the calibration, memory gets no faster.
const MARGIN: f64 = 1.2;
/// As [`MARGIN`], for the place between the states: with so much room on both sides, a threshold is two thirds of the way.
const WIDE_MARGIN: f64 = 1.4;
/// The single stores of a look at a long uncached range.
const SINGLE_STORES: f64 = 4.0;
/// Reaching pages that are not mapped must take so many times as long as reaching others.
const LEAST_RATIO: f64 = 1.5;
/// Reaching a huge page, of which the kernel clears 512 times as much, must take so many times as long as reaching base pages.
const LEAST_HUGE_RATIO: f64 = 4.0;

/// Logarithms of the times of one length in one state, by the method for cached memory, by that for uncached memory, and by
/// the rule by length.
#[derive(Clone, Copy)]
struct Times {
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

/// The methods at a length: for cached memory, for uncached memory, and by length alone.
pub(super) struct Methods<'k> {
    pub(super) cached: &'k Key,
    pub(super) uncached: &'k Key,
    pub(super) by_length: &'k Key,
}

/// Returns how an operation looks; `None` if no look gains anything. `methods` returns the methods at a length.
pub(super) fn derive<'k>(
    operation: Operation,
    rows: &BTreeMap<u64, Row>,
    samples: &Samples,
    methods: impl Fn(u64) -> Option<Methods<'k>>,
) -> Option<LookRule> {
    let unmapped = unmapped_times(operation, &samples.unmapped);
    let for_unmapped = fastest(&unmapped);
    let lengths = rows.iter().filter(|(length, _)| **length >= LEAST_LENGTH);
    let lengths: Vec<Length> = lengths
        .filter_map(|(&length, row)| {
            let methods = methods(length)?;
            let by_length = unmapped.get(methods.by_length);
            let when_unmapped =
                by_length.zip(for_unmapped).map_or(0.0, |(old, (_, new))| mean_of_medians(old) - new);
            let at = |warm| {
                let Methods { cached, uncached, by_length } = &methods;
                let [cached, uncached, by_length] = [cached, uncached, by_length].map(|key| row.get(key));
                let all = [cached?, uncached?, by_length?];
                let known = |it: &Condition| all.iter().all(|figures| figures.0.contains_key(it));
                // Also of different states of the source, where all three have them.
                let counts = |it: &&Condition| it.aligned && it.warm == warm && it.threads == 1 && known(it);
                let conditions: Vec<&Condition> = all[0].0.keys().filter(counts).collect();
                let ln = |figures: &Figures| {
                    let ln: Vec<f64> = conditions.iter().map(|it| figures.0[*it].ns().ln()).collect();
                    mean(&ln)
                };
                let [cached, uncached, by_length] = all.map(ln);
                (!conditions.is_empty()).then_some(Times { cached, uncached, by_length })
            };
            Some(Length { length, when_cached: at(true), when_uncached: at(false)?, when_unmapped })
        })
        .collect();
    let looked: Vec<&Looked> = samples.looks.iter().filter(|it| it.operation == operation).collect();
    let own = samples.new_huge.iter().filter(|it| it.operation == operation);
    // The choice for uncached memory may have become another one: it also counts what wrong verdicts cost.
    let new_huge: Vec<&NewHugeTimes> =
        own.filter(|it| methods(it.length).is_some_and(|of| *of.uncached == it.bypassing)).collect();
    let for_unmapped = for_unmapped.map(|(key, _)| ForUnmapped { key, new_huge: &new_huge });
    look(operation, for_unmapped, &lengths, &looked, samples)
}

/// Returns the method for unmapped memory, if methods were compared there.
pub(crate) fn for_unmapped(operation: Operation, samples: &Samples) -> Option<&Key> {
    fastest(&unmapped_times(operation, &samples.unmapped)).map(|(key, _)| key)
}

/// The method for unmapped memory, and how it compares in new huge pages.
#[derive(Clone, Copy)]
struct ForUnmapped<'s> {
    key: &'s Key,
    new_huge: &'s [&'s NewHugeTimes],
}

impl ForUnmapped<'_> {
    /// Returns the calls that do new huge pages by the method for memory that is not cached, by the times of reaching base pages and
    /// huge pages that are not mapped: from the shortest length on from which each that was measured gains.
    fn in_new_huge_pages(&self, base: &[u64], huge: &[u64]) -> Option<NewHugeRule> {
        let [slow, fast] = told_apart(base, huge)?;
        let shortest = self.new_huge.iter().rev().take_while(|it| it.gain() >= NOISE).last()?;
        // Base pages take longer to reach for a program that was interrupted there, or whose memory the host must map, too.
        Some(NewHugeRule { from: between(slow, fast), length: shortest.length })
    }
}

/// Returns each method's times in unmapped memory, one for each configuration: where pages must be mapped,
/// some instructions start again at each, which takes longer at odd addresses, and what the kernel clears of a huge page is in
/// another cache than a base page.
fn unmapped_times(operation: Operation, all: &[UnmappedTimes]) -> BTreeMap<&Key, Vec<Summary>> {
    let own = all.iter().filter(|it| it.operation == operation);
    own.map(|it| (&it.key, it.summaries())).collect()
}

fn mean_of_medians(summaries: &[Summary]) -> f64 {
    mean(&summaries.iter().map(|it| it.median.ln()).collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the fastest method with the mean of its times; the C library, if none is faster by more than [`NOISE`]. It may lose to
/// the C library in one configuration by as much as the two vary there, at least [`NOISE`], or by some of its gain in another.
fn fastest<'k>(times: &BTreeMap<&'k Key, Vec<Summary>>) -> Option<(&'k Key, f64)> {
    let library = times.iter().find(|(key, _)| key.is_c_library());
    let may_be_chosen = |own: &[Summary]| {
        library.is_none_or(|(_, library)| {
            let pairs = || library.iter().zip(own);
            let gain = |(library, own): (&Summary, &Summary)| (library.median / own.median).ln();
            let allowed = allowed_loss(pairs().map(gain));
            pairs().all(|pair| gain(pair) >= -noise_of(&[(1.0, pair.0, pair.1)], NOISE).ln_1p().max(allowed))
        })
    };
    let open = times.iter().filter(|(_, own)| may_be_chosen(own));
    let fastest = open.map(|(key, own)| (*key, mean_of_medians(own))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let library = library.map(|(key, own)| (*key, mean_of_medians(own)));
    Some(library.filter(|(_, ln)| ln - fastest.1 <= NOISE).unwrap_or(fastest))
}

/// Returns the look with the thresholds and the shortest length that gain most.
fn look(
    operation: Operation,
    for_unmapped: Option<ForUnmapped<'_>>,
    lengths: &[Length],
    looked: &[&Looked],
    samples: &Samples,
) -> Option<LookRule> {
    let times = |state: MemoryState| {
        looked.iter().filter(move |it| it.state == state).flat_map(|it| &it.times).copied()
    };
    let storing = |state| rising(times(state).filter_map(|it| it.storing));
    let reaching = |state| samples.reaching(operation, state);
    let (cached, uncached) = (storing(MemoryState::Cached), storing(MemoryState::Uncached));
    let [_, slow] = usual(&reaching(MemoryState::Uncached))?;
    let unmapped = reaching(MemoryState::Unmapped);
    let fast = usual(&unmapped).map(|[fast, _]| fast);
    let fast = fast.filter(|fast| *fast as f64 >= LEAST_RATIO * slow as f64);
    let fast = fast.filter(|_| for_unmapped.is_some());
    // The times of looks at short and at long uncached ranges; those of the others if one kind was not measured.
    let of_kind = |long: bool| {
        let of = looked.iter().filter(|it| it.state == MemoryState::Uncached && is_long(it.length) == long);
        rising(of.flat_map(|it| &it.times).filter_map(|it| it.storing))
    };
    let [short_uncached, long_uncached] =
        [false, true].map(of_kind).map(|own| if own.is_empty() { uncached.clone() } else { own });
    // In cached memory the first stores tell. In uncached memory the look waits for lines twice, and in a long range for single ones;
    // the call must translate the addresses in any case.
    let ns = |ticks: f64| ticks * samples.ns_per_tick;
    let in_cached = ns(middle(times(MemoryState::Cached).map(|it| it.reaching)));
    let twice = 2.0 * middle(short_uncached.iter().copied());
    let singles = SINGLE_STORES * middle(long_uncached.iter().copied());
    // The mean of the gains in mapped memory with the threshold, a smaller one and a larger one.
    let mapped = |cached_below: u64, length: &Length| {
        let (waits, uncached) =
            if is_long(length.length) { (twice + singles, &long_uncached) } else { (twice, &short_uncached) };
        let costs = Costs { cached: in_cached, uncached: ns(waits) };
        let gains = beside(cached_below, MARGIN).map(|below| gain(length, &costs, below, looked, uncached));
        gains.iter().sum::<f64>() / 3.0
    };
    let gains = |cached_below: u64| -> Vec<f64> {
        let mean = |length: &Length| match mapped(cached_below, length) {
            mapped if fast.is_some() => (2.0 * mapped + length.when_unmapped) / 3.0,
            mapped => mapped,
        };
        lengths.iter().map(mean).collect()
    };
    let cached_below = separating(&cached, &uncached)?;
    let gains = gains(cached_below);
    // Judged by the lengths that can be cached: at the others, the states hardly differ.
    let mean = |from: usize, gain: &dyn Fn(usize) -> f64| {
        let judged = (from..lengths.len()).filter(|at| lengths[*at].when_cached.is_some());
        let judged: Vec<f64> = judged.map(gain).collect();
        judged.iter().sum::<f64>() / judged.len() as f64
    };
    let gain_from = |from: usize| mean(from, &|at| gains[at]);
    let pays = |from: &usize| {
        let in_mapped = mean(*from, &|at| mapped(cached_below, &lengths[at]));
        let in_unmapped = if fast.is_some() { mean(*from, &|at| lengths[at].when_unmapped) } else { 0.0 };
        gain_from(*from) >= LEAST_GAIN && in_mapped >= -MOST_LOSS.max(allowed_loss([in_unmapped].into_iter()))
    };
    // Of the lengths from which it pays, the one from which the sum of the gains is largest.
    let sum_from = |at: usize| gains[at..].iter().sum::<f64>();
    let first = (0..lengths.len()).filter(pays).max_by(|a, b| sum_from(*a).total_cmp(&sum_from(*b)))?;
    let mut reason = format!(
        "{:.2} × the rule by length as a geometric mean of the states; storing to the lines takes {:.0} ticks cached, {:.0} \
         uncached",
        gain_from(first).exp(),
        middle(cached.iter().copied()),
        middle(uncached.iter().copied()),
    );
    if !unmapped.is_empty() {
        let [mapped, unmapped] =
            [MemoryState::Uncached, MemoryState::Unmapped].map(|it| middle(reaching(it).into_iter()));
        reason += &format!("; reaching the pages {mapped:.0}, {unmapped:.0} if the kernel must map them");
    }
    // Programs meet times between these: mapped pages are slower to reach in a long range, where each needs a translation that
    // is not cached, and under load; the kernel maps pages faster for a program that just had some mapped. Mapped memory that
    // is not cached loses most by a wrong verdict, so the threshold is nearer to the times of unmapped memory.
    let huge = reaching(MemoryState::UnmappedHuge);
    let from = fast.map(|fast| between(slow as f64, fast as f64));
    let unmapped = from.zip(for_unmapped).map(|(from, for_unmapped)| {
        let Key { method, parameters } = for_unmapped.key.clone();
        UnmappedRule { from, method, parameters, huge: for_unmapped.in_new_huge_pages(&unmapped, &huge) }
    });
    if let Some(UnmappedRule { huge: Some(_), .. }) = unmapped {
        let gains = for_unmapped.map_or(&[][..], |it| it.new_huge).iter();
        let gains = gains.map(|it| format!("{:.2} × at {}", it.gain().exp(), bytes(it.length)));
        let (gains, huge) = (gains.collect::<Vec<_>>().join(", "), middle(huge.into_iter()));
        reason += &format!(", and {huge:.0} if it must map huge ones; bypassing the cache there: {gains}");
    }
    Some(LookRule { operation, from: lengths[first].length, cached_below, unmapped, reason })
}

/// Returns by length how likely memory that a look finds uncached is cached all the same.
///
/// As likely as a look missed cached memory of that length during calibration. The longer a range, the less likely is it cached at all.
pub(super) fn wrong_verdicts(operation: Operation, samples: &Samples) -> BTreeMap<u64, f64> {
    let own = || samples.looks.iter().filter(|it| it.operation == operation);
    let storing = |looked: &Looked| -> Vec<u64> { looked.times.iter().filter_map(|it| it.storing).collect() };
    let of = |state| -> Vec<u64> { own().filter(|it| it.state == state).flat_map(storing).collect() };
    let (cached, uncached) = (of(MemoryState::Cached), of(MemoryState::Uncached));
    let threshold = separating(&cached, &uncached);
    let cached_all_the_same = |looked: &Looked| {
        let missed = threshold.map_or(0.0, |at| 1.0 - below(&storing(looked), at));
        let as_likely_as_not = 2 * samples.second_level;
        let cached = (as_likely_as_not as f64 / looked.length as f64).min(1.0) / 2.0;
        cached * missed / (cached * missed + 1.0 - cached)
    };
    let own = own().filter(|it| it.state == MemoryState::Cached);
    own.map(|it| (it.length, cached_all_the_same(it))).collect()
}

/// Returns the longest of the times of reaching base pages and the shortest of huge pages, but for a few; `None` if the states cannot be
/// told apart.
fn told_apart(base: &[u64], huge: &[u64]) -> Option<[f64; 2]> {
    let ([_, slow], [fast, _]) = (usual(base)?, usual(huge)?);
    let [slow, fast] = [slow, fast].map(|ticks| ticks as f64);
    (fast >= LEAST_HUGE_RATIO * slow).then_some([slow, fast])
}

/// True if the time to reach pages that are not mapped tells huge pages from base pages.
pub(crate) fn tells_huge_pages(operation: Operation, samples: &Samples) -> bool {
    let [base, huge] = [MemoryState::Unmapped, MemoryState::UnmappedHuge];
    told_apart(&samples.reaching(operation, base), &samples.reaching(operation, huge)).is_some()
}

/// Returns a threshold between times that is nearer to the longer ones.
fn between(slow: f64, fast: f64) -> u64 {
    (slow.powf(0.4) * fast.powf(0.6)) as u64
}

/// True if a look at a range of that length stores to single lines, too.
fn is_long(length: u64) -> bool {
    length > probe::LONG as u64
}

fn rising(ticks: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut ticks: Vec<u64> = ticks.collect();
    ticks.sort_unstable();
    ticks
}

fn middle(ticks: impl Iterator<Item = u64>) -> f64 {
    median(&ticks.map(|it| it as f64).collect::<Vec<_>>())
}

/// Returns the threshold that best tells the times of the two states apart, of those between any two neighbouring times.
///
/// The gain of calls does not select it: if the method for uncached memory happens to be faster in the third-level cache, that
/// would be a threshold close to the times of the second-level cache.
fn separating(cached: &[u64], uncached: &[u64]) -> Option<u64> {
    let mut all = [cached, uncached].concat();
    all.sort_unstable();
    all.dedup();
    let between = |pair: &[u64]| {
        let [low, high] = [pair[0] as f64, pair[1] as f64];
        ((low * high * high).cbrt() as u64).max(pair[0] + 1)
    };
    let separation = |at: &u64| -> f64 {
        let near_and_far = [MARGIN, WIDE_MARGIN].map(|margin| beside(*at, margin));
        near_and_far.as_flattened().iter().map(|at| below(cached, *at) - below(uncached, *at)).sum()
    };
    all.windows(2).map(between).max_by(|a, b| separation(a).total_cmp(&separation(b)))
}

/// Returns a threshold with one that is smaller by a factor and one that is larger by its square root.
fn beside(threshold: u64, margin: f64) -> [u64; 3] {
    [1.0 / margin, 1.0, margin.sqrt()].map(|factor| (threshold as f64 * factor) as u64)
}

/// Returns the share of the times that a threshold takes for cached memory.
fn below(ticks: &[u64], cached_below: u64) -> f64 {
    ticks.iter().filter(|it| **it < cached_below).count() as f64 / ticks.len().max(1) as f64
}

/// What a look costs in each state, ns.
struct Costs {
    cached: f64,
    uncached: f64,
}

/// Returns what a look gains over the rule by length, as a logarithm, the mean of both cache states.
fn gain(length: &Length, costs: &Costs, cached_below: u64, looked: &[&Looked], uncached: &[u64]) -> f64 {
    let gain = |it: Times, cost: f64, found_cached: f64| {
        let then = |rest: f64| (cost + rest.exp()).ln();
        it.by_length - (found_cached * then(it.cached) + (1.0 - found_cached) * then(it.uncached))
    };
    let cold = gain(length.when_uncached, costs.uncached, below(uncached, cached_below));
    let own = looked.iter().find(|it| (it.state, it.length) == (MemoryState::Cached, length.length));
    match (length.when_cached, own) {
        (Some(warm), Some(own)) => {
            let storing: Vec<u64> = own.times.iter().filter_map(|it| it.storing).collect();
            (gain(warm, costs.cached, below(&storing, cached_below)) + cold) / 2.0
        }
        _ => cold,
    }
}

/// Returns the shortest and the longest of rising times, except a twentieth at each end, and at least one if there are five or more.
/// An interruption is longer than any difference between the states, and a page that was mapped already is faster.
fn usual(rising: &[u64]) -> Option<[u64; 2]> {
    let rare = (rising.len() / 20).max(usize::from(rising.len() >= 5));
    let usual = rising.get(rare..rising.len() - rare)?;
    Some([*usual.first()?, *usual.last()?])
}

#[cfg(test)]
mod tests;
