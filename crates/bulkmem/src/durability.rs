//! What survives a power failure.

use crate::policy;

/// What survives a power failure, and so what persist and flush must do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Memory survives, caches do not: every line is written back, and a fence waits for it.
    #[default]
    FlushToMemory,
    /// Caches survive as well (eADR and the like): persist is a copy and a fence, flush is a fence. On a machine where
    /// that is not so, a power failure loses data.
    CachesIncluded,
}

impl Durability {
    /// The setting of this process: [`Durability::CachesIncluded`] if `BULKMEM_EADR` was `1` when the process started, else
    /// [`Durability::FlushToMemory`]. [`crate::init`] reports a value that is neither `1` nor `0`.
    #[inline]
    pub fn current() -> Durability {
        policy::durability()
    }
}
