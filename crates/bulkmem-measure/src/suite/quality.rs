//! What makes rows doubtful: noise, drift, and others who used the machine meanwhile.

use super::Row;

/// A standard deviation of more than this share of the mean is said.
const NOISY_PERCENT: f64 = 5.0;

/// What is doubtful about the rows of a group, each with a remedy.
pub(super) fn doubts(what: &str, rows: &[Row]) -> Vec<String> {
    let spread = rows.iter().filter(|row| !row.metric.is_difference());
    let noisy = spread.filter(|row| row.stats.pstdev_percent() > NOISY_PERCENT).count();
    if noisy == 0 {
        return Vec::new();
    }
    vec![format!(
        "{what}: {noisy} of {} rows vary by more than {NOISY_PERCENT} %: let the machine rest, pin the command (taskset -c 1 \
         bulkmem …), or ask for more --runs",
        rows.len()
    )]
}

/// The machine as others use it, at the beginning of a group.
#[derive(Debug)]
pub(super) struct Host;

impl Host {
    /// The machine as it is now.
    pub(super) fn now() -> Host {
        Host
    }

    /// What others did since, as far as it disturbs.
    pub(super) fn disturbances(&self) -> Vec<String> {
        Vec::new()
    }
}
