//! Compares published tables with this machine's own figures: the most similar published machine, the conclusions
//! that hold here, and by how much the figures differ.
//!
//! Absolute figures of two machines say little about each other, and the sources draw conclusions from ratios. So each
//! figure comes with its ratio to the method that its table compares with.

mod alike;
mod conclusions;
mod figures;
mod needed;
mod ours;
mod published;

use serde::{Deserialize, Serialize};

use crate::Provenance;
use crate::engine::Results;
pub use needed::measurements;
use ours::Ours;

/// Similarity of a published machine to this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alike {
    /// The published machine.
    pub machine: String,
    /// Distance between its ratios of methods and ours: the root mean square of the differences of their logarithms,
    /// over the sizes and chunks that both measured; 0.1 is about 10 %. `None` if nothing comparable was measured.
    pub distance: Option<f64>,
    /// True if vendor, family and model are this machine's.
    pub same_model: bool,
    /// Similarities and differences, in sentences.
    pub reasons: Vec<String>,
}

/// A published figure with this machine's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The published table.
    pub table: String,
    /// Its machine; "unnamed" if the source does not name it.
    pub machine: String,
    /// The method or variant.
    pub candidate: String,
    /// The size, chunk or pattern.
    pub config: String,
    /// The unit of both figures.
    pub unit: String,
    /// As published.
    pub published: f64,
    /// As measured here; `None` if it was not measured.
    pub here: Option<f64>,
    /// The candidate that the ratios are relative to, of the same table and configuration.
    pub against: String,
    /// How many times as good the candidate is, as published.
    pub published_ratio: Option<f64>,
    /// The same, as measured here.
    pub here_ratio: Option<f64>,
}

/// Outcome of a conclusion on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not.
    Fails,
    /// Unknown: it was not measured here.
    NotMeasured,
}

/// A conclusion of a source, judged by this machine's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The conclusion, in words.
    pub claim: String,
    /// The source.
    pub source: String,
    /// The published figures that support it, in words.
    pub published: String,
    /// The figures here, in words, or why there are none.
    pub here: String,
    /// The outcome.
    pub verdict: Verdict,
}

/// Speed of the policy's choice, at the sizes that the sources compare MOVNTI and the string instruction at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnChoice {
    /// Bytes cleared.
    pub size: u64,
    /// GB/s, median.
    pub gb_per_s: f64,
    /// How many times as fast as the string instruction.
    pub times_string: Option<f64>,
    /// How many times as fast as MOVNTI.
    pub times_movnti: Option<f64>,
}

/// The published tables compared with this machine's own figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// This machine.
    pub provenance: Provenance,
    /// The published machines, the most similar first.
    pub alike: Vec<Alike>,
    /// The conclusions, in the order of the sources.
    pub conclusions: Vec<Conclusion>,
    /// Speed of bulkmem's own choice, compared with the methods of the first table.
    pub choices: Vec<OwnChoice>,
    /// The figures, by table.
    pub figures: Vec<PublishedFigure>,
}

impl Reproduction {
    /// Compares the published tables with results. What a run left out counts as not measured.
    pub fn of(results: &Results) -> Reproduction {
        let ours = Ours(results);
        Reproduction {
            provenance: results.provenance.clone(),
            alike: alike::rank(&ours),
            conclusions: conclusions::judge(&ours),
            choices: own_choices(&ours),
            figures: figures::compare(&ours),
        }
    }

    /// Counts the conclusions that hold, that fail, and that were not measured.
    pub fn tally(&self) -> [usize; 3] {
        [Verdict::Holds, Verdict::Fails, Verdict::NotMeasured]
            .map(|verdict| self.conclusions.iter().filter(|it| it.verdict == verdict).count())
    }
}

fn own_choices(ours: &Ours<'_>) -> Vec<OwnChoice> {
    let sizes = published::published().memset_by_size.sizes_mib.iter().map(|mib| mib << 20);
    let choice = |size| {
        let gb_per_s = ours.clear("policy", size)?;
        let times = |other: Option<f64>| Some(gb_per_s / other?);
        Some(OwnChoice {
            size,
            gb_per_s,
            times_string: times(ours.string(size)),
            times_movnti: times(ours.clear("movnti", size)),
        })
    };
    sizes.filter_map(choice).collect()
}

#[cfg(test)]
mod tests;
