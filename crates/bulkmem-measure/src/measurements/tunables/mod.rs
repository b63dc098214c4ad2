//! Values of the C library's tunables that make `memcpy` and `memset` faster.
//!
//! A threshold selects one of two ways to work for each length. So the first run measures both ways at every length, which
//! gives the time with any threshold, and selects thresholds. Further runs measure these in new processes.

mod child;
mod judge;
mod listing;

use std::ffi::OsString;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::{Intent, Operation, Pages};
use rustix::thread::sched_getcpu;

pub use child::{PROCESS, answer_requests};
pub use judge::{Advice, Gain, SlowCopies};
pub use listing::Tunable;

use self::child::Process;
use self::listing::Settings;
use crate::calibration::plan::after_share;
use crate::engine::options::check_budget;
use crate::engine::units::bytes;
use crate::engine::{
    Alignment, CacheState, Candidate, Config, Kind, Measure, Measurement, Metric, PageSize, Result, Run,
    Sample, Sampler, StopRule, fits, memory_left, workload,
};
use crate::measurements::participants::sampler;

/// Lengths are measured from this on, doubling.
const SHORTEST: u64 = 1 << 10;
/// The longest length.
const LONGEST: u64 = 128 << 20;
/// The longest length of copies that page aliasing may slow down: glibc does not use REP MOVSB beyond the second-level cache, on
/// the processors on which it does.
const LONGEST_ALIASED: u64 = 4 << 20;
/// The least memory for the destinations of a process, and for its sources.
const LEAST_SIDE: u64 = 16 << 20;
/// Each side of a process takes at most this share of the memory left, 1 part in this many: a quarter goes to five processes.
const SHARES: u64 = 4 * 5 * 2;
/// The share of the time for the first run.
const FIRST_RUN_SHARE: f64 = 0.6;
/// The most samples of a process in a configuration.
const MOST_SAMPLES: usize = 15;
/// The states of the memory before, and the use of the bytes afterwards.
const STATES: [(CacheState, Intent); 3] = [
    (CacheState::Cold, Intent::Throughput),
    (CacheState::Warm, Intent::Throughput),
    (CacheState::Warm, Intent::Reuse),
];

/// Returns the value of `GLIBC_TUNABLES`.
fn existing() -> String {
    std::env::var_os(listing::VARIABLE).unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the tunables of this process's C library; none if it does not list them.
pub fn tunables_here() -> Vec<Tunable> {
    listing::list(&existing()).unwrap_or_default()
}

/// How to find values of tunables.
#[derive(Clone, Debug)]
pub struct TunablesOptions {
    /// The tunables.
    pub tunables: Vec<Tunable>,
    /// The value of `GLIBC_TUNABLES`.
    pub existing: String,
    /// The command of a process that measures: if the variable [`PROCESS`] is set, it calls [`answer_requests`].
    pub command: Vec<OsString>,
    /// How long it may take.
    pub budget: Duration,
}

impl TunablesOptions {
    /// The tunables of this process's C library.
    ///
    /// # Errors
    /// If it is not glibc 2.33 or later, or has none of them.
    pub fn new(command: Vec<OsString>, budget: Duration) -> Result<TunablesOptions> {
        let existing = existing();
        Ok(TunablesOptions { tunables: listing::list(&existing)?, existing, command, budget })
    }

    /// The settings of the first run: no changes, and for each pair of tunables the smallest values and the largest ones.
    fn extremes(&self) -> Vec<Settings> {
        let ends = listing::PAIRS.into_iter().flat_map(|pair| {
            let tunables = self.tunables.iter().filter(move |it| pair.contains(&(it.name, it.operation)));
            let smallest = tunables.clone().map(|it| (it.name, it.least())).collect();
            [smallest, tunables.map(|it| (it.name, it.limits[1])).collect()]
        });
        [Settings::new()].into_iter().chain(ends.filter(|it: &Settings| !it.is_empty())).collect()
    }

    /// Compares processes with these settings, until a time.
    fn compare(&self, run: &mut Run<'_>, number: usize, settings: &[Settings], end: Duration) -> Result<()> {
        run.say("starting processes", 0.0);
        let (side, processor) = (side(), sched_getcpu());
        let mut processes = Vec::new();
        for settings in settings {
            let mut process = Process::start(&self.command, &listing::value(&self.existing, settings))?;
            run.backed_by(Some(process.request(&(side, processor))? as usize));
            processes.push(process);
        }
        let configs = configs(side, workload::last_level(Machine::current()));
        let weight = |config: &Config| (size(config) + LEAST_SIDE / 4) as f64;
        for (index, config) in configs.iter().enumerate() {
            let rest: f64 = configs[index..].iter().map(weight).sum();
            let deadline = Some(after_share(weight(config) / rest, run.elapsed(), end));
            let affected = |settings: &Settings| {
                let mut changed = self.tunables.iter().filter(|it| settings.contains_key(it.name));
                settings.is_empty() || changed.any(|it| Some(it.operation) == config.operation)
            };
            let affected = processes.iter_mut().zip(settings).filter(|(_, settings)| affected(settings));
            let samplers = affected.map(|(process, settings)| {
                let kind = if settings.is_empty() { Kind::Control } else { Kind::Peer };
                let candidate = Candidate::named(kind, judge::label(settings, number));
                let sample = move || Ok(Sample::from(size(config) as f64 / process.request(config)?));
                sampler(candidate, config, false, sample)
            });
            let mut samplers: Vec<Sampler<'_>> = samplers.collect();
            if samplers.len() > 1 {
                let what: Vec<String> = config.values().into_values().collect();
                // Processes warm up before each sample.
                let once = StopRule { warm_up: false, least: 1, ..StopRule::fixed(MOST_SAMPLES) };
                let rule = StopRule { deadline, ..once };
                run.interleave_by(&what.join(" "), Metric::Bandwidth, rule, &mut samplers)?;
            }
        }
        Ok(())
    }
}

impl Measure for TunablesOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Tunables
    }

    fn validate(&self) -> Result<()> {
        check_budget(self.budget)?;
        fits(SHARES * LEAST_SIDE)
    }

    fn seconds(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let end = run.elapsed() + self.budget;
        if side() < 2 * LONGEST {
            let longest = bytes(side() / 2);
            run.note(format!("lengths above {longest} are left out to fit the {}", memory_left()));
        }
        if !self.existing.is_empty() {
            run.note("GLIBC_TUNABLES is set: its values are the baseline, and its other tunables are kept");
        }
        let first = after_share(FIRST_RUN_SHARE, run.elapsed(), end);
        self.compare(run, 1, &self.extremes(), first)?;
        while let (settings, Some(number)) = self.settle(&run.rows().collect::<Vec<_>>()) {
            self.compare(run, number, &[Settings::new(), settings], end)?;
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        if !run.stopped() {
            let text = self.advice(&run.rows().collect::<Vec<_>>()).text;
            run.add_finding(text);
        }
    }
}

fn size(config: &Config) -> u64 {
    config.size.unwrap_or_default()
}

/// The memory of a process for destinations, and for sources: so much that cold ones are not cached, if there is enough.
fn side() -> u64 {
    let usual = workload::last_level(Machine::current()).saturating_mul(8).clamp(2 * LONGEST, 8 * LONGEST);
    usual.min(memory_left().bytes / SHARES).max(LEAST_SIDE)
}

/// The configurations: each operation at each length that fits twice, aligned and not; warm only if it can be cached in a
/// last level of so many bytes. Copies
/// that page aliasing may slow down are warm, and not read back: other states would add to the time of both ways to work.
fn configs(side: u64, last_level: u64) -> Vec<Config> {
    let longest_warm = last_level.saturating_mul(2);
    let lengths = std::iter::successors(Some(SHORTEST), |length| Some(2 * length));
    let lengths: Vec<u64> = lengths.take_while(|length| *length <= LONGEST.min(side / 2)).collect();
    let mut configs = Vec::new();
    for operation in [Operation::Copy, Operation::Clear] {
        for &length in &lengths {
            for (cache, intent) in STATES {
                for alignment in [Alignment::Aligned, Alignment::Unaligned] {
                    let (alignment, intent) = (Some(alignment), Some(intent));
                    let config = Config::of(operation, length, PageSize(Pages::Transparent));
                    if cache == CacheState::Cold || length < longest_warm {
                        configs.push(Config { alignment, cache: Some(cache), intent, ..config });
                    }
                }
            }
            if operation == Operation::Copy && length <= LONGEST_ALIASED {
                configs.push(Config {
                    alignment: Some(Alignment::PageAliased),
                    cache: Some(CacheState::Warm),
                    intent: Some(Intent::Throughput),
                    ..Config::of(operation, length, PageSize(Pages::Transparent))
                });
            }
        }
    }
    configs
}

#[cfg(test)]
mod tests;
