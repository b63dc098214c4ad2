//! What serves on this machine: the policy, and the profile behind it where there is one.

use std::path::PathBuf;

use bulkmem::machine::Machine;
use bulkmem::policy::{Basis, Policy, PolicyError, Profile};

use crate::failure::{Failure, chain};
use crate::output;

const VARIABLES: &str = "`bulkmem help` describes the variables, `bulkmem methods` lists the methods";

/// The policy that the library follows here, and where it has it from.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) machine: &'static Machine,
    pub(crate) policy: Policy,
    pub(crate) profile: Option<(PathBuf, Profile)>,
}

impl Served {
    /// What the environment and the profile files make of it. Profiles that cannot be used are said on stderr.
    ///
    /// # Errors
    /// Where `BULKMEM_METHOD` makes no sense.
    pub(crate) fn load() -> Result<Served, Failure> {
        let policy = match Policy::from_environment() {
            Ok(policy) => {
                for refused in &policy.origin().refused {
                    output::warn(&format!("{} is not used: {}", refused.path.display(), refused.reason))?;
                }
                policy
            }
            // The library goes on with its defaults, and so do we; but not with a bad BULKMEM_METHOD besides.
            Err(PolicyError::Profile { .. }) => {
                if let Some(method) = std::env::var_os("BULKMEM_METHOD").filter(|method| !method.is_empty()) {
                    let forced = Policy::defaults(Machine::current()).force(&method.to_string_lossy());
                    forced.map_err(|error| Failure::usage(error).help(VARIABLES))?;
                }
                // This one says itself what is wrong with the profile.
                Policy::global().clone()
            }
            Err(error) => return Err(Failure::usage(error).help(VARIABLES)),
        };
        let profile = match &policy.origin().basis {
            Basis::Profile { path: Some(path), .. } => {
                let profile = Profile::load(path).map_err(|error| {
                    Failure::new(format!("cannot read {}: {}", path.display(), chain(&error)))
                        .help("run `bulkmem calibrate` to write it anew")
                })?;
                Some((path.clone(), profile))
            }
            _ => None,
        };
        Ok(Served { machine: Machine::current(), policy, profile })
    }

    /// Where the policy comes from, in a sentence.
    pub(crate) fn describe_origin(&self) -> String {
        let origin = self.policy.origin();
        let mut text = match &origin.basis {
            Basis::Profile { path, provenance } => {
                let path = path.as_ref().map_or("memory".into(), |path| path.display().to_string());
                let whole = if provenance.complete { "" } else { ", incomplete" };
                format!("the profile {path} of {}{whole}", provenance.date)
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
