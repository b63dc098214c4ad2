//! What the user asks for: `BULKMEM_METHOD`, `BULKMEM_PROFILE`, and the profile files in their usual places.

use std::env;
use std::path::PathBuf;

use super::error::whole;
use super::{Basis, Choice, Policy, PolicyError, Profile, ProfileError, Refused};
use crate::machine::{Features, Machine};
use crate::operation::Operation;

/// Names the profile.
const PROFILE: &str = "BULKMEM_PROFILE";
/// Forces methods.
const METHOD: &str = "BULKMEM_METHOD";

/// What the environment says; an unset variable and an empty one are the same.
#[derive(Debug, Default)]
struct Wishes {
    profile: Option<PathBuf>,
    method: Option<String>,
    /// Where profiles usually are, the first that can be used holds.
    usual: Vec<PathBuf>,
}

impl Wishes {
    fn read() -> Wishes {
        Wishes {
            profile: variable(PROFILE).map(PathBuf::from),
            method: variable(METHOD).map(|value| value.to_string_lossy().into_owned()),
            usual: usual_places(),
        }
    }

    /// The best that can be had, and what of the wishes could not.
    fn grant(&self, machine: &Machine) -> (Policy, Vec<PolicyError>) {
        let mut errors = Vec::new();
        let mut refused = Vec::new();
        let mut measured = None;
        if let Some(path) = &self.profile {
            match from_file(path.clone(), machine) {
                Ok(policy) => measured = Some(policy),
                Err((path, source)) => {
                    refused.push(Refused { path: path.clone(), reason: whole(&source) });
                    errors.push(PolicyError::Profile { path, source });
                }
            }
        } else {
            for path in &self.usual {
                match from_file(path.clone(), machine) {
                    Ok(policy) => {
                        measured = Some(policy);
                        break;
                    }
                    Err((_, ProfileError::Missing)) => {}
                    Err((path, error)) => refused.push(Refused { path, reason: whole(&error) }),
                }
            }
        }
        let mut policy = measured.unwrap_or_else(|| Policy::defaults(machine));
        policy.origin.refused = refused;
        if let Some(given) = &self.method
            && let Err(source) = policy.force(given)
        {
            errors.push(PolicyError::Environment { given: given.clone(), source: Box::new(source) });
        }
        (policy, errors)
    }
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn from_file(path: PathBuf, machine: &Machine) -> Result<Policy, (PathBuf, ProfileError)> {
    let made = Profile::load(&path).and_then(|profile| Policy::from_profile(&profile, machine));
    match made {
        Ok(mut policy) => {
            if let Basis::Profile { path: from, .. } = &mut policy.origin.basis {
                *from = Some(path);
            }
            Ok(policy)
        }
        Err(error) => Err((path, error)),
    }
}

/// See [`Policy::from_environment`].
pub(super) fn policy() -> Result<Policy, PolicyError> {
    let (policy, errors) = Wishes::read().grant(Machine::current());
    errors.into_iter().next().map_or(Ok(policy), Err)
}

/// See [`Policy::global`].
pub(super) fn policy_or_complain() -> Policy {
    let (policy, errors) = Wishes::read().grant(Machine::current());
    for error in errors {
        eprintln!("bulkmem: {}; going on without", whole(&error));
    }
    policy
}

impl Profile {
    /// Where profiles are looked for, the first that can be used holds: the file that `BULKMEM_PROFILE` names and no
    /// other; else the user's, then the system's `/etc/bulkmem/profile.json`.
    pub fn search_path() -> Vec<PathBuf> {
        variable(PROFILE).map_or_else(usual_places, |path| vec![path.into()])
    }

    /// The user's profile: `bulkmem/profile.json` in `$XDG_CONFIG_HOME`, else in `~/.config`. `None` where neither
    /// that variable nor `HOME` holds an absolute path.
    pub fn user_path() -> Option<PathBuf> {
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
        Some(config.join("bulkmem/profile.json"))
    }
}

fn usual_places() -> Vec<PathBuf> {
    Profile::user_path().into_iter().chain([PathBuf::from("/etc/bulkmem/profile.json")]).collect()
}

/// `operation:method[knob=value,…],operation:method` — see [`Policy::force`].
pub(super) fn parse(spec: &str, features: Features) -> Result<Vec<(Operation, Choice)>, PolicyError> {
    let mut forced: Vec<(Operation, Choice)> = Vec::new();
    for part in split(spec) {
        let grammar = || PolicyError::Grammar { given: part.to_owned() };
        let (operation, method) = part.split_once(':').ok_or_else(grammar)?;
        let operation: Operation = operation.trim().parse()?;
        if forced.iter().any(|(other, _)| *other == operation) {
            return Err(PolicyError::Twice { operation });
        }
        forced.push((operation, Choice::parse(method, operation, features)?));
    }
    Ok(forced)
}

/// The parts between commas that are not inside brackets.
fn split(spec: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    spec.split(move |letter| {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        letter == ',' && !inside
    })
    .map(str::trim)
}
