//! The content of a report, independent of its format.

use bulkmem_measure::Kind;
use serde::Serialize;

/// Names and values.
pub(super) type Facts = Vec<(&'static str, String)>;

/// A report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) title: String,
    /// For each machine its label, and what is known of it.
    pub(super) machines: Vec<(String, Facts)>,
    pub(super) summaries: Vec<Summary>,
    pub(super) sections: Vec<Section>,
    /// The files that it was made from, in the order of the command line.
    pub(super) files: Vec<SourceFile>,
}

/// The most important conclusions about one machine, or about several compared.
#[derive(Debug)]
pub(super) struct Summary {
    /// Empty if there is only one machine.
    pub(super) heading: String,
    pub(super) sentences: Vec<String>,
}

/// A file that the report was made from.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) name: String,
    pub(super) facts: Facts,
    pub(super) notes: Vec<String>,
    /// The unchanged content.
    pub(super) text: String,
}

/// One measurement.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Its name in links: lower-case letters, digits and dashes.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Explains what it shows, and how to read it.
    pub(super) intro: Vec<String>,
    pub(super) findings: Vec<String>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
}

/// A table that belongs to no chart.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) caption: String,
    pub(super) grid: Grid,
}

/// A chart, and its figures as tables. Serialized, it is what the script of the page draws.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    /// Its name for `--chart`: lower-case letters, digits and dashes.
    pub(super) name: String,
    #[serde(skip)]
    pub(super) title: String,
    pub(super) shape: Shape,
    pub(super) higher_is_better: bool,
    /// The axis of what varies. Bars are horizontal, so that this is their vertical axis.
    pub(super) x_axis: Axis,
    /// The axis of the measured values.
    pub(super) y_axis: Axis,
    #[serde(skip)]
    pub(super) series: Vec<Series>,
    /// Labelled positions on the x axis.
    pub(super) marks: Vec<(f64, String)>,
    /// Charts of one group have the same range of values, and stand next to each other.
    #[serde(skip)]
    pub(super) group: String,
    /// True if it is shown only on request.
    #[serde(skip)]
    pub(super) folded: bool,
    /// Series down, positions across.
    #[serde(skip)]
    pub(super) overview: Grid,
    /// All that is known of each figure.
    #[serde(skip)]
    pub(super) details: Grid,
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Shape {
    Lines,
    /// Horizontal bars, one group for each position.
    Bars,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) scale: Scale,
}

/// How an axis is divided.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scale {
    /// Bytes, logarithmic to base 2.
    Bytes,
    Linear,
    /// Logarithmic to base 10.
    Decades,
    /// Categories; the position of a point is an index.
    Named(Vec<String>),
}

/// Figures of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// False if the reader has to switch it on.
    pub(super) shown: bool,
    /// By rising position.
    pub(super) points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) value: f64,
    /// The 95 % confidence interval of the value.
    pub(super) interval: Option<[f64; 2]>,
    pub(super) remark: String,
}

/// The cells of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) columns: Vec<(String, Cells)>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cells {
    Words,
    Numbers,
    Prose,
}

impl Grid {
    /// Returns a table without rows.
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Cells)>) -> Grid {
        let columns = columns.into_iter().map(|(title, cells)| (title.to_owned(), cells)).collect();
        Grid { columns, rows: Vec::new() }
    }
}

/// Returns a text as part of a name: lower-case letters, digits and single dashes.
pub(super) fn slug(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let words = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_only_what_a_shell_and_a_link_take() {
        assert_eq!(slug("AMD EPYC 9B14 (Genoa)"), "amd-epyc-9b14-genoa");
        assert_eq!(slug("../<b>\"4K\" & more--"), "b-4k-more");
        assert_eq!(slug("é"), "");
    }
}
