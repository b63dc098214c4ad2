//! Hardware counters: cycles, instructions, last-level cache misses of this thread, where the kernel gives them.

use std::io;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter, Group};
use serde::{Deserialize, Serialize};

/// What the counters showed, an operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Core cycles.
    pub cycles: f64,
    /// Instructions retired.
    pub instructions: f64,
    /// Last-level cache misses.
    pub llc_misses: f64,
}

/// A group of counters, ready to run.
pub(crate) struct Counters {
    group: Group,
    cycles: Counter,
    instructions: Counter,
    llc_misses: Counter,
}

impl Counters {
    /// Opens the counters.
    ///
    /// # Errors
    /// Why the kernel does not give them, with what can be done.
    pub(crate) fn open() -> Result<Counters, String> {
        Counters::try_open().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                format!("hardware counters are not available: this (virtual) processor has none ({error})")
            }
            Some(libc::EACCES | libc::EPERM) => format!(
                "hardware counters are not available: {error}; sysctl kernel.perf_event_paranoid=2 or lower allows them"
            ),
            _ => format!("hardware counters are not available: {error}"),
        })
    }

    fn try_open() -> io::Result<Counters> {
        let mut group = Group::new()?;
        let mut add = |event| group.add(Builder::new(event).exclude_kernel(true).exclude_hv(true));
        let cycles = add(Hardware::CPU_CYCLES)?;
        let instructions = add(Hardware::INSTRUCTIONS)?;
        let llc_misses = add(Hardware::CACHE_MISSES)?;
        Ok(Counters { group, cycles, instructions, llc_misses })
    }

    /// What happens during `work`; `None` where the counters did not run.
    pub(crate) fn count(&mut self, work: impl FnOnce()) -> Option<Counts> {
        self.group.reset().ok()?;
        self.group.enable().ok()?;
        work();
        self.group.disable().ok()?;
        let data = self.group.read().ok()?;
        let counts = Counts {
            cycles: data[&self.cycles] as f64,
            instructions: data[&self.instructions] as f64,
            llc_misses: data[&self.llc_misses] as f64,
        };
        (counts.instructions > 0.0).then_some(counts)
    }
}

/// Why this process gets no hardware counters, with what can be done; `None` where it gets them.
pub fn counters_unavailable() -> Option<String> {
    Counters::open().err()
}

impl Counts {
    /// The same, for one of so many operations.
    pub(crate) fn per(self, operations: usize) -> Counts {
        let share = operations.max(1) as f64;
        Counts {
            cycles: self.cycles / share,
            instructions: self.instructions / share,
            llc_misses: self.llc_misses / share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_count_or_say_why_not() {
        match Counters::open() {
            Ok(mut counters) => {
                let counts = counters.count(|| {
                    std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>());
                });
                assert!(counts.is_none_or(|counts| counts.instructions > 100_000.0), "{counts:?}");
            }
            Err(reason) => assert!(reason.starts_with("hardware counters are not available: "), "{reason}"),
        }
    }
}
