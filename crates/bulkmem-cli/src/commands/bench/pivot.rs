//! Rows as tables: candidates on one side, the values of one dimension on the other, and a table for each combination of
//! the other dimensions.

use bulkmem_measure::engine::{Dimension, Row, distinct, varying};

use super::rows::{DOUBTFUL, competes, group_by, is_best, is_nearest, name, value};
use crate::figures::{self, describe_config, words};
use crate::output::{Column, Table, digits, faint, marked, section};
use crate::results::group;

/// Longest bar, and the shortest one that is worth showing.
const BAR: (usize, usize) = (30, 8);
/// Longer names are shown without their parameters, which then stand below the table.
const LONGEST_NAME: usize = 28;

/// A layout of rows.
#[derive(Clone, Copy)]
pub(super) struct Pivot<'a> {
    /// The dimension opposite the candidates.
    pub(super) dimension: Dimension,
    pub(super) candidates_across: bool,
    /// Name of the candidate that speed-ups are relative to; without one, or if it was not measured, none are shown.
    pub(super) baseline: Option<&'a str>,
    /// Text of a cell instead of mean and standard deviation.
    pub(super) cell: Option<fn(&Row) -> String>,
    /// Name of the control, if the best is the nearest to it.
    pub(super) control: Option<&'a str>,
}

impl<'a> Pivot<'a> {
    /// Lists candidates down and values across, and marks the best of each column.
    pub(super) fn across(dimension: Dimension) -> Pivot<'a> {
        Pivot { dimension, candidates_across: false, baseline: None, cell: None, control: None }
    }

    /// Lists values down and candidates across, and marks the best of each line.
    pub(super) fn down(dimension: Dimension) -> Pivot<'a> {
        Pivot { candidates_across: true, ..Pivot::across(dimension) }
    }

    /// Returns the tables, each under a heading, in lines of at most `width` columns, and the meaning of their marks.
    pub(super) fn text(self, rows: &[&Row], width: usize) -> String {
        let mut apart = varying(rows.iter().map(|row| &row.config));
        apart.retain(|dimension| *dimension != self.dimension);
        let key = |row: &Row| {
            let config: Vec<_> = apart.iter().map(|dimension| row.config.get(*dimension)).collect();
            (config, row.metric, row.measurement)
        };
        let mut text = String::new();
        let (mut contested, mut compared, mut doubtful) = (false, false, false);
        for rows in group_by(rows.iter().copied(), key) {
            let grid = Grid::new(self, &rows);
            text += &section(&self.heading(rows[0], &apart), &grid.text(width), width);
            contested |= grid.values.iter().any(|(_, rivals)| is_contested(rivals));
            compared |= grid.has_baseline();
            doubtful |= self.cell.is_none() && rows.iter().any(|row| !row.flags.is_empty());
        }
        let line = if self.candidates_across { "line" } else { "column" };
        let notes = [
            contested.then(|| match self.control {
                None => format!("* the best of a {line}, by median."),
                Some(_) => format!("* the best of a {line}, within the noise."),
            }),
            self.baseline.filter(|_| compared).map(|name| format!("Speed-ups are by medians, over {name}.")),
            doubtful.then(|| DOUBTFUL.to_owned()),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        if notes.is_empty() { text } else { text + &faint(&notes.join(" "), width) }
    }

    fn heading(self, row: &Row, apart: &[Dimension]) -> String {
        let config = describe_config(&row.config, |dimension| apart.contains(&dimension));
        let heading = format!("{}{config}: {}", row.measurement, row.metric.unit());
        match row.samples.len() {
            _ if self.cell.is_some() => heading,
            1 => heading + ", one run of each",
            runs => heading + &format!(", mean ± standard deviation of {runs} runs"),
        }
    }
}

struct Grid<'a> {
    pivot: Pivot<'a>,
    /// Names of the candidates, in order of appearance.
    candidates: Vec<String>,
    /// Those that the table shows without their parameters.
    shortened: Vec<String>,
    /// Values of the pivot's dimension, with their rows.
    values: Vec<(String, Vec<&'a Row>)>,
}

impl<'a> Grid<'a> {
    fn new(pivot: Pivot<'a>, rows: &[&'a Row]) -> Grid<'a> {
        let candidates = distinct(rows.iter().map(|row| name(row)));
        let is_long = |name: &&String| {
            let alike = candidates.iter().filter(|other| short(other) == short(name)).count();
            name.chars().count() > LONGEST_NAME && alike == 1 && name.contains('[')
        };
        let shortened = candidates.iter().filter(is_long).cloned().collect();
        let values = group(rows.iter().copied(), |row| value(row, pivot.dimension));
        Grid { pivot, candidates, shortened, values }
    }

    /// Returns the table and its notes, in lines of at most `width` columns.
    fn text(&self, width: usize) -> String {
        let rows = self.values.iter().flat_map(|(_, rows)| rows);
        let deviation = rows.map(|row| figures::deviation(row).chars().count()).max().unwrap_or_default();
        let cell = |row: &Row, rivals: &[&Row]| {
            let doubtful = if row.flags.is_empty() { ' ' } else { '~' };
            let figure = || {
                let mean = digits(row.stats.mean);
                format!("{mean}{doubtful}±{:>deviation$}", figures::deviation(row))
            };
            let text = self.pivot.cell.map_or_else(figure, |cell| cell(row));
            let best = self
                .pivot
                .control
                .map_or_else(|| is_best(rivals, row), |control| is_nearest(rivals, control, row));
            marked(&text, is_contested(rivals) && best)
        };
        let table = self.table("", &cell);
        let mut text = match self.values.as_slice() {
            [(_, rows)] if !self.pivot.candidates_across => self.single(table, rows, width),
            _ if self.has_baseline() => {
                let speed_ups = self.table("speed-up", &|row, rivals| self.speed_up(row, rivals));
                format!("{}\n{}", table.continued(width), speed_ups.continued(width))
            }
            _ => table.continued(width),
        };
        for choice in self.choices() {
            text += &faint(&choice, width);
        }
        if !self.shortened.is_empty() {
            text += &faint(&format!("With parameters: {}.", self.shortened.join(", ")), width);
        }
        text
    }

    /// Returns true if the baseline was measured, and anything to compare with it.
    fn has_baseline(&self) -> bool {
        self.candidates.len() > 1 && self.values.iter().any(|(_, rivals)| self.base(rivals).is_some())
    }

    /// Shows one column of figures, with the speed-up and a bar.
    fn single(&self, mut table: Table, rows: &[&Row], width: usize) -> String {
        if self.has_baseline() {
            table.column(Column::right("speed-up "), rows.iter().map(|row| self.speed_up(row, rows)));
        }
        let room = table.room(width).min(BAR.0);
        if room >= BAR.1 && self.candidates.len() > 1 && self.pivot.cell.is_none() {
            let most = rows.iter().map(|row| row.stats.median).fold(0.0, f64::max);
            table.column(Column::left(""), rows.iter().map(|row| bar(row.stats.median / most, room)));
        }
        table.render(width)
    }

    /// Returns a table of candidates and values; `cell` is the text of a row among those of the same value.
    fn table(&self, corner: &str, cell: &dyn Fn(&Row, &[&Row]) -> String) -> Table {
        let called =
            |name: &String| if self.shortened.contains(name) { short(name) } else { name }.to_owned();
        let at = |candidate: &String, rivals: &[&Row]| {
            find(rivals, candidate).map_or_else(|| "– ".to_owned(), |row| cell(row, rivals))
        };
        let mut table = Table::default();
        // Figures end before the mark, and so do titles.
        if self.pivot.candidates_across {
            let corner = format!("{} {corner}", words(self.pivot.dimension));
            table.column(Column::left(corner.trim()), self.values.iter().map(|(value, _)| value.clone()));
            for name in &self.candidates {
                let cells = self.values.iter().map(|(_, rivals)| at(name, rivals));
                table.column(Column::right(called(name) + " "), cells);
            }
        } else {
            table.column(Column::left(corner), self.candidates.iter().map(called));
            for (value, rivals) in &self.values {
                let cells = self.candidates.iter().map(|name| at(name, rivals));
                table.column(Column::right(format!("{value} ")), cells);
            }
        }
        table
    }

    /// Returns the baseline at a value of the dimension.
    fn base<'r>(&self, rivals: &[&'r Row]) -> Option<&'r Row> {
        let baseline = self.pivot.baseline?;
        let alike = || rivals.iter().copied().find(|row| row.candidate.name == baseline);
        find(rivals, baseline).or_else(alike)
    }

    fn speed_up(&self, row: &Row, rivals: &[&Row]) -> String {
        let base = self.base(rivals);
        let times = base.map(|base| row.metric.times_as_good(row.stats.median, base.stats.median));
        let finite = times.filter(|times| times.is_finite());
        finite.map_or("– ".to_owned(), |times| format!("{:+.1}% ", (times - 1.0) * 100.0))
    }

    /// Returns a sentence for each policy with the methods that it chose.
    fn choices(&self) -> impl Iterator<Item = String> {
        self.candidates.iter().filter_map(|candidate| {
            let chosen = self.values.iter().filter_map(|(value, rows)| {
                Some((value.as_str(), find(rows, candidate)?.chosen.as_deref()?))
            });
            let chosen: Vec<(&str, &str)> = chosen.collect();
            // Neighbouring values of one method, as a range.
            let ranges: Vec<_> = chosen.chunk_by(|a, b| a.1 == b.1).collect();
            let parts = ranges.iter().map(|range| match range {
                [(_, method), ..] if ranges.len() == 1 => (*method).to_owned(),
                [(from, method), .., (to, _)] => format!("{method} from {from} to {to}"),
                range => format!("{} at {}", range[0].1, range[0].0),
            });
            let parts = parts.collect::<Vec<_>>().join("; ");
            (!parts.is_empty()).then(|| format!("{}: {parts}.", candidate.replacen("the", "The", 1)))
        })
    }
}

fn is_contested(rivals: &[&Row]) -> bool {
    rivals.iter().filter(|row| competes(row)).count() > 1
}

fn find<'r>(rows: &[&'r Row], candidate: &str) -> Option<&'r Row> {
    rows.iter().copied().find(|row| name(row) == candidate)
}

/// Returns a name without its parameters.
fn short(name: &str) -> &str {
    name.split_once('[').map_or(name, |(short, _)| short)
}

/// Returns a bar for a share of 1, which is `columns` long; at least an eighth of a column unless the share is 0.
fn bar(share: f64, columns: usize) -> String {
    const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let rest = (eighths % 8).checked_sub(1).map(|part| PARTS[part]);
    "█".repeat(eighths / 8).chars().chain(rest).collect()
}

#[cfg(test)]
mod tests;
