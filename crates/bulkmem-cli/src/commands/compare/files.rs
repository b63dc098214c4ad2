//! A comparison as JSON and as comma-separated values.

use std::io;

use bulkmem_measure::engine::{Comparison, Differences, Results};
use serde::Serialize;

use super::CompareArgs;
use crate::results::{dimensions, identity_cells, identity_head, optional, table, word};

/// The document that `--json` prints.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    old: File<'a>,
    new: File<'a>,
    machine: &'a [String],
    settings: &'a [String],
    #[serde(flatten)]
    found: &'a Comparison,
}

/// One of the two files.
#[derive(Serialize)]
struct File<'a> {
    path: String,
    date: &'a str,
    bulkmem: &'a str,
    commit: &'a str,
    complete: bool,
}

impl<'a> Document<'a> {
    pub(super) fn new(
        args: &CompareArgs,
        old: &'a Results,
        new: &'a Results,
        differences: &'a Differences,
        found: &'a Comparison,
    ) -> Document<'a> {
        let file = |path: &std::path::Path, file: &'a Results| File {
            path: path.display().to_string(),
            date: &file.provenance.date,
            bulkmem: &file.provenance.bulkmem,
            commit: &file.provenance.commit,
            complete: file.complete,
        };
        Document {
            old: file(&args.old, old),
            new: file(&args.new, new),
            machine: &differences.machine,
            settings: &differences.settings,
            found,
        }
    }
}

/// Returns the rows that both files have as comma-separated values.
pub(super) fn csv(found: &Comparison) -> io::Result<String> {
    let dimensions = dimensions(found.rows.iter().map(|change| &change.row.config));
    let figures = [
        "metric",
        "old_median",
        "new_median",
        "old_samples",
        "new_samples",
        "times",
        "difference",
        "interval_low",
        "interval_high",
        "probability",
        "verdict",
    ];
    let lines = found.rows.iter().map(|change| {
        let row = &change.row;
        let mut cells = identity_cells(row.measurement, &row.candidate, &row.config, &dimensions)?;
        let [low, high] = change.interval;
        cells.extend([
            word(&row.metric)?,
            change.old.median.to_string(),
            change.new.median.to_string(),
            change.old.samples.to_string(),
            change.new.samples.to_string(),
            optional(change.times),
            change.difference.to_string(),
            low.to_string(),
            high.to_string(),
            optional(change.probability),
            word(&change.verdict)?,
        ]);
        Ok(cells)
    });
    table(identity_head(&dimensions).chain(figures), lines)
}
