//! Choosing the method by the cache state of the memory itself.
//!
//! The best method for a length differs by a factor of two to eight between memory that is cached and memory that is not.
//! The caller's intent rarely says which it is, but the operation finds out: it stores to four lines, scattered over the
//! range, and takes the time. If it was short, the memory is cached; if it was long, it is not; if even reaching the pages
//! took far longer, the kernel was mapping them, and they are in the cache then. For each state there is a method. The
//! operation looks again after 4 MiB, or 16 MiB while its stores bypass the cache, so that a wrong verdict costs no more than
//! that. No byte is written that would not be written there anyway. Calls of up to 2 MiB look less often while a thread's
//! looks agree, and short calls of a large [`total_len`](crate::Options::total_len) carry one verdict over. Memory that is
//! uncached where an earlier call has bypassed the cache may be so for that reason alone: now and then such a call writes through
//! the cache, and the next looks show whether the memory stays there.
//!
//! The methods and the thresholds come from the policy file; without one, nothing looks. [`Options::look`] and the
//! variable `BULKMEM_LOOK=off` switch it off, after which the same arguments always lead to the same method. A program that
//! forbids the instruction RDTSC to itself (`prctl(PR_SET_TSC)`, strict seccomp) calls [`stop`] first.
//!
//! [`Options::look`]: crate::Options::look

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::carried;
use crate::clock;
use crate::operation::Operation;

/// Switch of all looks, decided by the first policy with looks, or by [`stop`].
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// How often operations have found memory in each state, since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Cached memory.
    pub cached: u64,
    /// Uncached memory.
    pub uncached: u64,
    /// Memory whose pages were not mapped yet.
    pub unmapped: u64,
}

/// Returns how often an operation has found memory in each state, over all threads.
pub fn counts(operation: Operation) -> Counts {
    let [cached, uncached, unmapped] = carried::counts(operation);
    Counts { cached, uncached, unmapped }
}

/// True if operations may look.
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
