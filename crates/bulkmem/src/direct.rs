//! Short calls, straight to the C library.
//!
//! If the policy chooses the C library, consulting the policy would cost a short call as much as the work
//! itself. So the free functions compare the length with what was learned once, and call memset or memcpy directly.
//! Everything else is done by a function of its own, so that the short way needs no register saved.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::bulk::Bulk;
use crate::method;
use crate::operation::{Intent, Operation};
use crate::plan::Memory;
use crate::policy;

/// By operation: below this length the process's policy has the C library serve; 0 while that is not known.
static BELOW: [AtomicUsize; Operation::ALL.len()] = [const { AtomicUsize::new(0) }; Operation::ALL.len()];

/// Whether the C library serves a call of that length of which nothing more is known.
#[inline(always)]
pub(crate) fn serves(operation: Operation, length: usize) -> bool {
    // Every thread learns the same, so it does not matter who writes it or when it is seen.
    length < BELOW[operation as usize].load(Relaxed)
}

/// Learns what [`serves`] compares with, at the first call; later if the policy is still being loaded.
#[inline]
fn learn(operation: Operation) {
    if BELOW[operation as usize].load(Relaxed) == 0 {
        look_up(operation);
    }
}

#[cold]
fn look_up(operation: Operation) {
    if let Some(rules) = policy::rules() {
        let below = rules.first_without(method::c_library(), operation, Intent::Throughput);
        // At least 1: a call of no bytes is any method's.
        BELOW[operation as usize].store(below.max(1), Relaxed);
    }
}

/// A clear that [`serves`] says is not the C library's, or not known to be.
#[inline(never)]
pub(crate) fn not_clear(dst: &mut [u8]) {
    learn(Operation::Clear);
    // SAFETY: a mutable slice is valid for writes.
    unsafe { Bulk::new().clear_raw(dst.as_mut_ptr(), dst.len()) }
}

/// As [`not_clear`], a fill.
#[inline(never)]
pub(crate) fn not_fill(dst: &mut [u8], byte: u8) {
    learn(Operation::Fill);
    // SAFETY: a mutable slice is valid for writes.
    unsafe { Bulk::new().fill_raw(dst.as_mut_ptr(), dst.len(), byte) }
}

/// As [`not_clear`], a copy.
///
/// # Safety
/// `src..src+length` is valid for reads and `dst..dst+length` for writes, and they do not overlap.
#[inline(never)]
pub(crate) unsafe fn not_copy(dst: *mut u8, src: *const u8, length: usize) {
    learn(Operation::Copy);
    // SAFETY: passed on from the caller.
    unsafe { Bulk::new().plan_copy(length).fenced(Memory::copied(dst, src, length)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_straight_is_what_the_policy_gives_to_the_c_library() {
        let policy = policy::Policy::global();
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            learn(operation);
            assert!(serves(operation, 0), "{operation} is known now");
            for length in (0..64).map(|power| 1_usize << power).flat_map(|at| [at - 1, at, at + 1]) {
                let choice = policy.choose(operation, length, Intent::Throughput);
                if length > 0 && serves(operation, length) {
                    assert_eq!(choice.method, method::c_library(), "{operation} {length}");
                }
            }
        }
    }
}
