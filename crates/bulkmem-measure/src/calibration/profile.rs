//! The profile: what calibration measured on one machine and what follows from it, as it stands on disk.
//!
//! The file is JSON; `docs/profile-format.md` describes every field. Units: nanoseconds, bytes.

use std::time::SystemTime;

use super::profile_error::ProfileError;
use crate::engine::{Condition, Cost, Load, Provenance};
use serde::{Deserialize, Serialize};

use bulkmem::machine::Machine;
use bulkmem::method::Parameters;
use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};
use bulkmem::{Durability, Intent, Operation};
use schemars::JsonSchema;

/// The value of the file's `format` field.
pub const FORMAT: &str = crate::engine::PROFILE_FORMAT;
/// The version that this library writes and reads.
pub const VERSION: u32 = 2;

/// A machine's measured answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Where, when and how it was measured.
    pub provenance: Provenance,
    /// What was measured of what was requested.
    pub coverage: Coverage,
    /// What survives a power failure on this machine, if `bulkmem calibrate --durability` said so. Absent, only memory
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// What follows: for each operation and intent, rules in rising order of length, the first from 0.
    pub rules: Vec<Rule>,
    /// For each operation measured with several threads: from what length on, and how many.
    pub threads: Vec<Saturation>,
    /// The measurements that the rules rest on.
    pub figures: Vec<Figure>,
}

impl Profile {
    /// The rules of one operation and intent, in the order of the file.
    pub fn rules_of(&self, operation: Operation, intent: Intent) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| (rule.operation, rule.intent) == (operation, intent))
    }

    /// Returns the policy of this profile, with its reasons. Operations and intents without rules get the defaults.
    ///
    /// # Errors
    /// As [`Profile::check`].
    pub fn policy(&self, machine: &Machine) -> Result<Policy, ProfileError> {
        self.check(machine)?;
        let policy = Policy::from_file_bytes(self.policy_text().as_bytes(), machine);
        let policy = policy.map_err(|error| ProfileError::Value {
            place: "the policy file".to_owned(),
            what: format!("cannot be used: {error}"),
        })?;
        Ok(self.explain(policy))
    }

    /// Returns a policy that was read from this profile's policy file with the reasons of its rules.
    pub fn explain(&self, policy: Policy) -> Policy {
        let reason = |rule: &Rule| {
            Some((rule.operation, rule.intent, usize::try_from(rule.from).ok()?, rule.reason.clone()))
        };
        policy.with_reasons(self.rules.iter().filter_map(reason))
    }

    /// Returns the text of the policy file: what programs need of the profile.
    pub fn policy_text(&self) -> String {
        use std::fmt::Write as _;
        let cpu = &self.provenance.cpu;
        let mut text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\n# Written by `bulkmem calibrate`; the measurements are in the file of the same name that ends in \
             .json.\ncpu {} {} {} {}\n",
            cpu.family, cpu.model, cpu.stepping, cpu.vendor
        );
        if let Some(durability) = self.durability {
            _ = writeln!(text, "durability {}", durability.name());
        }
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                for Rule { from, method, parameters, .. } in self.rules_of(operation, intent) {
                    _ = writeln!(text, "rule {operation} {intent} {from} {method}{parameters}");
                }
            }
            for Saturation { from, threads, .. } in self.threads.iter().filter(|it| it.operation == operation)
            {
                _ = writeln!(text, "threads {operation} {from} {threads}");
            }
        }
        text + "end\n"
    }
}

/// What a calibration measured, and how much of it was requested.
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
    /// What others did with the processors while it was measured; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// How much calibration was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// At most 10 seconds.
    Quick,
    /// At most 60 seconds.
    Default,
    /// As long as it says.
    Thorough,
}

/// From `from` bytes on (until the next rule of the same operation and intent), use this method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The operation.
    pub operation: Operation,
    /// The intent.
    pub intent: Intent,
    /// Smallest length it holds for, bytes.
    pub from: u64,
    /// The method's name.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// Why, for people.
    pub reason: String,
}

/// The fewest threads that saturate memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    /// The operation.
    pub operation: Operation,
    /// From this length on several threads pay, bytes.
    pub from: u64,
    /// How many.
    pub threads: usize,
}

/// One measurement: the median time of one operation of `length` bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The operation.
    pub operation: Operation,
    /// What it is the cost of.
    pub cost: Cost,
    /// The method's name.
    pub method: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// Bytes an operation.
    pub length: u64,
    /// The circumstances.
    pub condition: Condition,
    /// Median, nanoseconds an operation.
    pub median_ns: f64,
    /// First and third quartile, nanoseconds.
    pub quartiles_ns: [f64; 2],
    /// How many samples.
    pub samples: u32,
    /// Of the cost [`Cost::Stream`]: the part of the median that is the neighbour's slow-down, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance_ns: Option<f64>,
}
