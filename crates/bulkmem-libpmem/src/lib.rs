//! The interface of PMDK's libpmem, by the methods of bulkmem. `scripts/link-c.sh` makes `libpmem.so.1` from it.
//!
//! Functions behave as libpmem(7) and the pages that it names say, and where those are silent as PMDK 1.13 does.
//! The names and numbers are PMDK's, the code is not. docs/libpmem.md lists the differences.
//!
//! - No function unwinds or prints: `failure::guarded` and `load_time`. Only a defect ends the process, or a lack
//!   of memory of which even the reserve is used up.
//! - The environment, the policy file, and whether caches survive a power failure are read once, when the library is loaded:
//!   `load_time`.

#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the interface is PMDK's; its manual pages say what pointers point to"
)]

mod address;
pub mod copy;
pub mod failure;
pub mod flush;
mod load_time;
pub mod map;
mod methods;
mod ranges;
mod settings;
mod sysfs;
#[cfg(test)]
mod tests;

#[global_allocator]
static ALLOCATOR: bulkmem_reserve::Allocator = bulkmem_reserve::Allocator::new();
