//! Rows as tables: subjects on one side, the values of one key on the other; a table for each combination of the other
//! keys.

mod bar;
mod grid;

use std::fmt::Write as _;

use bulkmem_measure::engine::{Dimension, Row};

use crate::figures;
pub(crate) use crate::output::digits;
use crate::output::{FAINT, HEADING, styled, wrapped};
use grid::Grid;

/// How to lay rows out.
#[derive(Clone, Copy)]
pub(super) struct Pivot<'a> {
    /// Whose values stand opposite the subjects.
    key: Dimension,
    /// Whether subjects stand across, and the key's values down.
    subjects_across: bool,
    /// Whom to say the speed-up against, by name.
    baseline: Option<&'a str>,
    /// What a cell says in place of mean and standard deviation.
    cell: Option<&'a dyn Fn(&Row) -> String>,
}

impl<'a> Pivot<'a> {
    /// Subjects down, the key's values across; the best of each column is marked.
    pub(super) fn across(key: Dimension) -> Pivot<'a> {
        Pivot { key, subjects_across: false, baseline: None, cell: None }
    }

    /// The key's values down, subjects across; the best of each line is marked.
    pub(super) fn down(key: Dimension) -> Pivot<'a> {
        Pivot { subjects_across: true, ..Pivot::across(key) }
    }

    /// Says the speed-up against the subject of that name too, where there is one.
    pub(super) fn baseline(self, name: &'a str) -> Pivot<'a> {
        Pivot { baseline: Some(name), ..self }
    }

    /// Says this of a row in place of mean and standard deviation. The best is marked all the same.
    pub(super) fn cell(self, cell: &'a dyn Fn(&Row) -> String) -> Pivot<'a> {
        Pivot { cell: Some(cell), ..self }
    }

    /// The tables, each under a heading, in lines of at most `width` columns, and what their marks mean.
    pub(super) fn text(&self, rows: &[&Row], width: usize) -> String {
        let Some(first) = rows.first() else { return String::new() };
        // What varies besides the subject and what stands opposite tells the tables apart.
        let varies = |key: &Dimension| {
            *key != self.key && rows.iter().any(|row| row.config.get(*key) != first.config.get(*key))
        };
        let apart: Vec<Dimension> = Dimension::ALL.into_iter().filter(varies).collect();
        let config = |row: &Row| apart.iter().map(|key| row.config.get(*key)).collect::<Vec<_>>();
        let mut seen = Vec::new();
        let mut text = String::new();
        let (mut marked, mut compared, mut doubtful) = (false, false, false);
        for row in rows {
            let here = (config(row), row.metric, row.measurement);
            if seen.contains(&here) {
                continue;
            }
            let of_place =
                rows.iter().copied().filter(|row| (config(row), row.metric, row.measurement) == here);
            let grid = Grid::new(*self, of_place.collect());
            let heading = wrapped(&self.heading(row, &apart), "", width);
            text += &format!("{}\n{}\n", styled(HEADING, heading), grid.text(width));
            marked |= grid.has_marks();
            compared |= grid.has_baseline();
            doubtful |= grid.has_doubts();
            seen.push(here);
        }
        let mut notes = Vec::new();
        if marked {
            notes.push(format!(
                "* the best of a {}, by median.",
                if self.subjects_across { "line" } else { "column" }
            ));
        }
        if let Some(baseline) = self.baseline.filter(|_| compared) {
            notes.push(format!("Speed-ups are by medians, against {baseline}."));
        }
        if doubtful {
            notes.push("~ doubtful: the notes say why.".to_owned());
        }
        if !notes.is_empty() {
            _ = writeln!(text, "{}", styled(FAINT, wrapped(&notes.join(" "), "", width)));
        }
        text
    }

    fn heading(&self, row: &Row, apart: &[Dimension]) -> String {
        let mut heading = row.measurement.to_string();
        for key in apart.iter().filter(|key| row.config.get(**key).is_some()) {
            _ = write!(heading, ", {} {}", key.name().replace('_', " "), value(row, *key));
        }
        _ = write!(heading, ": {}", row.metric.unit());
        if self.cell.is_none() {
            _ = match row.samples.len() {
                1 => write!(heading, ", one run of each"),
                runs => write!(heading, ", mean ± standard deviation of {runs} runs"),
            };
        }
        heading
    }
}

/// What a row's subject is called.
pub(super) fn name(row: &Row) -> String {
    figures::candidate(&row.candidate)
}

/// The value of a key, for people.
pub(super) fn value(row: &Row, key: Dimension) -> String {
    figures::config_value(&row.config, key)
}

#[cfg(test)]
mod tests;
