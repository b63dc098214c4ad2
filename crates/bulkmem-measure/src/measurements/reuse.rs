//! When caching pays off because the result is read soon: an operation, then reading a share of its result.

use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect};
use bulkmem::{Intent, Operation};

use crate::engine::FILL_BYTE;
use crate::engine::LINE;
use crate::engine::arena::RawRange;
use crate::engine::buffer::{Buffer, Content, fits};
use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::memory;
use crate::engine::run::{Measure, Run, SINGLE, Sampler};
use crate::engine::stats::{bootstrap, median};
use crate::engine::units::bytes;
use crate::engine::{Config, Measurement, Metric, PageSize, Peers, Row};
use crate::measurements::checks::invalid;
use crate::measurements::participants::{participants, record_choices, sampler};
use crate::measurements::slots::Slots;
use crate::{Kind, MeasureError, OptionName, memory_left};

/// Least time of a sample.
const SAMPLE_NS: f64 = 2e6;

/// Options for measuring when caching the result pays off.
#[derive(Clone, Debug)]
pub struct ReuseOptions {
    /// Clear, fill or copy.
    pub operations: Vec<Operation>,
    /// Bytes.
    pub sizes: Vec<u64>,
    /// Shares of the result that are read back, percent, in rising order.
    pub shares: Vec<f64>,
    /// Bytes of memory that destinations are spread over, and sources over as much. Default: twice the last-level cache
    /// and at least two operations. If equal to the size, every operation uses the same memory.
    pub footprint: Option<u64>,
    /// The page size of the memory.
    pub page_size: PageSize,
    /// The methods.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl Default for ReuseOptions {
    /// Clear and copy of 32 KiB to 64 MiB, of which nothing to everything is read back; transparent huge pages, 5 samples.
    /// Smaller sizes and a smaller footprint if memory does not suffice.
    fn default() -> ReuseOptions {
        let sizes = [32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
        let most = memory_left().most();
        let enough = Machine::current().caches.sane().l3.saturating_mul(5) <= most;
        ReuseOptions {
            operations: vec![Operation::Clear, Operation::Copy],
            sizes: memory::defaults(sizes, |size| size * 5),
            shares: vec![0.0, 6.25, 12.5, 25.0, 50.0, 75.0, 100.0],
            footprint: (!enough).then_some(most / 4),
            page_size: PageSize::TRANSPARENT,
            methods: MethodSet::Representative,
            peers: Peers::All,
            runs: 5,
        }
    }
}

impl ReuseOptions {
    /// Bytes that destinations of a size are spread over: whole slots.
    fn destinations(&self, size: u64) -> u64 {
        let usual = || (Machine::current().caches.sane().l3 * 2).max(size.saturating_mul(2));
        self.footprint.unwrap_or_else(usual).div_ceil(size).max(1).saturating_mul(size)
    }

    fn needed(&self, operation: Operation, size: u64) -> u64 {
        let sides = if operation == Operation::Copy { 2 } else { 1 };
        self.destinations(size).saturating_mul(sides)
    }
}

impl Measure for ReuseOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Reuse
    }

    fn validate(&self) -> Result<(), MeasureError> {
        for &operation in &self.operations {
            if !matches!(operation, Operation::Clear | Operation::Fill | Operation::Copy) {
                return invalid(
                    OptionName::Operations,
                    format!("the result of {operation} is not read back here; name clear, fill or copy"),
                );
            }
            implementation::methods(&self.methods, operation)?;
            for &size in &self.sizes {
                if size < LINE as u64 {
                    return invalid(
                        OptionName::Sizes,
                        format!("{size} bytes are less than a cache line; name at least 64 bytes"),
                    );
                }
                fits(self.needed(operation, size))?;
            }
        }
        if let Some(share) = self.shares.iter().find(|share| !(0.0..=100.0).contains(*share)) {
            return invalid(
                OptionName::Shares,
                format!("{share} is not a share; name percentages from 0 to 100"),
            );
        }
        if self.shares.is_empty() || self.shares.windows(2).any(|pair| pair[0] >= pair[1]) {
            return invalid(OptionName::Shares, "give at least one, in rising order: 0,25,100");
        }
        self.page_size.check()
    }

    fn seconds(&self) -> f64 {
        let sample = |size: u64| (size as f64 / 5.0).max(SAMPLE_NS * 1.5) / 1e9;
        let sizes: f64 = self.sizes.iter().map(|size| sample(*size)).sum();
        let groups = (self.operations.len() * self.shares.len()) as f64;
        groups * sizes * (self.runs + 1) as f64 * 12.0
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.operations.len() * self.sizes.len() * self.shares.len());
        for &operation in &self.operations {
            for &size in &self.sizes {
                if run.stopped() {
                    break;
                }
                run.say("preparing memory", 0.0);
                let needed = self.needed(operation, size);
                let mut memory = Buffer::new(needed, self.page_size, Content::Mixed)?;
                run.backed_by(memory.backing_page_size());
                for &share in &self.shares {
                    if run.stopped() {
                        break;
                    }
                    let whole = memory.raw_range();
                    let mut samplers = self.samplers(run, operation, size, share, whole)?;
                    let what = format!("{operation} of {}, {share} % read", bytes(size));
                    run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
                }
            }
        }
        if self.runs < 2 {
            run.note(SINGLE);
            return Ok(());
        }
        for operation in &self.operations {
            let of = |row: &&Row| row.config.operation == Some(*operation);
            let payoffs = payoffs(&run.rows().filter(of).collect::<Vec<_>>());
            if let Some(text) = conclusion(*operation, &payoffs) {
                run.add_finding(text);
            } else {
                run.note(format!(
                    "{operation}: no comparison of caching and bypassing: it needs a method of each kind; `bulkmem \
                     methods` lists their effects on the cache"
                ));
            }
        }
        Ok(())
    }
}

impl ReuseOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        operation: Operation,
        size: u64,
        share: f64,
        whole: RawRange,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let implementations = participants(run, operation, &Intent::ALL, length, &self.methods, self.peers)?;
        let config = Config {
            operation: Some(operation),
            size: Some(size),
            read_back: Some(share),
            page_size: Some(self.page_size),
            ..Config::default()
        };
        record_choices(run, &implementations, &config, length);
        let samplers = implementations.into_iter().map(|implementation| {
            let slots = Slots::new(whole, length, operation == Operation::Copy);
            let mut reuse = Reuse { implementation, operation, slots, length, share, repeats: None };
            sampler(implementation.candidate(), &config, true, move || Ok(reuse.sample().into()))
        });
        Ok(samplers.collect())
    }
}

/// Samples one candidate: the operation, then reading a share of the result.
struct Reuse<'p> {
    implementation: Implementation<'p>,
    operation: Operation,
    slots: Slots,
    length: usize,
    /// Percent.
    share: f64,
    repeats: Option<usize>,
}

impl Reuse<'_> {
    fn once(&mut self) {
        let (dst, src) = self.slots.next();
        // SAFETY: slots lie in memory that the measurement keeps while samplers live, and that no other code uses.
        unsafe {
            self.implementation.run(self.operation, dst, src, self.length, FILL_BYTE);
            read_share(dst, self.length, self.share);
        }
    }

    /// GB/s of the operation and the reading together.
    fn sample(&mut self) -> f64 {
        let repeats = self.repeats.unwrap_or_else(|| {
            let start = Instant::now();
            self.once();
            (SAMPLE_NS / start.elapsed().as_nanos().max(1) as f64).ceil() as usize
        });
        self.repeats = Some(repeats);
        let start = Instant::now();
        for _ in 0..repeats {
            self.once();
        }
        (repeats * self.length) as f64 / (start.elapsed().as_secs_f64() * 1e9)
    }
}

/// Reads a share of the lines of a range, percent, spread evenly over it.
///
/// Evenly, because a program that receives a page touches parts of all of it, and because the last part of any size
/// would be in the cache after any method that caches.
///
/// # Safety
/// The range is valid for reads and initialized, and no other thread writes to it concurrently.
unsafe fn read_share(start: *const u8, length: usize, percent: f64) {
    let lines = length / LINE;
    let wanted = (lines as f64 * percent / 100.0).round() as usize;
    // Fixed-point arithmetic saves a division per line.
    let step = ((lines as u64) << 16) / wanted.max(1) as u64;
    let mut at = 0;
    let mut sums = [0u64; LINE / 8];
    for _ in 0..wanted {
        // SAFETY: `at` stays below the number of lines in the range, which the caller guarantees.
        let line: [u64; LINE / 8] = unsafe {
            start.wrapping_add((at >> 16) as usize * LINE).cast::<[u64; LINE / 8]>().read_unaligned()
        };
        sums.iter_mut().zip(line).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        at += step;
    }
    std::hint::black_box(sums);
}

/// The least share of the result, percent, from which caching is faster than bypassing the cache.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Pays {
    /// Even if nothing is read back.
    Always,
    /// From this share on.
    From(f64),
    /// Not even if everything is read back.
    Never,
}

impl Pays {
    /// Returns a number in the order of the variants, which can be resampled.
    fn number(self) -> f64 {
        match self {
            Pays::Always => -100.0,
            Pays::From(share) => share,
            Pays::Never => 200.0,
        }
    }

    /// Converts back from such a number, or from one between two of them.
    fn from_number(number: f64) -> Pays {
        match number {
            _ if number < 0.0 => Pays::Always,
            _ if number > 100.0 => Pays::Never,
            share => Pays::From(share),
        }
    }
}

impl std::fmt::Display for Pays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pays::Always => f.write_str("always"),
            Pays::From(share) => write!(f, "{share:.0} %"),
            Pays::Never => f.write_str("never"),
        }
    }
}

/// When caching starts to pay off, for an operation and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Payoff {
    /// The operation.
    pub operation: Operation,
    /// Bytes.
    pub size: u64,
    /// The share, by the medians of the best method of each kind.
    pub pays: Pays,
    /// Its bootstrapped 95 % confidence interval.
    pub interval: [Pays; 2],
    /// Speed of the best caching method relative to the best that bypasses the cache, at the largest share.
    pub at_most: f64,
    /// The best caching method there, and the best that bypasses the cache.
    pub best: [String; 2],
}

/// The samples of one kind of methods: by share, then by method.
type Side<'r> = Vec<Vec<&'r [f64]>>;

/// Returns when caching starts to pay off, for each operation and size of which a [`ReuseOptions`] measurement has rows
/// of both kinds of methods: those that allocate lines in the cache and those that bypass it ([`CacheEffect`]).
///
/// The C library and the policy choose between the two on their own and count as neither.
pub fn payoffs(rows: &[&Row]) -> Vec<Payoff> {
    let mut configs: Vec<(Operation, u64)> = Vec::new();
    // A single sample does not show how much it varies.
    let usable = |row: &&&Row| row.measurement == Measurement::Reuse && row.samples.len() > 1;
    for row in rows.iter().filter(usable) {
        if let (Some(operation), Some(size)) = (row.config.operation, row.config.size)
            && !configs.contains(&(operation, size))
        {
            configs.push((operation, size));
        }
    }
    configs.into_iter().filter_map(|(operation, size)| payoff(rows, operation, size)).collect()
}

fn payoff(rows: &[&Row], operation: Operation, size: u64) -> Option<Payoff> {
    let here = |row: &&&Row| row.config.operation == Some(operation) && row.config.size == Some(size);
    let here: Vec<&Row> = rows.iter().filter(here).copied().collect();
    let side_of = |effect: CacheEffect, share: f64| -> Vec<&Row> {
        let method =
            |row: &Row| (row.candidate.kind == Kind::Method).then(|| method::by_name(&row.candidate.name))?;
        let of = |row: &&Row| {
            row.config.read_back == Some(share) && method(row).is_some_and(|method| method.effect == effect)
        };
        here.iter().copied().filter(of).collect()
    };
    let both =
        |share: f64| [CacheEffect::Allocates, CacheEffect::Bypasses].map(|effect| side_of(effect, share));
    let mut shares: Vec<f64> = here.iter().filter_map(|row| row.config.read_back).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares.retain(|share| both(*share).iter().all(|side| !side.is_empty()));
    let last = both(*shares.last()?);
    let best = last.each_ref().map(|side| {
        let best = side.iter().max_by(|a, b| a.stats.median.total_cmp(&b.stats.median));
        best.map_or((String::new(), f64::NAN), |row| (row.candidate.name.clone(), row.stats.median))
    });
    let samples = |effect| -> Side<'_> {
        let at = |share: &f64| side_of(effect, *share).iter().map(|row| row.samples.as_slice()).collect();
        shares.iter().map(at).collect()
    };
    let (pays, interval) =
        crossing(&shares, &samples(CacheEffect::Allocates), &samples(CacheEffect::Bypasses));
    let at_most = best[0].1 / best[1].1;
    Some(Payoff { operation, size, pays, interval, at_most, best: best.map(|(name, _)| name) })
}

/// Returns the share from which the best caching method is faster, and its interval. Samples are bandwidths.
fn crossing(shares: &[f64], caching: &Side<'_>, bypassing: &Side<'_>) -> (Pays, [Pays; 2]) {
    let groups: Vec<&[f64]> = caching.iter().chain(bypassing).flatten().copied().collect();
    let counts: Vec<usize> = caching.iter().chain(bypassing).map(Vec::len).collect();
    let statistic = |drawn: &[Vec<f64>]| {
        // The best time per byte, by kind and share.
        let mut rest = drawn;
        let times: Vec<f64> = counts
            .iter()
            .map(|count| {
                let (these, others) = rest.split_at(*count);
                rest = others;
                these.iter().map(|samples| 1.0 / median(samples)).fold(f64::INFINITY, f64::min)
            })
            .collect();
        let (caching, bypassing) = times.split_at(shares.len());
        let lead: Vec<f64> = caching.iter().zip(bypassing).map(|(with, without)| with - without).collect();
        pays_from(shares, &lead).number()
    };
    let found: Vec<Vec<f64>> = groups.iter().map(|group| group.to_vec()).collect();
    let pays = Pays::from_number(statistic(&found));
    (pays, bootstrap(&groups, |drawn| statistic(drawn)).map(Pays::from_number))
}

/// Returns the share from which, up to the largest, caching is faster. `lead` is the time of caching less that of
/// bypassing, and is interpolated linearly between two shares.
fn pays_from(shares: &[f64], lead: &[f64]) -> Pays {
    let Some(last) = lead.iter().rposition(|lead| *lead >= 0.0) else { return Pays::Always };
    if last + 1 == lead.len() {
        return Pays::Never;
    }
    let part = lead[last] / (lead[last] - lead[last + 1]);
    Pays::From(shares[last] + part * (shares[last + 1] - shares[last]))
}

/// Summarizes the payoffs of an operation; `None` if there are none.
fn conclusion(operation: Operation, payoffs: &[Payoff]) -> Option<String> {
    if payoffs.is_empty() {
        return None;
    }
    let found: Vec<String> = payoffs
        .iter()
        .map(|payoff| {
            let [low, high] = payoff.interval;
            let interval = if low == high { String::new() } else { format!(" ({low} to {high})") };
            match payoff.pays {
                Pays::From(_) => format!("{} from {}{interval}", bytes(payoff.size), payoff.pays),
                _ => format!("{} {}{interval}", bytes(payoff.size), payoff.pays),
            }
        })
        .collect();
    let mut text = format!(
        "{operation}: the share read back from which caching pays off, by size: {}.",
        found.join(", ")
    );
    let gain = |payoff: &&Payoff| payoff.pays != Pays::Never && payoff.interval[1] != Pays::Never;
    let best = payoffs.iter().filter(gain).max_by(|a, b| a.at_most.total_cmp(&b.at_most));
    text += &match best {
        Some(Payoff { size, at_most, best: [caching, bypassing], .. }) => format!(
            " With the largest share read back, caching gains most at {}: {caching} and the reading are {at_most:.2} times \
             as fast as {bypassing} and the reading.",
            bytes(*size)
        ),
        None => format!(
            " With no share read back is it distinguishably faster to leave a {operation}'s result in the cache."
        ),
    };
    Some(text)
}

#[cfg(test)]
mod tests;
