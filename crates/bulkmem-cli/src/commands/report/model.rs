//! What a report says, before it has a format.

use bulkmem_measure::Kind;

/// A report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) title: String,
    pub(super) machines: Vec<About>,
    /// What it comes down to: sentences under headings.
    pub(super) verdict: Vec<Verdict>,
    pub(super) sections: Vec<Section>,
    /// The files that it was made from, in the order in which they were named.
    pub(super) files: Vec<Source>,
}

/// A machine that something was measured on.
#[derive(Debug)]
pub(super) struct About {
    /// Its name in titles and legends.
    pub(super) label: String,
    pub(super) facts: Vec<(&'static str, String)>,
}

/// What a machine's figures come down to.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The machine; empty where there is only one.
    pub(super) heading: String,
    pub(super) sentences: Vec<String>,
}

/// A file that the report was made from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) notes: Vec<String>,
    /// The file as it was given.
    pub(super) text: String,
}

/// One measurement.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name in links: lower-case letters, digits and dashes.
    pub(super) id: String,
    pub(super) title: String,
    /// What it shows, and how to read it.
    pub(super) intro: Vec<String>,
    pub(super) findings: Vec<String>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
}

impl Section {
    /// A section without content.
    pub(super) fn new(id: &str, title: &str, intro: &[&str]) -> Section {
        Section {
            id: id.to_owned(),
            title: title.to_owned(),
            intro: intro.iter().map(|text| (*text).to_owned()).collect(),
            findings: Vec::new(),
            charts: Vec::new(),
            tables: Vec::new(),
        }
    }
}

/// A table by itself.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) caption: String,
    pub(super) grid: Grid,
}

/// A picture of figures, and the same figures as tables.
#[derive(Debug)]
pub(super) struct Chart {
    /// What `--chart` knows it by: lower-case letters, digits and dashes.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) shape: Shape,
    /// Whether larger values are better.
    pub(super) more: bool,
    /// Along the axis of what varies: horizontal for lines, vertical for bars.
    pub(super) configs: Axis,
    /// Along the axis of what was measured.
    pub(super) values: Axis,
    pub(super) series: Vec<Series>,
    /// Places to be marked, with what they are.
    pub(super) marks: Vec<(f64, String)>,
    /// Charts of the same group are compared: their values run to the same end.
    pub(super) group: String,
    /// Whether it is shown at once, or only when asked for.
    pub(super) folded: bool,
    /// Who stands where, briefly.
    pub(super) brief: Grid,
    /// All that is known of each figure.
    pub(super) figures: Grid,
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Points, joined.
    Lines,
    /// Bars that lie, one group a place.
    Bars,
}

/// What stands along an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) scale: Scale,
}

/// How an axis is divided.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scale {
    /// Bytes, doubling.
    Bytes,
    /// From zero on, evenly.
    Even,
    /// By powers of ten.
    Decades,
    /// These, evenly; points stand at their positions.
    Named(Vec<String>),
}

/// Figures that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Whether it is shown at once.
    pub(super) shown: bool,
    /// By rising place.
    pub(super) points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) config: f64,
    pub(super) value: f64,
    /// The 95 % interval of the value.
    pub(super) interval: Option<[f64; 2]>,
    /// What else is to be said of it.
    pub(super) remark: String,
}

/// A table's cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) columns: Vec<(String, Holds)>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table without rows.
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Holds)>) -> Grid {
        let columns = columns.into_iter().map(|(title, holds)| (title.to_owned(), holds)).collect();
        Grid { columns, rows: Vec::new() }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Words,
    Numbers,
    Prose,
}

/// A text as part of a name: lower-case letters, digits and single dashes.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        match letter {
            _ if letter.is_ascii_alphanumeric() => slug.push(letter.to_ascii_lowercase()),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_only_what_a_shell_and_a_link_take() {
        assert_eq!(slug("AMD EPYC 9B14 (Genoa)"), "amd-epyc-9b14-genoa");
        assert_eq!(slug("../<b>\"4K\" & more--"), "b-4k-b-more".replace("-b-", "-"));
        assert_eq!(slug("é"), "");
    }
}
