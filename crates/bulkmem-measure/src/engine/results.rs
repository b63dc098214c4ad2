//! Results of a run: the document that is saved, shown, compared and reported.

use std::collections::BTreeMap;
use std::fmt;

use bulkmem::method::Parameters;
use bulkmem::policy::Choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Config;
use crate::engine::stats::Stats;
use crate::engine::{Counts, Provenance};

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
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
    /// The policy's choice against every method and other libraries.
    Choice,
    /// The project's performance targets.
    Targets,
}

impl Measurement {
    /// All measurements, in the order in which they are run and shown.
    pub const ALL: [Measurement; 13] = [
        Measurement::Clear,
        Measurement::Fill,
        Measurement::Copy,
        Measurement::Chunks,
        Measurement::Vm,
        Measurement::Persist,
        Measurement::Pollution,
        Measurement::Corun,
        Measurement::Reuse,
        Measurement::Fork,
        Measurement::Iops,
        Measurement::Choice,
        Measurement::Targets,
    ];

    /// The name, as the command line and files have it.
    pub fn name(self) -> &'static str {
        match self {
            Measurement::Clear => "clear",
            Measurement::Fill => "fill",
            Measurement::Copy => "copy",
            Measurement::Chunks => "chunks",
            Measurement::Vm => "vm",
            Measurement::Persist => "persist",
            Measurement::Pollution => "pollution",
            Measurement::Corun => "corun",
            Measurement::Reuse => "reuse",
            Measurement::Fork => "fork",
            Measurement::Iops => "iops",
            Measurement::Choice => "choice",
            Measurement::Targets => "targets",
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
        if self.is_difference() {
            return f64::NAN;
        }
        if self.higher_is_better() { new / old } else { old / new }
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
    /// True if the target was met; `None` if nothing was measured.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
}
