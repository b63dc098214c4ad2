//! What this machine has: instructions, caches, processors, page sizes.

mod features;

#[cfg(target_arch = "x86_64")]
pub(crate) use features::features_known_so_far;
pub use features::{Features, features};
