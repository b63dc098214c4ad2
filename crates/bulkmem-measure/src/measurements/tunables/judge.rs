//! Selects thresholds by the rows of the first run, and keeps those that later runs confirm.

use serde::Serialize;

use super::listing::{self, Settings, Tunable};
use super::{TunablesOptions, size};
use crate::calibration::derive::NOISE;
use crate::engine::stats::ENOUGH;
use crate::engine::units::bytes;
use crate::engine::{Alignment, Config, Row, Stats};

/// How much faster settings are in a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// The configuration.
    #[serde(flatten)]
    pub config: Config,
    /// The median gain of the rounds, percent.
    pub percent: f64,
    /// The 95 % interval of `percent`.
    pub interval: [f64; 2],
    /// True if there are enough samples to tell anything.
    #[serde(skip)]
    pub enough: bool,
}

/// A conclusion: which values to set, or that nothing helps.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The value of `GLIBC_TUNABLES` to set; `None` if nothing helps.
    pub glibc_tunables: Option<String>,
    /// The tunables, with the values to set.
    pub tunables: Vec<Tunable>,
    /// The gains in all configurations that these affect, from the last run.
    pub gains: Vec<Gain>,
    /// The copies that page aliasing slows down with the current values; `None` if it does not, or nothing was measured.
    pub page_aliasing: Option<SlowCopies>,
    /// The same in words.
    pub text: String,
}

/// Copies that page aliasing slows down, because the C library executes them by REP MOVSB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SlowCopies {
    /// The shortest and the longest length that was measured to be slow, bytes.
    pub lengths: [u64; 2],
    /// They take so many times as long as without REP MOVSB, at most.
    pub times: f64,
    /// The least value of `x86_rep_movsb_threshold` that was measured to avoid all of it.
    pub threshold: u64,
    /// The most that this value loses in any other configuration of the first run, percent; `None` if nothing.
    pub loss: Option<f64>,
}

/// Copies that gain so much from another way to work are slow because of page aliasing, percent.
const SLOW_PERCENT: f64 = 100.0;
/// The tunable that avoids it.
pub(super) const MOVSB: &str = "x86_rep_movsb_threshold";

/// Smaller differences are noise, percent.
const PERCENT: f64 = NOISE * 100.0;

/// The name of settings in a run.
pub(super) fn label(settings: &Settings, run: usize) -> String {
    let set: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{}, run {run}", if set.is_empty() { "unchanged".to_owned() } else { set.join(":") })
}

impl Gain {
    /// True if it gains more than the noise.
    fn is_gain(&self) -> bool {
        self.enough && self.interval[0] > 0.0 && self.percent >= PERCENT
    }

    /// True if it loses, or if there are too few samples to tell.
    fn may_lose(&self) -> bool {
        !self.enough || self.interval[1] < 0.0 && self.percent <= -PERCENT
    }

    /// True if page aliasing may slow down the copies of the configuration.
    fn is_aliased(&self) -> bool {
        self.config.alignment == Some(Alignment::PageAliased)
    }

    /// True if one of the tunables with a new value, if any, acts differently in the configuration. From the threshold of
    /// non-temporal stores on, the other thresholds do not act.
    fn is_due_to(
        &self,
        tunable: &Tunable,
        value: Option<&u64>,
        all: &[Tunable],
        settings: &Settings,
    ) -> bool {
        let (length, value) = (size(&self.config), *value.unwrap_or(&tunable.current));
        let acts = |it: &Tunable| {
            it.name == tunable.name || !it.is_non_temporal() || it.operation != tunable.operation || {
                let new = settings.get(it.name).copied().unwrap_or(it.current);
                length < new.min(it.current)
            }
        };
        self.config.operation == Some(tunable.operation)
            && (length >= value) != (length >= tunable.current)
            && all.iter().all(acts)
    }
}

impl TunablesOptions {
    /// Returns the settings that all runs so far confirm, and the number of the run that is to confirm them, if any.
    pub(super) fn settle(&self, rows: &[&Row]) -> (Settings, Option<usize>) {
        let selected = self.tunables.iter().filter_map(|it| Some((it.name, self.select(it, rows)?)));
        let mut settings: Settings = selected.collect();
        let mut run = 2;
        while !settings.is_empty() {
            let gains = gains(rows, &settings, run);
            if gains.is_empty() {
                return (settings, Some(run));
            }
            let asked = settings.clone();
            for tunable in &self.tunables {
                let affected = || {
                    gains
                        .iter()
                        .filter(|it| it.is_due_to(tunable, asked.get(tunable.name), &self.tunables, &asked))
                };
                if !affected().any(Gain::is_gain) || affected().any(Gain::may_lose) {
                    settings.remove(tunable.name);
                }
            }
            if settings == asked {
                break;
            }
            run += 1;
        }
        (settings, None)
    }

    /// Returns the value of a tunable that gains most in the first run and loses nowhere, if one gains.
    fn select(&self, tunable: &Tunable, rows: &[&Row]) -> Option<u64> {
        let extremes = self.extremes();
        let [from_on, below] = [tunable.least(), tunable.limits[1]].map(|value| {
            let settings = extremes.iter().find(|it| it.get(tunable.name) == Some(&value));
            settings.map(|settings| gains(rows, settings, 1)).unwrap_or_default()
        });
        // Between two lengths, so that each is on the side on which it was measured. Page aliasing ends at a length that is
        // often measured: glibc uses REP MOVSB up to the size of the second-level cache.
        let between = |length: u64| if tunable.is_non_temporal() { length / 4 * 3 } else { length };
        let values = from_on.iter().map(|gain| between(size(&gain.config)));
        let values = values.filter(|it| *it >= tunable.least());
        let score = |value: u64| {
            let is_due = |it: &&Gain| it.is_due_to(tunable, Some(&value), &self.tunables, &Settings::new());
            let above = from_on.iter().filter(|gain| size(&gain.config) >= value);
            let below = below.iter().filter(|gain| size(&gain.config) < value);
            let affected: Vec<&Gain> = above.chain(below).filter(is_due).collect();
            let sum: f64 = affected.iter().filter(|it| it.is_gain()).map(|it| it.percent).sum();
            (sum > 0.0 && !affected.iter().any(|it| it.may_lose())).then_some((sum, affected.len(), value))
        };
        // Of equal gains, the smaller change.
        let best = values.chain([tunable.limits[1]]).filter_map(score);
        best.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|(.., value)| value)
    }

    /// Returns the conclusion from the rows of all runs.
    pub fn advice(&self, rows: &[&Row]) -> Advice {
        let (mut settings, open) = self.settle(rows);
        if open.is_some() {
            settings.clear();
        }
        let mut tunables = self.tunables.clone();
        tunables.iter_mut().for_each(|it| it.recommended = settings.get(it.name).copied());
        // Each run but the last drops a setting.
        let runs = (2..3 + tunables.len()).map(|run| gains(rows, &settings, run));
        let mut gains = runs.rev().find(|gains| !gains.is_empty()).unwrap_or_default();
        gains.retain(|gain| {
            tunables.iter().any(|it| gain.is_due_to(it, it.recommended.as_ref(), &tunables, &settings))
        });
        let page_aliasing = self.slow_copies(rows);
        if settings.is_empty() {
            let mut text = if rows.iter().any(|row| row.samples.len() < ENOUGH as usize) {
                "Nothing is recommended: there was no time for enough samples everywhere; give more --budget."
                    .to_owned()
            } else {
                format!(
                    "Leave the tunables alone: no value gains {PERCENT:.0} % or more beyond the noise in two runs and loses \
                     {PERCENT:.0} % nowhere."
                )
            };
            text += &page_aliasing.map(|it| it.text(false)).unwrap_or_default();
            return Advice { glibc_tunables: None, tunables, gains, page_aliasing, text };
        }
        let line = listing::value(&self.existing, &settings);
        let helps: Vec<&Gain> = gains.iter().filter(|it| it.is_gain() && !it.is_aliased()).collect();
        let lengths = || helps.iter().map(|gain| size(&gain.config));
        let mut text = format!("Start programs with {}={line}: it ", listing::VARIABLE);
        if let Some((least, most)) = lengths().min().zip(lengths().max()) {
            let best = helps.iter().map(|gain| gain.percent).fold(0.0, f64::max);
            text += &format!("gains up to {best:.0} % at {} to {}, and ", bytes(least), bytes(most));
        }
        text += &format!("loses {PERCENT:.0} % or more nowhere.");
        text +=
            &page_aliasing.map(|it| it.text(settings.get(MOVSB) >= Some(&it.threshold))).unwrap_or_default();
        Advice { glibc_tunables: Some(line), tunables, gains, page_aliasing, text }
    }

    /// Returns the copies that page aliasing slows down, by the first run, in which one process never uses REP MOVSB.
    fn slow_copies(&self, rows: &[&Row]) -> Option<SlowCopies> {
        let tunable = self.tunables.iter().find(|it| it.name == MOVSB)?;
        let extremes = self.extremes();
        let never = extremes.iter().find(|it| it.get(MOVSB) == Some(&tunable.limits[1]))?;
        let gains: Vec<Gain> = gains(rows, never, 1)
            .into_iter()
            .filter(|it| it.config.operation == Some(tunable.operation))
            .collect();
        let aliased = || gains.iter().filter(|it| it.is_aliased());
        let slow = || aliased().filter(|it| it.is_gain() && it.percent >= SLOW_PERCENT);
        let lengths = [slow().map(|it| size(&it.config)).min()?, slow().map(|it| size(&it.config)).max()?];
        let times = slow().map(|it| 1.0 + it.percent / 100.0).fold(1.0, f64::max);
        let longer = aliased().map(|it| size(&it.config)).filter(|length| *length > lengths[1]);
        let threshold = longer.min().unwrap_or(tunable.limits[1]);
        let is_due = |it: &&Gain| it.is_due_to(tunable, Some(&threshold), &self.tunables, &Settings::new());
        let losses = gains.iter().filter(is_due).filter(|it| it.enough && it.may_lose());
        let loss = losses.map(|it| -it.percent).max_by(f64::total_cmp);
        Some(SlowCopies { lengths, times, threshold, loss })
    }
}

impl SlowCopies {
    /// Says how slow they are, and what avoids it; `avoided` if a recommended value does.
    fn text(self, avoided: bool) -> String {
        let SlowCopies { lengths: [from, to], times, threshold, loss } = self;
        let (from, to) = (bytes(from), bytes(to));
        let slow = format!(
            " Copies of {from} to {to} whose destination begins a few bytes after the source modulo 4 KiB (page aliasing) take up \
             to {times:.0} times as long by REP MOVSB."
        );
        if avoided {
            return slow + " The value avoids that.";
        }
        let why = match loss {
            Some(percent) => format!("because it loses up to {percent:.0} % in other copies"),
            None => "because the further runs did not confirm it".to_owned(),
        };
        slow + &format!(
            " glibc.cpu.{MOVSB}={threshold} avoids that. It is not recommended in general, {why}: try it if your program makes \
             such copies."
        )
    }
}

/// Returns the gains of settings in a run, in all configurations that it measured.
fn gains(rows: &[&Row], settings: &Settings, run: usize) -> Vec<Gain> {
    let of = |label: String| rows.iter().filter(move |row| row.candidate.name == label);
    let gain = |row: &&Row| {
        let control = of(label(&Settings::new(), run)).find(|control| control.config == row.config)?;
        // Both samples of a round have the same load: their ratio varies less than they do.
        let pairs = row.samples.iter().zip(&control.samples);
        let gains: Vec<f64> = pairs.map(|(changed, unchanged)| (changed / unchanged - 1.0) * 100.0).collect();
        let Stats { median, interval, .. } = Stats::of(&gains)?;
        let enough = gains.len() >= ENOUGH as usize;
        Some(Gain { config: row.config.clone(), percent: median, interval, enough })
    };
    of(label(settings, run)).filter_map(gain).collect()
}
