//! The profile: the measurements of one machine and the rules derived from them, as stored on disk.
//!
//! The file is JSON; `docs/profile-format.md` describes every field. Units: nanoseconds, bytes.

use std::time::SystemTime;

use bulkmem::method::Parameters;
use bulkmem::policy::Situation;
use bulkmem::{Durability, Operation};
use bulkmem_kmod::ClearTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::stats::{ENOUGH, Summary};
use crate::engine::{Condition, Cost, Load, Provenance};

/// Value of the field `format`.
pub const FORMAT: &str = crate::engine::PROFILE_FORMAT;
/// Version of the format that this library reads and writes.
pub const VERSION: u32 = 4;
/// The measurements of one machine and the rules derived from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] of the library that wrote it.
    pub version: u32,
    /// The machine, the time and the library of the measurement.
    pub provenance: Provenance,
    /// Which operations were measured, and how thoroughly.
    pub coverage: Coverage,
    /// Storage that survives a power failure, as given by `bulkmem calibrate --durability`. If absent, memory survives
    /// and caches do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The rules: for each operation and situation in rising order of length, the first from 0.
    pub rules: Vec<Rule>,
    /// The operations that look at the cache state, with how they do it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<LookRule>,
    /// The copies that the C library does slowly; absent if it does none, or the calibration did not look for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aliasing: Option<AliasingRule>,
    /// For each operation that several threads speed up: from which length, and how many.
    pub threads: Vec<Saturation>,
    /// The measurements that the rules are derived from.
    pub figures: Vec<Figure>,
    /// The measurements that the Linux module's parameters are derived from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub module: Vec<ModuleFigure>,
}

impl Profile {
    /// Returns the rules of one operation and situation, in the order of the file.
    pub fn rules_of(&self, operation: Operation, situation: Situation) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| (rule.operation, rule.situation) == (operation, situation))
    }

    /// Returns the measurements of the Linux module's methods, as [`bulkmem_kmod::Plan::derive`] needs them.
    pub fn module_times(&self) -> Vec<ClearTime> {
        self.module.iter().filter_map(ModuleFigure::clear_time).collect()
    }
}

/// The operations that a calibration measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// How much calibration was requested.
    pub mode: Mode,
    /// True if every operation was measured to the end.
    pub complete: bool,
    /// The operations that were measured to the end, each with the calibration that its rules come from: `provenance`
    /// is of the last calibration, and an earlier one may have measured other operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationProvenance>,
}

impl Coverage {
    /// Lists the operations that were measured to the end, when, and under which load; `run` describes the calibration.
    pub(crate) fn new(
        run: &Provenance,
        mode: Mode,
        finished: &[(Operation, SystemTime, Option<Load>)],
    ) -> Coverage {
        let operations = finished.iter().map(|(operation, when, load)| OperationProvenance {
            operation: *operation,
            date: humantime::format_rfc3339_seconds(*when).to_string(),
            mode,
            bulkmem: run.bulkmem.clone(),
            commit: run.commit.clone(),
            microcode: run.microcode.clone(),
            kernel: run.kernel.clone(),
            backing_page_size: run.backing_page_size,
            load: load.clone(),
        });
        Coverage {
            mode,
            complete: Operation::ALL.iter().all(|it| finished.iter().any(|(done, ..)| done == it)),
            operations: operations.collect(),
        }
    }
}

/// When and how one operation was measured to the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationProvenance {
    /// The operation.
    pub operation: Operation,
    /// When it was finished: RFC 3339, UTC.
    pub date: String,
    /// How much calibration was requested.
    pub mode: Mode,
    /// Version of bulkmem.
    pub bulkmem: String,
    /// The commit bulkmem was built from.
    pub commit: String,
    /// Microcode revision; empty if unknown.
    pub microcode: String,
    /// Kernel release.
    pub kernel: String,
    /// Size of the pages that backed the measured memory, bytes.
    pub backing_page_size: usize,
    /// Load by other processes while it was measured; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// How thoroughly to calibrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// At most 10 seconds.
    Quick,
    /// At most 60 seconds.
    Default,
    /// As long as the budget allows.
    Thorough,
}

/// From `from` bytes on (until the next rule of the same operation and situation), use this method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The operation.
    pub operation: Operation,
    /// The caller's intent, or the cache state that the operation found, for one thread or for several.
    pub situation: Situation,
    /// Smallest length that it applies to, bytes.
    pub from: u64,
    /// The method's name.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The reason, for people.
    pub reason: String,
}

/// How an operation looks at the cache state: by the time of stores to a few places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookRule {
    /// The operation.
    pub operation: Operation,
    /// Length in bytes from which a look pays.
    pub from: u64,
    /// The memory is cached if storing to its lines takes fewer ticks of the time stamp counter.
    pub cached_below: u64,
    /// How memory is recognized whose pages are not mapped yet; absent if that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmapped: Option<UnmappedRule>,
    /// The reason, for people.
    pub reason: String,
}

/// How a look recognizes memory whose pages are not mapped yet, and the method for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnmappedRule {
    /// Reaching the pages takes at least so many ticks.
    pub from: u64,
    /// The method's name.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The long calls that do new huge pages by the method for uncached memory; absent if that does not pay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge: Option<NewHugeRule>,
}

/// How a look recognizes huge pages that are not mapped yet, and the calls that bypass the cache there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHugeRule {
    /// Reaching the first page takes at least so many ticks.
    pub from: u64,
    /// The length in bytes from which calls bypass the cache.
    pub length: u64,
}

/// The method for copies that the C library does slowly, because the destination begins 1 to 31 bytes after the source modulo
/// 4096.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AliasingRule {
    /// Smallest length in bytes that is slow.
    pub from: u64,
    /// Smallest length above that is not.
    pub below: u64,
    /// The method for the lengths between.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The reason, for people.
    pub reason: String,
}

/// The fewest threads that saturate memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    /// The operation.
    pub operation: Operation,
    /// Length in bytes from which several threads are faster.
    pub from: u64,
    /// Number of threads.
    pub threads: usize,
}

/// One measurement: the median time of one operation of `length` bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The operation.
    pub operation: Operation,
    /// The quantity that was measured.
    pub cost: Cost,
    /// The method's name, or `libpmem`, which is measured for comparison.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// Bytes per operation.
    pub length: u64,
    /// The conditions.
    pub condition: Condition,
    /// Median, nanoseconds per operation; the geometric mean if the samples have two speeds.
    pub median_ns: f64,
    /// First and third quartile, nanoseconds.
    pub quartiles_ns: [f64; 2],
    /// Number of samples.
    pub samples: u32,
    /// For [`Cost::Stream`]: the part of the median that is the slow-down of the walk, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance_ns: Option<f64>,
}

/// One measurement of a method of the Linux module, by the same instructions in user space: the time to clear an extent that
/// was not in the cache, chunk by chunk, with one fence at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleFigure {
    /// The module's name of the method.
    pub method: String,
    /// Prefetch distance in bytes; absent for methods that do not prefetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_distance: Option<u64>,
    /// Bytes cleared in total.
    pub extent: u64,
    /// Bytes cleared in one piece.
    pub chunk: u64,
    /// Median, nanoseconds for the extent; the geometric mean if the samples have two speeds.
    pub median_ns: f64,
    /// First and third quartile, nanoseconds.
    pub quartiles_ns: [f64; 2],
    /// Number of samples.
    pub samples: u32,
}

impl ModuleFigure {
    /// Returns the measurement as the module's plan needs it; `None` if the method is unknown.
    pub(crate) fn clear_time(&self) -> Option<ClearTime> {
        let &ModuleFigure { extent, chunk, median_ns: ns, .. } = self;
        let summary = Summary { median: ns, quartiles: self.quartiles_ns, samples: self.samples };
        Some(ClearTime {
            method: self.method.parse().ok()?,
            prefetch_distance: self.prefetch_distance.unwrap_or_default(),
            extent,
            chunk,
            ns,
            noise_ns: if self.samples < ENOUGH { f64::INFINITY } else { summary.half_width() },
        })
    }
}
