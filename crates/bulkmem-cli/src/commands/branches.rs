//! The choices of a policy for one length: one, or one for each cache state.

use bulkmem::policy::{Choice, Look, Policy};
use bulkmem::{Intent, Operation, look};

/// The choices for one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branches {
    pub(super) by_length: Choice,
    /// How the operation finds out the cache state, if it does at that length.
    pub(super) look: Option<Look>,
    pub(super) cached: Choice,
    pub(super) uncached: Choice,
}

impl Branches {
    /// Returns the choices for `bytes` that `threads` threads share; `None` if no method supports the operation.
    pub(super) fn find(
        policy: &Policy,
        operation: Operation,
        bytes: usize,
        intent: Intent,
        threads: usize,
    ) -> Option<Branches> {
        let by_length = policy.choose(operation, bytes, intent)?;
        // Each thread looks at its own piece.
        let looks = |_: &Look| bytes / threads >= policy.looks_from(operation, intent) && look::is_on();
        let look = policy.look(operation).filter(looks);
        let in_state =
            |state| look.and_then(|_| policy.choose_in(operation, bytes, state)).unwrap_or(by_length);
        let cached = in_state(policy.cached(operation, intent));
        let uncached = in_state(policy.uncached(operation, intent, threads));
        Some(Branches { by_length, look, cached, uncached })
    }

    /// Returns the choice for warm or for cold memory.
    pub(super) fn choice(&self, warm: bool) -> Choice {
        if warm { self.cached } else { self.uncached }
    }
}
