//! The switch of all [looks](crate::look).

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::clock;

/// Decided by the first policy with looks, or by [`stop`].
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// True if operations may look.
#[inline]
pub fn is_on() -> bool {
    STATE.load(Relaxed) == ON
}

/// Stops all looks of this process for good: operations choose by length alone. Calls that have begun go on looking until
/// they return.
pub fn stop() {
    STATE.store(OFF, Relaxed);
}

/// Allows looks if the clock can be used and nothing else forbids them, which is checked once. Called when a policy with looks
/// is used.
pub(crate) fn start(allowed: impl FnOnce() -> bool) {
    if STATE.load(Relaxed) == UNDECIDED {
        let state = if allowed() && clock::is_usable() { ON } else { OFF };
        // Fails if `stop` was called in the meantime.
        _ = STATE.compare_exchange(UNDECIDED, state, Relaxed, Relaxed);
    }
}
