//! Barriers.

use std::arch::asm;

/// Makes a function that executes one barrier.
macro_rules! barrier {
    ($(#[doc = $doc:literal])+ $name:ident, $instruction:literal) => {
        $(#[doc = $doc])+
        #[inline(always)]
        pub(in crate::method) fn $name() {
            // SAFETY: a barrier has no precondition and is part of every aarch64. It is not marked `nomem`, so the
            // compiler moves no access across it.
            unsafe { asm!($instruction, options(nostack, preserves_flags)) }
        }
    };
}

barrier!(
    /// DMB ISH: orders earlier loads and stores of this thread before its later ones, for every processor.
    ///
    /// Ends every non-temporal method, as SFENCE does on x86-64: a program that publishes the bytes by a plain store
    /// afterwards, which x86-64 does not reorder, publishes complete bytes here, too. The loads of a copy are ordered as
    /// well, because x86-64 never lets a later store overtake them.
    order_stores, "dmb ish"
);
barrier!(
    /// DSB SY: waits until earlier stores are visible and earlier cache maintenance (DC CVAP, DC CVADP) has completed.
    ///
    /// A DMB is not enough after cache maintenance: only a DSB for loads and stores waits for its completion (Arm
    /// Architecture Reference Manual, "Ordering and completion of data and instruction cache instructions"). The whole
    /// system, because memory may lie outside of the inner shareable domain.
    fence, "dsb sy"
);
barrier!(
    /// DMB ISHLD: orders earlier loads before later loads, LDNP and LDNT1 too.
    ///
    /// Those may be observed before the load that their address depends on, unlike ordinary loads (Arm Architecture
    /// Reference Manual, "Load/store non-temporal pair"). A thread that found the source through a pointer that another
    /// thread published must not read what was there before.
    before_nontemporal_loads, "dmb ishld"
);

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

/// The barrier after a method that writes lines back: its bytes are durable afterwards.
#[inline(always)]
pub(in crate::method) fn persisted() {
    fence();
}
