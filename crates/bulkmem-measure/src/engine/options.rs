//! Checks that options of several measurements share.

use std::time::Duration;

use crate::engine::{MeasureError, OptionName};

/// The largest length, bytes.
const MAX_LENGTH: u64 = 1 << 40;
/// The largest number of threads. More is a typing error.
const MAX_THREADS: usize = 4096;

pub(crate) fn check_budget(budget: Duration) -> Result<(), MeasureError> {
    match budget.as_secs_f64() {
        s if s < 0.1 => Err(bad(OptionName::Budget, "less than 0.1 s measures nothing; give more time")),
        s if s > 86_400.0 => Err(bad(OptionName::Budget, "more than a day; give at most 86400 s")),
        _ => Ok(()),
    }
}

pub(crate) fn check_length(option: OptionName, length: u64) -> Result<(), MeasureError> {
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(());
    }
    Err(bad(option, format!("{length} bytes is outside 1 to {MAX_LENGTH} bytes")))
}

pub(crate) fn check_threads(threads: usize) -> Result<(), MeasureError> {
    if threads <= MAX_THREADS {
        return Ok(());
    }
    Err(bad(OptionName::Threads, format!("{threads} is more than {MAX_THREADS}")))
}

pub(crate) fn bad(option: OptionName, reason: impl Into<String>) -> MeasureError {
    MeasureError::Option { option, reason: reason.into() }
}
