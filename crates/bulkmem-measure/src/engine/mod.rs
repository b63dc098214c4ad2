//! The engine that every measurement runs on.
//!
//! A measurement is a struct of options that implements [`Measure`]. It builds samplers and passes them, group by group, to
//! the [`Run`], which interleaves their samples, computes statistics, checks for noise, and saves the results so far.
//! All results are [`Row`]s, the only kind of result in tables, reports, comparisons and files.
//!
//! - What is sampled: `implementation`, in the configuration of a `cell`.
//! - How: `interleave`, `run`; `passes` and `workload` are the common kinds of samples, `counters` counts in them, `latency`
//!   times single operations.
//! - What the C library does: `threshold`.
//! - On which processors and nodes: `numa`, `placement`.
//! - In which memory: `memory`, `reservation`, `buffer`, `arena`, `positions`, `neighbour`.
//! - Results: `results`, `config`, `provenance`, `stats`, `quality`, `compare`, `contrast`.

pub(crate) mod arena;
pub(crate) mod buffer;
pub(crate) mod cell;
pub(crate) mod clock;
mod compare;
mod config;
pub(crate) mod contrast;
pub(crate) mod counters;
mod error;
pub(crate) mod free_pages;
pub(crate) mod fresh;
pub(crate) mod implementation;
pub(crate) mod interleave;
pub(crate) mod latency;
mod libpmem;
pub(crate) mod memory;
pub(crate) mod memory_state;
pub(crate) mod neighbour;
pub(crate) mod options;
mod page_size;
pub(crate) mod passes;
pub(crate) mod placement;
pub(crate) mod positions;
mod provenance;
pub(crate) mod quality;
pub(crate) mod reservation;
mod results;
pub(crate) mod run;
pub mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;
pub(crate) mod threshold;
pub mod units;
pub(crate) mod workload;

pub(crate) use bulkmem_prefault::numa;
pub use bulkmem_prefault::numa::NumberList;
pub use cell::{Condition, Cost};
pub use compare::{CHANCE, Change, Comparison, Differences, Identity, Side, Verdict};
pub use config::{
    Alignment, CacheState, Config, CopySide, Dimension, Direction, Memory, Pattern, dimensions, distinct,
    varying,
};
pub use contrast::{Contrast, control_of};
pub use counters::{Counts, MISSES, counters_unavailable};
pub use error::MeasureError;
pub use implementation::{MethodSet, Peers};
pub use libpmem::LIBPMEM;
pub(crate) use memory::Share;
pub use memory::{MemoryLeft, MemoryLimit, memory_left};
pub use page_size::{BadPageSize, PageSize};
pub use placement::Placement;
pub use provenance::{Provenance, Threshold, c_library};
pub use quality::host::{BusyProcess, Load};
pub(crate) use results::PROFILE_FORMAT;
pub use results::{
    Bound, Candidate, Check, Finding, Head, Kind, Measurement, Metric, QualityFlag, Results, ResultsError,
    Row, Unit,
};
pub use run::{Measure, Observer, Progress, Run, RunOptions, Validated};

pub(crate) use arena::{Arena, RawRange};
pub(crate) use buffer::{Buffer, Content};
pub(crate) use bulkmem::machine::CACHE_LINE as LINE;
pub(crate) use cell::Cell;
pub(crate) use counters::Counting;
pub(crate) use error::{Result, fits, with_causes};
pub(crate) use implementation::Implementation;
pub(crate) use interleave::StopRule;
pub(crate) use neighbour::Neighbour;
pub(crate) use passes::Passes;
pub(crate) use positions::{Permutation, Slots, Spread};
pub(crate) use reservation::Reservation;
pub(crate) use run::{Sample, Sampler, go_on};
pub(crate) use stats::{Stats, Summary, Trend};
pub(crate) use workload::Workloads;

/// The byte that fills write where nothing else is wanted.
pub(crate) const FILL_BYTE: u8 = 0xA5;
