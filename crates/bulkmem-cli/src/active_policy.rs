//! The policy of this machine, and the evidence that it rests on if there is any.

use std::fs;
use std::path::{Path, PathBuf};

use bulkmem::machine::Machine;
use bulkmem::policy::{self, Basis, Origin, Policy, PolicyError};
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Profile, ProfileError};

use crate::failure::{Failure, chain};
use crate::output;

const VARIABLES: &str = "`bulkmem help` describes the variables, `bulkmem methods` lists the methods";

/// The policy that the library uses here, and where it comes from.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) machine: &'static Machine,
    pub(crate) policy: Policy,
    /// The evidence and its file.
    pub(crate) profile: Option<(PathBuf, Profile)>,
}

/// The evidence that belongs to a policy file.
pub(crate) fn evidence_of(policy: &Path) -> PathBuf {
    policy.with_extension("json")
}

/// The policy file that belongs to evidence.
pub(crate) fn policy_of(evidence: &Path) -> PathBuf {
    evidence.with_extension("policy")
}

impl ActivePolicy {
    /// Loads what the environment and the policy files say. Files that cannot be used are reported on stderr.
    ///
    /// # Errors
    /// If a variable other than `BULKMEM_PROFILE` cannot be followed.
    pub(crate) fn load() -> Result<ActivePolicy, Failure> {
        for problem in policy::problems() {
            // The library goes on with its defaults without the file, and so does the command.
            if !matches!(problem, PolicyError::Profile { .. }) {
                return Err(Failure::usage(chain(&problem)).help(VARIABLES));
            }
        }
        let policy = Policy::global().clone();
        for refused in &policy.origin().refused {
            output::warn(&format!("{} is not used: {}", refused.path.display(), refused.reason))?;
        }
        let machine = Machine::current();
        let Basis::Profile { path: Some(path), .. } = &policy.origin().basis else {
            report_evidence_without_policy()?;
            return Ok(ActivePolicy { machine, policy, profile: None });
        };
        Ok(match evidence(path)? {
            Some((path, profile)) => {
                ActivePolicy { machine, policy: profile.explain(policy), profile: Some((path, profile)) }
            }
            None => ActivePolicy { machine, policy, profile: None },
        })
    }

    /// The origin of the rules of one operation and intent, in a sentence.
    pub(crate) fn describe_rules(&self, operation: Operation, intent: Intent) -> String {
        let origin = self.policy.origin();
        let forced = origin.forced.iter().any(|(other, _)| *other == operation);
        match &origin.basis {
            Basis::Profile { path, .. } if !forced && !self.policy.is_measured(operation, intent) => {
                let path = path.as_ref().map_or("the profile".into(), |path| path.display().to_string());
                let defaults = Policy::defaults(self.machine);
                format!("{path} has no rules for it; {}", self.describe(defaults.origin()))
            }
            _ => self.describe(origin),
        }
    }

    /// The origin of a policy, in a sentence.
    fn describe(&self, origin: &Origin) -> String {
        let mut text = match &origin.basis {
            Basis::Profile { path } => {
                let path = path.as_ref().map_or("memory".into(), |path| path.display().to_string());
                let profile = self.profile.as_ref().map(|(_, profile)| profile);
                let date = profile.map_or(String::new(), |it| format!(" of {}", it.provenance.date));
                let whole = if profile.is_none_or(|it| it.coverage.complete) { "" } else { ", incomplete" };
                format!("the profile {path}{date}{whole}")
            }
            Basis::Defaults { microarchitecture, why, source } => {
                format!("the built-in defaults for {microarchitecture}: {why} ({source})")
            }
            _ => "an unknown origin".to_owned(),
        };
        for (operation, choice) in &origin.forced {
            text += &format!("; {operation} is forced to {choice}");
        }
        text
    }
}

/// The evidence next to a policy file, if it is there and of the same calibration.
fn evidence(policy: &Path) -> Result<Option<(PathBuf, Profile)>, Failure> {
    let path = evidence_of(policy);
    let problem = match Profile::load(&path) {
        Ok(profile) if fs::read_to_string(policy).is_ok_and(|text| text == profile.policy_text()) => {
            return Ok(Some((path, profile)));
        }
        Ok(_) => {
            "it belongs to another calibration than the policy file next to it; calibrate again".to_owned()
        }
        Err(ProfileError::Missing) => {
            "there is no such file, so the reasons and measurements are not known; calibrate again".to_owned()
        }
        Err(error) => chain(&error),
    };
    output::warn(&format!("{} is not used: {problem}", path.display()))?;
    Ok(None)
}

/// Says so if there is evidence that no program uses, as older versions wrote it.
fn report_evidence_without_policy() -> Result<(), Failure> {
    for policy in policy::search_path() {
        let evidence = evidence_of(&policy);
        if evidence.is_file() && !policy.exists() {
            let text = format!(
                "{} is not used: programs load {}, which is not there; run `bulkmem calibrate`",
                evidence.display(),
                policy.display()
            );
            output::warn(&text)?;
        }
    }
    Ok(())
}
