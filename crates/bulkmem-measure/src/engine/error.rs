//! Errors before and during a measurement.

use std::fmt;

use crate::engine::memory::{MemoryLeft, memory_left};
use crate::engine::units;

/// An option of a measurement, in the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`flag` names them")]
pub enum OptionName {
    Attribute,
    Baseline,
    Block,
    Budget,
    Chunk,
    Command,
    Extent,
    Intents,
    Lists,
    MaxSize,
    Methods,
    Mix,
    Offset,
    Operations,
    PageSize,
    Rates,
    Shares,
    Sizes,
    Threads,
    Time,
    Width,
}

impl OptionName {
    /// Returns the flag, or the placeholder of a positional argument.
    pub fn flag(self) -> &'static str {
        match self {
            OptionName::Attribute => "--attr",
            OptionName::Baseline => "--baseline",
            OptionName::Block => "--block",
            OptionName::Budget => "--budget",
            OptionName::Chunk => "--chunk",
            OptionName::Command => "COMMAND",
            OptionName::Extent => "--extent",
            OptionName::Intents => "--intent",
            OptionName::Lists => "--list",
            OptionName::MaxSize => "--max-size",
            OptionName::Methods => "--method",
            OptionName::Mix => "--mix",
            OptionName::Offset => "--offset",
            OptionName::Operations => "--op",
            OptionName::PageSize => "--page-size",
            OptionName::Rates => "--rate",
            OptionName::Shares => "--share",
            OptionName::Sizes => "--size",
            OptionName::Threads => "--threads",
            OptionName::Time => "--time",
            OptionName::Width => "--width",
        }
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag())
    }
}

/// Why nothing could be measured. The message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// An option has a value that cannot be used.
    #[error("{option}: {reason}")]
    Option {
        /// The option.
        option: OptionName,
        /// The reason, and what would be accepted.
        reason: String,
    },
    /// Too little memory is left to measure in.
    #[error(
        "measuring needs at least {} of memory, and at most {} can be used: three quarters of the {left}; {}",
        units::bytes(*needed), units::bytes(left.most()), left.limit.remedy()
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Memory that this process may still use.
        left: MemoryLeft,
    },
    /// A size needs more memory than this process may still use.
    #[error(
        "this needs {} of memory, and at most {} can be used: three quarters of the {left}; name a \
         smaller size, or {}",
        units::bytes(*needed), units::bytes(left.most()), left.limit.remedy()
    )]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Memory that this process may still use.
        left: MemoryLeft,
    },
    /// The operating system refused the memory to measure in.
    #[error("the operating system refused {} to measure in", units::bytes(*bytes))]
    Mapping {
        /// Bytes asked for.
        bytes: u64,
        /// Its error.
        #[source]
        source: bulkmem::MappingError,
    },
    /// Huge pages are not there, and could not be reserved.
    #[error("{needed} huge pages of {size} are needed and {free} are free: {reason}")]
    HugePages {
        /// Pages needed.
        needed: u64,
        /// Bytes a page, as people write it.
        size: String,
        /// Pages free.
        free: u64,
        /// Why no more can be had, and what can be done about it.
        reason: String,
    },
    /// The operating system refused something that the measurement cannot do without.
    #[error("cannot {doing}")]
    System {
        /// The attempted action.
        doing: &'static str,
        /// Its error.
        #[source]
        source: std::io::Error,
    },
    /// A target cannot be read or written. It was not changed.
    #[error("{target}: {cause}; {remedy}")]
    Target {
        /// Its name, as it was given.
        target: String,
        /// Why.
        cause: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The kernel module, or memory of its device, cannot be had.
    #[error(transparent)]
    Kernel(bulkmem_kmod::KernelError),
    /// A method does not exist, or this machine does not have its instructions.
    #[error("{name}: {reason}; `bulkmem methods` lists what this machine has")]
    Method {
        /// The name that was given.
        name: String,
        /// Why it cannot be measured.
        reason: String,
    },
    /// The policy's methods cannot run here.
    #[error("the policy was made for a machine with instructions that this one lacks; calibrate here")]
    Policy,
    /// The results could not be saved.
    #[error("what was measured cannot be saved; check the folder, its permissions and the space left")]
    Save {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A command that is measured next to background work failed.
    #[error(
        "`{command}` ended with {status}; it has to end with 0 every time: run it separately until it does, or see what it \
         says with --show-output"
    )]
    Command {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
    },
    /// The run was stopped before the first figure was complete.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl MemoryLeft {
    /// Checks that a measurement may take `needed` bytes.
    ///
    /// # Errors
    /// [`MeasureError::TooLarge`] if that is more than three quarters of what is left.
    pub(crate) fn check(self, needed: u64) -> Result<(), MeasureError> {
        if needed <= self.most() { Ok(()) } else { Err(MeasureError::TooLarge { needed, left: self }) }
    }
}

/// Checks that a measurement may take so many bytes.
///
/// # Errors
/// [`MeasureError::TooLarge`] if that is more than three quarters of the memory left.
pub(crate) fn fits(bytes: u64) -> Result<(), MeasureError> {
    memory_left().check(bytes)
}
