//! Clocks, samples, statistics, workloads, and fitting a profile.
//!
//! ```text
//! clock ─▶ workload ─▶ cell (interleaved samples) ─▶ search ─▶ calibrate ─▶ fit ─▶ profile
//!                             └──────────────────────────────▶ bench
//! ```
//!
//! Times are nanoseconds, lengths bytes, everywhere. Nothing here prints: progress goes to a callback.

mod counters;
mod error;
mod options;
mod report;
pub mod stats;

pub use counters::Counts;
pub use error::MeasureError;
pub use options::{Alignment, BenchOptions, CalibrateOptions, Methods, Progress, Temperature};
pub use report::{BenchReport, BenchRow, ChoosingCost, Contestant, Evidence, Kind, RegretSummary};
