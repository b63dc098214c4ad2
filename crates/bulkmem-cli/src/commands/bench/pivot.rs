//! Rows as tables: candidates on one side, the values of one dimension on the other, and a table for each combination of
//! the other dimensions.

mod bar;
mod grid;

use std::fmt::Write as _;

use bulkmem_measure::engine::{Dimension, Row};

use super::rows::{group_by, value};
use crate::output::{faint, section};
use grid::Grid;

/// A layout of rows.
#[derive(Clone, Copy)]
pub(super) struct Pivot<'a> {
    /// The dimension opposite the candidates.
    dimension: Dimension,
    candidates_across: bool,
    /// Name of the candidate that speed-ups are relative to.
    baseline: Option<&'a str>,
    /// Text of a cell instead of mean and standard deviation.
    cell: Option<&'a dyn Fn(&Row) -> String>,
}

impl<'a> Pivot<'a> {
    /// Lists candidates down and values across, and marks the best of each column.
    pub(super) fn across(dimension: Dimension) -> Pivot<'a> {
        Pivot { dimension, candidates_across: false, baseline: None, cell: None }
    }

    /// Lists values down and candidates across, and marks the best of each line.
    pub(super) fn down(dimension: Dimension) -> Pivot<'a> {
        Pivot { candidates_across: true, ..Pivot::across(dimension) }
    }

    /// Also shows the speed-up over the candidate of that name, if it was measured.
    pub(super) fn baseline(self, name: &'a str) -> Pivot<'a> {
        Pivot { baseline: Some(name), ..self }
    }

    /// Sets the text of a cell, instead of mean and standard deviation.
    pub(super) fn cell(self, cell: &'a dyn Fn(&Row) -> String) -> Pivot<'a> {
        Pivot { cell: Some(cell), ..self }
    }

    /// Returns the tables, each under a heading, in lines of at most `width` columns, and the meaning of their marks.
    pub(super) fn text(&self, rows: &[&Row], width: usize) -> String {
        let Some(first) = rows.first() else { return String::new() };
        let varies = |dimension: &Dimension| {
            let differs = |row: &&Row| row.config.get(*dimension) != first.config.get(*dimension);
            *dimension != self.dimension && rows.iter().any(differs)
        };
        let apart: Vec<Dimension> = Dimension::ALL.into_iter().filter(varies).collect();
        let key = |row: &Row| {
            let config: Vec<_> = apart.iter().map(|dimension| row.config.get(*dimension)).collect();
            (config, row.metric, row.measurement)
        };
        let mut text = String::new();
        let (mut marked, mut compared, mut doubtful) = (false, false, false);
        for group in group_by(rows.iter().copied(), key) {
            let heading = self.heading(group[0], &apart);
            let grid = Grid::new(*self, group);
            text += &section(&heading, &grid.text(width), width);
            marked |= grid.has_marks();
            compared |= grid.has_baseline();
            doubtful |= grid.has_doubts();
        }
        let line = if self.candidates_across { "line" } else { "column" };
        let notes = [
            marked.then(|| format!("* the best of a {line}, by median.")),
            self.baseline.filter(|_| compared).map(|name| format!("Speed-ups are by medians, over {name}.")),
            doubtful.then(|| "~ doubtful: the notes say why.".to_owned()),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        if notes.is_empty() { text } else { text + &faint(&notes.join(" "), width) }
    }

    fn heading(&self, row: &Row, apart: &[Dimension]) -> String {
        let mut heading = row.measurement.to_string();
        for dimension in apart.iter().filter(|dimension| row.config.get(**dimension).is_some()) {
            _ = write!(heading, ", {} {}", dimension.name().replace('_', " "), value(row, *dimension));
        }
        _ = write!(heading, ": {}", row.metric.unit());
        match row.samples.len() {
            _ if self.cell.is_some() => heading,
            1 => heading + ", one run of each",
            runs => heading + &format!(", mean ± standard deviation of {runs} runs"),
        }
    }
}

#[cfg(test)]
mod tests;
