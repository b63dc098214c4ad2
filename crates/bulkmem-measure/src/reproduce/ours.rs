//! Queries on this machine's own results.

use bulkmem::machine::Caches;
use bulkmem::method::{self, CacheEffect};
use bulkmem::{Operation, Pages};

use crate::engine::contrast::{Contrast, control_of};
use crate::engine::{Config, CopySide, Direction, Measurement, PageSize, Pattern, Results, Row};
use crate::measurements::{CHILD_WRITES, FULL_RATE, HINTED, PREFAULT, SAME_TIME};

/// Bytes of a copy far beyond the caches of a core, two of which fit any machine.
pub(super) const COPIES: u64 = 64 << 20;

pub(super) struct Ours<'r> {
    /// The rows of all files.
    pub(super) all: &'r Results,
    /// The files apart: times of programs from different runs cannot be compared.
    pub(super) files: &'r [&'r Results],
}

impl Ours<'_> {
    /// Returns the first row of a measurement and candidate with a matching configuration.
    pub(super) fn row(
        &self,
        measurement: Measurement,
        name: &str,
        at: impl Fn(&Config) -> bool,
    ) -> Option<&Row> {
        self.all.of(measurement).find(|row| row.candidate.name == name && at(&row.config))
    }

    fn median(&self, measurement: Measurement, name: &str, at: impl Fn(&Config) -> bool) -> Option<f64> {
        self.row(measurement, name, at).map(|row| row.stats.median)
    }

    /// GB/s of clearing by size, by one thread in one call. The string instruction that the kernel clears pages with is
    /// STOSB, or STOSQ if only that was measured.
    pub(super) fn clear(&self, name: &str, size: u64) -> Option<f64> {
        let names = if name.starts_with("rep_") { ["rep_stosb", "rep_stosq"] } else { [name; 2] };
        let at = |config: &Config| config.size == Some(size) && one_thread(config);
        names.into_iter().find_map(|name| self.median(Measurement::Clear, name, at))
    }

    /// Copies of [`COPIES`] bytes in one call, by a method with or without prefetches of the source. `None` if both ranges fit
    /// the last-level cache.
    pub(super) fn copies(&self, name: &str, prefetching: bool) -> Option<&Row> {
        if Caches::from(self.all.provenance.caches).sane().l3 >= 2 * COPIES {
            return None;
        }
        let wanted = |row: &&Row| {
            let candidate = &row.candidate;
            candidate.name == name
                && (candidate.parameters.read_distance > 0) == prefetching
                && row.config.size == Some(COPIES)
                && row.config.chunk.is_none()
                && one_thread(&row.config)
        };
        self.all.of(Measurement::Copy).find(wanted)
    }

    /// GB/s of such copies without prefetches.
    pub(super) fn copy(&self, name: &str) -> Option<f64> {
        self.copies(name, false).map(|row| row.stats.median)
    }

    /// GB/s at which a thread gets fresh memory for a virtual machine ready, declared to the kernel module or not. In the
    /// largest pages that were measured.
    pub(super) fn vm(&self, hinted: bool) -> Option<f64> {
        let name = if hinted { HINTED } else { PREFAULT };
        let rows = self.all.of(Measurement::Vm);
        let rows = rows.filter(|row| row.candidate.name == name && one_thread(&row.config));
        let row = rows.max_by_key(|row| row.config.page_size.map(PageSize::bytes))?;
        Some(row.config.size? as f64 / 1e9 / row.stats.median)
    }

    /// How much longer a thread takes to get fresh huge pages ready if they are declared to the kernel module.
    pub(super) fn declared(&self) -> Option<Contrast> {
        let huge =
            |config: &Config| one_thread(config) && config.page_size.is_some_and(|it| it.0 != Pages::Base);
        let declared = self.row(Measurement::Vm, HINTED, huge)?;
        let plain = self.row(Measurement::Vm, PREFAULT, |config| *config == declared.config)?;
        Contrast::of(declared, plain)
    }

    /// GB/s of clearing the largest extent that was measured, by chunk.
    pub(super) fn chunk(&self, name: &str, chunk: u64) -> Option<f64> {
        let largest = self.all.of(Measurement::Chunks).filter_map(|row| row.config.size).max();
        self.median(Measurement::Chunks, name, |config| config.chunk == Some(chunk) && config.size == largest)
    }

    /// GB/s of sequential persistent writes with one fence at the end.
    pub(super) fn persist(&self, place: Place, name: &str) -> Option<f64> {
        self.median(Measurement::Persist, name, |config| {
            config.pattern == Some(Pattern::Sequential) && config.chunk.is_none() && place.includes(config)
        })
    }

    /// Sequential writes by block; of the first such target.
    pub(super) fn blocks(&self, place: Place) -> Vec<&Row> {
        let rows = self.all.of(Measurement::Blocks);
        let rows =
            rows.filter(|row| row.config.pattern == Some(Pattern::Sequential) && place.includes(&row.config));
        let rows: Vec<&Row> = rows.collect();
        rows.iter().copied().filter(|row| row.config.target == rows[0].config.target).collect()
    }

    /// Random operations per second on memory, by one thread.
    pub(super) fn iops(&self, name: &str, direction: Direction) -> Option<f64> {
        self.random(name, direction, in_memory)
    }

    /// Random operations of 4 KiB per second in the kernel module's memory of an attribute, by one thread.
    pub(super) fn iops_in(&self, attribute: &str, name: &str, direction: Direction) -> Option<f64> {
        self.random(name, direction, |config| {
            config.chunk == Some(4096)
                && config.target.as_deref() == Some(bulkmem_kmod::MEMORY_PATH)
                && config.attribute.as_deref() == Some(attribute)
        })
    }

    fn random(&self, name: &str, direction: Direction, at: impl Fn(&Config) -> bool) -> Option<f64> {
        let at = |config: &Config| config.direction == Some(direction) && one_thread(config) && at(config);
        self.median(Measurement::Iops, name, at)
    }

    /// How many times as long a walk over the smallest list takes after persisting as before.
    pub(super) fn growth(&self, place: Place, name: &str) -> Option<f64> {
        let row = self.pollution(name, |config| config.side.is_none() && place.includes(config))?;
        Some(row.also.get("after_ns")? / row.also.get("before_ns")?)
    }

    /// By how much longer the walk takes after one side of a copy in ordinary memory than after the same time without it.
    pub(super) fn growth_by_side(&self, name: &str, side: CopySide) -> Option<Contrast> {
        let row = self.pollution(name, |config| config.side == Some(side) && in_memory(config))?;
        let rows: Vec<&Row> = self.all.of(Measurement::Pollution).collect();
        let growth = Contrast::of(row, control_of(&rows, row, SAME_TIME)?)?;
        let percent = |ns: f64| Some(ns / row.also.get("control_ns")? * 100.0);
        let [low, high] = growth.interval.map(percent);
        Some(Contrast { by: percent(growth.by)?, interval: [low?, high?], ..growth })
    }

    fn pollution(&self, name: &str, at: impl Fn(&Config) -> bool) -> Option<&Row> {
        let persists = |row: &&Row| row.config.operation == Some(Operation::CopyPersist) && at(&row.config);
        let rows = || self.all.of(Measurement::Pollution).filter(persists);
        let least = rows().filter_map(|row| row.config.list).min();
        rows().find(|row| row.candidate.name == name && row.config.list == least)
    }

    /// By how much more operations a second a write cache performs by one method than by another, in the largest groups that
    /// were measured with writes to memory. Returns the group too.
    pub(super) fn write_cache(&self, name: &str, other: &str) -> Option<(Contrast, u64)> {
        let writes = |config: &Config| config.mix.is_some_and(|reads| reads < 100);
        let places = |config: &Config| Place::ALL.iter().any(|(place, _)| place.includes(config));
        let rows = self.all.of(Measurement::WriteCache);
        let rows =
            rows.filter(|row| row.candidate.name == name && writes(&row.config) && places(&row.config));
        let row = rows.max_by_key(|row| row.config.group)?;
        let other = self.row(Measurement::WriteCache, other, |config| *config == row.config)?;
        Some((Contrast::of(row, other)?, row.config.group?))
    }

    /// How many times as long clearing and reading back takes with the best bypassing method as with the best caching one.
    pub(super) fn read_back(&self, size: u64) -> Option<f64> {
        let best = |effect: CacheEffect| {
            let rows = self.all.of(Measurement::Reuse).filter(|row| {
                row.config.operation == Some(Operation::Clear)
                    && row.config.size == Some(size)
                    && row.config.read_back == Some(100.0)
                    && method::by_name(&row.candidate.name).is_some_and(|method| method.effect == effect)
            });
            // Converts any metric to a time.
            rows.map(|row| row.metric.times_as_good(1.0, row.stats.median)).min_by(f64::total_cmp)
        };
        Some(best(CacheEffect::Bypasses)? / best(CacheEffect::Allocates)?)
    }

    /// Nanoseconds for the pages of a fork with a buffer of that size, within the process, by a pair of methods.
    pub(super) fn pages(&self, pair: &str, size: u64) -> Option<&Row> {
        self.row(Measurement::Fork, pair, |config| config.size == Some(size))
    }

    /// Nanoseconds for a fork whose child writes to a buffer of that size.
    pub(super) fn fork(&self, size: u64) -> Option<f64> {
        self.median(Measurement::Fork, CHILD_WRITES, |config| config.size == Some(size))
    }
}

/// By how much longer a program takes beside clearing by one method than beside clearing by another, in the first file and at
/// the first rate that both achieved. `None` if no two were measured; fails with the reason if none can be compared.
pub(super) fn beside_clearing(
    files: &[&Results],
    cached: &str,
    bypassing: &str,
) -> Option<Result<Contrast, String>> {
    // Clearing by the kernel has a page size of its own.
    let at = |row: &Row| Config { page_size: None, ..row.config.clone() };
    let compare = |pair: [&Row; 2]| {
        let rate = pair[0].config.rate.ok_or("at an unlimited rate, methods clear different amounts")?;
        let achieved = |row: &Row| row.also.get("rate").copied().unwrap_or_default();
        if let Some(slow) = pair.into_iter().find(|row| achieved(row) < rate * FULL_RATE) {
            return Err(format!("{} achieved {:.2} of {rate} GB/s", slow.candidate.name, achieved(slow)));
        }
        Contrast::of(pair[1], pair[0]).ok_or_else(|| "there are no samples".to_owned())
    };
    let of_file = |file: &Results| {
        let clears = |name| {
            let clears = |row: &&Row| row.config.operation.is_none_or(|it| it == Operation::Clear);
            file.of(Measurement::Corun).filter(move |row| row.candidate.name == name && clears(row))
        };
        let pair = |cached| Some([cached, clears(bypassing).find(|row| at(row) == at(cached))?]);
        clears(cached).filter_map(pair).map(compare).collect::<Vec<_>>()
    };
    let compared: Vec<_> = files.iter().flat_map(|file| of_file(file)).collect();
    compared.iter().find(|it| it.is_ok()).or(compared.first()).cloned()
}

/// True if the program was a build by make.
pub(super) fn is_build(found: &Results) -> bool {
    let mut words = found.command.iter().skip_while(|word| *word != "--");
    words.any(|word| word.split_whitespace().any(|word| word == "make" || word.ends_with("/make")))
}

/// Memory that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Ordinary memory.
    Ram,
    /// Memory that keeps persisted bytes without power.
    Persistent,
}

impl Place {
    pub(super) const ALL: [(Place, &str); 2] =
        [(Place::Ram, "memory"), (Place::Persistent, "persistent memory")];

    fn includes(self, config: &Config) -> bool {
        match self {
            Place::Ram => in_memory(config),
            Place::Persistent => config.durable == Some(true),
        }
    }

    /// Returns the place of a published figure.
    pub(super) fn named(name: &str) -> Place {
        if name == "ram" { Place::Ram } else { Place::Persistent }
    }
}

fn one_thread(config: &Config) -> bool {
    config.threads.unwrap_or(1) == 1
}

fn in_memory(config: &Config) -> bool {
    config.target.as_deref().is_none_or(|target| target == "ram")
}
