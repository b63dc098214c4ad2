//! What this machine has: instructions, caches, processors, page sizes.

mod features;

pub use features::{Features, features};
