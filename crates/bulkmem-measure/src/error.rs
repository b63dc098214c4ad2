//! What can go wrong before or while something is measured.

/// Why nothing could be measured. The message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// An option has a value that cannot be used.
    #[error("{option}: {reason}")]
    Option {
        /// The option's name, as the fields of the options are called.
        option: &'static str,
        /// What is wrong with it, and what would be accepted.
        reason: String,
    },
    /// Too little memory is available to measure in.
    #[error(
        "measuring needs {needed} bytes of memory (a quarter of what is available is used at most, and {available} \
         bytes are available); ask for a smaller largest length, or free memory"
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// More memory was asked for than can be had without anybody suffering.
    #[error(
        "this needs {needed} bytes of memory, and only {available} bytes are available, of which three quarters are used \
         at most; name a smaller size, or free memory"
    )]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The operating system refused the memory to measure in.
    #[error(
        "the operating system refused {bytes} bytes to measure in; free memory or raise the limit (ulimit -v)"
    )]
    Mapping {
        /// Bytes asked for.
        bytes: u64,
        /// What it said.
        #[source]
        source: bulkmem::RegionError,
    },
    /// A method that this machine lacks, or that does not exist, was asked for.
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
    /// What was measured could not be saved.
    #[error("what was measured cannot be saved; check the folder, its permissions and the space left")]
    Save {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It was stopped before a first figure was complete.
    #[error("interrupted before anything was measured")]
    Interrupted,
}
