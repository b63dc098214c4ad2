//! Prefetches of Zicbop. They are hints, encoded as ORI to register x0: other processors execute a no-operation.

use std::arch::asm;

/// Makes a function that prefetches a block, by the encoding of an ORI.
macro_rules! prefetch {
    ($(#[doc = $doc:literal])+ $name:ident, $kind:literal) => {
        $(#[doc = $doc])+
        #[inline(always)]
        pub(in crate::method) fn $name(at: *const u8) {
            // SAFETY: the hint does not fault and does not access memory architecturally.
            unsafe { asm!(concat!("ori x0, {}, ", $kind), in(reg) at, options(nostack, preserves_flags)) }
        }
    };
}

prefetch!(
    /// PREFETCH.W: prefetches the block at `at` for writing. Any address is allowed.
    prefetch_for_write, "3"
);
prefetch!(
    /// PREFETCH.R: prefetches the block at `at`. Any address is allowed.
    prefetch_to_all_levels, "1"
);

prefetch!(
    /// PREFETCH.R, which has no level: prefetches the block at `at`. Any address is allowed.
    prefetch_to_second_level, "1"
);

/// PREFETCH.R after the hint NTL.P1: for one use. Any address is allowed.
#[inline(always)]
pub(in crate::method) fn prefetch_nontemporal(at: *const u8) {
    // SAFETY: neither hint faults or accesses memory architecturally.
    unsafe { asm!("add x0, x0, x2", "ori x0, {}, 1", in(reg) at, options(nostack, preserves_flags)) }
}
