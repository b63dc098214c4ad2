//! Clears, fills, copies and persists large memory at the limit of the machine, and leaves the cache
//! alone when that is what serves.
//!
//! ```
//! use bulkmem::{Bulk, Intent};
//!
//! let mut memory = vec![1; 8 << 20];
//! let source = vec![7; 8 << 20];
//! bulkmem::clear(&mut memory); // by the method that this machine does it fastest with
//! bulkmem::copy(&mut memory, &source)?;
//! bulkmem::persist(&mut memory[..4096], &source[..4096])?; // durable when it returns
//!
//! let bulk = Bulk::of(memory.len()).intent(Intent::Stream); // one large clear, not read soon,
//! memory.chunks_mut(2 << 20).for_each(|chunk| bulk.clear(chunk)); // in small calls
//! # assert!(memory.iter().all(|&byte| byte == 0));
//! # Ok::<(), bulkmem::Error>(())
//! ```
//!
//! | to | see |
//! |---|---|
//! | clear, fill, copy, persist, flush | [`clear`], [`fill`], [`copy`], [`persist`], [`flush`] |
//! | say how much there is in all, what comes next, how many threads may work | [`Bulk`] |
//! | fence once after many operations | [`fence_scope`] |
//! | work on memory that others write meanwhile | [`Bulk::clear_raw`], [`Bulk::copy_raw`] and the like |
//! | take huge pages from the operating system | [`Region`] |
//! | have the kernel clear huge pages as this library would, or take memory of another cache attribute | [`kernel`] |
//! | know which method is chosen, and why | [`policy`] |
//! | know every method there is | [`method`] |
//!
//! ```text
//! caller ──▶ operation (clear, copy, persist) ──▶ policy ──▶ method ──▶ memory
//!                                                   ▲
//! machine (features, caches, pages) ──▶ measure ──▶ profile
//! ```
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `BULKMEM_METHOD` | forces methods: `clear:movnti,copy:rep_movsb`; see [`policy::Policy::force`] |
//! | `BULKMEM_PROFILE` | the profile to use, instead of the user's or the system's |
//! | `BULKMEM_EADR` | `1`: caches survive a power failure; see [`Durability`] |
//!
//! # What to rely on
//!
//! - Every function that gives plain bytes back has fenced.
//! - No thread is made unless [`Bulk::threads`] asks for it, and none outlives the call.
//! - Instructions are used only where the processor has them and the operating system has enabled them; safe code
//!   cannot make it otherwise.
//! - Nothing allocates but the first call of a process, which reads the profile, and threads.

#[cfg(doctest)]
mod book;
mod bulk;
mod direct;
mod durability;
mod error;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod machine;
pub mod method;
mod operation;
#[doc(hidden)]
pub mod output_file;
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
