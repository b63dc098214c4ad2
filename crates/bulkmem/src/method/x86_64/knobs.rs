//! The knobs that several families share, with what calibration tries.

use crate::method::Knob;

/// The furthest that any prefetch looks ahead, bytes.
const FURTHEST: u32 = 64 * 1024;

/// Write prefetch that is always on.
pub(super) const WRITE_DISTANCE: Knob = Knob {
    name: "write_distance",
    range: (64, FURTHEST),
    step: 64,
    default: 4096,
    search: &[512, 1024, 2048, 4096, 8192, 16384],
};
/// Write prefetch that may be left out.
pub(super) const WRITE_DISTANCE_OR_NONE: Knob =
    Knob { range: (0, FURTHEST), default: 0, search: &[0, 512, 1024, 2048, 4096, 8192], ..WRITE_DISTANCE };
/// Read prefetch that may be left out.
pub(super) const READ_DISTANCE: Knob = Knob {
    name: "read_distance",
    range: (0, FURTHEST),
    step: 64,
    default: 0,
    search: &[0, 256, 512, 1024, 2048, 4096],
};
/// PREFETCHT0 or PREFETCHNTA.
pub(super) const READ_HINT: Knob =
    Knob { name: "read_hint", range: (0, 1), step: 1, default: 0, search: &[0, 1] };
/// Page streams side by side.
pub(super) const STREAMS: Knob =
    Knob { name: "streams", range: (2, 16), step: 1, default: 4, search: &[2, 4, 8, 12] };
/// The block of one REP instruction.
pub(super) const REP_BLOCK: Knob =
    Knob { name: "block", range: (64, FURTHEST), step: 64, default: 1024, search: &[256, 1024, 4096] };
/// A block prefetched as a whole before its first store, or none.
pub(super) const PREFETCHED_BLOCK: Knob =
    Knob { name: "block", range: (0, FURTHEST), step: 64, default: 0, search: &[0, 256, 1024, 4096] };

/// Cached copies.
pub(super) const CACHED_COPY: &[Knob] = &[READ_DISTANCE, WRITE_DISTANCE_OR_NONE];
/// Non-temporal copies.
pub(super) const NONTEMPORAL_COPY: &[Knob] = &[READ_DISTANCE, READ_HINT];
/// Fills with write prefetch.
pub(super) const PREFETCHED_FILL: &[Knob] = &[WRITE_DISTANCE];
/// Cached page streams, filled.
pub(super) const STREAM_FILL: &[Knob] = &[STREAMS, WRITE_DISTANCE_OR_NONE];
/// Cached page streams, copied.
pub(super) const STREAM_COPY: &[Knob] = &[STREAMS, READ_DISTANCE, WRITE_DISTANCE_OR_NONE];
/// Non-temporal page streams, filled.
pub(super) const NONTEMPORAL_STREAM_FILL: &[Knob] = &[STREAMS];
/// Non-temporal page streams, copied.
pub(super) const NONTEMPORAL_STREAM_COPY: &[Knob] = &[STREAMS, READ_DISTANCE];
/// Stores each followed by a write-back.
pub(super) const FLUSHED_COPY: &[Knob] = &[WRITE_DISTANCE_OR_NONE, PREFETCHED_BLOCK];
/// As [`FLUSHED_COPY`], filled.
pub(super) const FLUSHED_FILL: &[Knob] = &[WRITE_DISTANCE_OR_NONE];
