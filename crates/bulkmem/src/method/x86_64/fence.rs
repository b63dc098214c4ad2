//! Fences: SFENCE after weakly ordered stores and write-backs, and MFENCE before non-temporal loads and before
//! a time is taken.

use std::arch::asm;

/// SFENCE: orders earlier stores and write-backs of this thread before later stores.
#[inline(always)]
pub(in crate::method) fn sfence() {
    // SAFETY: SFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// MFENCE: orders earlier loads and stores of this thread before later ones, including non-temporal loads.
#[inline(always)]
pub(in crate::method) fn mfence() {
    // SAFETY: MFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) }
}
