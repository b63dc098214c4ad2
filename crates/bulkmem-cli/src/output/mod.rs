//! Output of the commands: the two streams, styled and wrapped text for them, units, tables and progress.

mod table;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use terminal_size::{Width, terminal_size};
use textwrap::core::display_width;

use crate::plain::{self, plain};

pub(crate) use bulkmem_measure::engine::units::{
    bytes as size, count, digits, digits as ratio, duration, exact_bytes as exact_size, plural, rate, signed,
};
pub(crate) use table::{Column, Table, TableOf};

pub(crate) const HEADING: Style = Style::new().bold().underline();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
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
    print_raw(plain::pretty_json(value)?.as_bytes())
}

pub(crate) fn note(line: &str) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    writeln!(stderr, "{line}")
}

pub(crate) fn warn(text: &str) -> io::Result<()> {
    note(&labelled(AnsiColor::Yellow, "warning:", text))
}

/// Returns text from any source after a label in a colour.
pub(crate) fn labelled(color: AnsiColor, label: &str, text: &str) -> String {
    format!("{} {}", styled(color.on_default().bold(), label), plain(text))
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
    let names = rows.iter().map(|(name, _)| display_width(name)).max().unwrap_or_default();
    let indent = " ".repeat(names + 2);
    let line = |(name, value): &(&str, String)| {
        let wrapped = wrapped(value, &indent, width);
        let value = wrapped.strip_prefix(&indent).unwrap_or(&wrapped);
        format!("{}{}{value}\n", styled(FAINT, name), " ".repeat(indent.len() - display_width(name)))
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

const EVERY: Duration = Duration::from_secs(3);
const STEPS: u64 = 1000;

/// Progress of a long command on stderr: a bar on a terminal, a line every few seconds elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    name: &'static str,
    /// `None` if stderr is not a terminal.
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(name: &'static str) -> Progress {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS);
            let style = ProgressStyle::with_template("{spinner} {bar:24.cyan} {percent:>3} %  {wide_msg}");
            bar.set_style(style.expect("the template is well-formed").progress_chars("━╸─"));
            // A sample may take seconds; the spinner shows that the command is alive.
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Progress { name, bar, last_line: None }
    }

    /// Shows that a share `done` of 1 is complete, and that `what` is being measured.
    pub(crate) fn update(&mut self, done: f64, left: Duration, what: &str) {
        let (done, left, what) = (done.clamp(0.0, 1.0), duration(left), plain(what));
        if let Some(bar) = &self.bar {
            bar.set_position((done * STEPS as f64) as u64);
            bar.set_message(format!("{left} left  {what}"));
        } else if self.last_line.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line = Some(Instant::now());
            // A stderr that cannot be written to does not stop the measurement.
            _ = note(&format!("{}: {:.0} %, {left} left, {what}", self.name, done * 100.0));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
