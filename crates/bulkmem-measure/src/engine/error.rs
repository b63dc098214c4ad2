//! Errors before and during a measurement.

use std::error::Error;
use std::iter::successors;

use crate::engine::memory::{Share, memory_left};
use crate::engine::{MemoryLeft, units};

pub(crate) type Result<T, E = MeasureError> = std::result::Result<T, E>;

pub(crate) fn bad(option: &'static str, reason: impl Into<String>) -> MeasureError {
    MeasureError::Option { option, reason: reason.into() }
}

/// Rejects the value of an option unless it is valid.
pub(crate) fn require(valid: bool, option: &'static str, reason: impl Into<String>) -> Result<()> {
    if valid { Ok(()) } else { invalid(option, reason) }
}

/// Rejects the value of an option. `reason` says what is wrong with it and what would be accepted.
pub(crate) fn invalid<T>(option: &'static str, reason: impl Into<String>) -> Result<T> {
    Err(bad(option, reason))
}

/// Why nothing could be measured. The message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum MeasureError {
    /// `option` is its flag, or the placeholder of a positional argument.
    #[error("{option}: {reason}")]
    Option { option: &'static str, reason: String },
    #[error(
        "measuring needs at least {} of memory, and at most {} can be used: three quarters of the {left}; {}",
        units::bytes(*needed), units::bytes(left.most()), left.limit.remedy()
    )]
    Memory { needed: u64, left: MemoryLeft },
    #[error(
        "this needs {} of memory, and at most {} can be used: three quarters of the {left}; name a \
         smaller size, or {}",
        units::bytes(*needed), units::bytes(left.most()), left.limit.remedy()
    )]
    TooLarge { needed: u64, left: MemoryLeft },
    #[error("the operating system refused {} to measure in", units::bytes(*bytes))]
    Mapping { bytes: u64, source: bulkmem::MappingError },
    #[error("{needed} huge pages of {size} are needed and {free} are free: {reason}")]
    HugePages { needed: u64, size: String, free: u64, reason: String },
    #[error("cannot {doing}")]
    System { doing: &'static str, source: std::io::Error },
    /// A target cannot be read or written. It was not changed.
    #[error("{target}: {cause}; {remedy}")]
    Target { target: String, cause: String, remedy: &'static str },
    #[error(transparent)]
    Kernel(bulkmem_kmod::KernelError),
    #[error("{name}: {reason}")]
    Method { name: String, reason: String },
    #[error("the policy was made for a machine with instructions that this one lacks; calibrate here")]
    Policy,
    #[error("what was measured cannot be saved; check the folder, its permissions and the space left")]
    Save { source: std::io::Error },
    /// A command that is measured next to background work failed.
    #[error(
        "`{command}` ended with {status}; it has to end with 0 every time: run it separately until it does, or see what it \
         says with --show-output"
    )]
    Command { command: String, status: String },
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// Checks that a measurement may take `needed` bytes: at most three quarters of what is left.
pub(crate) fn check(left: MemoryLeft, needed: u64) -> Result<()> {
    if needed <= left.most() { Ok(()) } else { Err(MeasureError::TooLarge { needed, left }) }
}

/// Returns an error with its causes: `cannot start a thread: Resource temporarily unavailable`.
pub(crate) fn with_causes(error: &MeasureError) -> String {
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Checks that a measurement may take so many bytes: at most three quarters of the memory left.
pub(crate) fn fits(bytes: u64) -> Result<()> {
    check(memory_left(), bytes)
}
