//! Errors of reading, checking and writing profiles.

use std::io;
use std::path::PathBuf;

use super::profile::{FORMAT, VERSION};

/// Error of reading, checking or writing a profile. The remedy is mostly to run `bulkmem calibrate` on this machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No such file.
    #[error("there is no profile; run `bulkmem calibrate`")]
    Missing,
    /// The file cannot be read.
    #[error("the profile cannot be read; check its permissions")]
    Unreadable(#[source] io::Error),
    /// The path is a folder, a device or a pipe.
    #[error("the profile is not a regular file; name a file that `bulkmem calibrate` wrote")]
    NotAFile,
    /// The file is larger than any that calibration writes.
    #[error("the profile has {bytes} bytes, and at most {most} are read; run `bulkmem calibrate`")]
    TooLarge {
        /// Bytes in the file.
        bytes: u64,
        /// Largest number of bytes that is read.
        most: u64,
    },
    /// The file is not JSON, or a field is missing, unknown or of the wrong type.
    #[error("the profile is damaged at line {line}, column {column}; run `bulkmem calibrate`")]
    Damaged {
        /// Line, from 1.
        line: usize,
        /// Column, from 1; 0 if the line is empty.
        column: usize,
    },
    /// The file is JSON of another program.
    #[error("the file's format is not `{}`; name a file that `bulkmem calibrate` wrote", FORMAT)]
    Format,
    /// This library does not read this version of the format.
    #[error("the profile has version {found}, this library reads version {VERSION}; {}", version_remedy(*.found))]
    Version {
        /// The value of the field `version`.
        found: u32,
    },
    /// The profile was measured on another processor model.
    #[error(
        "the profile was measured on another processor model than this, {machine}; run `bulkmem calibrate` here"
    )]
    ForeignCpu {
        /// This machine's processor.
        machine: String,
    },
    /// A rule or figure names a method that is unknown, cannot do its operation, or cannot run here.
    #[error(
        "{place} of the profile names a method that is unknown, cannot do the operation or cannot run here; run `bulkmem \
         calibrate`"
    )]
    Method {
        /// The rule or figure: `rule 3`, `figure 17`, counted from 1.
        place: String,
    },
    /// Calibration writes no such value.
    #[error("{place} of the profile {what}; run `bulkmem calibrate`")]
    Value {
        /// The rule or figure, as above, or `the provenance`.
        place: String,
        /// The problem.
        what: String,
    },
    /// The file cannot be written. An earlier one is unchanged.
    #[error("the profile cannot be written to {}; check the folder, its permissions and the space left", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn version_remedy(found: u32) -> &'static str {
    if found > VERSION { "update bulkmem, or run `bulkmem calibrate`" } else { "run `bulkmem calibrate`" }
}
