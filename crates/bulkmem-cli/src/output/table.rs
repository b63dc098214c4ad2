//! Tables that fit the terminal: prose wraps, and the least important columns are left out; words are never cut.

use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use super::text::{FAINT, styled, wrapped};

const GAP: usize = 2;
/// Prose is at least this wide.
const NARROWEST_PROSE: usize = 22;

#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: String,
    alignment: CellAlignment,
    prose: bool,
    rank: Option<u8>,
}

impl Column {
    /// Creates a left-aligned column, for words.
    pub(crate) fn left(title: impl Into<String>) -> Column {
        Column { title: title.into(), alignment: CellAlignment::Left, prose: false, rank: None }
    }

    /// Creates a right-aligned column, for numbers.
    pub(crate) fn right(title: impl Into<String>) -> Column {
        Column { alignment: CellAlignment::Right, ..Column::left(title) }
    }

    pub(crate) fn prose(mut self) -> Column {
        self.prose = true;
        self
    }

    /// Allows leaving the column out if the terminal is narrow; lower ranks go first.
    pub(crate) fn optional(mut self, rank: u8) -> Column {
        self.rank = Some(rank);
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Remarks, each with the number of rows above it.
    remarks: Vec<(usize, String)>,
}

const INDENT: &str = "    ";

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a row with one text for each column; a text may be styled.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Adds a remark below the last row, over the whole width. Requires a table without prose, whose rows are one line
    /// each.
    pub(crate) fn remark(&mut self, text: &str) {
        debug_assert!(self.columns.iter().all(|column| !column.prose));
        self.remarks.push((self.rows.len(), text.to_owned()));
    }

    /// Renders the table in lines of at most `width` columns; a last line names the columns left out.
    pub(crate) fn render(&self, width: usize) -> String {
        let shown = self.shown(width);
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width as u16)
            .enforce_styling()
            .style_text_only();
        let cell = |at: &usize, text: &str| Cell::new(text).set_alignment(self.columns[*at].alignment);
        table.set_header(
            shown.iter().map(|at| cell(at, &self.columns[*at].title).add_attribute(Attribute::Bold)),
        );
        for row in &self.rows {
            table.add_row(shown.iter().map(|at| cell(at, &row[*at])));
        }
        for (index, at) in shown.iter().enumerate() {
            let gap = if index + 1 == shown.len() { 0 } else { GAP };
            let fixed = Width::Fixed((self.narrowest(*at) + gap) as u16);
            let constraint = if self.columns[*at].prose {
                ColumnConstraint::LowerBoundary(fixed)
            } else {
                ColumnConstraint::Absolute(fixed)
            };
            let column = table.column_mut(index).expect("every column has a heading");
            column.set_padding((0, gap as u16)).set_constraint(constraint);
        }
        let mut text = String::new();
        for (number, line) in table.trim_fmt().lines().enumerate() {
            text += &format!("{line}\n");
            for (_, remark) in self.remarks.iter().filter(|(row, _)| *row == number) {
                text += &format!("{}\n", styled(FAINT, wrapped(remark, INDENT, width)));
            }
        }
        let left_out = (0..self.columns.len()).filter(|at| !shown.contains(at));
        let left_out: Vec<&str> = left_out.map(|at| self.columns[at].title.as_str()).collect();
        if !left_out.is_empty() {
            let note = wrapped(&format!("(too narrow to show: {})", left_out.join(", ")), "", width);
            text += &format!("{}\n", styled(FAINT, note));
        }
        text
    }

    /// Returns the indices of the columns that fit.
    fn shown(&self, width: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| {
            shown.iter().map(|at| self.narrowest(*at)).sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        while needed(&shown) > width {
            let optional = shown.iter().copied().filter(|at| self.columns[*at].rank.is_some());
            let Some(least) = optional.min_by_key(|at| self.columns[*at].rank) else { break };
            shown.retain(|at| *at != least);
        }
        shown
    }

    /// Returns the smallest width of a column that cuts no word.
    fn narrowest(&self, at: usize) -> usize {
        let cells = || self.rows.iter().map(|row| row[at].as_str()).chain([self.columns[at].title.as_str()]);
        let whole = cells().map(display_width).max().unwrap_or_default();
        if !self.columns[at].prose {
            return whole;
        }
        let word = cells().flat_map(str::split_whitespace).map(display_width).max().unwrap_or_default();
        word.max(whole.min(NARROWEST_PROSE))
    }
}

/// Returns the number of columns that a text takes, without its styles.
fn display_width(text: &str) -> usize {
    textwrap::core::display_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([
            Column::left("method"),
            Column::right("GB/s"),
            Column::right("samples").optional(1),
            Column::left("instructions").optional(2),
            Column::left("reason").prose(),
        ]);
        let reason = "fastest of nine, by more than the noise, at every length from here on";
        table.row(["write_prefetch_avx512", "12.5", "31", "avx512f prefetchw", reason].map(String::from));
        table.row(["movnti", "8.00", "7", "sse2", "short"].map(String::from));
        table
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
        let mut table = Table::new([Column::left("method"), Column::right("GB/s")]);
        for method in ["movnti", "clzero"] {
            table.row([method.to_owned(), "1.00".to_owned()]);
            table.remark(&format!("why {method} is the best of those that were tried here"));
        }
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
