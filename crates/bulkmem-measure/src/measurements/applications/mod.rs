//! Applications of persistent memory: a block write cache and a log. They make data durable, then the metadata that points to
//! it.

mod cache;
mod log;

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::method::{self, CacheEffect};
use bulkmem::{Intent, Operation};

use self::cache::Cache;
use self::log::Log;
use super::persist::PersistOptions;
use crate::engine::interleave::OPERATIONS;
use crate::engine::latency::{self, Latencies};
use crate::engine::stats::medians_interval;
use crate::engine::{
    Buffer, Config, Content, Implementation, Measure, Measurement, Metric, RawRange, Result, Row, Run,
    Sample, fits, go_on, implementation, units,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::{Candidates, participant};
use crate::target::{RAM, TargetOptions, Want};

/// Least bytes of ordinary memory to write to, by default.
const USUAL: u64 = 256 << 20;
/// Steps between two looks at the clock.
const STEPS: usize = 8;

/// Options for measuring an application of persistent memory.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct ApplicationOptions {
    /// Share of reads of a write cache, percent; `None` for a log, which is only written.
    pub mix: Option<u8>,
    pub target: TargetOptions,
    /// Bytes of a block or record.
    pub lengths: Vec<u64>,
    /// Writes that are committed together.
    pub groups: Vec<u64>,
    /// Time of a sample. One half counts operations, the other times each of them.
    pub time: Duration,
    pub candidates: Candidates,
}

impl ApplicationOptions {
    /// A write cache of blocks of 4 KiB, with 30 % reads, in ordinary memory; commits of single writes, as after each flush,
    /// and of 64, as dm-writecache commits on its own.
    pub fn write_cache() -> ApplicationOptions {
        ApplicationOptions {
            mix: Some(30),
            target: TargetOptions::ram(),
            lengths: vec![4096],
            groups: vec![1, 64],
            time: Duration::from_millis(100),
            candidates: Candidates::default(),
        }
    }

    /// A log of records of 256 bytes in ordinary memory, committed singly and in groups of 8 and 64.
    pub fn log() -> ApplicationOptions {
        let (lengths, groups) = (vec![256], vec![1, 8, 64]);
        ApplicationOptions { mix: None, lengths, groups, ..ApplicationOptions::write_cache() }
    }

    fn want(&self) -> Want {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let group = self.groups.iter().copied().max().unwrap_or(0);
        // Half of the slots or records have room for a group.
        let count = group.saturating_add(1).saturating_mul(2);
        let (each, besides) = match self.mix {
            Some(_) => (cache::ENTRY, cache::SUPERBLOCK + 2 * cache::ALIGNMENT),
            None => (0, log::HEADER),
        };
        let least = count.saturating_mul(longest + each as u64).saturating_add(besides as u64);
        // The origin of a write cache is as large as the target.
        Want::new(true, least, USUAL..=1 << 30, 2)
    }

    /// Returns the candidates, which by default are all methods that persist, and a note on those that this machine does not
    /// support.
    fn candidates(&self) -> (Candidates, Option<String>) {
        PersistOptions { candidates: self.candidates.clone(), ..PersistOptions::default() }.candidates()
    }

    /// Returns the application in some memory.
    ///
    /// # Safety
    /// The memory is valid for reads and writes as long as the application lives, and only the application uses it.
    unsafe fn start(
        &self,
        run: &mut Run<'_>,
        memory: RawRange,
        length: usize,
    ) -> Result<Box<dyn Application>> {
        let Some(mix) = self.mix else {
            // SAFETY: passed on from the caller.
            return Ok(Box::new(unsafe { Log::new(memory, length) }?));
        };
        let bytes = (Cache::slots_in(memory.length, length) * length) as u64;
        let origin = Buffer::of_run(run, bytes, self.target.page_size, Content::Mixed)?;
        // SAFETY: passed on from the caller.
        Ok(Box::new(unsafe { Cache::new(memory, length, mix, origin) }?))
    }
}

trait Application {
    /// Performs a step, whose latency is measured. Returns the number of operations: blocks or records.
    fn step(&mut self, by: &Implementation<'_>, group: u64) -> u64;
}

/// Stores words of metadata by MOVNTI, as dm-writecache does whatever it writes data by. Does not fence.
///
/// # Safety
/// `dst` is valid for writes of the words, and aligned to 8 bytes.
unsafe fn store_words(dst: *mut u8, words: &[u64]) {
    for (at, word) in (0..).step_by(8).zip(words) {
        let dst = dst.wrapping_add(at);
        // SAFETY: passed on from the caller. MOVNTI is part of every x86-64.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("movnti [{}], {}", in(reg) dst, in(reg) *word, options(nostack, preserves_flags));
        }
        // SAFETY: as above.
        #[cfg(not(target_arch = "x86_64"))]
        unsafe {
            dst.cast::<u64>().write_volatile(*word);
        }
    }
}

/// Takes one sample: operations per second, and the latencies of steps.
fn sample(time: Duration, clock: u64, stop: &AtomicBool, mut step: impl FnMut() -> u64) -> Result<Sample> {
    let (begun, mut operations) = (Instant::now(), 0);
    let elapsed = loop {
        operations += (0..STEPS).map(|_| step()).sum::<u64>();
        let elapsed = begun.elapsed();
        if elapsed >= time / 2 || stop.load(Ordering::Relaxed) {
            break elapsed;
        }
    };
    let value = operations as f64 / elapsed.as_secs_f64();
    let mut latencies = Latencies::new(clock);
    let begun = Instant::now();
    while begun.elapsed() < time / 2 && !stop.load(Ordering::Relaxed) {
        operations += latencies.time(&mut step);
    }
    go_on(stop)?;
    let mut also = latencies.quantiles();
    also.push((OPERATIONS, operations as f64));
    Ok(Sample { value, also })
}

impl Measure for ApplicationOptions {
    fn measurement(&self) -> Measurement {
        if self.mix.is_some() { Measurement::WriteCache } else { Measurement::Log }
    }

    fn validate(&self) -> Result<()> {
        if let Some(mix) = self.mix {
            checks::blocks(&self.lengths)?;
            checks::mix(mix)?;
            // The target, if it is ordinary memory, and the origin.
            let copies = if self.target.target == Path::new(RAM) { 2 } else { 1 };
            fits(self.target.size.unwrap_or(0).saturating_mul(copies))?;
        } else {
            let reason = "shorter records do not hold their number; give 8 or more bytes";
            require(self.lengths.iter().all(|length| *length >= 8), "--record", reason)?;
        }
        let reason = "groups of 0 are never committed; give 1 or more";
        require(!self.groups.contains(&0), "--group", reason)?;
        checks::sample_time(self.time)?;
        let (candidates, lacking) = self.candidates();
        let methods = implementation::methods(&candidates.methods, Operation::CopyPersist)?;
        let reason = lacking.unwrap_or_else(|| "no method of this architecture persists".to_owned());
        require(!methods.is_empty(), "--method", reason)?;
        self.target.check(self.want())
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("half of a sample times single writes, and both halves end by time")
    }

    fn seconds(&self) -> f64 {
        let methods = implementation::methods(&self.candidates().0.methods, Operation::CopyPersist);
        // The policy and libpmem's three.
        let candidates = methods.map_or(0, |choices| choices.len()) + 4;
        let samples = self.lengths.len() * self.groups.len() * candidates * (self.candidates.runs + 1);
        samples as f64 * self.time.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (candidates, lacking) = self.candidates();
        lacking.into_iter().for_each(|note| run.note(note));
        run.expect_groups(self.lengths.len() * self.groups.len());
        let mut target = self.target.open_for(run, self.want())?;
        let (clock, stop, time) = (latency::clock_ns(), run.observer.stop, self.time);
        run.note(latency::note(clock));
        let operation = Operation::CopyPersist;
        for &length in &self.lengths {
            let bytes = length as usize;
            let all = candidates.implementations(run, operation, &[Intent::Throughput], bytes)?;
            let memory = target.memory.raw_range();
            // All candidates continue with the same application, so that all find it in the same state.
            // SAFETY: the target outlives the application.
            let application = RefCell::new(unsafe { self.start(run, memory, bytes) }?);
            for &group in &self.groups {
                let config = Config {
                    operation: Some(operation),
                    chunk: Some(length),
                    group: Some(group),
                    mix: self.mix,
                    ..target.config.clone()
                };
                let samplers = all.iter().map(|by| {
                    let application = &application;
                    participant(by, &config, bytes, false, move || {
                        let mut application = application.borrow_mut();
                        sample(time, clock, stop, || application.step(by, group))
                    })
                });
                let what = format!("{}, groups of {group}", units::bytes(length));
                let mut samplers: Vec<_> = samplers.collect();
                run.interleave(&what, Metric::Iops, candidates.runs, &mut samplers)?;
                self.conclude(run, &what, &config);
            }
        }
        Ok(())
    }
}

impl ApplicationOptions {
    /// Compares the best method that writes lines back with the best that bypasses the cache.
    fn conclude(&self, run: &mut Run<'_>, what: &str, config: &Config) {
        let best = |effect: CacheEffect| -> Option<&Row> {
            let wanted = |row: &&Row| {
                let method = method::by_name(&row.candidate.name);
                row.config == *config && method.is_some_and(|method| method.effect == effect)
            };
            run.rows().filter(wanted).max_by(|a, b| a.stats.median.total_cmp(&b.stats.median))
        };
        let (Some(back), Some(past)) = (best(CacheEffect::Evicts), best(CacheEffect::Bypasses)) else {
            return;
        };
        let [low, high] = medians_interval(&back.samples, &past.samples, |back, past| back / past);
        let mut text = format!(
            "{what}: {}, the best that stores and writes back, runs at {:.2} ({low:.2} to {high:.2}) times {}, the best that \
             bypasses the cache.",
            back.candidate.name,
            back.stats.median / past.stats.median,
            past.candidate.name
        );
        if self.mix.is_some() {
            text += " Published (Patocka 2020): dm-writecache performs better by writing back.";
        }
        run.add_finding(text);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
