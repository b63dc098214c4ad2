//! Limits that several prefaults share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::numa::NumberList;

/// Memory limits that several prefaults share ([`Options::limits`](crate::Options::limits)), so that not each of them reads
/// about ten files of the kernel: for small parts, that takes longer than the prefault.
///
/// After one prefault has read the limits, it and later ones may use [`BYTES`](Limits::BYTES) of the room below them within
/// [`TIME`](Limits::TIME) before they are read again. Within that time, the room that other processes use up is not seen.
#[derive(Debug, Default)]
pub struct Limits(Mutex<Option<Known>>);

/// Room that was read.
#[derive(Debug)]
struct Known {
    nodes: Option<NumberList>,
    /// Bytes that stay free.
    keep: u64,
    bytes: u64,
    until: Instant,
}

impl Limits {
    /// Bytes after which the limits are read again.
    pub const BYTES: u64 = 16 << 20;
    /// Time after which they are read again.
    pub const TIME: Duration = Duration::from_millis(100);

    /// Returns limits that were not read yet.
    pub fn new() -> Limits {
        Limits::default()
    }

    /// Uses room that was read before; returns false if there is not enough.
    pub(crate) fn take(&self, nodes: Option<&NumberList>, keep: u64, bytes: u64, now: Instant) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let valid =
            |known: &&mut Known| (known.nodes.as_ref(), known.keep) == (nodes, keep) && now < known.until;
        let Some(known) = known.as_mut().filter(valid) else { return false };
        let left = known.bytes.checked_sub(bytes);
        known.bytes = left.unwrap_or(known.bytes);
        left.is_some()
    }

    /// Notes room that was read now.
    pub(crate) fn note(&self, nodes: Option<&NumberList>, keep: u64, bytes: u64, now: Instant) {
        let known =
            Known { nodes: nodes.cloned(), keep, bytes: bytes.min(Limits::BYTES), until: now + Limits::TIME };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_room_ends_with_its_bytes_and_its_time() {
        let limits = Limits::new();
        let now = Instant::now();
        let node = NumberList([0].into());
        assert!(!limits.take(None, 5, 1, now), "nothing was read");
        limits.note(None, 5, 100, now);
        assert!(limits.take(None, 5, 60, now));
        assert!(!limits.take(None, 5, 41, now), "40 are left");
        assert!(limits.take(None, 5, 40, now));
        assert!(!limits.take(None, 5, 1, now));
        limits.note(None, 5, 100, now);
        assert!(!limits.take(Some(&node), 5, 1, now), "other nodes");
        assert!(!limits.take(None, 6, 1, now), "more stays free");
        assert!(!limits.take(None, 5, 1, now + Limits::TIME), "too old");
        assert!(limits.take(None, 5, 1, now));
        limits.note(None, 5, 0, now);
        assert!(!limits.take(None, 5, 1, now), "a reading replaces what an earlier one has left");
        limits.note(None, 5, u64::MAX, now);
        assert!(!limits.take(None, 5, Limits::BYTES + 1, now), "at most so many");
        assert!(limits.take(None, 5, Limits::BYTES, now));
    }
}
