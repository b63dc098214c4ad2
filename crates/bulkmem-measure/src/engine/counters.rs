//! Hardware counters of this thread: cycles, instructions, and what the caches saw, where the kernel gives them.
//!
//! A processor has few counters, so the events are counted in groups, one group a sample, rather than all at the same
//! time: events that are compared with each other are counted together, and nothing is extrapolated from a share of the time.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use bulkmem::policy::CpuIdentity;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Raw};
use perf_event::{Builder, Counter, Group};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::engine::{Config, LINE};

/// Hardware events in user mode, per operation on the whole length. Events that are not counted on this processor are
/// absent. PMCx is AMD's number of an event, of the Processor Programming Reference; codes of events are also in the
/// kernel's `tools/perf/pmu-events/arch/x86`.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Core cycles.
    pub cycles: Option<f64>,
    /// Instructions retired.
    pub instructions: Option<f64>,
    /// Cache references as `perf` counts `cache-references`: of the last-level cache on Intel, of the second-level cache on
    /// AMD Zen.
    pub cache_references: Option<f64>,
    /// Cache misses as `perf` counts `cache-misses`: of the last-level cache on Intel, of the second-level cache on AMD
    /// Zen (event 0x0964).
    pub cache_misses: Option<f64>,
    /// Loads from the first-level data cache (`L1-dcache-loads`).
    pub l1d_loads: Option<f64>,
    /// `L1-dcache-load-misses`: on AMD Zen and on Intel up to Ice Lake, for stores too; from Sapphire Rapids on, requests of
    /// loads to the second-level cache.
    pub l1d_load_misses: Option<f64>,
    /// Stores to the first-level data cache (`L1-dcache-stores`).
    pub l1d_stores: Option<f64>,
    /// Prefetches into the first-level data cache (`L1-dcache-prefetches`): on AMD Zen, lines that its hardware prefetcher
    /// brought in.
    pub l1d_prefetches: Option<f64>,
    /// Of these, those that missed it (`L1-dcache-prefetch-misses`).
    pub l1d_prefetch_misses: Option<f64>,
    /// Loads from the last-level cache (`LLC-loads`).
    pub llc_loads: Option<f64>,
    /// Of these, those that missed it (`LLC-load-misses`).
    pub llc_load_misses: Option<f64>,
    /// Stores that requested a line from the last-level cache (`LLC-stores`).
    pub llc_stores: Option<f64>,
    /// Of these, those that missed it (`LLC-store-misses`).
    pub llc_store_misses: Option<f64>,
    /// Lines that came into the first-level data cache, for loads, stores and prefetches, from any source: on Intel
    /// L1D.REPLACEMENT (event 51H, umask 01H); on AMD Zen 3 and later `ls_any_fills_from_sys` (PMCx044, umask FFH); on Zen 1
    /// and 2 requests of that cache to the second-level cache (`l2_request_g1`, PMCx060, umask C8H).
    pub l1d_fills: Option<f64>,
    /// Of these, lines from the core's second-level cache (AMD Zen 3 and later; PMCx044, umask 01H).
    pub l1d_fills_from_l2: Option<f64>,
    /// Lines from the last-level cache or another core of the same complex (the same; umask 02H).
    pub l1d_fills_from_l3: Option<f64>,
    /// Lines from memory (the same; umask 48H).
    pub l1d_fills_from_dram: Option<f64>,
    /// Write-combining buffers that were flushed: on AMD Zen 1 to 3 `l2_wcb_req.wcb_close` (PMCx063, umask 20H); from Zen 5
    /// on, only full ones: `wcb_close.full_line_64b` (PMCx050, umask 01H). No event of Zen 4 is documented.
    pub wcb_closes: Option<f64>,
    /// `l1d_fills` by 64-byte line written, of clears, fills and copies. With a length far above the caches, about 1 where
    /// stores bring in the lines that they write, and about 0 where they bypass the cache; copies read one more.
    pub lines_fetched_per_line_written: Option<f64>,
}

/// The name of the figure that is computed from the counts.
const FETCHED: &str = "lines_fetched_per_line_written";

/// An event: its name in [`Counts`], and the request to the kernel; `None` where this processor's code is not known.
type Event = (&'static str, fn(&'static str) -> Option<Builder<'static>>);

/// Groups of events that are counted together.
const GROUPS: [&[Event]; 6] = [
    &[
        ("cycles", |_| Some(Builder::new(Hardware::CPU_CYCLES))),
        ("instructions", |_| Some(Builder::new(Hardware::INSTRUCTIONS))),
        ("cache_references", |_| Some(Builder::new(Hardware::CACHE_REFERENCES))),
        ("cache_misses", |_| Some(Builder::new(Hardware::CACHE_MISSES))),
    ],
    &[
        ("l1d_loads", |_| cache(CacheId::L1D, CacheOp::READ, CacheResult::ACCESS)),
        ("l1d_load_misses", |_| cache(CacheId::L1D, CacheOp::READ, CacheResult::MISS)),
        ("l1d_stores", |_| cache(CacheId::L1D, CacheOp::WRITE, CacheResult::ACCESS)),
    ],
    &[
        ("l1d_prefetches", |_| cache(CacheId::L1D, CacheOp::PREFETCH, CacheResult::ACCESS)),
        ("l1d_prefetch_misses", |_| cache(CacheId::L1D, CacheOp::PREFETCH, CacheResult::MISS)),
    ],
    &[
        ("llc_loads", |_| cache(CacheId::LL, CacheOp::READ, CacheResult::ACCESS)),
        ("llc_load_misses", |_| cache(CacheId::LL, CacheOp::READ, CacheResult::MISS)),
    ],
    &[
        ("llc_stores", |_| cache(CacheId::LL, CacheOp::WRITE, CacheResult::ACCESS)),
        ("llc_store_misses", |_| cache(CacheId::LL, CacheOp::WRITE, CacheResult::MISS)),
    ],
    &[
        ("l1d_fills", raw),
        ("l1d_fills_from_l2", raw),
        ("l1d_fills_from_l3", raw),
        ("l1d_fills_from_dram", raw),
        ("wcb_closes", raw),
    ],
];

/// The counts of misses that reach memory or, on AMD Zen, at least the last-level cache.
pub const MISSES: [&str; 2] = ["llc_load_misses", "cache_misses"];

fn cache(which: CacheId, operation: CacheOp, result: CacheResult) -> Option<Builder<'static>> {
    Some(Builder::new(Cache { which, operation, result }))
}

fn raw(name: &'static str) -> Option<Builder<'static>> {
    code(name, &Machine::current().cpu).map(|code| Builder::new(Raw::new(code)))
}

/// The code of an event on the processors on which it is known to mean what its field in [`Counts`] says: the umask, and
/// the number of the event.
fn code(name: &str, cpu: &CpuIdentity) -> Option<u64> {
    match (name, cpu.vendor.as_str(), cpu.family, cpu.model) {
        // Sandy Bridge to Emerald and Granite Rapids, without hybrid processors and small cores.
        (
            "l1d_fills",
            "GenuineIntel",
            6,
            0x2A
            | 0x2D
            | 0x3A
            | 0x3C..=0x3F
            | 0x45..=0x47
            | 0x4E
            | 0x4F
            | 0x55
            | 0x56
            | 0x5E
            | 0x6A
            | 0x6C
            | 0x7D
            | 0x7E
            | 0x8C..=0x8F
            | 0x9E
            | 0xA5..=0xA7
            | 0xAD
            | 0xAE
            | 0xCF,
        ) => Some(0x0151),
        ("l1d_fills", "AuthenticAMD", 0x17, _) => Some(0xC860),
        ("l1d_fills", "AuthenticAMD", 0x19 | 0x1A, _) => Some(0xFF44),
        ("l1d_fills_from_l2", "AuthenticAMD", 0x19 | 0x1A, _) => Some(0x0144),
        ("l1d_fills_from_l3", "AuthenticAMD", 0x19 | 0x1A, _) => Some(0x0244),
        ("l1d_fills_from_dram", "AuthenticAMD", 0x19 | 0x1A, _) => Some(0x4844),
        ("wcb_closes", "AuthenticAMD", 0x17, _)
        | ("wcb_closes", "AuthenticAMD", 0x19, 0x00..=0x0F | 0x20..=0x5F) => Some(0x2063),
        ("wcb_closes", "AuthenticAMD", 0x1A, _) => Some(0x0150),
        _ => None,
    }
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
    /// The names of all counts, in the order of the groups, and of what is computed from them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GROUPS.into_iter().flatten().map(|(name, _)| *name).chain([FETCHED])
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
        let scale =
            (enabled.as_secs_f64() / running.as_secs_f64()).max(1.0) / operations.max(f64::MIN_POSITIVE);
        let mut counts = serde_json::to_value(*self).expect("numbers");
        for (name, value) in values {
            counts[name] = (*value as f64 * scale).into();
        }
        *self = serde_json::from_value(counts).expect("the names are those of the fields");
    }

    /// Computes what follows from the counts of a candidate, which `writes` the memory or not, in a configuration.
    pub(crate) fn conclude(&mut self, writes: bool, config: &Config) {
        let writes = writes
            && matches!(config.operation, Some(Operation::Clear | Operation::Fill | Operation::Copy))
            && config.read_back.is_none_or(|share| share == 0.0);
        let bytes = config.size.filter(|bytes| writes && *bytes > 0);
        let figure = self.l1d_fills.zip(bytes).map(|(lines, bytes)| lines * LINE as f64 / bytes as f64);
        self.lines_fetched_per_line_written = figure;
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
                let counter = builder(name).map(|mut it| group.add(it.exclude_kernel(true).exclude_hv(true)));
                match counter {
                    Some(Ok(counter)) => counters.push((*name, counter)),
                    // Without cycles there is nothing.
                    Some(Err(error)) if *name == "cycles" => return Err(error),
                    _ => counting.missing.push(*name),
                }
            }
            if !counters.is_empty() {
                counting.groups.push(RefCell::new((group, counters)));
            }
        }
        Ok(counting)
    }

    /// Returns a note on what is not counted on this processor; `None` if everything is.
    pub(crate) fn incomplete(&self) -> Option<String> {
        (!self.missing.is_empty())
            .then(|| format!("not counted on this processor: {}", self.missing.join(", ")))
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
        let mut counter = builder(name)?.exclude_kernel(true).exclude_hv(true).inherit(true).build().ok()?;
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
    use crate::engine::PageSize;

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

    /// Counts of `perf stat --all-user perf bench mem memset -l 1 -s 4096MB` (Ankur Arora, "x86/asm: add clear_page_nt()",
    /// linux-kernel, 2020), which writes the memory twice: processor, candidate, instructions, cache references, and
    /// L1-dcache-load-misses, which there is the event of `l1d_fills`. Then the lines fetched per line written.
    const RECORDED: [(&str, &str, u64, u64, u64, &str); 6] = [
        ("Broadwell-X", "rep_stosb", 8_578_591, 132_481_645, 133_947_283, "1.00"),
        ("Broadwell-X", "movnti", 1_481_306_856, 163_086, 27_834, "0.00"),
        ("Rome", "rep_stosq", 4_620_983, 262_988_622, 133_710_131, "1.00"),
        ("Rome", "movnti", 1_483_248_390, 134_114_985, 58_569, "0.00"),
        ("Skylake-X", "rep_stosb", 165_063_710, 358_997, 68_543_766, "0.51"),
        ("Skylake-X", "movnti", 1_633_675_881, 283_627, 303_300, "0.00"),
    ];

    #[test]
    fn recorded_counts_tell_how_many_lines_are_fetched_per_line_written() {
        let config = Config::of(Operation::Clear, 4096 << 20, PageSize::TRANSPARENT);
        for (processor, name, instructions, references, fills, expected) in RECORDED {
            let mut counts = Counts::default();
            let first = [("instructions", instructions), ("cache_references", references)];
            counts.add(&reading(&first, 900, 900), 2.0);
            counts.add(&reading(&[("l1d_fills", fills)], 900, 900), 2.0);
            counts.conclude(true, &config);
            let figure = counts.lines_fetched_per_line_written.unwrap();
            assert_eq!(format!("{figure:.2}"), expected, "{processor}, {name}");
            assert_eq!(counts.get(FETCHED), Some(figure));
            assert_eq!(counts.cache_references, Some(references as f64 / 2.0));
            assert_eq!(counts.any().unwrap().l1d_fills, Some(fills as f64 / 2.0));
        }
    }

    #[test]
    fn the_figure_is_there_only_if_the_lines_written_are_known() {
        let clear = Config::of(Operation::Clear, 64 << 10, PageSize::TRANSPARENT);
        let figure = |writes, config: &Config, fills| {
            let mut counts = Counts { l1d_fills: fills, ..Counts::default() };
            counts.conclude(writes, config);
            counts.lines_fetched_per_line_written
        };
        assert_eq!(figure(true, &clear, Some(512.0)), Some(0.5));
        let copy = Config { operation: Some(Operation::Copy), ..clear.clone() };
        assert_eq!(figure(true, &copy, Some(2048.0)), Some(2.0), "its source's lines are included");
        assert_eq!(figure(true, &clear, None), None);
        assert_eq!(figure(false, &clear, Some(1024.0)), None, "it writes nothing");
        for config in [
            Config { read_back: Some(50.0), ..clear.clone() },
            Config { operation: Some(Operation::Persist), ..clear.clone() },
            Config { size: None, ..clear.clone() },
            Config { size: Some(0), ..clear },
        ] {
            assert_eq!(figure(true, &config, Some(1024.0)), None, "{config:?}");
        }
    }

    /// Codes as in the kernel's `tools/perf/pmu-events/arch/x86`, of the processors of the tables there.
    #[test]
    fn raw_codes_are_those_of_the_processor() {
        let fills = ["l1d_fills", "l1d_fills_from_l2", "l1d_fills_from_l3", "l1d_fills_from_dram"];
        let zen = [Some(0xFF44), Some(0x0144), Some(0x0244), Some(0x4844)];
        for (vendor, family, model, expected, flushes) in [
            ("AuthenticAMD", 0x17, 0x31, [Some(0xC860), None, None, None], Some(0x2063)),
            ("AuthenticAMD", 0x19, 0x01, zen, Some(0x2063)),
            ("AuthenticAMD", 0x19, 0x11, zen, None),
            ("AuthenticAMD", 0x1A, 0x02, zen, Some(0x0150)),
            ("AuthenticAMD", 0x15, 0x02, [None; 4], None),
            ("GenuineIntel", 6, 79, [Some(0x0151), None, None, None], None),
            ("GenuineIntel", 6, 143, [Some(0x0151), None, None, None], None),
            // Goldmont: event 51H is another one. Alder Lake: it depends on the core.
            ("GenuineIntel", 6, 0x5C, [None; 4], None),
            ("GenuineIntel", 6, 0x97, [None; 4], None),
            ("HygonGenuine", 0x18, 1, [None; 4], None),
        ] {
            let cpu = CpuIdentity::new(vendor, family, model, 0);
            assert_eq!(fills.map(|name| code(name, &cpu)), expected, "{}", cpu.key());
            assert_eq!(code("wcb_closes", &cpu), flushes, "{}", cpu.key());
        }
    }

    /// Groups that were counted one after the other; an operation may be less than a sample, or more.
    #[test]
    fn groups_add_up_to_what_an_operation_took() {
        let mut counts = Counts::default();
        counts.add(&reading(&[("cycles", 10_000), ("instructions", 2_000)], 5, 5), 2.0);
        counts.add(&reading(&[("l1d_load_misses", 133_947_283)], 900, 900), 1.0);
        counts.add(&reading(&[("l1d_stores", 100)], 900, 900), 0.25);
        assert_eq!(counts.l1d_stores, Some(400.0));
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
