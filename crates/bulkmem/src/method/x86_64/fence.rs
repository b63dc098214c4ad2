//! The fence that weakly ordered stores and cache write-backs need after them, and the one that non-temporal loads
//! need before them.

use std::arch::asm;

/// SFENCE: earlier stores, write-backs and flushes of this thread come before later stores.
#[inline(always)]
pub(in crate::method) fn sfence() {
    // SAFETY: SFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// MFENCE: earlier loads and stores of this thread come before later loads and stores, non-temporal loads included.
#[inline(always)]
pub(super) fn mfence() {
    // SAFETY: MFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) }
}
