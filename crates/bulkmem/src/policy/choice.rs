//! A method with its parameters, and how people write it: `method[tunable=value,tunable=value]`.

use std::fmt;

use super::PolicyError;
use crate::machine::Features;
use crate::method::{self, Method, Parameters, Tunable};
use crate::operation::Operation;

/// A method with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
pub struct Choice {
    /// The method.
    pub method: &'static Method,
    /// Its parameters.
    pub parameters: Parameters,
}

impl Choice {
    /// Returns the method with these parameters. [`Options::method`](crate::Options::method) checks whether they are valid.
    pub fn new(method: &'static Method, parameters: Parameters) -> Choice {
        Choice { method, parameters }
    }

    /// Returns the method with its default parameters.
    pub fn of(method: &'static Method, operation: Operation) -> Choice {
        Choice { method, parameters: method.default_parameters(operation) }
    }

    /// Parses `method` or `method[tunable=value,tunable=value]`. Tunables that are not given have their defaults.
    ///
    /// # Errors
    /// If the text does not have that form, the method is unknown, does not support the operation or needs instructions
    /// that are not among `features`, or a tunable is unknown or its value out of range.
    pub fn parse(text: &str, operation: Operation, features: Features) -> Result<Choice, PolicyError> {
        Choice::parse_borrowed(text, operation, features).map_err(PolicyError::from)
    }

    /// As [`Choice::parse`]. Does not allocate.
    pub(super) fn parse_borrowed(
        text: &str,
        operation: Operation,
        features: Features,
    ) -> Result<Choice, ChoiceError<'_>> {
        let grammar = ChoiceError::Grammar { given: text };
        let (name, tunables) = match text.trim().split_once('[') {
            Some((name, rest)) => (name.trim(), rest.strip_suffix(']').ok_or(grammar)?.trim()),
            None => (text.trim(), ""),
        };
        if name.is_empty() {
            return Err(grammar);
        }
        let mut choice = Choice::of(find(name, operation, features)?, operation);
        for setting in tunables.split(',').filter(|_| !tunables.is_empty()) {
            let (tunable, value) = setting.split_once('=').ok_or(grammar)?;
            choice.set(operation, tunable.trim(), value.trim())?;
        }
        Ok(choice)
    }

    fn set<'t>(
        &mut self,
        operation: Operation,
        name: &'t str,
        value: &'t str,
    ) -> Result<(), ChoiceError<'t>> {
        let method = self.method;
        let tunables = method.tunables(operation).unwrap_or_default();
        let Some(tunable) = tunables.iter().find(|tunable| tunable.name == name) else {
            return Err(ChoiceError::UnknownTunable { method, operation, tunable: name });
        };
        let number = value.parse().ok().filter(|number: &u32| {
            (tunable.range.0..=tunable.range.1).contains(number) && number % tunable.step.max(1) == 0
        });
        let Some(number) = number else { return Err(ChoiceError::OutOfRange { method, tunable, value }) };
        self.parameters.set(tunable.name, number);
        Ok(())
    }
}

/// An error of [`Choice::parse_borrowed`]. Borrows from the text, so that it does not allocate.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChoiceError<'t> {
    Grammar { given: &'t str },
    UnknownMethod { given: &'t str, operation: Operation },
    CannotDo { method: &'static Method, operation: Operation },
    Unavailable { method: &'static Method, missing: Features },
    UnknownTunable { method: &'static Method, operation: Operation, tunable: &'t str },
    OutOfRange { method: &'static Method, tunable: &'static Tunable, value: &'t str },
}

/// Finds the method of that name, if it supports the operation and needs no other instructions than these.
pub(super) fn find(
    name: &str,
    operation: Operation,
    features: Features,
) -> Result<&'static Method, ChoiceError<'_>> {
    let method = method::by_name(name).ok_or(ChoiceError::UnknownMethod { given: name, operation })?;
    if !method.does(operation) {
        return Err(ChoiceError::CannotDo { method, operation });
    }
    let missing = method.requires.difference(features);
    if !missing.is_empty() {
        return Err(ChoiceError::Unavailable { method, missing });
    }
    Ok(method)
}

impl From<ChoiceError<'_>> for PolicyError {
    fn from(error: ChoiceError) -> PolicyError {
        match error {
            ChoiceError::Grammar { given } => PolicyError::Grammar { given: printable(given) },
            ChoiceError::UnknownMethod { given, operation } => {
                PolicyError::UnknownMethod { given: printable(given), operation }
            }
            ChoiceError::CannotDo { method, operation } => {
                let able = Operation::ALL.into_iter().filter(|&other| method.does(other));
                PolicyError::CannotDo {
                    method: method.name,
                    operation,
                    able: listed(able.map(Operation::name)),
                }
            }
            ChoiceError::Unavailable { method, missing } => {
                PolicyError::Unavailable { method: method.name, missing }
            }
            ChoiceError::UnknownTunable { method, operation, tunable } => {
                let known = method.tunables(operation).unwrap_or_default().iter().map(|tunable| tunable.name);
                PolicyError::UnknownTunable {
                    method: method.name,
                    operation,
                    tunable: printable(tunable),
                    known: listed(known),
                }
            }
            ChoiceError::OutOfRange { method, tunable, value } => PolicyError::OutOfRange {
                method: method.name,
                tunable: tunable.name,
                value: printable(value),
                least: tunable.range.0,
                most: tunable.range.1,
                step: tunable.step.max(1),
            },
        }
    }
}

/// Escapes control characters, because messages may go to a terminal or a log.
pub(super) fn printable(given: &str) -> String {
    given.escape_debug().to_string()
}

/// The choices for calls that arrive before a policy is loaded, by operation.
static BUILT_IN: [Choice; Operation::ALL.len()] = {
    const fn choice(method: &'static Method) -> Choice {
        Choice { method, parameters: Parameters::NONE }
    }
    let [clear, fill, copy, fill_persist, copy_persist, persist] = method::BUILT_IN;
    [choice(clear), choice(fill), choice(copy), choice(fill_persist), choice(copy_persist), choice(persist)]
};

/// Returns the choice for a call that arrives before a policy is loaded.
#[inline]
pub(crate) fn built_in(operation: Operation) -> &'static Choice {
    &BUILT_IN[operation as usize]
}

/// Joins names with commas; `none` if there are none.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl fmt::Display for Choice {
    /// As [`Choice::parse`] reads it; parameters that are 0 are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.method.name, self.parameters))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Choice {
    /// The method's name and its parameters.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut fields = serializer.serialize_struct("Choice", 2)?;
        fields.serialize_field("method", self.method.name)?;
        fields.serialize_field("parameters", &self.parameters)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_choices_run_everywhere() {
        for operation in Operation::ALL {
            let choice = built_in(operation);
            assert!(method::all().any(|method| method == choice.method), "{choice} is in the table");
            assert_eq!(choice.method.does(operation), cfg!(target_arch = "x86_64") || !operation.persists());
            assert!(
                choice.parameters.is_valid_for(choice.method.tunables(operation).unwrap_or_default()),
                "{choice}"
            );
            assert!(Features::BASELINE.contains(choice.method.requires), "{choice}");
            assert_ne!(choice.method.name, "c_library");
        }
    }
}
