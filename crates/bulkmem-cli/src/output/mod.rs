//! What the commands print with: the two streams, styles, units and tables.

mod progress;
mod table;
mod units;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use terminal_size::{Width, terminal_size};

use crate::plain::{self, plain};

pub(crate) use progress::Progress;
pub(crate) use table::{Column, Table};
pub(crate) use units::{duration, exact_size, rate, ratio, size};

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold().underline();
/// What went well.
pub(crate) const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
/// What did not.
pub(crate) const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
/// What matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// How many columns a line may have: the terminal's, else what `COLUMNS` says, else 80.
pub(crate) fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal_size().map(|(Width(width), _)| usize::from(width)).or_else(columns).unwrap_or(80).clamp(40, 250)
}

/// Writes text to stdout; styles are left out where it is no terminal or `NO_COLOR` is set.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes bytes to stdout as they are.
pub(crate) fn print_raw(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes a value to stdout as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = plain::json(&serde_json::to_string_pretty(value)?) + "\n";
    print_raw(text.as_bytes())
}

/// Writes a line to stderr.
pub(crate) fn note(line: &str) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    writeln!(stderr, "{line}")
}

/// Writes a warning to stderr.
pub(crate) fn warn(text: &str) -> io::Result<()> {
    note(&format!(
        "{} {}",
        styled(Style::new().fg_color(Some(AnsiColor::Yellow.into())).bold(), "warning:"),
        plain(text)
    ))
}

/// `text` in a style.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Breaks prose into lines of at most `width` columns, each after `indent`.
pub(crate) fn wrapped(text: &str, indent: &str, width: usize) -> String {
    // A word that is too long stays whole: a path can still be copied then.
    let options =
        textwrap::Options::new(width).break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options.initial_indent(indent).subsequent_indent(indent))
}

/// Names and values below each other; long values wrap.
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
