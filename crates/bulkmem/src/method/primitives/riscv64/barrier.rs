//! Barriers.

use std::arch::asm;

/// Makes a function that executes one barrier.
macro_rules! barrier {
    ($(#[doc = $doc:literal])+ $name:ident, $instruction:literal) => {
        $(#[doc = $doc])+
        #[inline(always)]
        pub(in crate::method) fn $name() {
            // SAFETY: a barrier has no precondition and is part of every riscv64. It is not marked `nomem`, so the
            // compiler moves no access across it.
            unsafe { asm!($instruction, options(nostack, preserves_flags)) }
        }
    };
}

barrier!(
    /// FENCE RW, RW: orders earlier loads and stores of this thread before its later ones.
    ///
    /// Ends every non-temporal method, as SFENCE does on x86-64: a program that publishes the bytes by a plain store
    /// afterwards, which x86-64 does not reorder, publishes complete bytes here, too. The loads of a copy are ordered as
    /// well, because x86-64 never lets a later store overtake them.
    order_stores, "fence rw, rw"
);
barrier!(
    /// FENCE IORW, IORW: orders earlier stores and cache-block management before everything later. Write-backs have reached
    /// memory afterwards. RISC-V defines no point of persistence: whether memory survives is up to the platform.
    fence, "fence iorw, iorw"
);

/// Nothing: the hints NTL do not change the order of loads, which keep their dependencies (RISC-V Unprivileged ISA,
/// "Zihintntl").
#[inline(always)]
#[allow(dead_code, reason = "the loops that need it have no user here")]
pub(in crate::method) fn before_nontemporal_loads() {}

/// Waits until earlier stores have left this thread.
#[inline(always)]
pub(in crate::method) fn drain_stores() {
    fence();
}

/// Waits until a store has left this thread.
#[inline(always)]
pub(in crate::method) fn drain_single_store() {
    fence();
}
