//! Results from the bytes of a file, which may hold anything.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::engine::Results;

/// The `format` of a profile, which users may confuse with results.
pub(crate) const PROFILE_FORMAT: &str = "bulkmem-profile";

/// Why bytes are not results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// Not JSON, or a field is missing or of the wrong type; the error has the line and the column.
    #[error("is damaged: {0}")]
    Damaged(serde_json::Error),
    /// A row that no sample was taken for, counted from 1.
    #[error("is damaged: row {row} has no samples")]
    NoSamples {
        /// Which.
        row: usize,
    },
    /// JSON without a format and a version.
    #[error("is JSON, but no results of bulkmem")]
    NotResults,
    /// A profile of bulkmem.
    #[error("is a profile, not results")]
    Profile,
    /// Another program's format.
    #[error("is of the format `{found}`, not `{}`", Results::FORMAT)]
    Format {
        /// Its first 64 characters, escaped.
        found: String,
    },
    /// Written by a newer bulkmem.
    #[error(
        "was written by a newer bulkmem: version {found} of the format, and this one reads {}",
        Results::VERSION
    )]
    Newer {
        /// The version.
        found: u64,
    },
    /// Written by an older bulkmem.
    #[error("is of version {found} of the format, and this bulkmem reads {}", Results::VERSION)]
    Older {
        /// The version.
        found: u64,
    },
}

/// What every version of the format has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

impl Results {
    /// Reads results from the bytes of a file.
    ///
    /// # Errors
    /// If they are damaged, something else, or of another version of the format.
    pub fn parse(bytes: &[u8]) -> Result<Results, ResultsError> {
        let Head { format, version } = match serde_json::from_slice(bytes) {
            Ok(head) => head,
            Err(error) if error.is_data() => {
                // What is JSON up to there may be cut off or damaged later.
                serde_json::from_slice::<IgnoredAny>(bytes).map_err(ResultsError::Damaged)?;
                return Err(ResultsError::NotResults);
            }
            Err(error) => return Err(ResultsError::Damaged(error)),
        };
        if format == PROFILE_FORMAT {
            return Err(ResultsError::Profile);
        }
        if format != Results::FORMAT {
            return Err(ResultsError::Format { found: format.escape_debug().take(64).collect() });
        }
        match version {
            found if found > u64::from(Results::VERSION) => return Err(ResultsError::Newer { found }),
            found if found < u64::from(Results::VERSION) => return Err(ResultsError::Older { found }),
            _ => {}
        }
        // From the bytes again: an error then has a line and a column.
        let found: Results = serde_json::from_slice(bytes).map_err(ResultsError::Damaged)?;
        match found.rows.iter().position(|row| row.samples.is_empty()) {
            Some(at) => Err(ResultsError::NoSamples { row: at + 1 }),
            None => Ok(found),
        }
    }
}
