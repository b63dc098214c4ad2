//! Limits of speed: bytes per second of all threads, and the share of a processor of each.

use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A clock; tests plant their own.
pub(crate) trait Clock: Sync {
    /// Returns the time since any fixed moment.
    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration);
}

/// The system's clock.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    pub(crate) fn new() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Longest sleep before cancellation is checked again.
const NAP: Duration = Duration::from_millis(3);
/// Steps of a limited rate take at least this share of a second.
const STEPS_PER_SECOND: u64 = 100;

/// The pace of all threads.
pub(crate) struct Pace<'a> {
    clock: &'a dyn Clock,
    rate: Option<NonZeroU64>,
    cpu_share: f64,
    /// The time from which the rate allows the next step. Locked from waiting for it to the step's begin, so before the queue.
    next: Mutex<Duration>,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, rate: Option<NonZeroU64>, cpu_share: f64) -> Pace<'a> {
        Pace { clock, rate, cpu_share, next: Mutex::new(clock.now()) }
    }

    /// Returns the longest step, bytes.
    pub(crate) fn longest(&self) -> u64 {
        self.rate.map_or(u64::MAX, |rate| rate.get() / STEPS_PER_SECOND)
    }

    /// Waits until the rate allows the next step. The other threads wait for this one, or all would begin a step at the same moment.
    pub(crate) fn turn(&self, stopped: &dyn Fn() -> bool) -> Turn<'_> {
        let next = self.rate.map(|rate| (rate, self.next.lock().unwrap_or_else(PoisonError::into_inner)));
        if let Some((_, next)) = &next {
            self.sleep_until(**next, stopped);
        }
        Turn { clock: self.clock, next }
    }

    /// Rests after a step that kept the processor busy for that time.
    pub(crate) fn rest(&self, busy: Duration, stopped: &dyn Fn() -> bool) {
        if self.cpu_share < 1.0 {
            let idle = busy.mul_f64(1.0 / self.cpu_share - 1.0);
            self.sleep_until(self.clock.now() + idle, stopped);
        }
    }

    fn sleep_until(&self, end: Duration, stopped: &dyn Fn() -> bool) {
        while !stopped() {
            match end.checked_sub(self.clock.now()) {
                None | Some(Duration::ZERO) => return,
                Some(left) => self.clock.sleep(left.min(NAP)),
            }
        }
    }
}

/// A thread's turn to begin a step. Others wait until it has begun or is dropped.
#[must_use]
pub(crate) struct Turn<'a> {
    clock: &'a dyn Clock,
    next: Option<(NonZeroU64, MutexGuard<'a, Duration>)>,
}

impl Turn<'_> {
    /// Begins a step.
    pub(crate) fn begin(self, bytes: u64) {
        if let Some((rate, mut next)) = self.next {
            let takes = Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
            *next = next.max(self.clock.now()) + takes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use bulkmem::{Mapping, Pages};

    use super::*;
    use crate::{Options, range_by};

    /// A clock that only sleeping moves.
    #[derive(Debug, Default)]
    struct Planted {
        microseconds: AtomicU64,
        longest_sleep: AtomicU64,
    }

    impl Clock for Planted {
        fn now(&self) -> Duration {
            Duration::from_micros(self.microseconds.load(Relaxed))
        }

        fn sleep(&self, time: Duration) {
            let time = time.as_micros() as u64 + 1;
            self.microseconds.fetch_add(time, Relaxed);
            self.longest_sleep.fetch_max(time, Relaxed);
        }
    }

    #[test]
    fn a_rate_limits_all_threads_together() {
        for threads in [1, 3] {
            let mut mapping = Mapping::new(32 << 20, Pages::Base).unwrap();
            let clock = Planted::default();
            let options = Options::new().threads(threads).rate(16 << 20);
            let (start, length) = (mapping.as_mut_ptr(), mapping.len());
            // SAFETY: the mapping lives on.
            let ready = unsafe { range_by(start, length, &options, &clock) }.unwrap();
            assert_eq!(ready.bytes, 32 << 20);
            // Two seconds of the planted clock, less the last step.
            let taken = clock.now().as_secs_f64();
            assert!((1.8..2.1).contains(&taken), "{taken} s with {threads} threads");
            assert!(clock.longest_sleep.load(Relaxed) <= 3001, "cancellation waits for a sleep");
        }
    }

    #[test]
    fn a_share_of_the_processor_rests_in_proportion() {
        let clock = Planted::default();
        let pace = Pace::new(&clock, None, 0.25);
        pace.rest(Duration::from_millis(4), &|| false);
        assert!((12_000..12_100).contains(&(clock.now().as_micros())), "{:?}", clock.now());
        let before = clock.now();
        pace.rest(Duration::from_secs(1), &|| true);
        Pace::new(&clock, None, 1.0).rest(Duration::from_secs(1), &|| false);
        assert_eq!(clock.now(), before);
    }
}
