//! Selects thresholds by the rows of the first run, and keeps those that later runs confirm.

use serde::Serialize;

use super::listing::{self, Settings, Tunable};
use super::{TunablesOptions, size};
use crate::calibration::derive::NOISE;
use crate::engine::stats::ENOUGH;
use crate::engine::units::bytes;
use crate::engine::{Config, Row, Stats};

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
    enough: bool,
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
    /// The same in words.
    pub text: String,
}

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
        // Between two lengths, so that each is on the side on which it was measured.
        let values =
            from_on.iter().map(|gain| size(&gain.config) / 4 * 3).filter(|it| *it >= tunable.least());
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
        let helps = gains.iter().filter(|gain| gain.is_gain());
        let lengths: Vec<u64> = helps.clone().map(|gain| size(&gain.config)).collect();
        let Some((least, most)) = lengths.iter().min().zip(lengths.iter().max()) else {
            let mut text = format!(
                "Leave the tunables alone: no value gains {PERCENT:.0} % or more beyond the noise in two runs and loses {PERCENT:.0} % nowhere."
            );
            if rows.iter().any(|row| row.samples.len() < ENOUGH as usize) {
                text += " There was no time for enough samples everywhere: give more --budget.";
            }
            return Advice { glibc_tunables: None, tunables, gains, text };
        };
        let line = listing::value(&self.existing, &settings);
        let best = helps.map(|gain| gain.percent).fold(0.0, f64::max);
        let (least, most) = (bytes(*least), bytes(*most));
        let text = format!(
            "Start programs with {}={line}: it gains up to {best:.0} % at {least} to {most}, and loses {PERCENT:.0} % or more nowhere.",
            listing::VARIABLE
        );
        Advice { glibc_tunables: Some(line), tunables, gains, text }
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
