//! The engine that every measurement runs on.
//!
//! A measurement is a struct of options that implements [`Measure`]. It builds samplers and passes them, group by group, to
//! the [`Run`], which interleaves their samples, computes statistics, checks for noise, and saves the results so far.
//! All results are [`Row`]s, the only kind of result in tables, reports, comparisons and files.
//!
//! - What is sampled: `implementation`, `peers`, `selection`.
//! - How: `interleave`, `run`; `passes` and `workload` are the common kinds of samples, `counters` counts in them.
//! - In which memory: `memory`, `reservation`, `buffer`, `arena`, `positions`, `neighbour`.
//! - Results: `results`, `config`, `provenance`, `parse`, `stats`, `quality`, `compare`, `contrast`.

pub(crate) mod arena;
pub(crate) mod buffer;
pub(crate) mod clock;
mod compare;
mod config;
pub(crate) mod contrast;
pub(crate) mod counters;
mod error;
pub(crate) mod implementation;
pub(crate) mod interleave;
pub(crate) mod memory;
pub(crate) mod neighbour;
pub(crate) mod options;
mod page_size;
mod parse;
pub(crate) mod passes;
pub(crate) mod peers;
pub(crate) mod positions;
mod provenance;
pub(crate) mod quality;
pub(crate) mod reservation;
mod results;
pub(crate) mod run;
pub(crate) mod sampler;
pub(crate) mod selection;
pub mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;
pub mod units;
pub(crate) mod workload;

pub use compare::{CHANCE, Change, CompareOptions, Comparison, Differences, Identity, Side, Verdict};
pub use config::{Alignment, CacheState, Config, Dimension, Direction, Memory, Pattern};
pub use contrast::{Contrast, control_of};
pub use counters::{Counts, counters_unavailable};
pub use error::{MeasureError, OptionName};
pub use implementation::MethodSet;
pub use memory::{MemoryLeft, MemoryLimit, memory_left};
pub use page_size::{BadPageSize, PageSize};
pub(crate) use parse::PROFILE_FORMAT;
pub use parse::ResultsError;
pub use provenance::Provenance;
pub use quality::host::{BusyProcess, Load};
pub use results::{
    Bound, Candidate, Check, Finding, Kind, Measurement, Metric, QualityFlag, Results, Row, Unit,
};
pub use run::{Measure, Observer, Progress, Run, RunOptions, Validated};
pub use selection::Peers;
pub use workload::{Condition, Cost};

pub(crate) use bulkmem::machine::CACHE_LINE as LINE;
/// The byte that fills write where nothing else is wanted.
pub(crate) const FILL_BYTE: u8 = 0xA5;
