//! Why a profile cannot be used or written.

use std::io;
use std::path::PathBuf;

use super::profile::{FORMAT, VERSION};

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
    },
    /// JSON, but another program's.
    #[error("the file's format is not `{}`; name a file that `bulkmem calibrate` wrote", FORMAT)]
    Format,
    /// A version of the format that this library does not read.
    #[error("the profile has version {found}, this library reads version {VERSION}; {}", version_remedy(*.found))]
    Version {
        /// The value of the field `version`.
        found: u32,
    },
    /// Measured on another processor.
    #[error("the profile was measured on another processor model than this, {machine}; calibrate here")]
    ForeignCpu {
        /// This machine's processor.
        machine: String,
    },
    /// A rule or figure names a method that is unknown, cannot do its operation, or cannot run here.
    #[error(
        "{place} of the profile names a method that is unknown, cannot do the operation or cannot run here; calibrate again"
    )]
    Method {
        /// Which: `rule 3`, `figure 17`, counted from 1.
        place: String,
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
    if found > VERSION { "update bulkmem, or run `bulkmem calibrate`" } else { "run `bulkmem calibrate`" }
}
