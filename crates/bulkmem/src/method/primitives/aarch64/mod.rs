//! The primitives of aarch64.

pub(in crate::method) mod barrier;
pub(in crate::method) mod part;
pub(in crate::method) mod prefetch;
