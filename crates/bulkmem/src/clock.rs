//! The clock that short times are taken with: as cheap as a few instructions.
#![cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]

/// Reads the time stamp counter, after all earlier instructions. Later loads may begin before it; no later store can be
/// seen before it.
///
/// The kernel can forbid the instruction ([`is_usable`]).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both instructions; `is_usable` says whether the second one is allowed.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// There is no such clock: it stands still.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline(always)]
pub fn ticks() -> u64 {
    0
}

/// True if this thread may read the clock, and the clock is fine enough.
pub fn is_usable() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        let mut mode: libc::c_int = 0;
        // SAFETY: PR_GET_TSC writes one int. A seccomp filter may refuse the call; then nobody knows.
        let allowed =
            unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) } == 0 && mode == libc::PR_TSC_ENABLE;
        allowed && is_fine()
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    false
}

/// True if the clock moves between readings, and reading it is not trapped by a hypervisor, which takes thousands of
/// ticks.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn is_fine() -> bool {
    const READINGS: usize = 16;
    const MOST: u64 = 1000;
    let shortest = (0..READINGS).map(|_| {
        let before = ticks();
        ticks().wrapping_sub(before)
    });
    shortest.min().is_some_and(|ticks| (1..MOST).contains(&ticks))
}
