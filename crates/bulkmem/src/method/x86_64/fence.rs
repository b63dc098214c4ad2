//! The fence that weakly ordered stores and cache write-backs owe.

use std::arch::asm;

/// SFENCE: earlier stores, write-backs and flushes of this thread come before later stores.
#[inline(always)]
pub(in crate::method) fn sfence() {
    // SAFETY: SFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}
