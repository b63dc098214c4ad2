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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::operation::Intent;

    fn grant(wishes: &Wishes) -> (Policy, Vec<String>) {
        let (policy, errors) = wishes.grant(Machine::current());
        let texts = errors.iter().map(|error| whole(error)).collect();
        (policy, texts)
    }

    fn is_default(policy: &Policy) -> bool {
        matches!(policy.origin.basis, Basis::Defaults { .. })
    }

    /// A profile that says nothing, which serves on this machine.
    fn write(path: &Path) {
        let machine = Machine::current();
        let text = serde_json::json!({
            "format": super::super::FORMAT, "version": super::super::VERSION,
            "provenance": {
                "cpu": machine.cpu, "microcode": "", "caches": [0, 0, 0], "processors": 1, "kernel": "",
                "page_size": 4096, "backing_page_size": 4096, "date": "", "bulkmem": "", "commit": "",
                "mode": "quick", "seconds": 0.0, "samples": 0, "complete": false
            },
            "rules": [], "threads": [], "figures": []
        });
        fs::write(path, text.to_string()).unwrap();
    }

    #[test]
    fn without_wishes_or_files_the_defaults_serve() {
        let nowhere = vec![PathBuf::from("/nonexistent/profile.json")];
        let (policy, errors) = grant(&Wishes { usual: nowhere, ..Wishes::default() });
        assert!(errors.is_empty() && policy.origin.refused.is_empty());
        assert!(is_default(&policy));
    }

    #[test]
    fn the_first_usual_file_that_can_be_used_holds_and_refused_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let [bad, good, later] = ["bad", "good", "later"].map(|name| folder.path().join(name));
        fs::write(&bad, "{").unwrap();
        write(&good);
        write(&later);
        let usual = vec![folder.path().join("missing"), bad.clone(), good.clone(), later];
        let (policy, errors) = grant(&Wishes { usual, ..Wishes::default() });
        assert!(errors.is_empty());
        let [refused] = &policy.origin.refused[..] else { panic!("{:?}", policy.origin) };
        assert_eq!(refused.path, bad);
        assert!(refused.reason.contains("damaged at line 1"), "{}", refused.reason);
        assert!(matches!(&policy.origin.basis, Basis::Profile { path: Some(path), .. } if *path == good));
    }

    #[test]
    fn a_named_profile_is_the_only_one_and_the_defaults_serve_where_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let [named, usual] = ["named", "usual"].map(|name| folder.path().join(name));
        write(&usual);
        let wishes = Wishes { profile: Some(named.clone()), usual: vec![usual], method: None };
        let (policy, errors) = grant(&wishes);
        assert!(is_default(&policy));
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.contains(named.to_str().unwrap()) && error.contains("there is no profile"), "{error}");
        assert_eq!(policy.origin.refused.len(), 1);
        write(&named);
        let (policy, errors) = grant(&wishes);
        assert!(errors.is_empty());
        assert!(matches!(&policy.origin.basis, Basis::Profile { path: Some(path), .. } if *path == named));
    }

    #[test]
    fn forced_methods_hold_over_a_profile_and_a_bad_one_leaves_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        write(&path);
        let wish = |method: &str| Wishes {
            profile: Some(path.clone()),
            method: Some(method.to_owned()),
            usual: Vec::new(),
        };
        let (policy, errors) = grant(&wish("clear:portable"));
        assert!(errors.is_empty() && !is_default(&policy));
        assert_eq!(policy.choose(Operation::Clear, 1 << 30, Intent::Stream).method.name, "portable");
        let (policy, errors) = grant(&wish("clear:magic"));
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.starts_with("BULKMEM_METHOD is `clear:magic`: unknown method `magic`"), "{error}");
        assert!(policy.origin.forced.is_empty() && !is_default(&policy));
    }
}
