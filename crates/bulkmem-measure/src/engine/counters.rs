//! Hardware counters of this thread: cycles, instructions, and what the caches saw, where the kernel gives them.
//!
//! A processor has few counters, so the events are counted in groups, one group a sample, rather than all at the same
//! time: events that are compared with each other are counted together, and nothing is extrapolated from a share of the time.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, Counter, Group};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Hardware events in user mode, per operation on the whole length. Events that this processor does not count are
/// absent.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Core cycles.
    pub cycles: Option<f64>,
    /// Instructions retired.
    pub instructions: Option<f64>,
    /// Cache misses as `perf` counts `cache-misses`: of the last-level cache on Intel, of the second-level cache on AMD
    /// Zen (event 0x0964).
    pub cache_misses: Option<f64>,
    /// Loads from the first-level data cache (`L1-dcache-loads`).
    pub l1d_loads: Option<f64>,
    /// Lines that came into the first-level data cache (`L1-dcache-load-misses`): on Intel, for stores too.
    pub l1d_load_misses: Option<f64>,
    /// Stores to the first-level data cache (`L1-dcache-stores`).
    pub l1d_stores: Option<f64>,
    /// Loads from the last-level cache (`LLC-loads`).
    pub llc_loads: Option<f64>,
    /// Of these, those that missed it (`LLC-load-misses`).
    pub llc_load_misses: Option<f64>,
    /// Stores that requested a line from the last-level cache (`LLC-stores`).
    pub llc_stores: Option<f64>,
    /// Of these, those that missed it (`LLC-store-misses`).
    pub llc_store_misses: Option<f64>,
}

/// An event: its name in [`Counts`], and the request to the kernel.
type Event = (&'static str, fn() -> Builder<'static>);

/// Groups of events that are counted together.
const GROUPS: [&[Event]; 4] = [
    &[
        ("cycles", || Builder::new(Hardware::CPU_CYCLES)),
        ("instructions", || Builder::new(Hardware::INSTRUCTIONS)),
        ("cache_misses", || Builder::new(Hardware::CACHE_MISSES)),
    ],
    &[
        ("l1d_loads", || cache(CacheId::L1D, CacheOp::READ, CacheResult::ACCESS)),
        ("l1d_load_misses", || cache(CacheId::L1D, CacheOp::READ, CacheResult::MISS)),
        ("l1d_stores", || cache(CacheId::L1D, CacheOp::WRITE, CacheResult::ACCESS)),
    ],
    &[
        ("llc_loads", || cache(CacheId::LL, CacheOp::READ, CacheResult::ACCESS)),
        ("llc_load_misses", || cache(CacheId::LL, CacheOp::READ, CacheResult::MISS)),
    ],
    &[
        ("llc_stores", || cache(CacheId::LL, CacheOp::WRITE, CacheResult::ACCESS)),
        ("llc_store_misses", || cache(CacheId::LL, CacheOp::WRITE, CacheResult::MISS)),
    ],
];

/// The counts of misses that reach memory or, on AMD Zen, at least the last-level cache.
pub const MISSES: [&str; 2] = ["llc_load_misses", "cache_misses"];

fn cache(which: CacheId, operation: CacheOp, result: CacheResult) -> Builder<'static> {
    Builder::new(Cache { which, operation, result })
}

/// The counts of a group during one piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    values: Vec<(&'static str, u64)>,
    /// How long the group was to count, and how long it had the counters: others may want them too.
    enabled: Duration,
    running: Duration,
}

impl Counts {
    /// The names of all counts, in the order of the groups.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GROUPS.into_iter().flatten().map(|(name, _)| *name)
    }

    /// A count by its name; `None` where it was not counted.
    pub fn get(&self, name: &str) -> Option<f64> {
        serde_json::to_value(self).ok()?.get(name)?.as_f64()
    }

    /// Takes up what a group showed during so many operations. Where it had the counters for a part of the time only,
    /// the rest is taken to have been alike; where it had them never, it showed nothing.
    pub(crate) fn add(&mut self, reading: &Reading, operations: f64) {
        let Reading { values, enabled, running } = reading;
        if running.is_zero() {
            return;
        }
        let scale = (enabled.as_secs_f64() / running.as_secs_f64()).max(1.0) / operations.max(1.0);
        let mut counts = serde_json::to_value(*self).expect("numbers");
        for (name, value) in values {
            counts[name] = (*value as f64 * scale).into();
        }
        *self = serde_json::from_value(counts).expect("the names are those of the fields");
    }

    pub(crate) fn any(self) -> Option<Counts> {
        (self != Counts::default()).then_some(self)
    }
}

/// A group with its counters, by the names of their counts.
type OpenGroup = (Group, Vec<(&'static str, Counter)>);

/// Counting during a run. Samples that are counted are not timed.
#[derive(Default)]
pub(crate) struct Counting {
    groups: Vec<RefCell<OpenGroup>>,
    missing: Vec<&'static str>,
    /// The group that counts at the moment.
    group: Cell<Option<usize>>,
}

impl Counting {
    /// Opens the counters that this processor has. The error says why the kernel gives none, and what can be done.
    pub(crate) fn open() -> Result<Counting, String> {
        Counting::try_open().map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                    format!("this (virtual) processor has none ({error})")
                }
                Some(libc::EACCES | libc::EPERM) => {
                    format!("{error}; sysctl kernel.perf_event_paranoid=2 or lower allows them")
                }
                _ => error.to_string(),
            };
            format!("hardware counters are not available: {why}")
        })
    }

    fn try_open() -> io::Result<Counting> {
        let mut counting = Counting::default();
        for events in GROUPS {
            let mut group = Group::new()?;
            let mut counters = Vec::new();
            for (name, builder) in events {
                // This thread, user mode.
                match group.add(builder().exclude_kernel(true).exclude_hv(true)) {
                    Ok(counter) => counters.push((*name, counter)),
                    // Without cycles there is nothing.
                    Err(error) if *name == "cycles" => return Err(error),
                    Err(_) => counting.missing.push(*name),
                }
            }
            if !counters.is_empty() {
                counting.groups.push(RefCell::new((group, counters)));
            }
        }
        Ok(counting)
    }

    /// Returns a note on what this processor does not count; `None` if it counts everything.
    pub(crate) fn incomplete(&self) -> Option<String> {
        (!self.missing.is_empty())
            .then(|| format!("this processor does not count {}", self.missing.join(", ")))
    }

    /// How many groups there are: how many times a sample is taken to count everything.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// True while a sample is counted.
    pub(crate) fn active(&self) -> bool {
        self.group.get().is_some()
    }

    /// Does the part of a sample that is to be counted: what the sample does before and after it does not count. A sample
    /// that does not use this counts as a whole.
    pub(crate) fn only<T>(&self, work: impl FnOnce() -> T) -> T {
        let group = self.group.get().and_then(|at| self.groups.get(at));
        let change = |change: fn(&mut Group) -> io::Result<()>| {
            group.map(|group| change(&mut group.borrow_mut().0));
        };
        change(|group| group.reset().and_then(|()| group.enable()));
        let done = work();
        change(Group::disable);
        done
    }

    /// Counts a group during `work`; `None` if the kernel refuses.
    pub(crate) fn during<T>(&self, group: usize, work: impl FnOnce() -> T) -> (T, Option<Reading>) {
        self.group.set(Some(group));
        let done = self.only(work);
        self.group.set(None);
        (done, self.read(group))
    }

    fn read(&self, group: usize) -> Option<Reading> {
        let (group, counters) = &mut *self.groups.get(group)?.borrow_mut();
        let data = group.read().ok()?;
        let value = |(name, counter): &(_, Counter)| Some((*name, data.get(counter)?.value()));
        Some(Reading {
            values: counters.iter().filter_map(value).collect(),
            enabled: data.time_enabled()?,
            running: data.time_running()?,
        })
    }
}

/// Counts the misses of this thread and of the processes that it starts during `work`, in user mode, by name. Counts
/// nothing that the kernel refuses.
pub(crate) fn misses_during<T>(work: impl FnOnce() -> T) -> (T, Vec<(&'static str, f64)>) {
    let events = GROUPS.into_iter().flatten().filter(|(name, _)| MISSES.contains(name));
    // Not a group, which few kernels count in child processes.
    let counters = events.filter_map(|(name, builder)| {
        let mut counter = builder().exclude_kernel(true).exclude_hv(true).inherit(true).build().ok()?;
        counter.enable().ok().map(|()| (*name, counter))
    });
    let counters: Vec<_> = counters.collect();
    let done = work();
    let read = |(name, mut counter): (_, Counter)| {
        counter.disable().ok()?;
        Some((name, counter.read().ok()? as f64))
    };
    (done, counters.into_iter().filter_map(read).collect())
}

/// Why this process gets no hardware counters, with what can be done; `None` where it gets them.
pub fn counters_unavailable() -> Option<String> {
    Counting::open().err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_count_or_say_why_not() {
        match Counting::open() {
            Ok(counting) => {
                let sum = || std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>());
                let (_, reading) = counting.during(0, sum);
                let (_, part) = counting.during(0, || {
                    sum();
                    counting.only(|| ());
                });
                let of = |reading: &Reading| reading.values.iter().map(|(_, value)| value).sum::<u64>();
                let parts = part.as_ref().zip(reading.as_ref());
                assert!(parts.is_none_or(|(part, whole)| of(part) <= of(whole)), "{part:?} {reading:?}");
                assert!(!counting.active());
                let mut counts = Counts::default();
                counts.add(&reading.expect("counters that were opened are read"), 1.0);
                assert!(counts.instructions.is_none_or(|it| it > 100_000.0), "{counts:?}");
            }
            Err(reason) => assert!(reason.starts_with("hardware counters are not available: "), "{reason}"),
        }
    }

    #[test]
    fn misses_of_child_processes_count_where_there_are_counters() {
        let run = || std::process::Command::new("true").status().unwrap();
        let (status, misses) = misses_during(run);
        assert!(status.success());
        if let Err(reason) = Counting::open() {
            assert_eq!(misses, [], "{reason}");
        } else if let Some((_, value)) = misses.iter().find(|(name, _)| *name == "cache_misses") {
            assert!(*value > 0.0);
        }
    }

    fn reading(values: &[(&'static str, u64)], enabled: u64, running: u64) -> Reading {
        let values = values.to_vec();
        Reading { values, enabled: Duration::from_millis(enabled), running: Duration::from_millis(running) }
    }

    /// The sources' counts of clearing 4 GiB, as groups that were counted one after the other.
    #[test]
    fn groups_add_up_to_what_an_operation_took() {
        let mut counts = Counts::default();
        counts.add(&reading(&[("cycles", 10_000), ("instructions", 2_000)], 5, 5), 2.0);
        counts.add(&reading(&[("l1d_load_misses", 133_947_283)], 900, 900), 1.0);
        assert_eq!((counts.cycles, counts.instructions), (Some(5_000.0), Some(1_000.0)));
        assert_eq!(counts.l1d_load_misses, Some(133_947_283.0));
        assert_eq!(counts.llc_loads, None, "what was not counted is not zero");
        assert_eq!(counts.any(), Some(counts));
        assert_eq!(Counts::default().any(), None);
    }

    #[test]
    fn who_shared_the_counters_is_scaled_and_who_never_had_them_showed_nothing() {
        let mut counts = Counts::default();
        counts.add(&reading(&[("llc_loads", 100)], 1000, 250), 1.0);
        assert_eq!(counts.llc_loads, Some(400.0));
        counts.add(&reading(&[("llc_stores", 0)], 1000, 0), 1.0);
        assert_eq!(counts.llc_stores, None);
        // Clocks that disagree by a little make no count smaller.
        counts.add(&reading(&[("llc_loads", 100)], 999, 1000), 1.0);
        assert_eq!(counts.llc_loads, Some(100.0));
        counts.add(&reading(&[("llc_load_misses", 0)], 1, 1), 0.0);
        assert_eq!(counts.llc_load_misses, Some(0.0));
    }

    /// Each count has a name, by which files have it, and an event of one group.
    #[test]
    fn names_are_the_fields() {
        let mut counts = Counts::default();
        let values: Vec<_> = Counts::names().zip(0..).collect();
        counts.add(&reading(&values, 1, 1), 1.0);
        let json = serde_json::to_value(counts).unwrap();
        assert_eq!(json.as_object().unwrap().len(), values.len());
        for (name, at) in values {
            assert_eq!(json[name], at as f64, "{name}");
            assert_eq!(counts.get(name), Some(at as f64));
        }
        assert_eq!(counts.get("nosuch"), None);
        assert_eq!(serde_json::from_value::<Counts>(json).unwrap(), counts);
    }
}
