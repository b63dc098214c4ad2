//! Hardware counters: cycles, instructions, last-level cache misses of this thread, where the kernel gives them.

use serde::{Deserialize, Serialize};

/// What the counters showed, an operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Core cycles.
    pub cycles: f64,
    /// Instructions retired.
    pub instructions: f64,
    /// Last-level cache misses.
    pub llc_misses: f64,
}
