//! The lengths from which the C library bypasses the cache: as its tunables set them, and as calibration located them.

use bulkmem::Operation;
use bulkmem_measure::Provenance;
use bulkmem_measure::engine::Threshold;
use bulkmem_measure::measurements::{Tunable, c_function, tunables_here};
use serde::Serialize;

use crate::output::size;

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
        let tunables = tunables_here();
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
        let unknown = || format!("{}: not located (`bulkmem calibrate`)", c_function(self.operation));
        let located = self.located.as_ref().map_or_else(unknown, Threshold::text);
        match self.tunable.zip(self.value) {
            Some((name, value)) => format!("{located}; {name} is {}", Tunable::text(value)),
            None => format!("{located}; no tunable listed"),
        }
    }

    /// Returns it in few words: `from 289 MiB (tunable: 288 MiB)`.
    pub(crate) fn short(&self) -> String {
        let located = self.located.as_ref().map(|it| it.uncached.ok_or(it.cached));
        let located = match located {
            None => "not located".to_owned(),
            Some(Ok(uncached)) => format!("from {}", size(uncached)),
            Some(Err(cached)) => format!("not up to {}", size(cached)),
        };
        let tunable = self.value.map(|value| format!(" (tunable: {})", Tunable::text(value)));
        located + &tunable.unwrap_or_default()
    }
}
