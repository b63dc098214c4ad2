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

/// Hardware events in user mode, per operation on the whole length. Events that this processor does not count are
/// absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Core cycles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Instructions retired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// Cache misses as `perf` counts `cache-misses`: of the last-level cache on Intel, of the second-level cache on AMD
    /// Zen (event 0x0964).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<f64>,
    /// Loads from the first-level data cache (`L1-dcache-loads`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d_loads: Option<f64>,
    /// Lines that came into the first-level data cache (`L1-dcache-load-misses`): on Intel, for stores too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d_load_misses: Option<f64>,
    /// Stores to the first-level data cache (`L1-dcache-stores`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d_stores: Option<f64>,
    /// Loads from the last-level cache (`LLC-loads`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc_loads: Option<f64>,
    /// Of these, those that missed it (`LLC-load-misses`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc_load_misses: Option<f64>,
    /// Stores that requested a line from the last-level cache (`LLC-stores`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc_stores: Option<f64>,
    /// Of these, those that missed it (`LLC-store-misses`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc_store_misses: Option<f64>,
}

/// Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Cycles,
    Instructions,
    CacheMisses,
    L1dLoads,
    L1dLoadMisses,
    L1dStores,
    LlcLoads,
    LlcLoadMisses,
    LlcStores,
    LlcStoreMisses,
}

/// Groups of events that are counted together.
const GROUPS: [&[Event]; 4] = [
    &[Event::Cycles, Event::Instructions, Event::CacheMisses],
    &[Event::L1dLoads, Event::L1dLoadMisses, Event::L1dStores],
    &[Event::LlcLoads, Event::LlcLoadMisses],
    &[Event::LlcStores, Event::LlcStoreMisses],
];

impl Event {
    /// Returns the request to the kernel: this thread, user mode.
    fn builder(self) -> Builder<'static> {
        let cache = |which, operation, result| Builder::new(Cache { which, operation, result });
        let (l1d, llc) = (CacheId::L1D, CacheId::LL);
        let (read, write) = (CacheOp::READ, CacheOp::WRITE);
        let (access, miss) = (CacheResult::ACCESS, CacheResult::MISS);
        let mut builder = match self {
            Event::Cycles => Builder::new(Hardware::CPU_CYCLES),
            Event::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Event::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
            Event::L1dLoads => cache(l1d, read, access),
            Event::L1dLoadMisses => cache(l1d, read, miss),
            Event::L1dStores => cache(l1d, write, access),
            Event::LlcLoads => cache(llc, read, access),
            Event::LlcLoadMisses => cache(llc, read, miss),
            Event::LlcStores => cache(llc, write, access),
            Event::LlcStoreMisses => cache(llc, write, miss),
        };
        builder.exclude_kernel(true).exclude_hv(true);
        builder
    }
}

/// The counts of a group during one piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    values: Vec<(Event, u64)>,
    /// How long the group was to count, and how long it had the counters: others may want them too.
    enabled: Duration,
    running: Duration,
}

impl Counts {
    /// The names of all counts, in the order of the groups.
    pub const NAMES: [&'static str; 10] = [
        "cycles",
        "instructions",
        "cache_misses",
        "l1d_loads",
        "l1d_load_misses",
        "l1d_stores",
        "llc_loads",
        "llc_load_misses",
        "llc_stores",
        "llc_store_misses",
    ];

    /// A count by its name; `None` where it was not counted.
    pub fn get(&self, name: &str) -> Option<f64> {
        let at = Counts::NAMES.iter().position(|it| *it == name)?;
        let mut counts = *self;
        *counts.slot(*GROUPS.concat().get(at)?)
    }

    fn slot(&mut self, event: Event) -> &mut Option<f64> {
        match event {
            Event::Cycles => &mut self.cycles,
            Event::Instructions => &mut self.instructions,
            Event::CacheMisses => &mut self.cache_misses,
            Event::L1dLoads => &mut self.l1d_loads,
            Event::L1dLoadMisses => &mut self.l1d_load_misses,
            Event::L1dStores => &mut self.l1d_stores,
            Event::LlcLoads => &mut self.llc_loads,
            Event::LlcLoadMisses => &mut self.llc_load_misses,
            Event::LlcStores => &mut self.llc_stores,
            Event::LlcStoreMisses => &mut self.llc_store_misses,
        }
    }

    /// Takes up what a group showed during so many operations. Where it had the counters for a part of the time only,
    /// the rest is taken to have been alike; where it had them never, it showed nothing.
    pub(crate) fn add(&mut self, reading: &Reading, operations: f64) {
        let Reading { values, enabled, running } = reading;
        if running.is_zero() {
            return;
        }
        let scale = (enabled.as_secs_f64() / running.as_secs_f64()).max(1.0) / operations.max(1.0);
        for (event, value) in values {
            *self.slot(*event) = Some(*value as f64 * scale);
        }
    }

    /// The counts, or `None` where there are none.
    pub(crate) fn any(self) -> Option<Counts> {
        (self != Counts::default()).then_some(self)
    }
}

/// The groups of counters, ready to run.
pub(crate) struct Counters {
    groups: Vec<(Group, Vec<(Event, Counter)>)>,
    missing: Vec<&'static str>,
}

impl Counters {
    /// Opens the counters that this processor has.
    ///
    /// # Errors
    /// Why the kernel gives none, with what can be done.
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
        let (mut groups, mut missing) = (Vec::new(), Vec::new());
        let mut names = Counts::NAMES.into_iter();
        for events in GROUPS {
            let mut group = Group::new()?;
            let mut counters = Vec::new();
            for (event, name) in events.iter().zip(&mut names) {
                match group.add(&event.builder()) {
                    Ok(counter) => counters.push((*event, counter)),
                    // Without cycles there is nothing.
                    Err(error) if *event == Event::Cycles => return Err(error),
                    Err(_) => missing.push(name),
                }
            }
            if !counters.is_empty() {
                groups.push((group, counters));
            }
        }
        Ok(Counters { groups, missing })
    }

    /// Returns a note on what this processor does not count; `None` if it counts everything.
    pub(crate) fn incomplete(&self) -> Option<String> {
        (!self.missing.is_empty())
            .then(|| format!("this processor does not count {}", self.missing.join(", ")))
    }

    /// Starts a group from zero.
    fn start(&mut self, group: usize) -> bool {
        let Some((group, _)) = self.groups.get_mut(group) else { return false };
        group.reset().and_then(|()| group.enable()).is_ok()
    }

    /// Stops a group.
    fn stop(&mut self, group: usize) -> bool {
        self.groups.get_mut(group).is_some_and(|(group, _)| group.disable().is_ok())
    }

    fn read(&mut self, group: usize) -> Option<Reading> {
        let (group, counters) = self.groups.get_mut(group)?;
        let data = group.read().ok()?;
        let value = |(event, counter): &(Event, Counter)| Some((*event, data.get(counter)?.value()));
        Some(Reading {
            values: counters.iter().filter_map(value).collect(),
            enabled: data.time_enabled()?,
            running: data.time_running()?,
        })
    }
}

/// Counting during a run. Samples that are counted are not timed.
#[derive(Default)]
pub(crate) struct Counting {
    counters: RefCell<Option<Counters>>,
    /// The group that counts at the moment.
    group: Cell<Option<usize>>,
}

impl Counting {
    /// Uses these counters.
    pub(crate) fn with(counters: Counters) -> Counting {
        Counting { counters: RefCell::new(Some(counters)), group: Cell::new(None) }
    }

    /// How many groups there are: how many times a sample is taken to count everything.
    pub(crate) fn groups(&self) -> usize {
        self.counters.borrow().as_ref().map_or(0, |counters| counters.groups.len())
    }

    /// True while a sample is counted.
    pub(crate) fn active(&self) -> bool {
        self.group.get().is_some()
    }

    /// Does the part of a sample that is to be counted: what the sample does before and after it does not count. A sample
    /// that does not use this counts as a whole.
    pub(crate) fn only<T>(&self, work: impl FnOnce() -> T) -> T {
        let on = |change: fn(&mut Counters, usize) -> bool| {
            if let (Some(group), Some(counters)) = (self.group.get(), &mut *self.counters.borrow_mut()) {
                change(counters, group);
            }
        };
        on(Counters::start);
        let done = work();
        on(Counters::stop);
        done
    }

    /// Counts a group during `work`; `None` if the kernel refuses.
    pub(crate) fn during<T>(&self, group: usize, work: impl FnOnce() -> T) -> (T, Option<Reading>) {
        self.group.set(Some(group));
        let done = self.only(work);
        self.group.set(None);
        (done, self.counters.borrow_mut().as_mut().and_then(|counters| counters.read(group)))
    }
}

/// Why this process gets no hardware counters, with what can be done; `None` where it gets them.
pub fn counters_unavailable() -> Option<String> {
    Counters::open().err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_count_or_say_why_not() {
        match Counters::open() {
            Ok(counters) => {
                let counting = Counting::with(counters);
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

    fn reading(values: &[(Event, u64)], enabled: u64, running: u64) -> Reading {
        let values = values.to_vec();
        Reading { values, enabled: Duration::from_millis(enabled), running: Duration::from_millis(running) }
    }

    /// The sources' counts of clearing 4 GiB, as groups that were counted one after the other.
    #[test]
    fn groups_add_up_to_what_an_operation_took() {
        let mut counts = Counts::default();
        counts.add(&reading(&[(Event::Cycles, 10_000), (Event::Instructions, 2_000)], 5, 5), 2.0);
        counts.add(&reading(&[(Event::L1dLoadMisses, 133_947_283)], 900, 900), 1.0);
        assert_eq!((counts.cycles, counts.instructions), (Some(5_000.0), Some(1_000.0)));
        assert_eq!(counts.l1d_load_misses, Some(133_947_283.0));
        assert_eq!(counts.llc_loads, None, "what was not counted is not zero");
        assert_eq!(counts.any(), Some(counts));
        assert_eq!(Counts::default().any(), None);
    }

    #[test]
    fn who_shared_the_counters_is_scaled_and_who_never_had_them_showed_nothing() {
        let mut counts = Counts::default();
        counts.add(&reading(&[(Event::LlcLoads, 100)], 1000, 250), 1.0);
        assert_eq!(counts.llc_loads, Some(400.0));
        counts.add(&reading(&[(Event::LlcStores, 0)], 1000, 0), 1.0);
        assert_eq!(counts.llc_stores, None);
        // Clocks that disagree by a little make no count smaller.
        counts.add(&reading(&[(Event::LlcLoads, 100)], 999, 1000), 1.0);
        assert_eq!(counts.llc_loads, Some(100.0));
        counts.add(&reading(&[(Event::LlcLoadMisses, 0)], 1, 1), 0.0);
        assert_eq!(counts.llc_load_misses, Some(0.0));
    }

    /// Each count has a name, by which files have it, and an event of one group.
    #[test]
    fn names_are_the_fields() {
        let mut counts = Counts::default();
        let events = GROUPS.concat();
        assert_eq!(events.len(), Counts::NAMES.len());
        for (at, event) in events.iter().enumerate() {
            *counts.slot(*event) = Some(at as f64);
        }
        let json = serde_json::to_value(counts).unwrap();
        assert_eq!(json.as_object().unwrap().len(), Counts::NAMES.len());
        for (at, name) in Counts::NAMES.into_iter().enumerate() {
            assert_eq!(json[name], at as f64, "{name}");
            assert_eq!(counts.get(name), Some(at as f64));
        }
        assert_eq!(counts.get("nosuch"), None);
        assert_eq!(serde_json::from_value::<Counts>(json).unwrap(), counts);
    }
}
