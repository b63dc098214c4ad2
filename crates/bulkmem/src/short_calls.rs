//! The lengths below which a call with default options goes straight to the C library.
//!
//! Such a call then costs one load and one comparison more than `memset` or `memcpy`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::method;
use crate::operation::{Intent, Operation};
use crate::policy;

/// By operation: the process-wide policy uses the C library below this length. 0 while the policy is not loaded.
static BELOW: [AtomicUsize; Operation::ALL.len()] = [const { AtomicUsize::new(0) }; Operation::ALL.len()];

/// As [`BELOW`], for copies that page aliasing does not slow down. Greater than [`BELOW`] if it slows down others.
static COPY_BELOW_UNLESS_ALIASED: AtomicUsize = AtomicUsize::new(0);

/// True if a copy of that length with default options goes to the C library, unless page aliasing slows it down.
#[inline(always)]
pub(crate) fn use_c_library_unless_aliased(length: usize) -> bool {
    length < COPY_BELOW_UNLESS_ALIASED.load(Relaxed)
}

/// True if a call of that length with default options goes to the C library.
#[inline(always)]
pub(crate) fn use_c_library(operation: Operation, length: usize) -> bool {
    // Every thread stores the same value, so the order does not matter.
    length < BELOW[operation as usize].load(Relaxed)
}

/// Finds the length that [`use_c_library`] compares with, unless that is known or the policy is still being loaded.
#[inline]
pub(crate) fn learn(operation: Operation) {
    if BELOW[operation as usize].load(Relaxed) == 0 {
        look_up(operation);
    }
}

#[cold]
fn look_up(operation: Operation) {
    if let Some(rules) = policy::rules() {
        let below = rules.first_without(method::c_library(), operation, Intent::Throughput);
        // A call that looks may use another method than the rule by length says.
        let mut below = below.min(rules.looks_from(operation));
        if let (Operation::Copy, Some(aliasing)) = (operation, rules.aliasing()) {
            COPY_BELOW_UNLESS_ALIASED.store(below, Relaxed);
            below = below.min(aliasing.from);
        }
        // At least 1, because 0 means unknown; any method can do a call of no bytes.
        BELOW[operation as usize].store(below.max(1), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_calls_are_those_for_which_the_policy_chooses_the_c_library() {
        let policy = policy::Policy::global();
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            learn(operation);
            assert!(use_c_library(operation, 0), "{operation} is known now");
            for length in (0..64).map(|power| 1_usize << power).flat_map(|at| [at - 1, at, at + 1]) {
                let choice = policy.choose(operation, length, Intent::Throughput).unwrap();
                if length > 0 && use_c_library(operation, length) {
                    assert_eq!(choice.method, method::c_library(), "{operation} {length}");
                }
            }
        }
    }
}
