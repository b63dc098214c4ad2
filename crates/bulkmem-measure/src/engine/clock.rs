//! The monotonic clock.

use std::time::{Duration, Instant};

/// Nanoseconds since it was made; never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Nanoseconds that `work` takes.
    pub(crate) fn time(&self, work: impl FnOnce()) -> f64 {
        let before = Instant::now();
        work();
        before.elapsed().as_secs_f64() * 1e9
    }

    /// Lets time pass without touching memory.
    pub(crate) fn spin(&self, ns: f64) {
        let until = Instant::now() + Duration::from_secs_f64(ns.max(0.0) / 1e9);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_takes_the_time_it_should_at_least() {
        let clock = Clock::new();
        assert!(clock.time(|| clock.spin(50_000.0)) >= 50_000.0);
        assert!(clock.elapsed() >= Duration::from_nanos(50_000));
    }
}
