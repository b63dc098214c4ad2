//! The clock that short times are taken with: as cheap as a few instructions.
#![cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
use crate::machine;

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

/// True if this thread may read the clock, the clock has a constant rate, and it is fine enough.
pub fn is_usable() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        let mut mode: libc::c_int = 0;
        // SAFETY: PR_GET_TSC writes one int. A seccomp filter may refuse the call; then nobody knows.
        let allowed =
            unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) } == 0 && mode == libc::PR_TSC_ENABLE;
        allowed && machine::has_constant_clock() && is_fine(ticks)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    false
}

/// True if `clock` moves between readings, and reading it is not trapped by a hypervisor, which takes thousands of ticks.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn is_fine(mut clock: impl FnMut() -> u64) -> bool {
    const READINGS: usize = 16;
    const MOST: u64 = 1000;
    let shortest = (0..READINGS).map(|_| {
        let before = clock();
        clock().wrapping_sub(before)
    });
    shortest.min().is_some_and(|ticks| (1..MOST).contains(&ticks))
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri)))]
mod tests {
    use super::is_fine;

    /// A clock whose reading number `n` is `at(n)`.
    fn planted(at: impl Fn(u64) -> u64) -> impl FnMut() -> u64 {
        let mut readings = 0;
        move || {
            readings += 1;
            at(readings)
        }
    }

    #[test]
    fn a_clock_must_move_forwards_and_be_read_quickly() {
        assert!(is_fine(planted(|n| n * 25)));
        assert!(is_fine(planted(|n| (n * 25).wrapping_sub(200))), "past the largest value");
        assert!(is_fine(planted(|n| if n == 8 { 1 << 20 } else { n * 25 })), "one interruption");
        assert!(!is_fine(planted(|_| 1 << 40)), "frozen");
        assert!(!is_fine(planted(|n| n / 8 * 400)), "coarse");
        assert!(!is_fine(planted(|n| n * 2_000)), "trapped");
        assert!(!is_fine(planted(|n| (1 << 40) - n * 25)), "backwards");
    }
}
