//! How far a byte has come on its way to memory.

/// Progress of a byte on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No store wrote it.
    Untouched,
    /// An ordinary store wrote it to the cache.
    Cached,
    /// A store that bypasses the cache wrote it, or it was written back; no fence came afterwards.
    Pending,
    /// As [`State::Pending`], and a fence came afterwards.
    Durable,
}
