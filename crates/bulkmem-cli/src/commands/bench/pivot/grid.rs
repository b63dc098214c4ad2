//! One table of a pivot.

use bulkmem_measure::engine::Row;

use super::Pivot;
use super::bar::bar;
use crate::commands::bench::rows::{competes, distinct, is_best, name, value};
use crate::figures;
use crate::output::{Column, Table, digits, faint, marked};

/// Blank columns between two columns of a table.
const GAP: usize = 2;
/// Longest bar, and the shortest one that is worth showing.
const BAR: (usize, usize) = (30, 8);
/// Longer names are shown without their parameters, which then stand below the table.
const LONGEST_NAME: usize = 28;

pub(super) struct Grid<'a> {
    pivot: Pivot<'a>,
    rows: Vec<&'a Row>,
    /// Full names of the candidates, in order of appearance, and their names in the table.
    candidates: Vec<(String, String)>,
    values: Vec<String>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(pivot: Pivot<'a>, rows: Vec<&'a Row>) -> Grid<'a> {
        let names = distinct(rows.iter().map(|row| name(row)));
        let values = distinct(rows.iter().map(|row| value(row, pivot.dimension)));
        let candidates = names.iter().map(|name| {
            let (short, _) = name.split_once('[').unwrap_or((name, ""));
            let alike = names.iter().filter(|other| other.split('[').next() == Some(short)).count();
            let shorten = name.chars().count() > LONGEST_NAME && alike == 1;
            (name.clone(), if shorten { short } else { name }.to_owned())
        });
        Grid { candidates: candidates.collect(), pivot, rows, values }
    }

    /// Returns the table and its notes, in lines of at most `width` columns.
    pub(super) fn text(&self, width: usize) -> String {
        let deviation =
            self.rows.iter().map(|row| figures::deviation(row).chars().count()).max().unwrap_or_default();
        let cell = |row: &Row| {
            let text = match self.pivot.cell {
                Some(cell) => cell(row),
                None => {
                    let doubtful = if row.flags.is_empty() { ' ' } else { '~' };
                    format!("{}{doubtful}±{:>deviation$}", digits(row.stats.mean), figures::deviation(row))
                }
            };
            let rivals = self.at(&value(row, self.pivot.dimension));
            marked(&text, rivals.iter().filter(|row| competes(row)).count() > 1 && is_best(&rivals, row))
        };
        let mut text = if self.values.len() == 1 && !self.pivot.candidates_across {
            self.single(&cell, width)
        } else if self.has_baseline() {
            self.tables("", &cell, width) + "\n" + &self.tables("speed-up", &|row| self.speed_up(row), width)
        } else {
            self.tables("", &cell, width)
        };
        for choice in self.choices() {
            text += &faint(&choice, width);
        }
        let shortened = self.candidates.iter().filter(|(name, called)| name != called);
        let legend: Vec<&str> = shortened.map(|(name, _)| name.as_str()).collect();
        if !legend.is_empty() {
            text += &faint(&format!("With parameters: {}.", legend.join(", ")), width);
        }
        text
    }

    pub(super) fn has_doubts(&self) -> bool {
        self.pivot.cell.is_none() && self.rows.iter().any(|row| !row.flags.is_empty())
    }

    pub(super) fn has_marks(&self) -> bool {
        self.values.iter().any(|value| self.at(value).iter().filter(|row| competes(row)).count() > 1)
    }

    /// Returns true if the baseline was measured, and anything to compare with it.
    pub(super) fn has_baseline(&self) -> bool {
        self.candidates.len() > 1 && self.values.iter().any(|value| self.base(value).is_some())
    }

    /// Shows one column of figures, with the speed-up and a bar.
    fn single(&self, cell: &dyn Fn(&Row) -> String, width: usize) -> String {
        let compared = self.has_baseline();
        let titles = [String::new(), format!("{} ", self.values[0])];
        let titles: Vec<String> =
            titles.into_iter().chain(compared.then(|| "speed-up ".to_owned())).collect();
        let lines = self.rows.iter().zip(&self.candidates).map(|(row, (_, called))| {
            let cells = [called.clone(), cell(row)].into_iter();
            cells.chain(compared.then(|| self.speed_up(row))).collect()
        });
        let lines: Vec<Vec<String>> = lines.collect();
        let width_of = |at: usize| widest(lines.iter().map(|line| &line[at]).chain([&titles[at]])) + GAP;
        let used: usize = (0..titles.len()).map(width_of).sum();
        let room = width.saturating_sub(used).min(BAR.0);
        let bars = room >= BAR.1 && self.candidates.len() > 1 && self.pivot.cell.is_none();
        let most = self.rows.iter().map(|row| row.stats.median).fold(0.0, f64::max);
        let columns = titles.iter().enumerate().map(|(at, title)| match at {
            0 => Column::left(title),
            _ => Column::right(title),
        });
        let mut table = Table::new(columns.chain(bars.then(|| Column::left(""))));
        for (row, line) in self.rows.iter().zip(lines) {
            table.row(line.into_iter().chain(bars.then(|| bar(row.stats.median / most, room))));
        }
        table.render(width)
    }

    /// Shows as many tables below each other as the width requires.
    fn tables(&self, corner: &str, cell: &dyn Fn(&Row) -> String, width: usize) -> String {
        let values: Vec<_> = self.values.iter().map(|text| (text.clone(), text.clone())).collect();
        let (lines, columns, corner) = if self.pivot.candidates_across {
            let dimension = self.pivot.dimension.name().replace('_', " ");
            (&values, &self.candidates, format!("{dimension} {corner}").trim().to_owned())
        } else {
            (&self.candidates, &values, corner.to_owned())
        };
        let find = |line: &str, column: &str| {
            let (candidate, value) =
                if self.pivot.candidates_across { (column, line) } else { (line, column) };
            self.find(candidate, value).map_or_else(|| "– ".to_owned(), cell)
        };
        let first = widest(lines.iter().map(|(_, called)| called).chain([&corner]));
        // Each column with its title, cells and width. Figures end before the mark, and so do titles.
        let columns: Vec<(String, Vec<String>, usize)> = columns
            .iter()
            .map(|(column, called)| {
                let title = format!("{called} ");
                let cells: Vec<String> = lines.iter().map(|(line, _)| find(line, column)).collect();
                let width = GAP + widest(cells.iter().chain([&title]));
                (title, cells, width)
            })
            .collect();
        let mut rest = columns.as_slice();
        let mut tables = Vec::new();
        while !rest.is_empty() {
            let mut used = first;
            let fits = |(.., needed): &&(String, Vec<String>, usize)| {
                used += needed;
                used <= width
            };
            let shown;
            (shown, rest) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let titles = shown.iter().map(|(title, ..)| Column::right(title));
            let mut table = Table::new([Column::left(&corner)].into_iter().chain(titles));
            for (number, (_, called)) in lines.iter().enumerate() {
                let cells = shown.iter().map(|(_, cells, _)| cells[number].clone());
                table.row([called.clone()].into_iter().chain(cells));
            }
            tables.push(table.render(width));
        }
        tables.join("\n")
    }

    fn find(&self, candidate: &str, value: &str) -> Option<&'a Row> {
        self.at(value).into_iter().find(|row| name(row) == candidate)
    }

    /// Returns the rows at a value of the dimension.
    fn at(&self, at: &str) -> Vec<&'a Row> {
        self.rows.iter().copied().filter(|row| value(row, self.pivot.dimension) == at).collect()
    }

    /// Returns the baseline at a value of the dimension.
    fn base(&self, at: &str) -> Option<&'a Row> {
        let (baseline, rows) = (self.pivot.baseline?, self.at(at));
        let exact = rows.iter().find(|row| name(row) == baseline);
        exact.or_else(|| rows.iter().find(|row| row.candidate.name == baseline)).copied()
    }

    fn speed_up(&self, row: &Row) -> String {
        let base = self.base(&value(row, self.pivot.dimension));
        let times = base.map(|base| row.metric.times_as_good(row.stats.median, base.stats.median));
        let finite = times.filter(|times| times.is_finite());
        finite.map_or("– ".to_owned(), |times| format!("{:+.1}% ", (times - 1.0) * 100.0))
    }

    /// Returns a sentence for each policy with the methods that it chose.
    fn choices(&self) -> Vec<String> {
        let policies = distinct(self.rows.iter().filter(|row| row.chosen.is_some()).map(|row| name(row)));
        let of = |candidate: &String| {
            // Neighbouring values of one method, as a range.
            let mut ranges: Vec<(&str, &str, &str)> = Vec::new();
            for value in &self.values {
                let method = self.find(candidate, value).and_then(|row| row.chosen.as_deref());
                match (method, ranges.last_mut()) {
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

/// Returns the columns that the widest of some texts takes, without styles.
fn widest<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    texts.map(|text| textwrap::core::display_width(text)).max().unwrap_or_default()
}
