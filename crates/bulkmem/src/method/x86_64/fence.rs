//! Fences: SFENCE after weakly ordered stores and write-backs, MFENCE before non-temporal loads, and a locked instruction
//! before a time is taken.

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

/// A locked instruction: when it ends, all earlier stores of this thread are visible to other processors, those that
/// bypass the cache too. On Zen 4 a look takes less time by it than by an MFENCE.
#[inline(always)]
pub(in crate::method) fn drain_stores() {
    // SAFETY: it adds no bits to a word on the stack. The instruction is part of every x86-64, and not marked `nomem`, so
    // the compiler moves no access across it; without `nostack`, no variable lies below the stack pointer.
    unsafe { asm!("lock or dword ptr [rsp], 0") }
}
