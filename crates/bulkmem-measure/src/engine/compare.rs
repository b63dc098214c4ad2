//! Two runs compared, row by row, with the noise of both.
//!
//! Samples of one run show the noise within that run. Two runs differ by more: the kernel places memory
//! elsewhere, neighbours are others. That is what the threshold is for.

use serde::Serialize;

use crate::engine::stats::{ENOUGH, bootstrap, corrected, geometric_mean, median, ratio_interval, welch};
use crate::engine::{Candidate, Config, Measurement, Metric, QualityFlag, Results, Row};
use crate::{Kind, Provenance};

/// Of the rows called better or worse, at most this share is so by chance.
pub const CHANCE: f64 = 0.05;
/// The share of samples on either side that tests for a difference leave out.
const TRIM: f64 = 0.2;

/// How to compare.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Smaller changes are not counted: a share of the old figure.
    pub threshold: f64,
    /// Only these measurements, or subjects; all where empty.
    pub only: Vec<String>,
}

impl Default for CompareOptions {
    /// From 5 % on, everything.
    fn default() -> CompareOptions {
        CompareOptions { threshold: 0.05, only: Vec::new() }
    }
}

/// The change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better by at least the threshold, and by more than the noise of both runs and chance explain.
    Better,
    /// Worse, likewise.
    Worse,
    /// No difference that counts.
    Same,
    /// Fewer than 5 samples on a side: nothing can be told.
    TooFew,
}

/// The identity of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Identity {
    /// The measurement.
    pub measurement: Measurement,
    /// The candidate.
    pub candidate: Candidate,
    /// Its configuration.
    pub config: Config,
    /// The quantity that the samples measure.
    pub metric: Metric,
}

/// A row's figures in one of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The median, in the metric's unit.
    pub median: f64,
    /// How many samples.
    pub samples: usize,
    /// Reasons to doubt the row.
    pub flags: Vec<QualityFlag>,
}

/// A row that both runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which row.
    #[serde(flatten)]
    pub row: Identity,
    /// Before.
    pub old: Side,
    /// After.
    pub new: Side,
    /// How many times as good the new median is as the old: above 1 is better, whatever the metric. `None` where the
    /// figures are differences, or not above 0.
    pub times: Option<f64>,
    /// The new median less the old, in the metric's unit.
    pub difference: f64,
    /// The 95 % interval of `times`; where that is `None`, of `difference`.
    pub interval: [f64; 2],
    /// How probable a difference like this is without a cause, corrected for the number of rows; `None` with too few
    /// samples.
    pub probability: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The threshold that held, a share.
    pub threshold: f64,
    /// The rows that both runs have, in the old one's order.
    pub rows: Vec<Change>,
    /// Rows of the old run alone.
    pub only_old: Vec<Identity>,
    /// Rows of the new run alone.
    pub only_new: Vec<Identity>,
    /// How many times as fast the machine reads memory, which no method changes; `None` where that was not measured.
    pub reading: Option<f64>,
}

/// Differences between the machines of two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Differences that make them different machines.
    pub machine: Vec<String>,
    /// Settings that may explain different figures of the same machine.
    pub settings: Vec<String>,
}

impl Comparison {
    /// Compares two runs.
    pub fn of(old: &Results, new: &Results, options: &CompareOptions) -> Comparison {
        let wanted = |row: &&Row| {
            let name = |name: &String| *name == row.candidate.name || name == row.measurement.name();
            options.only.is_empty() || options.only.iter().any(name)
        };
        let mut after: Vec<&Row> = new.rows.iter().filter(wanted).collect();
        let (mut pairs, mut only_old) = (Vec::new(), Vec::new());
        for row in old.rows.iter().filter(wanted) {
            let id = identity(row);
            match after.iter().position(|other| identity(other) == id) {
                Some(at) => pairs.push((id, row, after.remove(at))),
                None => only_old.push(id),
            }
        }
        let mut rows: Vec<Change> = pairs.into_iter().map(|(id, old, new)| change(id, old, new)).collect();
        judge(&mut rows, options.threshold);
        let reading = rows.iter().filter(|row| row.row.candidate.kind == Kind::Read);
        Comparison {
            threshold: options.threshold,
            reading: geometric_mean(reading.filter_map(|row| row.times)),
            rows,
            only_old,
            only_new: after.into_iter().map(identity).collect(),
        }
    }

    /// How many rows came out so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

fn identity(row: &Row) -> Identity {
    let Row { measurement, candidate, config, metric, .. } = row;
    Identity {
        measurement: *measurement,
        candidate: candidate.clone(),
        config: config.clone(),
        metric: *metric,
    }
}

fn side(row: &Row) -> Side {
    Side { median: median(&row.samples), samples: row.samples.len(), flags: row.flags.clone() }
}

/// A row without its verdict; its probability is not yet corrected.
fn change(id: Identity, old: &Row, new: &Row) -> Change {
    let above = |row: &Row| row.samples.iter().all(|sample| *sample > 0.0);
    let ratio = !id.metric.is_difference() && above(old) && above(new);
    let enough = old.samples.len().min(new.samples.len()) >= ENOUGH as usize;
    let (old_side, new_side) = (side(old), side(new));
    let (interval, probability) = if ratio {
        let (better, worse) = if id.metric.higher_is_better() {
            (&new.samples, &old.samples)
        } else {
            (&old.samples, &new.samples)
        };
        let logarithms = |row: &Row| row.samples.iter().map(|it| it.ln()).collect::<Vec<f64>>();
        (ratio_interval(better, worse), welch(&logarithms(old), &logarithms(new), TRIM))
    } else {
        let drawn = bootstrap(&[&old.samples, &new.samples], |drawn| median(&drawn[1]) - median(&drawn[0]));
        (drawn, welch(&old.samples, &new.samples, TRIM))
    };
    Change {
        times: ratio.then(|| id.metric.times_as_good(new_side.median, old_side.median)),
        difference: new_side.median - old_side.median,
        interval,
        probability: enough.then_some(probability),
        verdict: Verdict::TooFew,
        row: id,
        old: old_side,
        new: new_side,
    }
}

/// Corrects the probabilities and decides.
fn judge(rows: &mut [Change], threshold: f64) {
    let known: Vec<f64> = rows.iter().filter_map(|row| row.probability).collect();
    let mut corrected = corrected(&known).into_iter();
    for row in rows {
        if row.probability.is_none() {
            continue;
        }
        row.probability = corrected.next();
        let [low, high] = row.interval;
        let (nothing, far) = match row.times {
            Some(times) => (1.0, times >= 1.0 + threshold || times <= 1.0 - threshold),
            None => (0.0, row.difference != 0.0),
        };
        let certain = row.probability.is_some_and(|it| it <= CHANCE) && !(low <= nothing && nothing <= high);
        let better = match row.times {
            Some(times) => times > 1.0,
            None => (row.difference > 0.0) == row.row.metric.higher_is_better(),
        };
        row.verdict = match (certain && far, better) {
            (false, _) => Verdict::Same,
            (true, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
        };
    }
}

impl Differences {
    /// Compares the machines of two runs.
    pub fn between(old: &Provenance, new: &Provenance) -> Differences {
        let mut found = Differences::default();
        let mut differ = |machine: bool, what: &str, old: String, new: String| {
            if old != new {
                let list = if machine { &mut found.machine } else { &mut found.settings };
                list.push(format!("{what}: {old} before, {new} now"));
            }
        };
        if !old.cpu.same_model(&new.cpu) {
            let named = |cpu: &bulkmem::policy::CpuIdentity| format!("{} ({})", cpu.name, cpu.key());
            differ(true, "processor", named(&old.cpu), named(&new.cpu));
        }
        let words = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        let switch = |on: Option<bool>| match on {
            Some(true) => "on".to_owned(),
            Some(false) => "off".to_owned(),
            None => "unknown".to_owned(),
        };
        let pages = |bytes: usize| format!("{} KiB", bytes / 1024);
        differ(true, "base pages", pages(old.page_size), pages(new.page_size));
        differ(true, "pages behind the memory", pages(old.backing_page_size), pages(new.backing_page_size));
        differ(false, "kernel", old.kernel.clone(), new.kernel.clone());
        differ(false, "microcode", old.microcode.clone(), new.microcode.clone());
        differ(false, "processors used", old.processors.to_string(), new.processors.to_string());
        differ(false, "hypervisor", words(&old.hypervisor), words(&new.hypervisor));
        differ(false, "clock governor", words(&old.governor), words(&new.governor));
        differ(false, "turbo", switch(old.turbo), switch(new.turbo));
        differ(
            false,
            "transparent huge pages",
            words(&old.transparent_huge_pages),
            words(&new.transparent_huge_pages),
        );
        found
    }
}

#[cfg(test)]
mod tests;
