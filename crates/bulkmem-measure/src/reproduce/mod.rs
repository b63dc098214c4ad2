//! Compares published tables with this machine's own figures: the most similar published machine, the conclusions
//! that hold here, and by how much the figures differ.
//!
//! Absolute figures of two machines say little about each other, and the sources draw conclusions from ratios. So each
//! figure comes with its ratio to the method that its table compares with.

mod conclusions;
mod figures;
mod needed;
mod ours;
mod published;

use serde::{Deserialize, Serialize};

use crate::engine::{Provenance, Results};
pub use needed::{besides_all, measurements};
use ours::Ours;
use published::{Measured, published};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds here.
    #[strum(to_string = "holds")]
    Holds,
    /// It does not.
    #[strum(to_string = "does not hold")]
    Fails,
    /// Unknown: it was not measured here.
    #[strum(to_string = "not measured")]
    NotMeasured,
    /// It is about other processors.
    #[strum(to_string = "does not apply")]
    NotApplicable,
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
        Reproduction::of_files(results, &[results])
    }

    /// The same for results from several files; `results` has the rows of all. Judges what happened to a program by each file
    /// alone: another file may be about another program.
    pub fn of_files(results: &Results, files: &[&Results]) -> Reproduction {
        let ours = Ours { all: results, files };
        Reproduction {
            provenance: results.provenance.clone(),
            alike: rank(&ours),
            conclusions: conclusions::judge(&ours),
            choices: own_choices(&ours),
            figures: figures::compare(&ours),
        }
    }

    /// Counts the conclusions that hold, that fail, that were not measured, and that are about other processors.
    pub fn tally(&self) -> [usize; 4] {
        [Verdict::Holds, Verdict::Fails, Verdict::NotMeasured, Verdict::NotApplicable]
            .map(|verdict| self.conclusions.iter().filter(|it| it.verdict == verdict).count())
    }
}

fn own_choices(ours: &Ours<'_>) -> Vec<OwnChoice> {
    let choice = |mib: &u64| {
        let size = mib << 20;
        let gb_per_s = ours.clear("policy", size)?;
        let times = |name: &str| Some(gb_per_s / ours.clear(name, size)?);
        Some(OwnChoice { size, gb_per_s, times_string: times("rep_stosb"), times_movnti: times("movnti") })
    };
    published().memset_by_size.lengths.iter().filter_map(choice).collect()
}

/// Returns the published machines: the same model first, then by distance.
fn rank(ours: &Ours<'_>) -> Vec<Alike> {
    let (by_size, by_chunk) = (&published().memset_by_size, &published().clear_by_chunk);
    let (sized, chunked) = (by_size.machines.iter(), by_chunk.machines.iter());
    let sized = sized.map(|it| judge(ours, it, &by_size.lengths, |name, mib| ours.clear(name, mib << 20)));
    let chunked = chunked.map(|it| judge(ours, it, &by_chunk.lengths, |name, by| ours.chunk(name, by)));
    let mut all: Vec<Alike> = sized.chain(chunked).collect();
    let distance = |it: &Alike| it.distance.unwrap_or(f64::INFINITY);
    all.sort_by(|a, b| b.same_model.cmp(&a.same_model).then(distance(a).total_cmp(&distance(b))));
    all
}

fn judge(
    ours: &Ours<'_>,
    machine: &Measured,
    lengths: &[u64],
    here: impl Fn(&str, u64) -> Option<f64>,
) -> Alike {
    let provenance = &ours.all.provenance;
    let (cpu, own) = (&machine.cpu, &provenance.cpu);
    let same_model = cpu.same_model(own);
    let mut reasons = vec![if same_model && cpu.stepping == own.stepping {
        format!("the same family, model and stepping ({}:{}:{})", cpu.family, cpu.model, cpu.stepping)
    } else if same_model {
        format!("the same family and model ({}:{})", cpu.family, cpu.model)
    } else if cpu.vendor == own.vendor && cpu.family == own.family {
        format!("the same vendor and family ({}), another model", cpu.family)
    } else if cpu.vendor == own.vendor {
        "the same vendor, another family".to_owned()
    } else {
        "another vendor".to_owned()
    }];
    let llc = provenance.caches[2] >> 20;
    if llc > 0 {
        reasons.push(format!("last-level cache {} MiB there, {llc} MiB here", machine.llc_mib));
    }
    let curve = |name| Some((name, machine.methods.get(name)?));
    let string = ["rep_stosb", "rep_stosq"].into_iter().find_map(curve);
    let mut differences = Vec::new();
    for name in ["movnti", "clzero"] {
        let (Some((base, reference)), Some((_, theirs))) = (string, curve(name)) else { continue };
        let ratios =
            lengths.iter().zip(theirs.iter().zip(reference)).map(|(&length, (theirs, reference))| {
                Some((theirs / reference, here(name, length)? / here(base, length)?))
            });
        let ratios: Vec<Option<(f64, f64)>> = ratios.collect();
        differences.extend(ratios.iter().flatten().map(|(there, here)| here.ln() - there.ln()));
        // The largest size shows how the machine treats memory, as opposed to caches.
        if let Some(Some((there, here))) = ratios.last() {
            reasons.push(format!(
                "{name} against the string instruction at the largest: {there:.2} times there, {here:.2} times here"
            ));
        }
    }
    let squares: f64 = differences.iter().map(|difference| difference * difference).sum();
    Alike {
        machine: machine.uarch.clone(),
        distance: (!differences.is_empty()).then(|| (squares / differences.len() as f64).sqrt()),
        same_model,
        reasons,
    }
}

#[cfg(test)]
mod tests;
