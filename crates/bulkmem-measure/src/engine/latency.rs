//! Latencies of single operations.

use std::time::Instant;

use hdrhistogram::Histogram;

/// The quantiles that are reported.
const QUANTILES: [(&str, f64); 4] =
    [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999), ("p9999_ns", 0.9999)];

#[derive(Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    /// Time of reading the clock, nanoseconds.
    clock: u64,
}

impl Latencies {
    /// Creates room for latencies in nanoseconds up to a minute, which is longer than any sample, to three digits. `clock`,
    /// the time of reading the clock in nanoseconds, is subtracted from each.
    pub(crate) fn new(clock: u64) -> Latencies {
        let histogram =
            Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are far enough apart");
        Latencies { histogram, clock }
    }

    /// Performs an operation and records its latency.
    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let before = Instant::now();
        let done = operation();
        let ns = before.elapsed().as_nanos() as u64;
        self.histogram.saturating_record(ns.saturating_sub(self.clock).max(1));
        done
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Returns the quantiles by name, nanoseconds.
    pub(crate) fn quantiles(&self) -> Vec<(&'static str, f64)> {
        let of = |(name, quantile)| (name, self.histogram.value_at_quantile(quantile) as f64);
        QUANTILES.map(of).to_vec()
    }
}

/// Measures the time of reading the clock, nanoseconds: the median of the times between two readings.
pub(crate) fn clock_ns() -> u64 {
    let mut times: Vec<u128> = (0..10_001).map(|_| Instant::now().elapsed().as_nanos()).collect();
    times.sort_unstable();
    times[times.len() / 2] as u64
}

/// Returns the note on how samples are divided.
pub(crate) fn note(clock: u64) -> String {
    format!(
        "one half of each sample counts operations and the other times each of them; {clock} ns for reading the clock are \
         subtracted from each latency"
    )
}
