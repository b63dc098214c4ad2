//! The report, or one chart of it, as Markdown: sentences and tables.

use std::fmt::Write as _;

use super::model::{Card, Cells, Chart, Grid, Report};
use crate::plain::plain;

pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = format!("# {}\n", escape(&report.title));
    for opening in &report.openings {
        if report.openings.len() > 1 {
            _ = write!(text, "\n## {}\n", escape(&opening.heading));
        }
        _ = write!(text, "\n{}\n", escape(&opening.machine));
        if !opening.table.rows.is_empty() {
            _ = write!(text, "\n{}", grid(&opening.table));
        }
        text += &list(&opening.advice);
        if !opening.notes.is_empty() {
            _ = write!(text, "\n{}\n", escape(&opening.notes.join(" ")));
        }
    }
    if !report.summaries.is_empty() {
        text += "\n## Findings\n";
    }
    for summary in &report.summaries {
        if !summary.heading.is_empty() {
            _ = write!(text, "\n### {}\n", escape(&summary.heading));
        }
        text += "\n";
        for (subject, sentence) in &summary.facts {
            _ = writeln!(text, "- **{}**: {}", escape(subject), escape(sentence));
        }
    }
    for section in &report.sections {
        _ = write!(text, "\n## {}\n", escape(section.title));
        text.extend(section.intro.iter().map(|paragraph| format!("\n{}\n", escape(paragraph))));
        text += &list(&section.findings);
        text.extend(section.charts.iter().map(|it| format!("\n{}", chart(it))));
        for table in &section.tables {
            _ = write!(text, "\n### {}\n\n", escape(&table.title));
            if !table.caption.is_empty() {
                _ = write!(text, "{}\n\n", escape(table.caption));
            }
            text += &grid(table);
        }
    }
    let files = report.files.iter().map(|(file, _)| file);
    text.extend(report.machines.iter().chain(files).map(|it| card("##", it)));
    text
}

/// Returns the figures of a chart as a table below its title.
pub(super) fn chart(chart: &Chart) -> String {
    format!("### {}\n\n{}", escape(&chart.title), grid(&chart.overview))
}

fn card(level: &str, card: &Card) -> String {
    let mut text = String::new();
    if !card.heading.is_empty() {
        _ = writeln!(text, "\n{level} {}", escape(&card.heading));
    }
    if !card.facts.is_empty() {
        let rows = card.facts.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]);
        _ = write!(text, "\n{}", grid(&Grid::new("name|value", rows)));
    }
    text + &list(&card.sentences)
}

/// Returns an empty line and the items, if there are any.
fn list(items: &[String]) -> String {
    let first = if items.is_empty() { "" } else { "\n" };
    items.iter().fold(first.to_owned(), |text, item| text + &format!("- {}\n", escape(item)))
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
    let mut letters = rest.chars();
    let marked = match (marker, letters.next(), letters.next()) {
        (0, Some('-' | '+' | '='), next) => next.is_none_or(|it| !it.is_ascii_digit()),
        (1.., Some('.' | ')'), next) => matches!(next, None | Some(' ')),
        _ => false,
    };
    let mut escaped = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let rest = &text[at..];
        // GitHub's Markdown turns bare addresses into links.
        let link =
            rest.starts_with("://") || text[..at].to_ascii_lowercase().ends_with("www") && letter == '.';
        if MARKUP.contains(letter) || link || marked && at == marker {
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
