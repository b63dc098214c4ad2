//! When caching pays off because the result is read soon: an operation, then reading a share of its result.

use std::time::Instant;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect};
use bulkmem::{Intent, Operation};

use crate::engine::run::{OPERATIONS, SINGLE, Sample};
use crate::engine::stats::{bootstrap, median};
use crate::engine::units::bytes;
use crate::engine::{
    Buffer, Config, Content, FILL_BYTE, Kind, LINE, Measure, Measurement, Metric, PageSize, RawRange, Result,
    Row, Run, Share, Slots, distinct, fits, memory, memory_left,
};
use crate::measurements::checks::require;
use crate::measurements::participants::{Candidates, participant};

/// Least time of a sample.
const SAMPLE_NS: f64 = 2e6;

/// Options for measuring when caching the result pays off.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct ReuseOptions {
    /// Clear, fill or copy.
    pub operations: Vec<Operation>,
    pub sizes: Vec<u64>,
    /// Shares of the result that are read back, percent, in rising order.
    pub shares: Vec<f64>,
    /// Bytes of memory that destinations are spread over, and sources over as much. Default: twice the last-level cache
    /// and at least two operations. If equal to the size, every operation uses the same memory.
    pub footprint: Option<u64>,
    pub page_size: PageSize,
    pub candidates: Candidates,
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
            candidates: Candidates::default(),
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

    fn validate(&self) -> Result<()> {
        for &operation in &self.operations {
            let reason = format!("the result of {operation} is not read back here; name clear, fill or copy");
            let plain = matches!(operation, Operation::Clear | Operation::Fill | Operation::Copy);
            require(plain, "--op", reason)?;
            self.candidates.check(operation)?;
            for &size in &self.sizes {
                let reason = format!("{size} bytes are less than a cache line; name at least 64 bytes");
                require(size >= LINE as u64, "--size", reason)?;
                fits(self.needed(operation, size))?;
            }
        }
        for share in &self.shares {
            let reason = format!("{share} is not a share; name percentages from 0 to 100");
            require((0.0..=100.0).contains(share), "--share", reason)?;
        }
        let rising = !self.shares.is_empty() && self.shares.windows(2).all(|pair| pair[0] < pair[1]);
        require(rising, "--share", "give at least one, in rising order: 0,25,100")?;
        self.page_size.check()
    }

    fn seconds(&self) -> f64 {
        let sample = |size: u64| (size as f64 / 5.0).max(SAMPLE_NS * 1.5) / 1e9;
        let sizes: f64 = self.sizes.iter().map(|size| sample(*size)).sum();
        let groups = (self.operations.len() * self.shares.len()) as f64;
        groups * sizes * (self.candidates.runs + 1) as f64 * 12.0
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.operations.len() * self.sizes.len() * self.shares.len());
        for &operation in &self.operations {
            for &size in &self.sizes {
                let bytes = self.needed(operation, size);
                let mut memory = Buffer::of_run(run, bytes, self.page_size, Content::Mixed)?;
                for &share in &self.shares {
                    self.measure_share(run, operation, size, share, memory.raw_range())?;
                }
            }
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        let payoffs = payoffs(&run.rows().collect::<Vec<_>>());
        for operation in &self.operations {
            let of: Vec<&Payoff> = payoffs.iter().filter(|payoff| payoff.operation == *operation).collect();
            match conclusion(*operation, &of) {
                Some(text) => run.add_finding(text),
                None if self.candidates.runs < 2 => run.note(SINGLE),
                None => run.note(format!(
                    "{operation}: no comparison of caching and bypassing: it needs a method of each kind; `bulkmem \
                     methods` lists their effects on the cache"
                )),
            }
        }
    }
}

impl ReuseOptions {
    fn measure_share(
        &self,
        run: &mut Run<'_>,
        operation: Operation,
        size: u64,
        share: f64,
        memory: RawRange,
    ) -> Result<()> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let all = self.candidates.implementations(run, operation, &Intent::ALL, length)?;
        let config = Config { read_back: Some(share), ..Config::of(operation, size, self.page_size) };
        let samplers = all.into_iter().map(|implementation| {
            let mut slots = Slots::new(memory, length, operation == Operation::Copy);
            let mut repeats = None;
            let mut timed = move |repeats: usize| {
                let start = Instant::now();
                for _ in 0..repeats {
                    let (dst, src) = slots.next();
                    // SAFETY: slots lie in memory that `measure` keeps while samplers live, and that no other code uses.
                    unsafe {
                        implementation.run(1, operation, FILL_BYTE, (dst, src, length));
                        read_share(dst, length, share);
                    }
                }
                start.elapsed().as_nanos().max(1) as f64
            };
            participant(&implementation, &config, length, true, move || {
                let repeats = *repeats.get_or_insert_with(|| (SAMPLE_NS / timed(1)).ceil() as usize);
                // GB/s of the operation and the reading together.
                let value = (repeats * length) as f64 / timed(repeats);
                Ok(Sample { value, also: vec![(OPERATIONS, repeats as f64)] })
            })
        });
        let what = format!("{operation} of {}, {share} % read", bytes(size));
        run.interleave(&what, Metric::Bandwidth, self.candidates.runs, &mut samplers.collect::<Vec<_>>())
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

/// Stands for a share if caching is faster even if nothing is read back.
const ALWAYS: f64 = -100.0;
/// Stands for a share if caching is not faster even if everything is read back.
const NEVER: f64 = 200.0;

/// Formats a share from which caching pays off.
pub fn pays_text(share: f64) -> String {
    match share {
        ..0.0 => "always".to_owned(),
        0.0..=100.0 => format!("{share:.0} %"),
        _ => "never".to_owned(),
    }
}

/// When caching starts to pay off, for an operation and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Payoff {
    /// The operation.
    pub operation: Operation,
    /// Bytes.
    pub size: u64,
    /// The least share of the result, percent, from which the best caching method is faster than the best that bypasses
    /// the cache, by their medians: less than 0 if it always is, more than 100 if it never is.
    pub pays: f64,
    /// Its bootstrapped 95 % confidence interval.
    pub interval: [f64; 2],
    /// Speed of the best caching method relative to the best that bypasses the cache, at the largest share.
    pub at_most: f64,
    /// The best caching method there, and the best that bypasses the cache.
    pub best: [String; 2],
}

/// Returns the effect of a row's method on the cache; `None` for other candidates. The C library and the policy choose
/// between caching and bypassing on their own.
pub fn cache_effect(row: &Row) -> Option<CacheEffect> {
    let method = (row.candidate.kind == Kind::Method).then(|| method::by_name(&row.candidate.name))?;
    method.map(|method| method.effect)
}

/// Returns when caching starts to pay off, for each operation and size of which a [`ReuseOptions`] measurement has rows
/// of both kinds of methods: those that allocate lines in the cache and those that bypass it.
pub fn payoffs(rows: &[&Row]) -> Vec<Payoff> {
    // A single sample does not show how much it varies.
    let usable = |row: &&&Row| row.measurement == Measurement::Reuse && row.samples.len() > 1;
    let rows: Vec<&Row> = rows.iter().filter(usable).copied().collect();
    let groups = distinct(rows.iter().filter_map(|row| Some((row.config.operation?, row.config.size?))));
    groups.into_iter().filter_map(|(operation, size)| payoff(operation, size, &rows)).collect()
}

fn payoff(operation: Operation, size: u64, rows: &[&Row]) -> Option<Payoff> {
    let group = (Some(operation), Some(size));
    let rows = rows.iter().copied().filter(|row| (row.config.operation, row.config.size) == group);
    let rows: Vec<&Row> = rows.collect();
    let at = |effect: CacheEffect, share: f64| -> Vec<&Row> {
        let of = |row: &&Row| row.config.read_back == Some(share) && cache_effect(row) == Some(effect);
        rows.iter().copied().filter(of).collect()
    };
    let kinds = [CacheEffect::Allocates, CacheEffect::Bypasses];
    let mut shares: Vec<f64> = rows.iter().filter_map(|row| row.config.read_back).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares.retain(|share| kinds.iter().all(|effect| !at(*effect, *share).is_empty()));
    // By kind, then by share, then by method.
    let sides = kinds.map(|effect| shares.iter().map(|share| at(effect, *share)).collect::<Vec<_>>());
    let [caching, bypassing] = sides
        .each_ref()
        .map(|side| side.last()?.iter().copied().max_by(|a, b| a.stats.median.total_cmp(&b.stats.median)));
    let best = [caching?, bypassing?];
    let samples: Vec<&[f64]> = sides.iter().flatten().flatten().map(|row| row.samples.as_slice()).collect();
    // Samples are bandwidths.
    let statistic = |samples: &[Vec<f64>]| {
        let mut samples = samples.iter();
        let mut best_time = |rows: &Vec<&Row>| {
            let times = samples.by_ref().take(rows.len()).map(|samples| 1.0 / median(samples));
            times.fold(f64::INFINITY, f64::min)
        };
        let [caching, bypassing] =
            sides.each_ref().map(|side| side.iter().map(&mut best_time).collect::<Vec<f64>>());
        let lead: Vec<f64> = caching.iter().zip(bypassing).map(|(with, without)| with - without).collect();
        pays_from(&shares, &lead)
    };
    let measured: Vec<Vec<f64>> = samples.iter().map(|samples| samples.to_vec()).collect();
    Some(Payoff {
        operation,
        size,
        pays: statistic(&measured),
        interval: bootstrap(&samples, |drawn| statistic(drawn)),
        at_most: best[0].stats.median / best[1].stats.median,
        best: best.map(|row| row.candidate.name.clone()),
    })
}

/// Returns the share from which, up to the largest, caching is faster. `lead` is the time of caching less that of
/// bypassing, and is interpolated linearly between two shares.
fn pays_from(shares: &[f64], lead: &[f64]) -> f64 {
    let Some(last) = lead.iter().rposition(|lead| *lead >= 0.0) else { return ALWAYS };
    let Some(next) = lead.get(last + 1) else { return NEVER };
    let part = lead[last] / (lead[last] - next);
    shares[last] + part * (shares[last + 1] - shares[last])
}

/// Summarizes the payoffs of an operation; `None` if there are none.
fn conclusion(operation: Operation, payoffs: &[&Payoff]) -> Option<String> {
    let by_size = payoffs.iter().map(|payoff| {
        let [low, high] = payoff.interval.map(pays_text);
        let from = if (0.0..=100.0).contains(&payoff.pays) { "from " } else { "" };
        let interval = if low == high { String::new() } else { format!(" ({low} to {high})") };
        format!("{} {from}{}{interval}", bytes(payoff.size), pays_text(payoff.pays))
    });
    let by_size = by_size.reduce(|list, next| list + ", " + &next)?;
    let gains = payoffs.iter().filter(|payoff| payoff.pays.max(payoff.interval[1]) <= 100.0);
    let most = match gains.max_by(|a, b| a.at_most.total_cmp(&b.at_most)) {
        Some(Payoff { size, at_most, best: [caching, bypassing], .. }) => format!(
            "With the largest share read back, caching gains most at {}: {caching} and the reading are {at_most:.2} times \
             as fast as {bypassing} and the reading.",
            bytes(*size)
        ),
        None => format!(
            "With no share read back is it distinguishably faster to leave a {operation}'s result in the cache."
        ),
    };
    Some(format!("{operation}: the share read back from which caching pays off, by size: {by_size}. {most}"))
}

#[cfg(test)]
mod tests;
