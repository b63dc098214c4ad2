//! Clocks, samples, statistics, workloads, and fitting a profile.
//!
//! ```text
//! clock ─▶ workload ─▶ cell (interleaved samples) ─▶ search ─▶ calibrate ─▶ fit ─▶ profile
//!                             └──────────────────────────────▶ bench ─▶ targets
//! suite (one file a measurement) ─▶ results
//! ```
//!
//! Times are nanoseconds, lengths bytes, everywhere. Nothing here prints: progress goes to a callback.

mod arena;
mod bench;
mod calibrate;
mod cell;
mod choosing;
mod clock;
mod counters;
mod error;
mod evidence;
#[cfg(test)]
mod fake;
mod fit;
mod interface;
mod memory;
mod merge;
mod meter;
mod neighbour;
mod options;
mod peers;
mod plan;
mod positions;
mod report;
pub mod reproduce;
mod search;
pub mod stats;
pub mod suite;
mod targets;
mod threads;
mod verdict;
mod workload;

pub use bench::{bench, regret};
pub use calibrate::calibrate;
pub use counters::{Counts, counters_unavailable};
pub use error::MeasureError;
pub use fit::{cost_of, fit};
pub use memory::{MemoryLeft, MemoryLimit, memory_left};
pub use merge::{Kept, Merged, is_heavier_than, is_heavy, load_during, merge};
pub use options::{Alignment, BenchOptions, CalibrateOptions, Methods, Progress, Temperature};
pub use report::{BenchReport, BenchRow, ChoosingCost, Contestant, Evidence, Kind, Overall, RegretSummary};
pub use targets::{Bound, Target, TargetOptions, TargetReport, Unit, targets};
pub use verdict::unmeasured_lengths;
