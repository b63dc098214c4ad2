//! Errors of policies and policy files.

use std::path::{Path, PathBuf};

use super::format::{MOST_RULES, POLICY_VERSION};
use crate::machine::Features;
use crate::operation::{Operation, UnknownName};

/// The extension of policy files. A profile has the name of the policy file next to it, but for this.
const POLICY: &str = "policy";

/// The reason why a policy file is refused. Contains nothing from the file, because a program may be able to read a file
/// that its user may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyFileError {
    /// No such file.
    #[error("there is no such file; `bulkmem calibrate` writes one")]
    Missing,
    /// It cannot be opened or read.
    #[error("it cannot be read ({}); check its permissions", std::io::Error::from_raw_os_error(*.errno))]
    Unreadable {
        /// The error number of the system call.
        errno: i32,
    },
    /// A folder, a device, a FIFO, a file of the kernel, or an empty file.
    #[error("it is not a regular file with content; name a file that `bulkmem calibrate` wrote")]
    NotAFile,
    /// Larger than any calibration writes.
    #[error("it has {bytes} bytes, and at most {most} are read; calibrate again")]
    TooLarge {
        /// How many bytes there are.
        bytes: u64,
        /// How many are read.
        most: u64,
    },
    /// A system-wide file that does not belong to root, or that other users may write.
    #[error("it must belong to root and be writable by no other user; chown root and chmod 644 it")]
    Untrusted,
    /// It does not start as a policy file does.
    #[error("it is not a policy file; name a file that `bulkmem calibrate` wrote")]
    NotAPolicy,
    /// It is JSON, as the profile is.
    #[error("it is the profile, not the policy file; name the file next to it that ends in .policy")]
    Profile,
    /// A version that this library does not read.
    #[error("it has version {found}, and this library reads version {POLICY_VERSION}; calibrate again")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Measured on another processor model.
    #[error("it was measured on another processor model; calibrate here")]
    ForeignCpu,
    /// Measured under an emulator, and not named by the user.
    #[error(
        "it was measured under an emulator, whose times say nothing about a processor; calibrate on the processor, or name \
         the file in BULKMEM_PROFILE"
    )]
    Emulated,
    /// It ends without its last line.
    #[error("it is incomplete; calibrate again")]
    Truncated,
    /// A line is wrong.
    #[error("line {line} {error}; calibrate again")]
    Line {
        /// Line number, from 1.
        line: u32,
        /// The error of that line.
        error: LineError,
    },
}

impl PolicyFileError {
    /// Returns the reason and the remedy for a file of that name.
    pub(super) fn reason(self, path: &Path) -> String {
        match self {
            PolicyFileError::Profile if path.extension() == Some(POLICY.as_ref()) => {
                "it has the content of a profile, not of a policy file; calibrate again".to_owned()
            }
            PolicyFileError::Profile => {
                let policy = path.with_extension(POLICY);
                format!("it is the profile, not the policy file; name {} instead", policy.display())
            }
            other => other.to_string(),
        }
    }
}

/// The policy file that is meant by the name of a profile.
fn policy_file_of(error: PolicyFileError, path: &Path) -> String {
    let policy = path.with_extension(POLICY);
    let meant = error == PolicyFileError::Profile && policy != path;
    if meant { format!(" in place of {policy:?}") } else { String::new() }
}

/// An error of one line of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It does not start with a word that policy files have.
    #[error("is of an unknown kind")]
    Unknown,
    /// It has too few or too many fields, or one with an impossible value.
    #[error("has a missing, superfluous or impossible field")]
    Fields,
    /// It is longer than any that calibration writes.
    #[error("is too long")]
    TooLong,
    /// It is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// It comes before the processor is named, or nothing names it.
    #[error("comes before the processor is named")]
    NoCpu,
    /// Lengths do not rise from 0, or a table is interrupted by another.
    #[error("is out of order: lengths rise from 0 within each operation and intent")]
    Order,
    /// A second line about durability.
    #[error("states the durability a second time")]
    Twice,
    /// One table has more rules than a policy may.
    #[error("is one rule too many: each operation and intent has at most {}", MOST_RULES)]
    TooMany,
    /// The method is unknown, cannot do the operation, cannot run here, or does not take the parameters.
    #[error("names a method that is unknown, cannot do the operation or cannot run here")]
    Method,
    /// Something comes after the last line.
    #[error("comes after the end")]
    AfterEnd,
}

/// An error of a requested policy: a forced method, an environment variable, or loading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The text does not have the form of forced methods.
    #[error("`{given}` is not of the form operation:method or operation:method[tunable=value,…]")]
    Grammar {
        /// The part that does not.
        given: String,
    },
    /// No such operation.
    #[error(transparent)]
    UnknownOperation(#[from] UnknownName),
    /// Two methods for one operation.
    #[error("{operation} is given twice; give one method for each operation")]
    Twice {
        /// The operation.
        operation: Operation,
    },
    /// No such method.
    #[error("unknown method `{given}`; `bulkmem methods` lists those for {operation}")]
    UnknownMethod {
        /// The given text.
        given: String,
        /// The operation.
        operation: Operation,
    },
    /// The method does not support the operation.
    #[error("the method `{method}` does not support {operation}; it supports: {able}")]
    CannotDo {
        /// The method.
        method: &'static str,
        /// The operation that it does not support.
        operation: Operation,
        /// The operations that it supports.
        able: String,
    },
    /// The machine does not have the instructions that the method needs.
    #[error(
        "the method `{method}` cannot run on this machine, which does not have {missing}; `bulkmem methods` lists those that can"
    )]
    Unavailable {
        /// The method.
        method: &'static str,
        /// The instructions.
        missing: Features,
    },
    /// The method does not have the tunable.
    #[error("the method `{method}` has no tunable `{tunable}` for {operation}; it has: {known}")]
    UnknownTunable {
        /// The method.
        method: &'static str,
        /// The operation.
        operation: Operation,
        /// The given text.
        tunable: String,
        /// The tunables it has.
        known: String,
    },
    /// The value is outside the tunable's range.
    #[error("{tunable}={value} is not valid for `{method}`: use {least} to {most} in steps of {step}")]
    OutOfRange {
        /// The method.
        method: &'static str,
        /// The tunable.
        tunable: &'static str,
        /// The given text.
        value: String,
        /// Smallest value.
        least: u32,
        /// Largest value.
        most: u32,
        /// Values are multiples of this.
        step: u32,
    },
    /// `BULKMEM_METHOD` has an invalid value.
    #[error("BULKMEM_METHOD is `{given}`")]
    Environment {
        /// Its value.
        given: String,
        /// The cause.
        source: Box<PolicyError>,
    },
    /// The policy file that `BULKMEM_PROFILE` names cannot be used.
    #[error("BULKMEM_PROFILE is {path:?}{}", policy_file_of(*.source, .path))]
    Profile {
        /// Its value.
        path: PathBuf,
        /// The cause.
        source: PolicyFileError,
    },
    /// The policy file that `BULKMEM_PROFILE` names says that caches survive a power failure.
    #[error(
        "BULKMEM_PROFILE names a policy file with `durability caches-included`, which is ignored, because an inherited \
         variable must not disable flushing; install the file as the user's or the system's, or use Options::durability"
    )]
    DurabilityIgnored,
    /// `BULKMEM_LOOK` has an invalid value.
    #[error("BULKMEM_LOOK is `{given}`; write on or off")]
    Look {
        /// Its value.
        given: String,
    },
    /// A variable is longer than a path can be.
    #[error("{variable} has more than 4095 bytes; shorten it")]
    TooLong {
        /// Its name.
        variable: &'static str,
    },
    /// A thread or a parent of this process began to load the policy and did not finish.
    #[error(
        "the policy is not loaded, because the thread that loaded it ended or the process was forked in the meantime; \
         built-in methods are used; call bulkmem::init() before starting threads"
    )]
    NotLoaded,
    /// The text of forced methods is not UTF-8.
    #[error("it is not UTF-8 text")]
    NotText,
}
