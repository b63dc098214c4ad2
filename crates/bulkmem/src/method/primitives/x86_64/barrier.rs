//! Fences: SFENCE after weakly ordered stores and write-backs, MFENCE before non-temporal loads, and locked instructions
//! or MFENCE before a time is taken.

use std::arch::asm;

/// SFENCE: orders earlier stores and write-backs of this thread before later stores.
#[inline(always)]
fn sfence() {
    // SAFETY: SFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// MFENCE: orders earlier loads and stores of this thread before later ones, including non-temporal loads.
#[inline(always)]
fn mfence() {
    // SAFETY: MFENCE has no precondition and is part of every x86-64. It is not marked `nomem`, so the compiler
    // moves no access across it.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) }
}

/// Orders earlier loads and stores of this thread before later non-temporal loads: MFENCE.
///
/// From write-combining memory, MOVNTDQA may return what a streaming-load buffer has held since an earlier load. No
/// other processor's or device's store updates that buffer, and neither an earlier load of a flag nor an earlier
/// store orders the MOVNTDQA after it. Intel's manual asks for MFENCE or a locked instruction in between (volume 1,
/// "Streaming Load Hint Instruction"). This function always uses MFENCE:
///
/// - A method does not know the memory type, and the fence takes some 20 ns per call, or 0.2 µs if it ends the overlap
///   with an earlier call that missed the cache.
/// - LFENCE orders loads only after loads: an earlier store may still wait in the store buffer when the loads execute.
/// - A locked instruction orders all but loads from write-combining memory (volume 3, "Software Controlled Bus
///   Locking"), and errata of Nehalem to Coffee Lake let MOVNTDQA pass it. On Skylake and its successors up to Coffee
///   Lake another erratum lets it pass MFENCE, too, until the microcode is updated.
#[inline(always)]
pub(in crate::method) fn before_nontemporal_loads() {
    mfence();
}

/// Two locked instructions: they wait until several earlier stores of this thread are visible to other processors, those that bypass the
/// cache too.
///
/// After one and an LFENCE, Zen 3 reads the clock before stores that missed the cache are done, probably because it executes such
/// instructions speculatively. After two, it waited in each of 2,002 rounds of `scripts/look-waits.c` for four stores of which one or all missed,
/// but not always for a single one. MFENCE always waits, but with it, looks took more of the third-level cache for memory (docs/learned.md).
#[inline(always)]
pub(in crate::method) fn drain_stores() {
    // SAFETY: they add no bits to a word on the stack. The instruction is part of every x86-64, and not marked `nomem`, so
    // the compiler moves no access across it; without `nostack`, no variable lies below the stack pointer.
    unsafe { asm!("lock or dword ptr [rsp], 0", "lock or dword ptr [rsp], 0") }
}

/// Waits until an earlier single store is visible: MFENCE, because two locked instructions may not wait for one store.
#[inline(always)]
pub(in crate::method) fn drain_single_store() {
    mfence();
}

/// Orders the weakly ordered stores of a method before later stores.
#[inline(always)]
pub(in crate::method) fn order_stores() {
    sfence();
}

/// Orders stores and write-backs before later stores; they are durable afterwards.
#[inline(always)]
pub(in crate::method) fn fence() {
    sfence();
}
