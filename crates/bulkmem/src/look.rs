//! Choosing the method by the cache state of the memory itself.
//!
//! The best method for a length differs by a factor of two to eight between memory that is cached and memory that is not.
//! The caller's intent rarely says which it is, but the operation finds out: it stores to four lines, scattered over the
//! range, and takes the time. If it was short, the memory is cached; if it was long, it is not; if even reaching the pages
//! took far longer, the kernel was mapping them, and they are in the cache then. For each state there is a method. The
//! operation looks again after 4 MiB, or 16 MiB while its stores bypass the cache or if all four lines were fast, so that a wrong
//! verdict costs no more than that and the less than 1 MiB that may be left. No byte is written that would not be written
//! there anyway. Calls look less often while a thread's looks agree, once in up to 2 MiB of uncached memory or 16 MiB of cached
//! memory, and short calls of a large [`total_len`](crate::Options::total_len) carry one verdict over. Memory that is
//! uncached where an earlier call has bypassed the cache may be so for that reason alone: now and then such a call writes through
//! the cache, and the next looks show whether the memory stays there.
//!
//! The methods and the thresholds come from the policy file; without one, nothing looks. [`Options::look`] and the
//! variable `BULKMEM_LOOK=off` switch it off, after which the same arguments always lead to the same method. A program that
//! forbids the instruction RDTSC to itself (`prctl(PR_SET_TSC)`, strict seccomp) calls [`stop`] first.
//!
//! [`Options::look`]: crate::Options::look

use crate::carried;
use crate::operation::Operation;

pub use crate::look_switch::{is_on, stop};

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
