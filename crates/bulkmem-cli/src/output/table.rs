//! Tables that fit the terminal: prose wraps, and the least important columns are left out; words are never cut.

use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use super::{FAINT, faint, styled, wrapped};
use textwrap::core::display_width;

const GAP: usize = 2;
/// Prose is at least this wide.
const NARROWEST_PROSE: usize = 22;

/// A column, with the text of its cells.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: String,
    alignment: CellAlignment,
    prose: bool,
    rank: Option<u8>,
    cells: Vec<String>,
}

impl Column {
    /// Creates a left-aligned column, for words.
    pub(crate) fn left(title: impl Into<String>) -> Column {
        let (title, alignment, cells) = (title.into(), CellAlignment::Left, Vec::new());
        Column { title, alignment, prose: false, rank: None, cells }
    }

    /// Creates a right-aligned column, for numbers.
    pub(crate) fn right(title: impl Into<String>) -> Column {
        Column { alignment: CellAlignment::Right, ..Column::left(title) }
    }

    pub(crate) fn prose(self) -> Column {
        Column { prose: true, ..self }
    }

    /// Allows leaving the column out if the terminal is narrow; lower ranks go first.
    pub(crate) fn optional(self, rank: u8) -> Column {
        Column { rank: Some(rank), ..self }
    }

    /// Returns the smallest width that cuts no word.
    fn narrowest(&self) -> usize {
        let texts = || self.cells.iter().chain([&self.title]);
        let whole = texts().map(|text| display_width(text)).max().unwrap_or_default();
        if !self.prose {
            return whole;
        }
        let words = texts().flat_map(|text| text.split_whitespace());
        words.map(display_width).max().unwrap_or_default().max(whole.min(NARROWEST_PROSE))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    /// A remark for each row, or none at all.
    remarks: Vec<String>,
}

impl Table {
    /// Creates a table with a row for each item, to which columns are added.
    pub(crate) fn of<T>(items: impl IntoIterator<Item = T>) -> TableOf<T> {
        TableOf { items: items.into_iter().collect(), table: Table::default() }
    }

    /// Returns the columns of the terminal that a further column of the table may take.
    pub(crate) fn room(&self, width: usize) -> usize {
        width.saturating_sub(self.columns.iter().map(|column| column.narrowest() + GAP).sum())
    }

    /// Adds a column with one text for each row; a text may be styled.
    pub(crate) fn column(&mut self, column: Column, cells: impl IntoIterator<Item = String>) {
        self.columns.push(Column { cells: cells.into_iter().collect(), ..column });
    }

    /// Renders the table in lines of at most `width` columns; a last line names the columns left out.
    pub(crate) fn render(&self, width: usize) -> String {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let columns = |shown: &[usize]| shown.iter().map(|at| &self.columns[*at]).collect::<Vec<_>>();
        while needed(&columns(&shown)) > width {
            let optional = shown.iter().copied().filter(|at| self.columns[*at].rank.is_some());
            let Some(least) = optional.min_by_key(|at| self.columns[*at].rank) else { break };
            shown.retain(|at| *at != least);
        }
        let mut text = self.lines(&columns(&shown), width);
        let left_out = (0..self.columns.len()).filter(|at| !shown.contains(at));
        let left_out: Vec<&str> = left_out.map(|at| self.columns[at].title.as_str()).collect();
        if !left_out.is_empty() {
            text += &faint(&format!("(too narrow to show: {})", left_out.join(", ")), width);
        }
        text
    }

    /// Renders as many tables below each other as the width requires, all with the first column.
    pub(crate) fn continued(&self, width: usize) -> String {
        let mut parts: Vec<Vec<&Column>> = Vec::new();
        for column in self.columns.iter().skip(1) {
            match parts.last_mut() {
                Some(shown) if needed(shown) + GAP + column.narrowest() <= width => shown.push(column),
                _ => parts.push(vec![&self.columns[0], column]),
            }
        }
        parts.iter().map(|shown| self.lines(shown, width)).collect::<Vec<_>>().join("\n")
    }

    fn lines(&self, shown: &[&Column], width: usize) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).enforce_styling().style_text_only();
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
        table.set_header(shown.iter().map(|it| Cell::new(&it.title).add_attribute(Attribute::Bold)));
        let rows = shown.first().map_or(0, |column| column.cells.len());
        table.add_rows((0..rows).map(|row| shown.iter().map(move |column| &column.cells[row])));
        for (at, &column) in shown.iter().enumerate() {
            let gap = if at + 1 == shown.len() { 0 } else { GAP };
            let constraint: fn(_) -> _ =
                if column.prose { ColumnConstraint::LowerBoundary } else { ColumnConstraint::Absolute };
            let layout = table.column_mut(at).expect("every column has a heading");
            layout.set_padding((0, gap as u16)).set_cell_alignment(column.alignment);
            layout.set_constraint(constraint(Width::Fixed((column.narrowest() + gap) as u16)));
        }
        let mut text = String::new();
        for (number, line) in table.trim_fmt().lines().enumerate() {
            text += &format!("{line}\n");
            // The first line is the heading.
            if let Some(remark) =
                number.checked_sub(1).and_then(|row| self.remarks.get(row).filter(|it| !it.is_empty()))
            {
                text += &format!("{}\n", styled(FAINT, wrapped(remark, "    ", width)));
            }
        }
        text
    }
}

fn needed(shown: &[&Column]) -> usize {
    shown.iter().map(|column| column.narrowest() + GAP).sum::<usize>().saturating_sub(GAP)
}

pub(crate) struct TableOf<T> {
    items: Vec<T>,
    table: Table,
}

impl<T> TableOf<T> {
    /// Adds a column, with the function that returns an item's cell.
    pub(crate) fn column(mut self, column: Column, cell: impl Fn(&T) -> String) -> TableOf<T> {
        self.table.column(column, self.items.iter().map(cell));
        self
    }

    /// Adds a remark, if it is not empty, below each row, over the whole width. Requires a table without prose, whose rows are one line each.
    pub(crate) fn remarks(mut self, remark: impl Fn(&T) -> String) -> TableOf<T> {
        debug_assert!(self.table.columns.iter().all(|column| !column.prose));
        self.table.remarks = self.items.iter().map(remark).collect();
        self
    }

    pub(crate) fn render(&self, width: usize) -> String {
        self.table.render(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TableOf<[&'static str; 5]> {
        let reason = "fastest of nine, by more than the noise, at every length from here on";
        let first = ["write_prefetch_avx512", "12.5", "31", "avx512f prefetchw", reason];
        Table::of([first, ["movnti", "8.00", "7", "sse2", "short"]])
            .column(Column::left("method"), |row| row[0].to_owned())
            .column(Column::right("GB/s"), |row| row[1].to_owned())
            .column(Column::right("samples").optional(1), |row| row[2].to_owned())
            .column(Column::left("instructions").optional(2), |row| row[3].to_owned())
            .column(Column::left("reason").prose(), |row| row[4].to_owned())
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn no_line_is_wider_than_asked_and_no_word_is_cut() {
        for width in 55..200 {
            let text = plain(&sample().render(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for word in ["write_prefetch_avx512", "12.5", "movnti", "fastest", "length"] {
                assert!(text.contains(word), "{width}: {word}\n{text}");
            }
        }
    }

    #[test]
    fn what_matters_least_goes_first_and_is_named() {
        let text = plain(&sample().render(72));
        assert!(text.contains("(too narrow to show: samples)") && text.contains("prefetchw"), "{text}");
        let text = plain(&sample().render(55));
        assert!(text.contains("(too narrow to show: samples, instructions)"), "{text}");
        assert!(!plain(&sample().render(180)).contains("too narrow"));
    }

    #[test]
    fn remarks_stand_below_their_rows() {
        let table = Table::of(["movnti", "clzero"])
            .column(Column::left("method"), |method| method.to_string())
            .column(Column::right("GB/s"), |_| "1.00".to_owned())
            .remarks(|method| format!("why {method} is the best of those that were tried here"));
        let text = plain(&table.render(30));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("movnti") && lines[2].starts_with("    why movnti"), "{text}");
        assert!(lines[3].starts_with("    ") && lines[4].starts_with("clzero"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{text}");
    }

    #[test]
    fn numbers_stand_at_the_right() {
        let text = plain(&sample().render(180));
        let ends: Vec<usize> = text
            .lines()
            .zip(["GB/s", "12.5", "8.00"])
            .map(|(line, cell)| line.find(cell).unwrap() + 4)
            .collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
