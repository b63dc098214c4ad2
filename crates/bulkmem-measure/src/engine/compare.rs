//! Two runs compared, row by row, with the noise of both.
//!
//! Samples of one run show the noise within that run. Two runs differ by more: the kernel places memory
//! elsewhere, neighbours are others. That is what the threshold is for.

use bulkmem::policy::CpuIdentity;
use serde::Serialize;

use crate::engine::stats::{ENOUGH, corrected, geometric_mean, median, medians_interval, welch};
use crate::engine::{Candidate, Config, Kind, Measurement, Metric, Provenance, QualityFlag, Results, Row};

/// Of the rows called better or worse, at most this share is so by chance.
pub const CHANCE: f64 = 0.05;
/// The share of samples on either side that tests for a difference leave out.
const TRIM: f64 = 0.2;

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

/// The identity of a [`Row`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as the fields of `Row`")]
pub struct Identity {
    pub measurement: Measurement,
    pub candidate: Candidate,
    pub config: Config,
    pub metric: Metric,
}

/// A row's figures in one of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as the fields of `Row`")]
pub struct Side {
    pub median: f64,
    pub samples: usize,
    pub flags: Vec<QualityFlag>,
}

/// A row that both runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct Change {
    #[serde(flatten)]
    pub row: Identity,
    pub old: Side,
    pub new: Side,
    /// How many times as good the new median is as the old: above 1 is better, whatever the metric. `None` where the
    /// figures are differences, or not above 0.
    pub times: Option<f64>,
    /// The new median less the old, in the metric's unit.
    pub difference: f64,
    /// The 95 % interval of `times`; where that is `None`, of `difference`.
    pub interval: [f64; 2],
    /// How probable such a difference is by chance, corrected for the number of rows; `None` with too few samples.
    pub probability: Option<f64>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Differences that make them different machines.
    pub machine: Vec<String>,
    /// Settings that may explain different figures of the same machine.
    pub settings: Vec<String>,
}

impl Comparison {
    /// Compares two runs. Changes smaller than `threshold`, a share of the old figure, are not counted. `only` names
    /// measurements or candidates; everything is compared where it is empty.
    pub fn of(old: &Results, new: &Results, threshold: f64, only: &[String]) -> Comparison {
        let wanted = |row: &&Row| {
            let name = |name: &String| *name == row.candidate.name || name == row.measurement.name();
            only.is_empty() || only.iter().any(name)
        };
        let mut after: Vec<&Row> = new.rows.iter().filter(wanted).collect();
        let (mut rows, mut only_old) = (Vec::new(), Vec::new());
        for row in old.rows.iter().filter(wanted) {
            let id = row.identity();
            match after.iter().position(|other| other.identity() == id) {
                Some(at) => rows.push(change(id, row, after.remove(at), threshold)),
                None => only_old.push(id),
            }
        }
        let known: Vec<f64> = rows.iter().filter_map(|row| row.probability).collect();
        let tested = rows.iter_mut().filter(|row| row.probability.is_some());
        for (row, probability) in tested.zip(corrected(&known)) {
            row.probability = Some(probability);
            if probability > CHANCE {
                row.verdict = Verdict::Same;
            }
        }
        let reading = rows.iter().filter(|row| row.row.candidate.kind == Kind::Read);
        Comparison {
            threshold,
            reading: geometric_mean(reading.filter_map(|row| row.times)),
            rows,
            only_old,
            only_new: after.into_iter().map(Row::identity).collect(),
        }
    }

    /// How many rows came out so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

impl Row {
    /// Its identity.
    pub fn identity(&self) -> Identity {
        let Row { measurement, metric, .. } = *self;
        Identity { measurement, candidate: self.candidate.clone(), config: self.config.clone(), metric }
    }
}

/// Compares a row, as if it were the only one: its probability is not corrected.
fn change(id: Identity, old: &Row, new: &Row, threshold: f64) -> Change {
    let above = |row: &Row| row.samples.iter().all(|sample| *sample > 0.0);
    let (ratio, higher) =
        (!id.metric.is_difference() && above(old) && above(new), id.metric.higher_is_better());
    let (a, b) = if ratio && higher { (new, old) } else { (old, new) };
    let compare = |a: f64, b: f64| if ratio { a / b } else { b - a };
    let scaled =
        |row: &Row| -> Vec<f64> { row.samples.iter().map(|it| if ratio { it.ln() } else { *it }).collect() };
    let side = |row: &Row| Side {
        median: median(&row.samples),
        samples: row.samples.len(),
        flags: row.flags.clone(),
    };
    let enough = old.samples.len().min(new.samples.len()) >= ENOUGH as usize;
    let (nothing, least) = if ratio { (1.0, threshold) } else { (0.0, f64::MIN_POSITIVE) };
    let interval @ [low, high] = medians_interval(&a.samples, &b.samples, compare);
    let change = compare(median(&a.samples), median(&b.samples));
    let certain =
        (change >= nothing + least || change <= nothing - least) && !(low..=high).contains(&nothing);
    let (old_side, new_side) = (side(old), side(new));
    Change {
        times: ratio.then_some(change),
        difference: new_side.median - old_side.median,
        interval,
        probability: enough.then(|| welch(&scaled(old), &scaled(new), TRIM)),
        verdict: match (enough, certain, (change > nothing) == (ratio || higher)) {
            (false, ..) => Verdict::TooFew,
            (_, false, _) => Verdict::Same,
            (_, _, true) => Verdict::Better,
            (_, _, false) => Verdict::Worse,
        },
        row: id,
        old: old_side,
        new: new_side,
    }
}

impl Differences {
    /// Compares the machines of two runs.
    pub fn between(old: &Provenance, new: &Provenance) -> Differences {
        let same_model = old.cpu.same_model(&new.cpu);
        // Processors of one model may have different names.
        let cpu = |it: &CpuIdentity| match same_model {
            true => String::new(),
            false => format!("{} ({})", it.name, it.key()),
        };
        let switch = |on: Option<bool>| on.map_or("unknown", |on| if on { "on" } else { "off" }).to_owned();
        let or = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.to_owned());
        let words = |text: &Option<String>| or(text, "unknown");
        let pages = |bytes: usize| format!("{} KiB", bytes / 1024);
        let facts = |it: &Provenance| {
            [
                ("processor", cpu(&it.cpu)),
                ("emulator", or(&it.emulator, "none")),
                ("base pages", pages(it.page_size)),
                ("pages behind the memory", pages(it.backing_page_size)),
                ("kernel", it.kernel.clone()),
                ("microcode", it.microcode.clone()),
                ("processors used", it.processors.to_string()),
                ("processors", or(&it.processor_list, "all")),
                ("NUMA nodes of the memory", or(&it.memory_nodes, "any")),
                ("hypervisor", words(&it.hypervisor)),
                ("clock governor", words(&it.governor)),
                ("turbo", switch(it.turbo)),
                ("transparent huge pages", words(&it.transparent_huge_pages)),
            ]
        };
        let different = |((what, old), (_, new)): ((_, String), (&str, String))| {
            (old != new).then(|| format!("{what}: {old} before, {new} now"))
        };
        let mut all = facts(old).into_iter().zip(facts(new));
        let machine = all.by_ref().take(4).filter_map(different).collect();
        Differences { machine, settings: all.filter_map(different).collect() }
    }
}

#[cfg(test)]
mod tests;
