//! Measures memory operations and derives a policy from the figures.
//!
//! - [`engine`]: how everything is measured: interleaved samples, statistics, noise, counters, results.
//! - [`measurements`]: one file or folder for each measurement.
//! - [`calibration`]: derives this machine's policy and writes it.
//! - [`reproduce`]: compares results with published figures.
//!
//! Times are in nanoseconds and lengths in bytes. Nothing here prints: progress goes to a callback.

pub mod calibration;
pub mod engine;
pub mod measurements;
pub mod reproduce;

pub use calibration::calibrate;
pub use calibration::derive::{cost_of, derive_policy};
pub use calibration::merge::{Kept, Merged, is_heavier_than, is_heavy, load_during, merge};
pub use engine::stats;
pub use engine::{
    Alignment, BenchOptions, CalibrateOptions, Counts, Kind, MeasureError, MemoryLeft, MemoryLimit, Methods,
    OptionName, Progress, Provenance, Temperature, counters_unavailable, memory_left,
};
pub use measurements::choice::bench::{bench, regret};
pub use measurements::choice::report::{
    BenchReport, BenchRow, ChoosingCost, Contestant, Overall, RegretSummary,
};
pub use measurements::choice::verdict::unmeasured_lengths;
pub use measurements::targets::{Bound, Target, TargetOptions, TargetReport, Unit, targets};
