//! Clears, fills, copies and persists large memory at the limit of the machine, and leaves the cache
//! alone when that is what serves.
//!
//! ```text
//! caller ──▶ operation (clear, copy, persist) ──▶ policy ──▶ method ──▶ memory
//!                                                   ▲
//! machine (features, caches, pages) ──▶ measure ──▶ profile
//! ```

pub mod machine;
pub mod method;
mod operation;
pub mod policy;

pub use operation::{Intent, Operation, UnknownName};
