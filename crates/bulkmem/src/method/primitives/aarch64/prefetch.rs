//! Prefetches.

use std::arch::asm;

/// Makes a function that prefetches a line.
macro_rules! prefetch {
    ($(#[doc = $doc:literal])+ $name:ident, $kind:literal) => {
        $(#[doc = $doc])+
        #[inline(always)]
        pub(in crate::method) fn $name(at: *const u8) {
            // SAFETY: PRFM is a hint. It does not fault and does not access memory architecturally.
            unsafe { asm!(concat!("prfm ", $kind, ", [{}]"), in(reg) at, options(nostack, preserves_flags)) }
        }
    };
}

prefetch!(
    /// PRFM PSTL1KEEP: prefetches the line at `at` for writing. Any address is allowed.
    prefetch_for_write, "pstl1keep"
);
prefetch!(
    /// PRFM PLDL1KEEP: prefetches the line at `at` into all cache levels. Any address is allowed.
    prefetch_to_all_levels, "pldl1keep"
);
prefetch!(
    /// PRFM PLDL2KEEP: prefetches the line at `at` into the second-level cache. Any address is allowed.
    prefetch_to_second_level, "pldl2keep"
);
prefetch!(
    /// PRFM PLDL1STRM: prefetches the line at `at` for one use. Any address is allowed.
    prefetch_nontemporal, "pldl1strm"
);
