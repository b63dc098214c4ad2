//! Progress of a long command on stderr: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::text::note;
use crate::plain::plain;
use bulkmem_measure::engine::units::duration;

const EVERY: Duration = Duration::from_secs(3);
const STEPS: u64 = 1000;

#[derive(Debug)]
pub(crate) struct Progress {
    name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Progress {
    pub(crate) fn new(name: &'static str) -> Progress {
        if !stderr().is_terminal() {
            return Progress { name, kind: Kind::Lines { last: None } };
        }
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{spinner} {bar:24.cyan} {percent:>3} %  {wide_msg}");
        bar.set_style(style.expect("the template is well-formed").progress_chars("━╸─"));
        // A sample may take seconds; the spinner shows that the command is alive.
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress { name, kind: Kind::Bar(bar) }
    }

    /// Shows that a share `done` of 1 is complete, and that `what` is being measured.
    pub(crate) fn update(&mut self, done: f64, left: Duration, what: &str) {
        let (done, what) = (done.clamp(0.0, 1.0), plain(what));
        match &mut self.kind {
            Kind::Bar(bar) => {
                bar.set_position((done * STEPS as f64) as u64);
                bar.set_message(format!("{} left  {what}", duration(left)));
            }
            Kind::Lines { last } => {
                if last.is_some_and(|last| last.elapsed() < EVERY) {
                    return;
                }
                *last = Some(Instant::now());
                let line = format!("{}: {:.0} %, {} left, {what}", self.name, done * 100.0, duration(left));
                // A stderr that cannot be written to does not stop the measurement.
                _ = note(&line);
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}
