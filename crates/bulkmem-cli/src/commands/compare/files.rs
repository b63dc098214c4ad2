//! A comparison as JSON and as comma-separated values.

use std::io;

use bulkmem_measure::engine::{Comparison, Differences, Dimension, Results};
use serde::Serialize;

use super::CompareArgs;
use crate::figures::describe_parameters;
use crate::results::{table, word};

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    old: File<'a>,
    new: File<'a>,
    machine: &'a [String],
    settings: &'a [String],
    #[serde(flatten)]
    found: &'a Comparison,
}

/// One of the files.
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

/// The rows that both files have, a line each.
pub(super) fn csv(found: &Comparison) -> io::Result<String> {
    let keys: Vec<Dimension> = Dimension::ALL
        .into_iter()
        .filter(|key| found.rows.iter().any(|row| row.row.config.get(*key).is_some()))
        .collect();
    let names = keys.iter().map(|key| key.name());
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
    let head = ["measurement", "kind", "name", "parameters"].into_iter().chain(names).chain(figures);
    let head = head.map(str::to_owned).collect();
    let lines = found.rows.iter().map(|change| {
        let row = &change.row;
        let mut cells = vec![
            row.measurement.to_string(),
            word(&row.candidate.kind)?,
            row.candidate.name.clone(),
            describe_parameters(&row.candidate.parameters),
        ];
        cells.extend(keys.iter().map(|key| row.config.get(*key).unwrap_or_default()));
        let optional = |number: Option<f64>| number.map(|it| it.to_string()).unwrap_or_default();
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
    table(head, lines)
}
