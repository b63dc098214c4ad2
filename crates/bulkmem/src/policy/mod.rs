//! The policy: (operation, length, intent) → method and parameters.
//!
//! Three sources, the later ones overriding the earlier: built-in defaults, which follow from the machine's instructions
//! and caches and from published measurements of its microarchitecture; a policy file that `bulkmem calibrate` measured
//! on this machine; and methods that the user forces.
//!
//! Calibration writes two files. Programs load the *policy file*, a few kilobytes of text. The *profile* next to it
//! holds the measurements from which the policy was derived, for people and reports.

mod active;
mod aliasing;
mod choice;
mod defaults;
mod environment;
mod error;
mod format;
mod known;
mod load;
mod look;
mod policy_file;
mod rules;
mod situation;

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::durability::Durability;
use crate::machine::{Features, Machine};
use crate::operation::{Intent, Operation};
use load::{ForceError, Loaded};
use policy_file::{BUFFER, Owner};

pub use crate::machine::CpuIdentity;
pub(crate) use active::{init, rules};
pub use aliasing::PageAliasing;
pub use choice::Choice;
pub(crate) use choice::built_in;
pub use error::{LineError, PolicyError, PolicyFileError};
pub use format::{MOST_RULES, MOST_THREADS, POLICY_FORMAT, POLICY_VERSION};
pub(crate) use look::{CacheVerdict, INTERVAL, LEAST_LOOKED};
pub use look::{Look, NewHugePages, Unmapped};
pub(crate) use rules::{Rules, SHORTEST_FENCED_PART};
#[cfg(feature = "unstable-internals")]
pub use situation::Situation;

/// Returns the problems with the environment variables of the process-wide policy; empty if there are none. The same
/// problems, and policy files that were found and refused, go to the [`log`] facade as warnings once in a process, when
/// [`init`](crate::init) or [`Policy::global`] is first called.
pub fn problems() -> Vec<PolicyError> {
    active::problems()
}

/// True if published measurements say that MOVNTI is slower than cached stores on a processor: Intel's Skylake family. The
/// Linux module has the same list.
pub fn movnti_is_slow(cpu: &CpuIdentity) -> bool {
    known::movnti_is_slow(cpu.as_key())
}

/// False if `BULKMEM_LOOK` forbids looks, also to policies other than the process-wide one, which need not be loaded.
pub(crate) fn may_look() -> bool {
    environment::current().and_then(|environment| environment.look) != Some(c"off")
}

/// Copies the environment variables that the library reads. Called by the constructor.
pub(crate) fn read_environment() {
    environment::copy();
}

/// A mapping from operation, length and intent to a method and its parameters.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Box<Rules>,
    /// Reasons of measured rules, by the length that the rule starts at.
    reasons: Vec<(Operation, Intent, usize, String)>,
    /// The instructions of the machine that the policy is for.
    features: Features,
    origin: Origin,
}

/// The origin of a policy.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Origin {
    /// The basis of the rules that are not forced.
    pub basis: Basis,
    /// Operations with a forced method, and the method.
    pub forced: Vec<(Operation, Choice)>,
    /// Policy files that were found and refused.
    pub refused: Vec<Refused>,
}

/// The basis of a policy's rules. [`Policy::is_measured`] returns it for each operation and intent.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Basis {
    /// Measurements on this machine.
    Profile {
        /// The policy file; `None` if the rules do not come from a file.
        path: Option<PathBuf>,
    },
    /// Measurements of the microarchitecture, or of others of the vendor.
    Defaults {
        /// The microarchitecture; `another AMD processor`, `another Intel processor` or `unknown` with the identity.
        microarchitecture: String,
        /// The finding.
        why: String,
        /// Its source.
        source: String,
    },
}

/// A policy file that was found and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Refused {
    /// The file.
    pub path: PathBuf,
    /// The reason and the remedy.
    pub reason: String,
}

/// One rule of a policy: from a length on, a method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// Smallest total length in bytes that the rule is for.
    pub from: usize,
    /// The method and its parameters.
    pub choice: Choice,
    /// Why.
    pub reason: String,
}

/// The choice, if its method supports the operation.
#[inline]
fn supporting(choice: Choice, operation: Operation) -> Option<Choice> {
    choice.method.does(operation).then_some(choice)
}

impl Policy {
    /// Returns the process-wide policy, which operations use by default and which the first operation loads: from the
    /// environment and the policy files, else the defaults. This function allocates and may wait; operations do neither.
    #[inline]
    pub fn global() -> &'static Policy {
        active::global()
    }

    /// Loads the same as [`Policy::global`] again. Uses the environment as it was when the process started.
    ///
    /// # Errors
    /// If `BULKMEM_METHOD` or `BULKMEM_PROFILE` has an invalid value. A policy file found elsewhere
    /// that cannot be used is no error: [`Origin::refused`] tells of it.
    pub fn from_environment() -> Result<Policy, PolicyError> {
        let mut loaded = Box::new(Loaded::EMPTY);
        // `None` only while the constructor runs.
        loaded.load(&environment::current().unwrap_or_default());
        let (policy, errors) = Policy::of_loaded(&loaded);
        errors.into_iter().next().map_or(Ok(policy), Err)
    }

    /// Converts a loaded policy, and collects the problems with the environment.
    fn of_loaded(loaded: &Loaded) -> (Policy, Vec<PolicyError>) {
        let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
        let mut policy = Policy {
            rules: Box::new(loaded.rules.clone()),
            reasons: Vec::new(),
            features: crate::machine::features(),
            origin: Origin {
                basis: match loaded.file {
                    Some(file) => Basis::Profile { path: Some(path(file)) },
                    None => defaults::basis(&Machine::current().cpu),
                },
                forced: Vec::new(),
                refused: Vec::new(),
            },
        };
        let mut errors = Vec::new();
        for (file, error) in loaded.refused.iter().flatten() {
            let path = path(file);
            policy.origin.refused.push(Refused { reason: error.reason(&path), path: path.clone() });
            if loaded.environment.profile.is_some() {
                errors.push(PolicyError::Profile { path, source: *error });
            }
        }
        if let Some(given) = loaded.environment.method {
            match loaded.method {
                Some(error) => errors.push(PolicyError::Environment {
                    given: given.to_string_lossy().into_owned(),
                    source: Box::new(error.into()),
                }),
                // The text is valid; forcing it again records it in the origin.
                None => errors.extend(policy.force(&given.to_string_lossy()).err()),
            }
        }
        if loaded.ignored_durability {
            errors.push(PolicyError::DurabilityIgnored);
        }
        if let Some(given) = loaded.environment.look.filter(|_| loaded.odd_look) {
            errors.push(PolicyError::Look { given: choice::printable(&given.to_string_lossy()) });
        }
        errors.extend(loaded.environment.too_long.map(|variable| PolicyError::TooLong { variable }));
        (policy, errors)
    }

    /// Returns the defaults for a machine, which may be another than this one; see [`Policy::runs_here`].
    pub fn defaults(machine: &Machine) -> Policy {
        Policy::with(machine, Box::new(Rules::EMPTY), defaults::basis(&machine.cpu))
    }

    /// Creates a policy from rules, completed by the defaults.
    fn with(machine: &Machine, mut rules: Box<Rules>, basis: Basis) -> Policy {
        defaults::complete(&mut rules, machine.target(), || machine.caches);
        Policy {
            rules,
            reasons: Vec::new(),
            features: machine.features,
            origin: Origin { basis, forced: Vec::new(), refused: Vec::new() },
        }
    }

    /// Loads a policy file of this machine. Operations and intents without rules get the defaults. What the file says about
    /// durability counts, and environment variables do not.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Policy, PolicyFileError> {
        let path = path.as_ref();
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| PolicyFileError::Missing)?;
        let machine = Machine::current();
        let mut rules = Box::new(Rules::EMPTY);
        policy_file::load(&name, Owner::Named, machine.target(), &mut [0; BUFFER], &mut rules)?;
        Ok(Policy::with(machine, rules, Basis::Profile { path: Some(path.to_owned()) }))
    }

    /// Parses a policy file. Operations and intents without rules get the defaults.
    ///
    /// # Errors
    /// If the bytes are not a policy file of this version, or name a method that the machine cannot run.
    pub fn from_file_bytes(bytes: &[u8], machine: &Machine) -> Result<Policy, PolicyFileError> {
        let mut rules = Box::new(Rules::EMPTY);
        policy_file::parse_bytes(bytes, machine.target(), &mut rules)?;
        Ok(Policy::with(machine, rules, Basis::Profile { path: None }))
    }

    /// Replaces the reasons that [`Policy::rules`] reports. Each is for the rule of an operation and intent that starts at
    /// a length in bytes; other rules keep the reason they have.
    #[must_use]
    pub fn with_reasons(
        mut self,
        reasons: impl IntoIterator<Item = (Operation, Intent, usize, String)>,
    ) -> Policy {
        self.reasons = reasons.into_iter().collect();
        self
    }

    /// Forces methods for every length and intent: `clear:movnti,copy:rep_movsb`, with parameters
    /// `clear:write_prefetch_avx512[write_distance=4096]`. Other operations keep their rules.
    /// A program that was built by a compiler older than Rust 1.89 uses the AVX method in place of an AVX-512 one.
    ///
    /// # Errors
    /// If the text does not have that form, or names an operation, method or tunable that is unknown or that this policy's
    /// machine cannot use. The policy is unchanged then.
    pub fn force(&mut self, spec: &str) -> Result<(), PolicyError> {
        let forced = &mut self.origin.forced;
        load::force_text(&mut self.rules, spec, self.features, &mut |operation, choice| {
            forced.retain(|(other, _)| *other != operation);
            forced.push((operation, choice));
        })
        .map_err(PolicyError::from)
    }

    /// Returns the method and parameters for `length` bytes in total. This policy's machine can run the method, and its
    /// tunables take the parameters. `None` if no method of this architecture supports the operation.
    #[inline]
    pub fn choose(&self, operation: Operation, length: usize, intent: Intent) -> Option<Choice> {
        supporting(*self.rules.choose(operation, length, intent), operation)
    }

    /// Returns the method and parameters for one call of `length` bytes that is part of `total_len` bytes; `None` as for
    /// [`Policy::choose`].
    ///
    /// The answer is that for the total length, with two exceptions. Methods whose speed depends on the length of one call,
    /// the C library and the REP instructions, are chosen only if the call itself is as long as their rule requires;
    /// otherwise the rule before it applies. And calls of clear, fill and copy that are shorter than 4 KiB get the
    /// answer for their own length, because the fence at the end of a call that bypasses the cache would take longer than
    /// it saves. In a [`fence_scope`](crate::fence_scope), where calls do not end in a fence, they get the answer for the
    /// total length.
    #[inline]
    pub fn choose_part(
        &self,
        operation: Operation,
        length: usize,
        total_len: usize,
        intent: Intent,
    ) -> Option<Choice> {
        let choice = self.rules.choose_part(operation, length, total_len, intent, SHORTEST_FENCED_PART);
        supporting(*choice, operation)
    }

    /// Returns when and how an operation [looks at the cache state](crate::look); `None` if it does not.
    pub fn look(&self, operation: Operation) -> Option<Look> {
        self.rules.look(operation).copied()
    }

    /// Returns the method for copies that the C library would do slowly because of page aliasing; `None` if there are none
    /// here, or calibration has not looked for them.
    pub fn page_aliasing(&self) -> Option<PageAliasing> {
        self.rules.aliasing().copied()
    }

    /// Returns the method and parameters for `length` bytes in a situation; `None` as for [`Policy::choose`].
    #[cfg(feature = "unstable-internals")]
    pub fn choose_in(&self, operation: Operation, length: usize, situation: Situation) -> Option<Choice> {
        supporting(*self.rules.choose(operation, length, situation), operation)
    }

    /// Returns the situation of an operation on cached memory, for an intent that looks.
    #[cfg(feature = "unstable-internals")]
    pub fn cached(&self, operation: Operation, intent: Intent) -> Situation {
        self.rules.cached(operation, intent)
    }

    /// Returns the situation of an operation on uncached memory that so many threads share, for an intent that looks.
    #[cfg(feature = "unstable-internals")]
    pub fn uncached(&self, operation: Operation, intent: Intent, threads: usize) -> Situation {
        self.rules.uncached(operation, intent, threads)
    }

    /// Returns the length from which an operation looks at the cache state; the greatest length if it does not with that intent.
    pub fn looks_from(&self, operation: Operation, intent: Intent) -> usize {
        self.rules.looks_from(operation, intent)
    }

    /// Returns what survives a power failure, as the policy file says.
    pub fn durability(&self) -> Durability {
        self.rules.durability()
    }

    /// Returns the fewest threads that saturate memory with an operation of that length; 1 if unknown.
    pub fn threads(&self, operation: Operation, length: usize) -> usize {
        self.rules.threads(operation, length)
    }

    /// Returns the rules of an operation and intent in rising order of length.
    pub fn rules(&self, operation: Operation, intent: Intent) -> Vec<Rule> {
        let forced = self.origin.forced.iter().find(|(other, _)| *other == operation);
        let reason = |from: usize, default: Option<&'static str>| {
            if let Some((operation, choice)) = forced {
                return format!("forced: {operation}:{choice}");
            }
            let own =
                |it: &&(Operation, Intent, usize, String)| (it.0, it.1, it.2) == (operation, intent, from);
            match (self.reasons.iter().find(own), default) {
                (Some((.., reason)), _) => reason.clone(),
                (None, Some(reason)) => reason.to_owned(),
                (None, None) => "measured here".to_owned(),
            }
        };
        let thresholds = self.rules.thresholds(operation, intent).iter();
        let rule = |from, choice, default| Rule { from, choice, reason: reason(from, default) };
        thresholds.map(|it| rule(it.from, *it.choice(operation), it.reason)).collect()
    }

    /// Returns true if the rules of an operation and intent were measured on this machine. False for defaults and forced
    /// methods.
    pub fn is_measured(&self, operation: Operation, intent: Intent) -> bool {
        self.rules.measured(operation, intent)
    }

    /// Returns the origin of the policy.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns true if this machine can run every method of the policy. False only for a policy that is for another
    /// machine: it can be inspected, but not used.
    #[inline]
    pub fn runs_here(&self) -> bool {
        crate::machine::features().contains(self.rules.requires())
    }
}

impl From<ForceError<'_>> for PolicyError {
    fn from(error: ForceError) -> PolicyError {
        match error {
            ForceError::NotText => PolicyError::NotText,
            ForceError::Grammar { given } => PolicyError::Grammar { given: choice::printable(given) },
            ForceError::UnknownOperation { given } => match choice::printable(given).parse::<Operation>() {
                Err(unknown) => unknown.into(),
                // The name of an operation is never unknown.
                Ok(_) => PolicyError::Grammar { given: choice::printable(given) },
            },
            ForceError::Twice { operation } => PolicyError::Twice { operation },
            ForceError::Choice(error) => error.into(),
        }
    }
}

/// Returns the paths where policy files are looked for: the file that `BULKMEM_PROFILE` names and no other; else the
/// user's, then the system's `/etc/bulkmem/profile.policy`. The first that can be used counts.
pub fn search_path() -> Vec<PathBuf> {
    let environment = environment::current().unwrap_or_default();
    let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
    match environment.profile {
        Some(named) => vec![path(named)],
        None => [environment.user, environment.system].into_iter().flatten().map(path).collect(),
    }
}

/// Returns the path of the user's policy file: `bulkmem/profile.policy` in `$XDG_CONFIG_HOME`, else in `~/.config`.
/// `None` if neither that variable nor `HOME` holds an absolute path, or if the process runs with more rights than its
/// caller.
pub fn user_path() -> Option<PathBuf> {
    let environment = environment::current()?;
    environment.user.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}
