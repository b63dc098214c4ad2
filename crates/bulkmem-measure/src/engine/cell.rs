//! The configurations in which operations are sampled, and a sample.

use bulkmem::policy::{Choice, Situation};
use bulkmem::{Operation, Pages};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::CacheState;

/// The cost that a time stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// The operation alone.
    Throughput,
    /// The operation, and reading the destination back.
    Reuse,
    /// The operation, and what it does to a cache-resident neighbour beyond what the same time without touching
    /// memory does.
    Stream,
}

impl Cost {
    /// Returns the cost by which an intent, or the choice for a cache state, is judged.
    pub fn of(situation: impl Into<Situation>) -> Cost {
        match situation.into() {
            Situation::Throughput | Situation::Cached | Situation::Uncached | Situation::SeveralThreads => {
                Cost::Throughput
            }
            Situation::Reuse | Situation::UncachedReuse | Situation::CachedReuse => Cost::Reuse,
            Situation::Stream => Cost::Stream,
        }
    }
}

/// The conditions under which an operation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// True if the ranges start on a cache line.
    pub aligned: bool,
    /// True if the ranges were in the cache before, as far as they fit.
    pub warm: bool,
    /// Threads that share the work.
    pub threads: usize,
    /// State of the source of a copy; absent if it is that of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CacheState>,
    /// True if the ranges are in base pages although larger pages were available; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_pages: bool,
}

impl Condition {
    /// Returns the condition with the source, if there is one, in the state of the destination, and no [base pages](Self::base_pages).
    pub const fn new(aligned: bool, warm: bool, threads: usize) -> Condition {
        Condition { aligned, warm, threads, source: None, base_pages: false }
    }
}

/// A configuration in which candidates are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) cost: Cost,
    pub(crate) length: u64,
    pub(crate) condition: Condition,
    /// Destinations are mapped anew for each sample, in such pages, and not touched before. They are not warm then. Those of
    /// operations that persist are in base pages.
    pub(crate) fresh: Option<Pages>,
}

impl Cell {
    /// A cell in memory that was touched.
    pub(crate) fn new(operation: Operation, cost: Cost, length: u64, condition: Condition) -> Cell {
        Cell { operation, cost, length, condition, fresh: None }
    }

    /// True if there is a source, and it is in the cache.
    pub(crate) fn source_is_warm(&self) -> bool {
        self.operation.has_source()
            && match self.condition.source {
                Some(state) => state == CacheState::Warm,
                None => self.condition.warm || self.operation == Operation::CopyPersist,
            }
    }
}

/// Memory to clear as the Linux module does: in chunks, with one fence at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// A clear.
    pub(crate) choice: Choice,
    pub(crate) length: usize,
    pub(crate) chunk: usize,
}

/// One sample, per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    /// The cost, with the disturbance, nanoseconds.
    pub(crate) ns: f64,
    /// The part of [`Cost::Stream`] that is the neighbour's, nanoseconds.
    pub(crate) disturbance_ns: Option<f64>,
    pub(crate) operations: usize,
    /// With those that were not timed.
    pub(crate) calls: usize,
}
