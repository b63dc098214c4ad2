//! Questions to this machine's own results.

use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect};

use crate::engine::{Config, Direction, Measurement, Pattern, Results, Row};
use crate::measurements::CHILD_WRITES;

/// What was measured here.
pub(super) struct Ours<'r>(pub(super) &'r Results);

impl Ours<'_> {
    /// The median of the first row of a measurement and a subject whose place is as asked.
    pub(super) fn median(
        &self,
        measurement: Measurement,
        name: &str,
        at: impl Fn(&Config) -> bool,
    ) -> Option<f64> {
        self.row(measurement, name, at).map(|row| row.stats.median)
    }

    /// That row.
    pub(super) fn row(
        &self,
        measurement: Measurement,
        name: &str,
        at: impl Fn(&Config) -> bool,
    ) -> Option<&Row> {
        self.0.of(measurement).find(|row| row.candidate.name == name && at(&row.config))
    }

    /// GB/s of clearing by size, in one piece.
    pub(super) fn clear(&self, name: &str, size: u64) -> Option<f64> {
        self.median(Measurement::Clear, name, |config| {
            config.size == Some(size) && config.threads.unwrap_or(1) == 1
        })
    }

    /// The string instruction that the kernel would clear pages with: STOSB, or STOSQ where only that was measured.
    pub(super) fn string(&self, size: u64) -> Option<f64> {
        self.clear("rep_stosb", size).or_else(|| self.clear("rep_stosq", size))
    }

    /// GB/s of clearing an extent by chunk, in base pages if those were measured.
    pub(super) fn chunk(&self, name: &str, chunk: u64) -> Option<f64> {
        self.median(Measurement::Chunks, name, |config| config.chunk == Some(chunk))
    }

    /// GB/s of sequential persistent writes to memory.
    pub(super) fn persist(&self, name: &str) -> Option<f64> {
        self.median(Measurement::Persist, name, |config| {
            config.pattern == Some(Pattern::Sequential)
                && config.target.as_deref().is_none_or(|target| target == "ram")
        })
    }

    /// Random operations a second on memory, one thread, by direction and method.
    pub(super) fn iops(&self, name: &str, direction: Direction) -> Option<f64> {
        self.median(Measurement::Iops, name, |config| {
            config.direction == Some(direction)
                && config.threads.unwrap_or(1) == 1
                && config.target.as_deref().is_none_or(|target| target == "ram")
        })
    }

    /// Random operations of 4 KiB a second in the kernel module's memory of an attribute, one thread, by direction and
    /// method.
    pub(super) fn iops_in(&self, attribute: &str, name: &str, direction: Direction) -> Option<f64> {
        self.median(Measurement::Iops, name, |config| {
            config.direction == Some(direction)
                && config.threads.unwrap_or(1) == 1
                && config.chunk == Some(4096)
                && config.target.as_deref() == Some(bulkmem_kmod::PATH)
                && config.attribute.as_deref() == Some(attribute)
        })
    }

    /// How many times as long a walk over the smallest list takes after persisting as before.
    pub(super) fn growth(&self, name: &str) -> Option<f64> {
        let rows = || {
            self.0
                .of(Measurement::Pollution)
                .filter(|row| row.config.operation == Some(Operation::CopyPersist))
        };
        let least = rows().filter_map(|row| row.config.list).min();
        let row = rows().find(|row| row.candidate.name == name && row.config.list == least)?;
        Some(row.also.get("after_ns")? / row.also.get("before_ns")?)
    }

    /// Time of an operation and reading all of it back: the best caching method's, and the best bypassing one's.
    pub(super) fn read_back(&self, operation: Operation, size: u64) -> (Option<f64>, Option<f64>) {
        let best = |wanted: CacheEffect| {
            let rows = self.0.of(Measurement::Reuse).filter(|row| {
                row.config.operation == Some(operation)
                    && row.config.size == Some(size)
                    && row.config.read_back == Some(100.0)
                    && method::by_name(&row.candidate.name).is_some_and(|method| method.effect == wanted)
            });
            // Of whatever metric, as a time.
            rows.map(|row| row.metric.times_as_good(1.0, row.stats.median)).min_by(f64::total_cmp)
        };
        (best(CacheEffect::Allocates), best(CacheEffect::Bypasses))
    }

    /// Nanoseconds for a fork whose child writes a buffer of that size.
    pub(super) fn fork(&self, size: u64) -> Option<f64> {
        self.median(Measurement::Fork, CHILD_WRITES, |config| config.size == Some(size))
    }
}
