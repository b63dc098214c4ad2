//! Clocks, samples, statistics, workloads, and fitting a profile.
