//! The lengths from which the C library bypasses the cache: as its tunables set them, and as calibration located them.

use std::env;

use bulkmem::Operation;
use bulkmem_measure::Provenance;
use bulkmem_measure::engine::Threshold;
use bulkmem_measure::measurements::{Tunable, list_tunables};
use serde::Serialize;

/// The threshold of `memcpy` (copy) or `memset` (clear).
#[derive(Serialize)]
pub(crate) struct CThreshold {
    operation: Operation,
    /// The tunable that sets it, and its value in bytes.
    tunable: Option<&'static str>,
    value: Option<u64>,
    located: Option<Threshold>,
}

impl CThreshold {
    /// Returns both, with what the calibration of a profile located.
    pub(crate) fn all(provenance: Option<&Provenance>) -> [CThreshold; 2] {
        let set = env::var("GLIBC_TUNABLES").unwrap_or_default();
        let tunables: Vec<Tunable> = list_tunables(&set).unwrap_or_default();
        [Operation::Copy, Operation::Clear].map(|operation| {
            let of = |it: &&Tunable| it.is_non_temporal() && it.operation == operation;
            let tunable = tunables.iter().find(of);
            let located = provenance.and_then(|it| it.thresholds.iter().find(|it| it.operation == operation));
            CThreshold {
                operation,
                tunable: tunable.map(|it| it.name),
                value: tunable.map(|it| it.current),
                located: located.cloned(),
            }
        })
    }

    pub(crate) fn text(&self) -> String {
        let function = if self.operation == Operation::Copy { "memcpy" } else { "memset" };
        let located = self.located.as_ref().map_or_else(
            || format!("{function}: not located (`bulkmem calibrate` or `bulkmem bench threshold`)"),
            Threshold::text,
        );
        match self.tunable.zip(self.value) {
            Some((name, value)) => format!("{located}; {name} is {}", Tunable::text(value)),
            None => format!("{located}; no tunable is listed for it"),
        }
    }
}
