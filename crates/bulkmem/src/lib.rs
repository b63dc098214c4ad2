//! Clears, fills, copies and persists large memory at the limit of the machine, and leaves the cache
//! alone when that is what serves.
//!
//! ```text
//! caller ──▶ operation (clear, copy, persist) ──▶ policy ──▶ method ──▶ memory
//!                                                   ▲
//! machine (features, caches, pages) ──▶ measure ──▶ profile
//! ```

#[cfg(doctest)]
mod book;
mod bulk;
mod durability;
mod error;
pub mod machine;
pub mod method;
mod operation;
mod plan;
pub mod policy;
#[cfg(target_os = "linux")]
mod region;
mod threads;
mod unfenced;

pub use bulk::{Bulk, clear, copy, fill, flush, persist};
pub use durability::Durability;
pub use error::Error;
pub use operation::{Intent, Operation, UnknownName};
#[cfg(target_os = "linux")]
pub use region::{Pages, Region, RegionError};
pub use threads::Threads;
pub use unfenced::{FenceScope, Unfenced, fence_scope};
