//! Prefetches.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_NTA, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Prefetches the line at `at` for writing. Any address is allowed, because a prefetch does not fault.
#[inline(always)]
pub(in crate::method) fn prefetch_for_write(at: *const u8) {
    // SAFETY: a prefetch does not access memory architecturally. Processors without PREFETCHW execute it as a
    // no-operation (defined by AMD64 and Intel 64).
    unsafe { asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

/// PREFETCHT0: prefetches the line at `at` into all cache levels. Any address is allowed.
#[inline(always)]
pub(in crate::method) fn prefetch_to_all_levels(at: *const u8) {
    // SAFETY: a prefetch does not access memory architecturally.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// PREFETCHT1: prefetches the line at `at` into the second-level cache. Any address is allowed.
#[inline(always)]
pub(in crate::method) fn prefetch_to_second_level(at: *const u8) {
    // SAFETY: a prefetch does not access memory architecturally.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// PREFETCHNTA: prefetches the line at `at` with the non-temporal hint. Any address is allowed.
#[inline(always)]
pub(in crate::method) fn prefetch_nontemporal(at: *const u8) {
    // SAFETY: a prefetch does not access memory architecturally.
    unsafe { _mm_prefetch::<_MM_HINT_NTA>(at.cast()) }
}
