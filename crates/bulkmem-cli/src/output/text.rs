//! The two streams, and styled, wrapped text for them.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use terminal_size::{Width, terminal_size};

use crate::plain::{self, plain};

pub(crate) const HEADING: Style = Style::new().bold().underline();
pub(crate) const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
pub(crate) const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Returns the width of a line: that of the terminal, else of `COLUMNS`, else 80 columns.
pub(crate) fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal_size().map(|(Width(width), _)| usize::from(width)).or_else(columns).unwrap_or(80).clamp(40, 250)
}

/// Writes text to stdout, without styles if that is not a terminal or `NO_COLOR` is set.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes bytes to stdout unchanged.
pub(crate) fn print_raw(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = plain::json(&serde_json::to_string_pretty(value)?) + "\n";
    print_raw(text.as_bytes())
}

pub(crate) fn note(line: &str) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    writeln!(stderr, "{line}")
}

pub(crate) fn warn(text: &str) -> io::Result<()> {
    note(&format!(
        "{} {}",
        styled(Style::new().fg_color(Some(AnsiColor::Yellow.into())).bold(), "warning:"),
        plain(text)
    ))
}

pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Breaks prose into lines of at most `width` columns, each indented by `indent`.
pub(crate) fn wrapped(text: &str, indent: &str, width: usize) -> String {
    // A word that is too long is not broken, so that a path can still be copied.
    let options =
        textwrap::Options::new(width).break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options.initial_indent(indent).subsequent_indent(indent))
}

/// Lists names and values below each other; long values wrap.
pub(crate) fn pairs(rows: &[(&str, String)], width: usize) -> String {
    let names = rows.iter().map(|(name, _)| textwrap::core::display_width(name)).max().unwrap_or_default();
    let indent = " ".repeat(names + 2);
    let line = |(name, value): &(&str, String)| {
        let wrapped = wrapped(value, &indent, width);
        let value = wrapped.strip_prefix(&indent).unwrap_or(&wrapped);
        format!(
            "{}{}{value}\n",
            styled(FAINT, name),
            " ".repeat(indent.len() - textwrap::core::display_width(name))
        )
    };
    rows.iter().map(line).collect()
}

/// Returns a heading with the text below it, which ends in a line break.
pub(crate) fn section(heading: &str, text: &str, width: usize) -> String {
    format!("{}\n{text}\n", styled(HEADING, wrapped(heading, "", width)))
}

/// Returns a paragraph in less prominent style, as stands below tables.
pub(crate) fn faint(text: &str, width: usize) -> String {
    format!("{}\n", styled(FAINT, wrapped(text, "", width)))
}

/// Returns a figure with a mark if it is the best, and room for the mark otherwise.
pub(crate) fn marked(figure: &str, best: bool) -> String {
    if best { styled(GOOD, format!("{figure}*")) } else { format!("{figure} ") }
}

/// Returns a count with its noun: `1 thread`, `3 threads`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
