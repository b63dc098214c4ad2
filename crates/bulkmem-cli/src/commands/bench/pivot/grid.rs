//! One table of a pivot: lines, columns, and the rows at their crossings.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::Row;

use super::bar::bar;
use super::{Pivot, digits, name, value};
use crate::figures;
use crate::output::{Column, FAINT, GOOD, Table, styled, wrapped};

/// Blank columns between two columns of a table.
const GAP: usize = 2;
/// A bar is not longer than this, and not shown where there is less room than the other.
const LONGEST_BAR: usize = 30;
const SHORTEST_BAR: usize = 8;
/// Names longer than this are shown without their parameters, which stand below the table then.
const LONGEST_NAME: usize = 28;

pub(super) struct Grid<'a> {
    pivot: Pivot<'a>,
    rows: Vec<&'a Row>,
    /// Names of subjects, in order of appearance, and what they are called in the table.
    subjects: Vec<(String, String)>,
    values: Vec<String>,
    /// What says that it is the same subject elsewhere: parameters that were left out.
    legend: Vec<String>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(pivot: Pivot<'a>, rows: Vec<&'a Row>) -> Grid<'a> {
        let names = distinct(rows.iter().map(|row| name(row)));
        let values = distinct(rows.iter().map(|row| value(row, pivot.key)));
        let mut legend = Vec::new();
        let called = |name: &String| {
            let short = name.split_once('[').map(|(short, _)| short);
            let alone = |short: &str| {
                names.iter().filter(|other| other.split('[').next() == Some(short)).count() == 1
            };
            match short.filter(|short| name.chars().count() > LONGEST_NAME && alone(short)) {
                Some(short) => {
                    legend.push(name.clone());
                    short.to_owned()
                }
                None => name.clone(),
            }
        };
        let called: Vec<String> = names.iter().map(called).collect();
        Grid { pivot, rows, subjects: names.into_iter().zip(called).collect(), values, legend }
    }

    /// The table, and what belongs to it, in lines of at most `width` columns.
    pub(super) fn text(&self, width: usize) -> String {
        let deviation =
            self.rows.iter().map(|row| figures::deviation(row).chars().count()).max().unwrap_or_default();
        let cell = |row: &Row| match self.pivot.cell {
            Some(cell) => cell(row),
            None => {
                let doubtful = if row.flags.is_empty() { ' ' } else { '~' };
                format!("{}{doubtful}±{:>deviation$}", digits(row.stats.mean), figures::deviation(row))
            }
        };
        let marked = |row: &Row| {
            let best = self.best(&value(row, self.pivot.key)).is_some_and(|best| std::ptr::eq(best, row));
            if best { styled(GOOD, format!("{}*", cell(row))) } else { format!("{} ", cell(row)) }
        };
        let mut text;
        if self.values.len() == 1 && !self.pivot.subjects_across {
            text = self.single(&marked, width);
        } else {
            text = self.tables("", &marked, width);
            if self.has_baseline() {
                text += "\n";
                text += &self.tables("speed-up", &|row| self.speed_up(row), width);
            }
        }
        let mut below = self.choices();
        if !self.legend.is_empty() {
            below.push(format!("With parameters: {}.", self.legend.join(", ")));
        }
        for line in below {
            text += &format!("{}\n", styled(FAINT, wrapped(&line, "", width)));
        }
        text
    }

    /// Whether anything is marked as doubtful.
    pub(super) fn has_doubts(&self) -> bool {
        self.pivot.cell.is_none() && self.rows.iter().any(|row| !row.flags.is_empty())
    }

    /// Whether anything is marked as the best.
    pub(super) fn has_marks(&self) -> bool {
        self.values.iter().any(|value| self.best(value).is_some())
    }

    /// Whether there is anything to compare with the baseline.
    pub(super) fn has_baseline(&self) -> bool {
        self.subjects.len() > 1 && self.values.iter().any(|value| self.base(value).is_some())
    }

    /// One column of figures: the speed-up beside it, and a bar.
    fn single(&self, cell: &dyn Fn(&Row) -> String, width: usize) -> String {
        let mut columns = vec![Column::left(""), Column::right(format!("{} ", self.values[0]))];
        if self.has_baseline() {
            columns.push(Column::right("speed-up "));
        }
        let mut lines: Vec<Vec<String>> = Vec::new();
        for (name, called) in &self.subjects {
            let row = self.find(name, &self.values[0]);
            let mut line = vec![called.clone(), row.map_or_else(|| "– ".to_owned(), cell)];
            if self.has_baseline() {
                line.push(row.map_or_else(String::new, |row| self.speed_up(row)));
            }
            lines.push(line);
        }
        let titles = [String::new(), self.values[0].clone() + " ", "speed-up ".to_owned()];
        let used: usize = (0..columns.len())
            .map(|at| widest(lines.iter().map(|line| &line[at]).chain([&titles[at]])) + GAP)
            .sum();
        let room = width.saturating_sub(used).min(LONGEST_BAR);
        let most = self.rows.iter().map(|row| row.stats.median).fold(0.0, f64::max);
        let bars = room >= SHORTEST_BAR && self.subjects.len() > 1 && self.pivot.cell.is_none();
        if bars {
            columns.push(Column::left(""));
            for (line, (name, _)) in lines.iter_mut().zip(&self.subjects) {
                let row = self.find(name, &self.values[0]);
                line.push(row.map_or_else(String::new, |row| bar(row.stats.median / most, room)));
            }
        }
        let mut table = Table::new(columns);
        lines.into_iter().for_each(|line| table.row(line));
        table.render(width)
    }

    /// As many tables below each other as it takes to fit the width.
    fn tables(&self, corner: &str, cell: &dyn Fn(&Row) -> String, width: usize) -> String {
        let pairs =
            |list: &[String]| list.iter().map(|text| (text.clone(), text.clone())).collect::<Vec<_>>();
        let (lines, columns, corner) = if self.pivot.subjects_across {
            let key = self.pivot.key.name().replace('_', " ");
            (pairs(&self.values), self.subjects.clone(), [key.as_str(), corner].join(" ").trim().to_owned())
        } else {
            (self.subjects.clone(), pairs(&self.values), corner.to_owned())
        };
        let at = |line: &str, column: &str| {
            let (candidate, value) = if self.pivot.subjects_across { (column, line) } else { (line, column) };
            self.find(candidate, value).map_or_else(|| "– ".to_owned(), cell)
        };
        let first = widest(lines.iter().map(|(_, called)| called).chain([&corner]));
        let cells: Vec<Vec<String>> = columns
            .iter()
            .map(|(column, _)| lines.iter().map(|(line, _)| at(line, column)).collect())
            .collect();
        let widths: Vec<usize> = columns
            .iter()
            .zip(&cells)
            .map(|((_, called), cells)| GAP + widest(cells.iter().chain([&format!("{called} ")])))
            .collect();
        let mut text = String::new();
        let mut from = 0;
        while from < columns.len() {
            let mut used = first + widths[from];
            let mut to = from + 1;
            while to < columns.len() && used + widths[to] <= width {
                used += widths[to];
                to += 1;
            }
            // Figures end before the mark, and so do titles.
            let titles = columns[from..to].iter().map(|(_, called)| Column::right(format!("{called} ")));
            let mut table = Table::new([Column::left(corner.clone())].into_iter().chain(titles));
            for (number, (_, called)) in lines.iter().enumerate() {
                let figures = cells[from..to].iter().map(|column| column[number].clone());
                table.row([called.clone()].into_iter().chain(figures));
            }
            if from > 0 {
                text.push('\n');
            }
            text += &table.render(width);
            from = to;
        }
        text
    }

    fn find(&self, candidate: &str, at: &str) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| name(row) == candidate && value(row, self.pivot.key) == at)
    }

    /// The rows that compete at a value of the key; reading and controls do not.
    fn rivals(&self, at: &str) -> impl Iterator<Item = &'a Row> {
        let rows = self.rows.iter().copied().filter(move |row| value(row, self.pivot.key) == at);
        rows.filter(|row| !matches!(row.candidate.kind, Kind::Read | Kind::Control))
    }

    /// The best of at least two rivals at a value of the key.
    fn best(&self, at: &str) -> Option<&'a Row> {
        self.rivals(at).nth(1)?;
        self.rivals(at).reduce(|best, row| {
            let (old, new) = (best.stats.median, row.stats.median);
            let better = if row.metric.higher_is_better() { new > old } else { new < old };
            if better { row } else { best }
        })
    }

    /// The baseline at a value of the key.
    fn base(&self, at: &str) -> Option<&'a Row> {
        let baseline = self.pivot.baseline?;
        let here = || self.rows.iter().copied().filter(|row| value(row, self.pivot.key) == at);
        here().find(|row| name(row) == baseline).or_else(|| here().find(|row| row.candidate.name == baseline))
    }

    fn speed_up(&self, row: &Row) -> String {
        let base = self.base(&value(row, self.pivot.key));
        let times = base.map(|base| row.metric.times_as_good(row.stats.median, base.stats.median));
        match times.filter(|times| times.is_finite()) {
            Some(times) => format!("{:+.1}% ", (times - 1.0) * 100.0),
            None => "– ".to_owned(),
        }
    }

    /// Which methods the policy chose, in words.
    fn choices(&self) -> Vec<String> {
        let policies = distinct(self.rows.iter().filter(|row| row.chosen.is_some()).map(|row| name(row)));
        let of = |candidate: &String| {
            let chosen = |value: &String| self.find(candidate, value)?.chosen.as_deref();
            // Neighbouring values of one method, as a range.
            let mut ranges: Vec<(&str, &str, &str)> = Vec::new();
            for value in &self.values {
                match (chosen(value), ranges.last_mut()) {
                    (Some(method), Some((last, _, to))) if *last == method => *to = value,
                    (Some(method), _) => ranges.push((method, value, value)),
                    (None, _) => {}
                }
            }
            let parts = ranges.iter().map(|(method, from, to)| match (ranges.len(), from == to) {
                (1, _) => (*method).to_owned(),
                (_, true) => format!("{method} at {from}"),
                (_, false) => format!("{method} from {from} to {to}"),
            });
            format!("{}: {}.", candidate.replacen("the", "The", 1), parts.collect::<Vec<_>>().join("; "))
        };
        policies.iter().map(of).collect()
    }
}

/// Each text once, in order of appearance.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut list = Vec::new();
    for text in texts {
        if !list.contains(&text) {
            list.push(text);
        }
    }
    list
}

/// The columns that the widest of some texts takes; styles take none.
fn widest<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    texts.map(|text| textwrap::core::display_width(text)).max().unwrap_or_default()
}
