//! The report, or one chart of it, as Markdown: sentences and tables.

use std::fmt::Write as _;

use super::model::{Chart, Grid, Holds, Report};

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n", escape(&report.title));
    if !report.verdict.is_empty() {
        text += "\n## Verdict\n";
    }
    for verdict in &report.verdict {
        if !verdict.heading.is_empty() {
            _ = write!(text, "\n### {}\n", escape(&verdict.heading));
        }
        text += &list(&verdict.sentences);
    }
    for section in &report.sections {
        _ = write!(text, "\n## {}\n", escape(&section.title));
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
    for machine in &report.machines {
        _ = write!(text, "\n## {}\n\n{}", escape(&machine.label), facts(&machine.facts));
    }
    for file in &report.files {
        _ = write!(text, "\n## {}\n\n{}", escape(&file.name), facts(&file.facts));
        if !file.notes.is_empty() {
            text += &list(&file.notes);
        }
    }
    text
}

/// One chart as a table under its title.
pub(super) fn chart(chart: &Chart) -> String {
    format!("### {}\n\n{}", escape(&chart.title), grid(&chart.brief))
}

fn list(items: &[String]) -> String {
    items.iter().fold("\n".to_owned(), |text, item| text + &format!("- {}\n", escape(item)))
}

fn facts(facts: &[(&'static str, String)]) -> String {
    let mut table = Grid::new([("what", Holds::Words), ("value", Holds::Words)]);
    table.rows = facts.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect();
    grid(&table)
}

fn grid(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |holds: Holds| if holds == Holds::Numbers { "---:" } else { "---" };
    let mut text = line(grid.columns.iter().map(|(title, _)| escape(title)).collect());
    text += &line(grid.columns.iter().map(|(_, holds)| rule(*holds).to_owned()).collect());
    for row in &grid.rows {
        text += &line(row.iter().map(|cell| escape(cell)).collect());
    }
    text
}

/// A text that Markdown takes letter by letter.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' | '#' => escaped.extend(['\\', letter]),
            '\n' | '\r' => escaped.push(' '),
            _ => escaped.push(letter),
        }
    }
    escaped
}
