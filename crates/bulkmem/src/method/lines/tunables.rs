//! Tunables that several families share.

use crate::method::Tunable;

/// Largest prefetch distance, bytes.
pub(in crate::method) const FURTHEST: u32 = 64 * 1024;

/// Write prefetch that cannot be disabled.
pub(in crate::method) const WRITE_DISTANCE: Tunable = Tunable {
    name: "write_distance",
    range: (64, FURTHEST),
    step: 64,
    default: 4096,
    search: &[512, 1024, 2048, 4096, 8192, 16384],
};
/// Optional write prefetch.
pub(in crate::method) const WRITE_DISTANCE_OR_NONE: Tunable =
    Tunable { range: (0, FURTHEST), default: 0, search: &[0, 512, 1024, 2048, 4096, 8192], ..WRITE_DISTANCE };
/// Optional read prefetch.
pub(in crate::method) const READ_DISTANCE: Tunable = Tunable {
    name: "read_distance",
    range: (0, FURTHEST),
    step: 64,
    default: 0,
    search: &[0, 256, 512, 1024, 2048, 4096, 8192],
};
/// Read prefetch that cannot be disabled.
pub(in crate::method) const NTA_DISTANCE: Tunable =
    Tunable { range: (64, FURTHEST), default: 512, search: &[256, 512, 1024, 2048, 4096], ..READ_DISTANCE };
/// How the source is prefetched.
pub(in crate::method) const READ_HINT: Tunable =
    Tunable { name: "read_hint", range: (0, 2), step: 1, default: 0, search: &[0, 1, 2] };
/// Number of parallel page streams.
pub(in crate::method) const STREAMS: Tunable =
    Tunable { name: "streams", range: (2, 16), step: 1, default: 4, search: &[2, 4, 8, 12] };
/// Optional block that is prefetched before its first store.
pub(in crate::method) const PREFETCHED_BLOCK: Tunable =
    Tunable { name: "block", range: (0, FURTHEST), step: 64, default: 0, search: &[0, 256, 1024, 4096] };

/// Cached copies.
pub(in crate::method) const CACHED_COPY: &[Tunable] = &[READ_DISTANCE, READ_HINT, WRITE_DISTANCE_OR_NONE];
/// Non-temporal copies.
pub(in crate::method) const NONTEMPORAL_COPY: &[Tunable] = &[READ_DISTANCE, READ_HINT];
/// Fills with write prefetch.
pub(in crate::method) const PREFETCHED_FILL: &[Tunable] = &[WRITE_DISTANCE];
/// Cached page streams, filled.
pub(in crate::method) const STREAM_FILL: &[Tunable] = &[STREAMS, WRITE_DISTANCE_OR_NONE];
/// Cached page streams, copied.
pub(in crate::method) const STREAM_COPY: &[Tunable] = &[STREAMS, READ_DISTANCE, WRITE_DISTANCE_OR_NONE];
/// Non-temporal page streams, filled.
pub(in crate::method) const NONTEMPORAL_STREAM_FILL: &[Tunable] = &[STREAMS];
/// Non-temporal page streams, copied.
pub(in crate::method) const NONTEMPORAL_STREAM_COPY: &[Tunable] = &[STREAMS, READ_DISTANCE];
/// Stores each followed by a write-back.
pub(in crate::method) const FLUSHED_COPY: &[Tunable] = &[WRITE_DISTANCE_OR_NONE, PREFETCHED_BLOCK];
/// As [`FLUSHED_COPY`], filled.
pub(in crate::method) const FLUSHED_FILL: &[Tunable] = &[WRITE_DISTANCE_OR_NONE];
