//! Results of a run: the document that is saved, shown, compared and reported.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bulkmem::method::Parameters;
use bulkmem::policy::Choice;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::engine::{Config, Stats};
use crate::engine::{Counts, Provenance};

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Measurement {
    /// Clearing by size and method.
    Clear,
    /// Filling by size and method.
    Fill,
    /// Copying by size and method.
    Copy,
    /// An extent cleared in chunks.
    Chunks,
    /// Memory for a virtual machine.
    Vm,
    /// Persistent writes by width and pattern.
    Persist,
    /// Persistent writes by block, and half-written lines.
    Blocks,
    /// Slow-down of a neighbour that lives in the cache.
    Pollution,
    /// Slow-down of a command by background clearing.
    Corun,
    /// When caching pays off because the result is read soon.
    Reuse,
    /// Fork and copy-on-write.
    Fork,
    /// Random input and output of blocks.
    Iops,
    /// A block write cache: blocks and metadata made durable in order.
    WriteCache,
    /// A log: records made durable before the commit that counts them.
    Log,
    /// The lengths from which the C library bypasses the cache.
    Threshold,
    /// Memory of each NUMA node from the processors of each.
    Numa,
    /// The policy's choice against every method and other libraries.
    Choice,
    /// The project's performance targets.
    Targets,
    /// Values of the C library's tunables.
    Tunables,
}

impl Measurement {
    /// All measurements, in the order in which they are run and shown.
    pub const ALL: [Measurement; 19] = *Measurement::VARIANTS.as_array().unwrap();

    /// The name, as the command line and files have it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The quantity that samples measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bytes worked on a second, in GB/s (10⁹ bytes a second). Higher is better.
    Bandwidth,
    /// Wall-clock time, seconds. Lower is better.
    Seconds,
    /// Wall-clock time, nanoseconds. Lower is better.
    Nanoseconds,
    /// Operations a second. Higher is better.
    Iops,
    /// How much longer something took than its control, nanoseconds. Around 0, below it too, where there was nothing:
    /// two of these have a difference but no ratio. Lower is better.
    Growth,
}

impl Metric {
    /// The unit, for people.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Bandwidth => "GB/s",
            Metric::Seconds => "s",
            Metric::Nanoseconds | Metric::Growth => "ns",
            Metric::Iops => "IOPS",
        }
    }

    /// True if more is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Metric::Bandwidth | Metric::Iops)
    }

    /// True if the figures are differences, which lie around 0: they have neither ratios nor a relative spread.
    pub fn is_difference(self) -> bool {
        self == Metric::Growth
    }

    /// How many times as good `new` is as `old`: above 1 is better, whatever the metric. NaN for differences.
    pub fn times_as_good(self, new: f64, old: f64) -> f64 {
        match self {
            Metric::Bandwidth | Metric::Iops => new / old,
            Metric::Seconds | Metric::Nanoseconds => old / new,
            Metric::Growth => f64::NAN,
        }
    }
}

/// Kinds of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The policy's choice, called through the public interface, so that the cost of choosing is in it.
    Policy,
    /// A method called directly.
    Method,
    /// Another library.
    Peer,
    /// The operating system's kernel.
    Kernel,
    /// Reading the same memory: what the memory itself can deliver.
    Read,
    /// The same time or work without what is measured: what the others are compared with.
    Control,
}

/// A candidate: a method, the policy, another library, the kernel or a control.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Its kind.
    pub kind: Kind,
    /// The method's or the peer's name; for the policy `policy`.
    pub name: String,
    /// The method's parameters; all zero for others.
    #[serde(default)]
    pub parameters: Parameters,
}

impl Candidate {
    /// A method with its parameters.
    pub fn method(choice: &Choice) -> Candidate {
        let kind = if choice.method == bulkmem::method::c_library() { Kind::Peer } else { Kind::Method };
        Candidate { kind, name: choice.method.name.to_owned(), parameters: choice.parameters }
    }

    /// A candidate without parameters.
    pub fn named(kind: Kind, name: impl Into<String>) -> Candidate {
        Candidate { kind, name: name.into(), parameters: Parameters::default() }
    }
}

/// One candidate in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The measurement that it belongs to.
    pub measurement: Measurement,
    /// The candidate.
    pub candidate: Candidate,
    /// Its configuration.
    pub config: Config,
    /// The quantity that the samples measure.
    pub metric: Metric,
    /// The samples in the order in which they were taken, in the metric's unit.
    pub samples: Vec<f64>,
    /// The samples in brief.
    pub stats: Stats,
    /// For the policy: the method that it chose here, with parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// Medians of what else was seen, by name; names end in their unit: `p99_ns`, `before_ns`, `pages_cleared`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, f64>,
    /// Hardware events per operation, counted in further samples, if that was requested and the machine has
    /// counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counts>,
    /// Reasons to doubt the row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<QualityFlag>,
}

/// A reason to doubt a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QualityFlag {
    /// The samples vary by more than 5 %: standard deviation over mean.
    Noise,
    /// Single samples lie far off, while the others agree. The median ignores them, the mean does not.
    Outliers,
    /// The samples fall into two heaps: there is no one figure that describes them.
    TwoSpeeds,
    /// The machine became faster or slower while the group was measured.
    Drift,
    /// Other processes used the processors at the same time.
    Busy,
    /// The hypervisor gave the processors to other guests at the same time.
    Stolen,
    /// A limit on processor time held this process back.
    Throttled,
}

/// The check of a performance target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The target, for people.
    pub what: String,
    /// The limit.
    pub bound: Bound,
    /// The unit of the bound and of the measured value.
    pub unit: Unit,
    /// The worst measured value; `None` if nothing was measured.
    pub measured: Option<f64>,
    /// True if the target was met; `None` if nothing was measured, or if the samples vary too much to tell.
    pub met: Option<bool>,
    /// The configuration of the worst value, or why nothing was measured.
    pub note: String,
}

/// The limit of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Returns the limit for people: `≥ 1.60`.
    pub fn text(self, unit: Unit) -> String {
        match self {
            Bound::AtLeast(bound) => format!("≥ {}", unit.text(bound)),
            Bound::AtMost(bound) => format!("≤ {}", unit.text(bound)),
        }
    }
}

/// The unit of a target's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// How many times as fast.
    Ratio,
    /// A share of 1.
    Share,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    /// Returns a value with its unit for people.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Ratio => format!("{value:.2}"),
            Unit::Share => format!("{:.1} %", value * 100.0),
            Unit::Nanoseconds => format!("{value:.1} ns"),
        }
    }
}

/// A conclusion from the rows, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The measurement that shows it.
    pub measurement: Measurement,
    /// A sentence or two.
    pub text: String,
    /// The values, if the finding is the check of a performance target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Always `bulkmem-results`.
    #[schemars(extend("const" = "bulkmem-results"))]
    pub format: String,
    /// The version of the format.
    #[schemars(extend("const" = 2))]
    pub version: u32,
    /// The machine, its settings, the date and the version.
    pub provenance: Provenance,
    /// The arguments that the run was started with.
    pub command: Vec<String>,
    /// One row for each candidate in each configuration, in the order in which they were measured.
    pub rows: Vec<Row>,
    /// Conclusions from the rows.
    pub findings: Vec<Finding>,
    /// Notes on what was left out, and on doubtful rows with a remedy.
    pub notes: Vec<String>,
    /// False while the run goes on, and if it was interrupted or time ran out.
    pub complete: bool,
}

impl Results {
    /// The value of the field `format`.
    pub const FORMAT: &'static str = "bulkmem-results";
    /// The version of the format that this library writes.
    pub const VERSION: u32 = 2;

    /// The rows of one measurement.
    pub fn of(&self, measurement: Measurement) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.measurement == measurement)
    }

    /// Returns the rows and findings of one measurement, without the notes, which are about the whole run.
    pub fn only(&self, measurement: Measurement) -> Results {
        let mut part = Results { notes: Vec::new(), ..self.clone() };
        part.rows.retain(|row| row.measurement == measurement);
        part.findings.retain(|finding| finding.measurement == measurement);
        part
    }

    /// The measurements that have rows, in their usual order.
    pub fn measurements(&self) -> Vec<Measurement> {
        Measurement::ALL.into_iter().filter(|measurement| self.of(*measurement).next().is_some()).collect()
    }

    /// Reads results from the bytes of a file.
    ///
    /// # Errors
    /// If they are damaged, something else, or of another version of the format.
    pub fn parse(bytes: &[u8]) -> Result<Results, ResultsError> {
        let Head { format, version: found } = match serde_json::from_slice(bytes) {
            Ok(head) => head,
            Err(error) if error.is_data() => {
                // What is JSON up to there may be cut off or damaged later.
                serde_json::from_slice::<IgnoredAny>(bytes).map_err(ResultsError::Damaged)?;
                return Err(ResultsError::NotResults);
            }
            Err(error) => return Err(ResultsError::Damaged(error)),
        };
        match (format.as_str(), found.cmp(&Results::VERSION.into())) {
            (Results::FORMAT, Ordering::Equal) => {}
            (Results::FORMAT, Ordering::Greater) => return Err(ResultsError::Newer { found }),
            (Results::FORMAT, Ordering::Less) => return Err(ResultsError::Older { found }),
            (PROFILE_FORMAT, _) => return Err(ResultsError::Profile),
            _ => return Err(ResultsError::Format { found: format.escape_debug().take(64).collect() }),
        }
        // From the bytes again: an error then has a line and a column.
        let found: Results = serde_json::from_slice(bytes).map_err(ResultsError::Damaged)?;
        match found.rows.iter().position(|row| row.samples.is_empty()) {
            Some(at) => Err(ResultsError::NoSamples { row: at + 1 }),
            None => Ok(found),
        }
    }
}

/// The `format` of a profile, which users may confuse with results.
pub(crate) const PROFILE_FORMAT: &str = "bulkmem-profile";

/// Why bytes are not results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum ResultsError {
    /// Not JSON, or a field is missing or of the wrong type; the error has the line and the column.
    #[error("is damaged: {0}")]
    Damaged(serde_json::Error),
    /// A row that no sample was taken for, counted from 1.
    #[error("is damaged: row {row} has no samples")]
    NoSamples { row: usize },
    /// JSON without a format and a version.
    #[error("is JSON, but no results of bulkmem")]
    NotResults,
    #[error("is a profile, not results")]
    Profile,
    #[error("is of the format `{found}`, not `{}`", Results::FORMAT)]
    Format { found: String },
    #[error(
        "was written by a newer bulkmem: version {found} of the format, and this one reads {}",
        Results::VERSION
    )]
    Newer { found: u64 },
    #[error("is of version {found} of the format, and this bulkmem reads {}", Results::VERSION)]
    Older { found: u64 },
}

/// The fields that every version of results and of profiles has.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "as the fields of `Results`")]
pub struct Head {
    pub format: String,
    pub version: u64,
}
