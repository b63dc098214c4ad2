//! The policy that programs use on this machine, and the profile that it was derived from.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bulkmem::machine::Machine;
use bulkmem::policy::{self, Basis, Origin, Policy, PolicyError};
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Profile, ProfileError};

use crate::failure::{Failure, chain};
use crate::output::warn;

const VARIABLES: &str = "`bulkmem help` describes the variables, `bulkmem methods` lists the methods";

/// The policy that the library uses here, and its origin.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) policy: Policy,
    /// The profile, with the path of its file.
    pub(crate) profile: Option<(PathBuf, Profile)>,
}

pub(crate) fn profile_of(policy: &Path) -> PathBuf {
    policy.with_extension("json")
}

pub(crate) fn policy_of(profile: &Path) -> PathBuf {
    profile.with_extension("policy")
}

/// Returns the path of a policy file, for people.
pub(crate) fn name_of(policy: Option<&Path>) -> String {
    policy.map_or("memory".to_owned(), |path| path.display().to_string())
}

/// Refuses variables that the library cannot follow.
pub(crate) fn check() -> Result<(), Failure> {
    for problem in policy::problems() {
        // Without a policy file the library uses its defaults, and so does the command.
        if !matches!(problem, PolicyError::Profile { .. }) {
            return Err(Failure::usage(chain(&problem)).help(VARIABLES));
        }
    }
    Ok(())
}

/// Warns of policy files that cannot be used.
pub(crate) fn warn_of_refused() -> io::Result<()> {
    for refused in &Policy::global().origin().refused {
        warn(&format!("{} is not used: {}", refused.path.display(), refused.reason))?;
    }
    Ok(())
}

impl ActivePolicy {
    /// Loads the policy from the environment and the policy files. Warns of files that cannot be used.
    pub(crate) fn load() -> Result<ActivePolicy, Failure> {
        check()?;
        warn_of_refused()?;
        let policy = Policy::global().clone();
        let mut profile = None;
        if let Basis::Profile { path: Some(path) } = &policy.origin().basis {
            profile = load_profile(path)?;
        } else {
            // Warns of profiles without a policy file, which no program uses.
            for policy in policy::search_path() {
                let profile = profile_of(&policy);
                if profile.is_file() && !policy.exists() {
                    warn(&format!(
                        "{} is not used: programs load {}, which does not exist; run `bulkmem calibrate`",
                        profile.display(),
                        policy.display()
                    ))?;
                }
            }
        }
        let policy = match &profile {
            Some((_, profile)) => profile.explain(policy),
            None => policy,
        };
        Ok(ActivePolicy { policy, profile })
    }

    /// Describes the origin of the rules of one operation and intent.
    pub(crate) fn describe_rules(&self, operation: Operation, intent: Intent) -> String {
        let origin = self.policy.origin();
        let forced = origin.forced.iter().any(|(other, _)| *other == operation);
        match &origin.basis {
            Basis::Profile { path } if !forced && !self.policy.is_measured(operation, intent) => {
                let path = path.as_deref().map_or("the policy file".into(), Path::to_string_lossy);
                let defaults = Policy::defaults(Machine::current());
                format!("{path} has no rules for it; {}", self.describe(defaults.origin()))
            }
            _ => self.describe(origin),
        }
    }

    fn describe(&self, origin: &Origin) -> String {
        let mut text = match &origin.basis {
            Basis::Profile { path } => {
                let mut text = format!("the policy file {}", name_of(path.as_deref()));
                if let Some((_, profile)) = &self.profile {
                    text += &format!(" of {}", profile.provenance.date);
                    text += if profile.coverage.complete { "" } else { ", incomplete" };
                    if let Some(name) = &profile.provenance.emulator {
                        text += &format!(", measured under the emulator {name}");
                    }
                }
                text
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

/// Loads the profile next to a policy file, if it is from the same calibration.
fn load_profile(policy: &Path) -> Result<Option<(PathBuf, Profile)>, Failure> {
    let path = profile_of(policy);
    let problem = match Profile::load(&path) {
        Ok(profile) if fs::read_to_string(policy).is_ok_and(|text| text == profile.policy_text()) => {
            return Ok(Some((path, profile)));
        }
        Ok(_) => "it is not from the same calibration as the policy file next to it; calibrate again".into(),
        Err(ProfileError::Missing) => {
            "there is no such file, so that reasons and measurements are unknown; calibrate again".into()
        }
        Err(error) => chain(&error),
    };
    warn(&format!("{} is not used: {problem}", path.display()))?;
    Ok(None)
}
