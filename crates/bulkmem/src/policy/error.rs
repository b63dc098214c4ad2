//! What can be wrong with a profile, or with what a user asks of the policy.

use std::io;
use std::path::PathBuf;

use super::VERSION;
use crate::machine::Features;
use crate::operation::{Operation, UnknownName};

/// Why a profile cannot be used or written. The remedy for most: run `bulkmem calibrate` on this machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No such file.
    #[error("there is no profile; `bulkmem calibrate` makes one")]
    Missing,
    /// It is there, but cannot be read.
    #[error("the profile cannot be read; check its permissions")]
    Unreadable(#[source] io::Error),
    /// A folder, a device or a pipe.
    #[error("the profile is not a regular file; name a file that `bulkmem calibrate` wrote")]
    NotAFile,
    /// Larger than any calibration writes.
    #[error("the profile has {bytes} bytes, more than the {most} that are read; calibrate again")]
    TooLarge {
        /// How many bytes there are.
        bytes: u64,
        /// How many are read.
        most: u64,
    },
    /// It is not JSON, or a field is missing, unknown or of the wrong type.
    #[error("the profile is damaged at line {line}, column {column}; calibrate again")]
    Damaged {
        /// Line, from 1.
        line: usize,
        /// Column, from 1; 0 where the line is empty.
        column: usize,
        /// What is wrong there.
        source: serde_json::Error,
    },
    /// JSON, but another program's.
    #[error(
        "the file's format is `{found}`, not `{}`; name a file that `bulkmem calibrate` wrote",
        super::FORMAT
    )]
    Format {
        /// The value of the field `format`.
        found: String,
    },
    /// A version of the format that this library does not read.
    #[error("the profile has version {found}, this library reads version {VERSION}; {}", version_remedy(*.found))]
    Version {
        /// The value of the field `version`.
        found: u32,
    },
    /// Measured on another processor.
    #[error("the profile was measured on {profile}, this machine is {machine}; calibrate here")]
    ForeignCpu {
        /// The profile's processor.
        profile: String,
        /// This one.
        machine: String,
    },
    /// A rule or figure names a method that is unknown, cannot do its operation, or cannot run here.
    #[error("{place} of the profile cannot be used; calibrate again")]
    Method {
        /// Which: `rule 3`, `figure 17`, counted from 1.
        place: String,
        /// What is wrong with the method.
        source: Box<PolicyError>,
    },
    /// A value that no calibration writes.
    #[error("{place} of the profile {what}; calibrate again")]
    Value {
        /// Which: `rule 3`, `figure 17`, counted from 1; or `the provenance`.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// It could not be written; what was there before still is.
    #[error("the profile cannot be written to {}; check the folder, its permissions and the space left", .path.display())]
    Unwritable {
        /// Where to.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

fn version_remedy(found: u32) -> &'static str {
    if found > VERSION { "update bulkmem, or calibrate again" } else { "calibrate again" }
}

/// Why the policy that the user asks for cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Not of the form that forced methods have.
    #[error("`{given}` is not of the form operation:method or operation:method[knob=value,…]")]
    Grammar {
        /// The part that is not.
        given: String,
    },
    /// No such operation.
    #[error(transparent)]
    UnknownOperation(#[from] UnknownName),
    /// Two methods for one operation.
    #[error("{operation} is given twice; give one method for it")]
    Twice {
        /// The operation.
        operation: Operation,
    },
    /// No such method.
    #[error("unknown method `{given}`; those that {operation} are: {known}")]
    UnknownMethod {
        /// What was given.
        given: String,
        /// For this operation.
        operation: Operation,
        /// The methods that do it.
        known: String,
    },
    /// The method is for other operations.
    #[error("the method `{method}` cannot {operation}; it can: {able}")]
    CannotDo {
        /// The method.
        method: &'static str,
        /// What it cannot do.
        operation: Operation,
        /// What it can.
        able: String,
    },
    /// The machine lacks instructions that the method needs.
    #[error("the method `{method}` cannot run on this machine, which lacks: {missing}")]
    Unavailable {
        /// The method.
        method: &'static str,
        /// The instructions.
        missing: Features,
    },
    /// The method has no such knob.
    #[error("the method `{method}` has no knob `{knob}` for {operation}; it has: {known}")]
    UnknownKnob {
        /// The method.
        method: &'static str,
        /// The operation.
        operation: Operation,
        /// What was given.
        knob: String,
        /// The knobs it has.
        known: String,
    },
    /// A knob does not take this value.
    #[error("{knob}={value} is not for `{method}`: it takes {least} to {most} in steps of {step}")]
    OutOfRange {
        /// The method.
        method: &'static str,
        /// The knob.
        knob: &'static str,
        /// What was given.
        value: String,
        /// Smallest value.
        least: u32,
        /// Largest value.
        most: u32,
        /// Values are multiples of this.
        step: u32,
    },
    /// `BULKMEM_METHOD` cannot be followed.
    #[error("BULKMEM_METHOD is `{given}`")]
    Environment {
        /// Its value.
        given: String,
        /// What is wrong with it.
        source: Box<PolicyError>,
    },
    /// The profile that `BULKMEM_PROFILE` names cannot be used.
    #[error("BULKMEM_PROFILE is {}", .path.display())]
    Profile {
        /// Its value.
        path: PathBuf,
        /// What is wrong with it.
        source: ProfileError,
    },
}

/// An error's text with those of its causes.
pub(super) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
