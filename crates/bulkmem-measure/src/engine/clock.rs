//! Time spans.

use std::time::{Duration, Instant};

/// Nanoseconds that `work` takes.
pub(crate) fn time(work: impl FnOnce()) -> f64 {
    let before = Instant::now();
    work();
    before.elapsed().as_secs_f64() * 1e9
}

/// Lets time pass without touching memory.
pub(crate) fn spin(ns: f64) {
    let until = Instant::now() + Duration::from_secs_f64(ns.max(0.0) / 1e9);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Returns what this process, its children that ended, or this thread used, as `getrusage` reports it.
pub(crate) fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the value that the call writes.
    unsafe { libc::getrusage(of, &raw mut usage) };
    usage
}

/// Returns seconds of its processor time: in user space and in the kernel.
pub(crate) fn processor_times(of: libc::c_int) -> [f64; 2] {
    let usage = usage(of);
    [usage.ru_utime, usage.ru_stime].map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_takes_the_time_it_should_at_least() {
        assert!(time(|| spin(50_000.0)) >= 50_000.0);
    }
}
