//! A method with its parameters, and how people write it: `method[knob=value,knob=value]`.

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::PolicyError;
use crate::machine::Features;
use crate::method::{self, Method, Parameters};
use crate::operation::Operation;

/// What the policy answers: a method and its parameters, ready to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method; available on this machine.
    pub method: &'static Method,
    /// Its parameters; within its knobs' ranges.
    pub parameters: Parameters,
}

impl Choice {
    /// The method with the parameters that serve where nothing was measured.
    pub fn of(method: &'static Method, operation: Operation) -> Choice {
        Choice { method, parameters: method.default_parameters(operation) }
    }

    /// From `method` or `method[knob=value,knob=value]`. A knob that is not given has its default.
    ///
    /// # Errors
    /// Where the text is none, the method is unknown, cannot do the operation or needs instructions that are not
    /// among `features`, or where it has no such knob or the value is out of its range.
    pub fn parse(text: &str, operation: Operation, features: Features) -> Result<Choice, PolicyError> {
        let grammar = || PolicyError::Grammar { given: text.to_owned() };
        let (name, knobs) = match text.trim().split_once('[') {
            Some((name, rest)) => (name.trim(), rest.strip_suffix(']').ok_or_else(grammar)?.trim()),
            None => (text.trim(), ""),
        };
        if name.is_empty() {
            return Err(grammar());
        }
        let mut choice = Choice::of(find(name, operation, features)?, operation);
        for setting in knobs.split(',').filter(|_| !knobs.is_empty()) {
            let (knob, value) = setting.split_once('=').ok_or_else(grammar)?;
            choice.set(operation, knob.trim(), value.trim())?;
        }
        Ok(choice)
    }

    fn set(&mut self, operation: Operation, name: &str, value: &str) -> Result<(), PolicyError> {
        let method = self.method.name;
        let knobs = self.method.knobs(operation).unwrap_or_default();
        let Some(knob) = knobs.iter().find(|knob| knob.name == name) else {
            let known = listed(knobs.iter().map(|knob| knob.name));
            return Err(PolicyError::UnknownKnob { method, operation, knob: name.to_owned(), known });
        };
        let accepted = value.parse().is_ok_and(|number: u32| {
            (knob.range.0..=knob.range.1).contains(&number) && number.is_multiple_of(knob.step.max(1))
        });
        if !accepted {
            return Err(PolicyError::OutOfRange {
                method,
                knob: knob.name,
                value: value.to_owned(),
                least: knob.range.0,
                most: knob.range.1,
                step: knob.step.max(1),
            });
        }
        self.parameters.set(knob.name, value.parse().unwrap_or_default());
        Ok(())
    }
}

/// The method of that name, if it does the operation with these instructions.
pub(super) fn find(
    name: &str,
    operation: Operation,
    features: Features,
) -> Result<&'static Method, PolicyError> {
    let Some(found) = method::by_name(name) else {
        let able = method::all().filter(|method| method.does(operation));
        let known = listed(able.map(|method| method.name));
        return Err(PolicyError::UnknownMethod { given: name.to_owned(), operation, known });
    };
    if !found.does(operation) {
        let able = Operation::ALL.into_iter().filter(|&other| found.does(other));
        let able = listed(able.map(Operation::name));
        return Err(PolicyError::CannotDo { method: found.name, operation, able });
    }
    let missing = found.requires.difference(features);
    if !missing.is_empty() {
        return Err(PolicyError::Unavailable { method: found.name, missing });
    }
    Ok(found)
}

/// Names with commas between; `none` where there are none.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl fmt::Display for Choice {
    /// As [`Choice::parse`] reads it; parameters that are 0 are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Parameters::NAMES.iter().filter_map(|name| {
            let value = self.parameters.get(name).filter(|&value| value != 0)?;
            Some(format!("{name}={value}"))
        });
        let set: Vec<String> = set.collect();
        if set.is_empty() {
            return f.pad(self.method.name);
        }
        f.pad(&format!("{}[{}]", self.method.name, set.join(",")))
    }
}

impl Serialize for Choice {
    /// The method's name and its parameters.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Choice", 2)?;
        fields.serialize_field("method", self.method.name)?;
        fields.serialize_field("parameters", &self.parameters)?;
        fields.end()
    }
}
