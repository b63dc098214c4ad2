//! The content of a report, independent of its format.

use bulkmem_measure::Kind;
use serde::Serialize;

/// Names and values.
pub(super) type Facts = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(super) struct Report<'i> {
    pub(super) title: String,
    /// The answer at one glance, for each machine.
    pub(super) openings: Vec<Opening>,
    /// The most important conclusions about each machine, and about several compared: subjects and sentences.
    pub(super) summaries: Vec<Card>,
    pub(super) sections: Vec<Section>,
    pub(super) machines: Vec<Card>,
    /// The files that it was made from, in the order of the command line, each with its unchanged content.
    pub(super) files: Vec<(Card, &'i str)>,
}

/// The choices of a machine: a chart, advice and a table.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) heading: String,
    /// Further properties of the machine and of the run.
    pub(super) machine: String,
    pub(super) panels: Vec<Panel>,
    /// True if a gauge has a mark.
    pub(super) has_marks: bool,
    /// How to read the chart.
    pub(super) notes: Vec<String>,
    /// Three sentences; without figures one, which names the command that measures them.
    pub(super) advice: Vec<String>,
    pub(super) table: Grid,
}

/// The choices for one operation.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) operation: &'static str,
    /// Lengths, each with a gauge for every cache state that was measured.
    pub(super) groups: Vec<(String, Vec<Gauge>)>,
}

/// The choice for a length and cache state, with a bar of its gain.
#[derive(Debug)]
pub(super) struct Gauge {
    /// All that is known of it, in words.
    pub(super) description: String,
    pub(super) state: String,
    pub(super) method: String,
    pub(super) speed: String,
    /// `1.70 × memset`; the first is that of the bar.
    pub(super) gains: Vec<String>,
    /// The end of the bar, the speed of the library that it is compared with, and that of a second one: percent of the
    /// chart's width.
    pub(super) bar: f64,
    pub(super) one: f64,
    pub(super) mark: Option<f64>,
    /// True if the choice is clearly faster.
    pub(super) more: bool,
    /// True if the bar ends at the edge of the chart although the gain is larger.
    pub(super) beyond: bool,
}

/// Facts and sentences about a machine or a file.
#[derive(Debug, Default)]
pub(super) struct Card {
    /// Empty if there is only one.
    pub(super) heading: String,
    pub(super) facts: Facts,
    pub(super) sentences: Vec<String>,
}

/// One measurement.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Its name in links: lower-case letters, digits and dashes.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Explains what it shows, and how to read it.
    pub(super) intro: &'static [&'static str],
    pub(super) findings: Vec<String>,
    pub(super) charts: Vec<Chart>,
    /// Those that belong to no chart.
    pub(super) tables: Vec<Grid>,
}

/// A chart, and its figures as tables. Serialized, it is what the script of the page draws.
#[derive(Debug, Default, Serialize)]
pub(super) struct Chart {
    /// Its name for `--chart`: lower-case letters, digits and dashes.
    pub(super) name: String,
    #[serde(skip)]
    pub(super) title: String,
    pub(super) shape: Shape,
    pub(super) higher_is_better: bool,
    /// The axis of what varies. Bars are horizontal, so that this is their vertical axis.
    pub(super) x_axis: Axis,
    pub(super) y_axis: Axis,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Shape {
    #[default]
    Lines,
    /// Horizontal bars, one group for each position.
    Bars,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) scale: Scale,
}

/// How an axis is divided.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scale {
    /// Bytes, logarithmic to base 2.
    Bytes,
    #[default]
    Linear,
    /// The same, divided at whole numbers.
    Whole,
    /// Powers of two, logarithmic to base 2.
    Powers,
    /// Logarithmic to base 10.
    Decades,
    /// Categories; the position of a point is an index.
    Named(Vec<String>),
}

/// Figures of one candidate.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// False if the reader has to switch it on.
    pub(super) shown: bool,
    /// By rising position.
    pub(super) points: Vec<Point>,
}

/// A figure.
#[derive(Debug, Default, Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) value: f64,
    /// The 95 % confidence interval of the value.
    pub(super) interval: Option<[f64; 2]>,
    pub(super) remark: String,
}

impl Point {
    /// Returns the smallest range with the value and its interval.
    pub(super) fn ends(&self) -> [f64; 2] {
        let [low, high] = self.interval.unwrap_or([self.value; 2]);
        [low.min(self.value), high.max(self.value)]
    }
}

#[derive(Debug, Default)]
pub(super) struct Grid {
    /// Empty if it belongs to a chart.
    pub(super) title: String,
    pub(super) caption: &'static str,
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
    /// Returns a table. Its titles are as in Markdown: `candidate|GB/s:|reason¶` are words, numbers and prose.
    pub(super) fn new(titles: &str, rows: impl IntoIterator<Item = Vec<String>>) -> Grid {
        let column = |title: &str| match (title.strip_suffix(':'), title.strip_suffix('¶')) {
            (Some(title), _) => (title.to_owned(), Cells::Numbers),
            (_, Some(title)) => (title.to_owned(), Cells::Prose),
            _ => (title.to_owned(), Cells::Words),
        };
        let columns = titles.split('|').map(column).collect();
        Grid { columns, rows: rows.into_iter().collect(), ..Grid::default() }
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
