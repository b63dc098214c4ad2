//! The report as Markdown: tables only.

use std::fmt::Write as _;

use super::model::{Grid, Holds, Report};

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n\n{}\n\n", report.title, report.summary);
    text += &format!("## What was chosen, and why\n\n{}", grid(&report.choices));
    for section in &report.sections {
        _ = write!(text, "\n## {}\n\n{}\n\n{}", section.title, section.caption, grid(&section.figures));
    }
    text += "\n## Machine and provenance\n\n| what | value |\n| --- | --- |\n";
    for (name, value) in &report.machine {
        _ = writeln!(text, "| {name} | {} |", escape(value));
    }
    text
}

fn grid(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |holds: Holds| if holds == Holds::Numbers { "---:" } else { "---" };
    let mut text = line(grid.columns.iter().map(|(title, _)| (*title).to_owned()).collect());
    text += &line(grid.columns.iter().map(|(_, holds)| rule(*holds).to_owned()).collect());
    for row in &grid.rows {
        text += &line(row.iter().map(|cell| escape(cell)).collect());
    }
    text
}

/// A text that Markdown takes as one cell, letter by letter.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => escaped.extend(['\\', letter]),
            '\n' => escaped.push(' '),
            _ => escaped.push(letter),
        }
    }
    escaped
}
