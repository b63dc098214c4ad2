//! The engine that every measurement runs on.
//!
//! A measurement is a struct of options that implements [`Measure`]. It builds candidates and hands them, group by
//! group, to the [`Run`], which interleaves their samples, computes statistics, looks for noise, and saves the results so
//! far. All results are [`Row`]s, the only kind of result that tables, reports, comparisons and files know.

pub(crate) mod arena;
pub(crate) mod buffer;
pub(crate) mod cell;
pub(crate) mod clock;
mod compare;
mod config;
pub(crate) mod contrast;
pub(crate) mod counters;
mod error;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod implementation;
pub(crate) mod memory;
pub(crate) mod meter;
mod options;
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
pub(crate) mod selection;
pub mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;
pub mod units;
pub(crate) mod workload;

pub use compare::{CHANCE, Change, CompareOptions, Comparison, Differences, Identity, Side, Verdict};
pub use config::{Config, Dimension, Direction, Memory, Pattern};
pub use contrast::{Contrast, control_of};
pub use counters::{Counts, counters_unavailable};
pub use error::{MeasureError, OptionName};
pub use implementation::MethodSet;
pub use memory::{MemoryLeft, MemoryLimit, memory_left};
pub use options::{Alignment, BenchOptions, CalibrateOptions, Methods, Progress, Temperature};
pub use page_size::{BadPageSize, PageSize};
pub use parse::ResultsError;
pub use provenance::Provenance;
pub use quality::QualityFlag;
pub use results::{Candidate, Finding, Kind, Measurement, Metric, Results, Row};
pub use run::{Measure, Observer, Run, RunOptions, Validated};
pub use selection::Peers;
