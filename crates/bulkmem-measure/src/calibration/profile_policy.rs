//! From a profile to the policy and to the text of the policy file.

use std::fmt::Write as _;

use bulkmem::machine::Machine;
use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION, Policy};
use bulkmem::{Intent, Operation};

use super::profile::{Profile, Rule, Saturation};
use super::profile_error::ProfileError;

impl Profile {
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

    /// Returns a policy that was read from this profile's policy file, with the reasons of its rules.
    #[must_use]
    pub fn explain(&self, policy: Policy) -> Policy {
        let reason = |rule: &Rule| {
            Some((rule.operation, rule.intent, usize::try_from(rule.from).ok()?, rule.reason.clone()))
        };
        policy.with_reasons(self.rules.iter().filter_map(reason))
    }

    /// Returns the text of the policy file: the part of the profile that programs need.
    pub fn policy_text(&self) -> String {
        let cpu = &self.provenance.cpu;
        let mut text = format!(
            "{POLICY_FORMAT} {POLICY_VERSION}\n\
             # Written by `bulkmem calibrate`; the measurements are in the file of the same name that ends in .json.\n\
             cpu {} {} {} {}\n",
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
            let threads = self.threads.iter().filter(|it| it.operation == operation);
            for Saturation { from, threads, .. } in threads {
                _ = writeln!(text, "threads {operation} {from} {threads}");
            }
        }
        text + "end\n"
    }
}
