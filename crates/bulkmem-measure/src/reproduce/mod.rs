//! The published tables beside this machine's own figures: which published machine is most alike, which conclusions
//! hold here, which do not, and by how much.
//!
//! Absolute figures of two machines say little about each other; what the sources conclude are ratios. So each
//! figure is laid beside ours together with its ratio to the method that its table compares with.

mod alike;
mod attributes;
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

/// How alike a published machine is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alike {
    /// The published machine.
    pub machine: String,
    /// How far its curves are from ours: the root mean square of the logarithms' difference of method ratios, over the
    /// sizes and chunks that both measured; 0.1 is about 10 %. None where nothing comparable was measured.
    pub distance: Option<f64>,
    /// Whether vendor, family and model are this machine's.
    pub same_model: bool,
    /// What makes it alike or not, in sentences.
    pub reasons: Vec<String>,
}

/// One published figure beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The published table.
    pub table: String,
    /// Its machine; "unnamed" where the source does not name it.
    pub machine: String,
    /// The method or variant.
    pub candidate: String,
    /// The size, chunk or pattern.
    pub config: String,
    /// The unit of both figures.
    pub unit: String,
    /// As published.
    pub published: f64,
    /// As measured here; None where it was not measured.
    pub here: Option<f64>,
    /// What the ratios are to: the subject of the same table and place that it compares with.
    pub against: String,
    /// How many times as good the subject was published to be.
    pub published_ratio: Option<f64>,
    /// The same, as measured here.
    pub here_ratio: Option<f64>,
}

/// What became of a conclusion on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not.
    Fails,
    /// Nobody can tell: it was not measured here.
    NotMeasured,
}

/// A conclusion of the sources, judged here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// What the source says.
    pub claim: String,
    /// Which source.
    pub source: String,
    /// The published figures behind it, in words.
    pub published: String,
    /// The figures here, in words; why there are none, where there are none.
    pub here: String,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// What the policy's choice reaches where the sources compare MOVNTI with the string instruction.
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

/// The published tables beside this machine's own figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// This machine.
    pub provenance: Provenance,
    /// The published machines, the most alike first.
    pub alike: Vec<Alike>,
    /// The conclusions, in the order of the sources.
    pub conclusions: Vec<Conclusion>,
    /// What bulkmem's own choice does beside the methods of the first table.
    pub choices: Vec<OwnChoice>,
    /// The figures, by table.
    pub figures: Vec<PublishedFigure>,
}

impl Reproduction {
    /// Lays the published tables beside what was measured. What a run left out is said to be not measured.
    pub fn of(results: &Results) -> Reproduction {
        let ours = Ours(results);
        Reproduction {
            provenance: results.provenance.clone(),
            alike: alike::rank(&ours),
            conclusions: conclusions::judge(&ours),
            choices: own_choices(&ours),
            figures: figures::lay(&ours),
        }
    }

    /// How many conclusions hold, fail, and could not be judged.
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
