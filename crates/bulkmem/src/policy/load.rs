//! Loads the policy from the environment and the policy files.
//!
//! One function for the first call of a program, which must not allocate, and for
//! [`Policy::from_environment`](super::Policy::from_environment), which reports what could not be followed.

use std::ffi::CStr;

use super::choice::ChoiceError;
use super::environment::Environment;
use super::policy_file::{self, BUFFER, Owner};
use super::rules::Rules;
use super::{Choice, PolicyFileError, defaults};
use crate::durability::Durability;
use crate::look_switch;
use crate::machine::{self, Features, Target};
use crate::operation::Operation;

/// The policy of a process, and the problems found while loading it.
pub(super) struct Loaded<'e> {
    pub(super) rules: Rules,
    /// The file that the rules come from; `None`: the defaults.
    pub(super) file: Option<&'e CStr>,
    /// The files that were found and not used, the more important first.
    pub(super) refused: [Option<(&'e CStr, PolicyFileError)>; 2],
    /// The problem with `BULKMEM_METHOD`.
    pub(super) method: Option<ForceError<'e>>,
    /// A file that `BULKMEM_PROFILE` names says that caches survive, which is ignored.
    pub(super) ignored_durability: bool,
    /// `BULKMEM_LOOK` has a value other than `on` and `off`, and counts as unset.
    pub(super) odd_look: bool,
    pub(super) environment: Environment<'e>,
    buffer: [u8; BUFFER],
}

impl<'e> Loaded<'e> {
    pub(super) const EMPTY: Loaded<'e> = Loaded {
        rules: Rules::EMPTY,
        file: None,
        refused: [None; 2],
        method: None,
        ignored_durability: false,
        odd_look: false,
        environment: Environment::NONE,
        buffer: [0; BUFFER],
    };

    /// True if a variable could not be followed. Refused files that no variable names do not count.
    pub(super) fn disobeys(&self) -> bool {
        let profile = self.environment.profile.is_some() && self.file.is_none();
        let value = self.method.is_some() || self.environment.too_long.is_some() || self.odd_look;
        profile || value || self.ignored_durability
    }

    /// Loads into an empty value. Does not allocate, waits only for reading a file, and never fails: problems are recorded.
    pub(super) fn load(&mut self, environment: &Environment<'e>) {
        self.environment = *environment;
        machine::with_this(|machine, caches| {
            self.read_files(environment, machine);
            defaults::complete(&mut self.rules, machine, caches);
            if let Some(given) = environment.method {
                self.method = force(&mut self.rules, given, machine.features).err();
            }
        });
        match environment.look.map(CStr::to_bytes) {
            Some(b"off") => look_switch::stop(),
            Some(b"on") | None => {}
            Some(_) => self.odd_look = true,
        }
        if self.rules.looks() {
            look_switch::start(|| true);
        }
    }

    fn read_files(&mut self, environment: &Environment<'e>, machine: Target) {
        let files = match environment.profile {
            Some(named) => [(Some(named), Owner::Named), (None, Owner::Named)],
            None => [(environment.user, Owner::User), (environment.system, Owner::System)],
        };
        for ((path, owner), refused) in files.into_iter().zip(&mut self.refused) {
            let Some(path) = path else { continue };
            match policy_file::load(path, owner, machine, &mut self.buffer, &mut self.rules) {
                Ok(()) => {
                    // An inherited variable must not disable flushing.
                    if environment.profile.is_some() && self.rules.durability() != Durability::FlushToMemory {
                        self.rules.set_durability(Durability::FlushToMemory);
                        self.ignored_durability = true;
                    }
                    self.file = Some(path);
                    return;
                }
                Err(error) => {
                    self.rules.reset();
                    let named = environment.profile.is_some();
                    if named || error != PolicyFileError::Missing {
                        *refused = Some((path, error));
                    }
                }
            }
        }
    }
}

/// An error of a text of forced methods.
#[derive(Clone, Copy, Debug)]
pub(super) enum ForceError<'t> {
    /// The text is not UTF-8.
    NotText,
    /// A part is not of the form `operation:method`.
    Grammar { given: &'t str },
    /// No such operation.
    UnknownOperation { given: &'t str },
    /// Two methods for one operation.
    Twice { operation: Operation },
    /// The method cannot be used.
    Choice(ChoiceError<'t>),
}

/// Forces the methods of `operation:method[tunable=value,…],operation:method`. An error leaves the rules unchanged.
fn force<'t>(rules: &mut Rules, given: &'t CStr, features: Features) -> Result<(), ForceError<'t>> {
    let text = given.to_str().map_err(|_| ForceError::NotText)?;
    force_text(rules, text, features, &mut |_, _| {})
}

/// As [`force`]; reports each operation and its choice once all are known to be valid.
pub(super) fn force_text<'t>(
    rules: &mut Rules,
    text: &'t str,
    features: Features,
    forced: &mut dyn FnMut(Operation, Choice),
) -> Result<(), ForceError<'t>> {
    let mut seen = [false; Operation::ALL.len()];
    for part in parts(text) {
        let (operation, _) = parse(part, features)?;
        if std::mem::replace(&mut seen[operation as usize], true) {
            return Err(ForceError::Twice { operation });
        }
    }
    for part in parts(text) {
        let (operation, choice) = parse(part, features)?;
        rules.force(operation, choice);
        forced(operation, choice);
    }
    Ok(())
}

fn parse(part: &str, features: Features) -> Result<(Operation, Choice), ForceError<'_>> {
    let (operation, method) = part.split_once(':').ok_or(ForceError::Grammar { given: part })?;
    let operation = operation.trim();
    let found = Operation::by_name(operation).ok_or(ForceError::UnknownOperation { given: operation })?;
    Ok((found, Choice::parse_borrowed(method, found, features).map_err(ForceError::Choice)?))
}

/// The parts between commas that are not inside brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |letter| {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        letter == ',' && !inside
    })
    .map(str::trim)
}
