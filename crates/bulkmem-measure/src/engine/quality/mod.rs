//! Reasons to doubt rows: noise, drift, and other use of the machine at the same time.
//!
//! Rows are marked as soon as their group is complete. Notes sum up all groups, so that a long run ends in a few notes and
//! not in one for each group.

pub(crate) mod host;
mod notes;
mod samples;

use self::host::Snapshot;
use self::notes::Tally;
use crate::engine::{QualityFlag, Row};

/// A standard deviation above this share of the mean is reported.
const NOISY_PERCENT: f64 = 5.0;
/// A drift of less than this share is a trifle.
const DRIFT: f64 = 0.03;
/// A drift must be this improbable by chance, as every group is tested.
const DRIFT_PROBABILITY: f64 = 0.01;

/// Watches over a run.
#[derive(Debug, Default)]
pub(super) struct Quality {
    tally: Tally,
    /// The machine at the beginning of the first group that was not yet looked at, and that group's first row.
    since: Option<(Snapshot, usize)>,
    first: usize,
}

impl Quality {
    /// A group begins; so many rows are there already.
    pub(super) fn begin(&mut self, rows: usize) {
        self.first = rows;
        if self.since.is_none() {
            self.since = Snapshot::here().map(|snapshot| (snapshot, rows));
        }
    }

    /// A group ended, and its rows were added to the others: marks those that are doubtful.
    pub(super) fn end(&mut self, group: &str, rows: &mut [Row]) {
        self.tally.groups += 1;
        self.judge(group, rows);
        let Some((before, first)) = &self.since else { return };
        let Some(after) = Snapshot::here() else { return };
        // Groups too short for the kernel's ticks are looked at together.
        let Some(disturbance) = host::between(before, &after) else { return };
        for (doubt, share) in disturbance.flags() {
            mark(&mut rows[*first..], doubt);
            self.tally.disturbed(doubt, share, group, &disturbance);
        }
        self.since = None;
    }

    /// Looks at the samples of the group's rows.
    fn judge(&mut self, group: &str, rows: &mut [Row]) {
        let rows = &mut rows[self.first..];
        self.tally.rows += rows.len();
        for row in rows.iter_mut().filter(|row| !row.metric.is_difference()) {
            if let Some((doubt, percent)) = samples::doubt(row) {
                row.flags.push(doubt);
                self.tally.sampled(doubt, percent, group, &row.candidate.name);
            }
        }
        let change = samples::drift(rows);
        if let Some(change) = change {
            mark(rows, QualityFlag::Drift);
            self.tally.drifted(change, group);
        }
    }

    /// Returns the notes so far, each with a remedy.
    pub(super) fn notes(&self) -> Vec<String> {
        self.tally.notes()
    }
}

fn mark(rows: &mut [Row], doubt: QualityFlag) {
    for row in rows {
        if !row.flags.contains(&doubt) {
            row.flags.push(doubt);
        }
    }
}
