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
mod target;

pub use calibration::derive::derive_policy;
pub use calibration::merge::{Kept, Merged, is_heavier_than, is_heavy, load_during, merge};
pub use calibration::{CalibrateOptions, calibrate};
pub use engine::stats;
pub use engine::{
    Counts, Kind, MeasureError, MemoryLeft, MemoryLimit, Progress, Provenance, c_library,
    counters_unavailable, memory_left,
};
