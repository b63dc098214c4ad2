//! The clock that short times are taken with: as cheap as a few instructions.
#![cfg_attr(not(feature = "unstable-internals"), allow(unreachable_pub, reason = "public with the feature"))]

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", with_methods))]
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

/// Reads the virtual counter (CNTVCT_EL0), after all earlier instructions. As on x86-64, later loads may begin before it.
#[cfg(all(target_arch = "aarch64", with_methods))]
#[inline(always)]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux allows user space to read the counter; neither instruction accesses memory. Not marked `nomem`, so the
    // compiler moves no access across it.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) }
    ticks
}

/// There is no such clock: it stands still.
#[cfg(any(not(with_methods), target_arch = "riscv64"))]
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
    #[cfg(all(target_arch = "aarch64", with_methods))]
    {
        let mut mode: libc::c_int = 0;
        // SAFETY: PR_GET_TSC writes one int. Kernels that do not know it cannot forbid the instruction.
        let known = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) } == 0;
        let allowed = !known || mode == libc::PR_TSC_ENABLE;
        allowed && machine::counter_frequency() >= LEAST_FREQUENCY && is_fine(ticks)
    }
    #[cfg(not(any(
        all(target_arch = "x86_64", target_os = "linux", not(miri)),
        all(target_arch = "aarch64", with_methods)
    )))]
    false
}

/// Hz. A look compares times of 100 ns with such of 400 ns. Many systems count at 24 to 100 MHz, which would tell them
/// apart by few ticks; Armv8.6 and later count at 1 GHz.
#[cfg(all(target_arch = "aarch64", with_methods))]
const LEAST_FREQUENCY: u64 = 500_000_000;

/// True if `clock` moves between readings, and reading it is not trapped by a hypervisor, which takes thousands of ticks.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", with_methods))]
fn is_fine(mut clock: impl FnMut() -> u64) -> bool {
    const READINGS: usize = 16;
    const MOST: u64 = 1000;
    let shortest = (0..READINGS).map(|_| {
        let before = clock();
        clock().wrapping_sub(before)
    });
    shortest.min().is_some_and(|ticks| (1..MOST).contains(&ticks))
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", with_methods))]
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
