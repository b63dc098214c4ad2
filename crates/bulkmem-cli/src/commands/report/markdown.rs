//! The report, or one chart of it, as Markdown: sentences and tables.

use std::fmt::Write as _;

use super::model::{Cells, Chart, Facts, Grid, Report};
use crate::plain::plain;

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n", escape(&report.title));
    if !report.summaries.is_empty() {
        text += "\n## Summary\n";
    }
    for summary in &report.summaries {
        if !summary.heading.is_empty() {
            _ = write!(text, "\n### {}\n", escape(&summary.heading));
        }
        text += &list(&summary.sentences);
    }
    for section in &report.sections {
        _ = write!(text, "\n## {}\n", escape(section.title));
        for paragraph in &section.intro {
            _ = write!(text, "\n{}\n", escape(paragraph));
        }
        if !section.findings.is_empty() {
            text += &list(&section.findings);
        }
        for part in &section.charts {
            _ = write!(text, "\n{}", chart(part));
        }
        for table in &section.tables {
            _ = write!(text, "\n### {}\n\n", escape(&table.title));
            if !table.caption.is_empty() {
                _ = write!(text, "{}\n\n", escape(&table.caption));
            }
            text += &grid(&table.grid);
        }
    }
    for (label, known) in &report.machines {
        _ = write!(text, "\n## {}\n\n{}", escape(label), facts(known));
    }
    for file in &report.files {
        _ = write!(text, "\n## {}\n\n{}", escape(&file.name), facts(&file.facts));
        if !file.notes.is_empty() {
            text += &list(&file.notes);
        }
    }
    text
}

/// Returns the figures of a chart as a table below its title.
pub(super) fn chart(chart: &Chart) -> String {
    format!("### {}\n\n{}", escape(&chart.title), grid(&chart.overview))
}

fn list(items: &[String]) -> String {
    items.iter().fold("\n".to_owned(), |text, item| text + &format!("- {}\n", escape(item)))
}

fn facts(facts: &Facts) -> String {
    let mut table = Grid::new([("name", Cells::Words), ("value", Cells::Words)]);
    table.rows = facts.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect();
    grid(&table)
}

fn grid(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |cells: Cells| if cells == Cells::Numbers { "---:" } else { "---" };
    let mut text = line(grid.columns.iter().map(|(title, _)| escape(title)).collect());
    text += &line(grid.columns.iter().map(|(_, cells)| rule(*cells).to_owned()).collect());
    for row in &grid.rows {
        text += &line(row.iter().map(|cell| escape(cell)).collect());
    }
    text
}

/// Escapes a text so that Markdown shows it literally: without markup, HTML, entities, links or lists.
fn escape(text: &str) -> String {
    const MARKUP: &str = "|*_`<>[]\\#&~$";
    let text = plain(text);
    // The start of a list, a rule or an underline: `12. `, `- `, `---`; not `12.5` or `-5`.
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let marker = text.len() - rest.len();
    let number =
        marker > 0 && (rest.starts_with(['.', ')']) && (rest.len() == 1 || rest[1..].starts_with(' ')));
    let sign = marker == 0
        && rest.starts_with(['-', '+', '='])
        && !rest[1..].starts_with(|it: char| it.is_ascii_digit());
    let marked = (number || sign).then_some(marker);
    let mut escaped = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let rest = &text[at..];
        // GitHub's Markdown turns bare addresses into links.
        let link =
            rest.starts_with("://") || text[..at].to_ascii_lowercase().ends_with("www") && letter == '.';
        if MARKUP.contains(letter) || link || marked == Some(at) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn texts_are_taken_letter_by_letter() {
        for (text, escaped) in [
            ("AMD EPYC 9B14, 1.5 times", "AMD EPYC 9B14, 1.5 times"),
            ("a|b `c` *d* _e_ ~f~ $g$", "a\\|b \\`c\\` \\*d\\* \\_e\\_ \\~f\\~ \\$g\\$"),
            ("<img src=x> &lt; [a](b) # c", "\\<img src=x\\> \\&lt; \\[a\\](b) \\# c"),
            ("see https://a.example, WWW.a.example", "see https\\://a.example, WWW\\.a.example"),
            ("- a", "\\- a"),
            ("= a", "\\= a"),
            ("12. a", "12\\. a"),
            ("12) a", "12\\) a"),
            ("12.5 GB/s", "12.5 GB/s"),
            ("-5 %", "-5 %"),
            ("--- a", "\\--- a"),
            ("12.", "12\\."),
            ("a\nb\u{1b}[0m\u{202e}", "a\\\\nb\\\\u{1b}\\[0m\\\\u{202e}"),
        ] {
            assert_eq!(escape(text), escaped, "{text:?}");
        }
    }
}
