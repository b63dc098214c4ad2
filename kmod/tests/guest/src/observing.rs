//! Tests what an administrator observes: the trace of each extent, the time of each method, and the most bytes between two
//! reschedule points.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bulkmem_kmod::{Attribute, DeviceMemory, MemoryOptions};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::clearing::choose;
use crate::device::Device;
use crate::huge::{GIGANTIC, HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, METHODS, counter};

pub(crate) fn tests(suite: &mut Suite) {
    for method in module::possible() {
        let name = format!("observing::every_extent_is_traced::{method}");
        suite.test(&name, move || every_extent_is_traced(method));
        let name = format!("observing::the_longest_stretch_is_the_chunk::{method}");
        suite.test(&name, move || the_longest_stretch_is_the_chunk(method));
    }
    suite.test("observing::device_memory", device_memory);
    suite.test("observing::the_longest_stretch_starts_again_at_0", the_longest_stretch_starts_again_at_0);
}

const TRACING: &str = "/sys/kernel/debug/tracing";
const EVENT: &str = "events/bulkmem/bulkmem_extent";

fn put(file: &str, text: &str) -> io::Result<()> {
    fs::write(Path::new(TRACING).join(file), text)
}

/// An event of the trace.
#[derive(Debug)]
struct Event {
    function: String,
    method: String,
    bytes: u64,
    ns: u64,
    hinted: bool,
}

impl Event {
    fn parse(line: &str) -> Result<Event, Failed> {
        let value = |name: &str| {
            let mut words = line.split(' ').filter_map(|word| word.split_once('='));
            let word = words.find(|(known, _)| *known == name);
            word.map(|(_, value)| value.trim_matches('"')).ok_or_else(|| format!("no {name} in {line}"))
        };
        Ok(Event {
            function: value("function")?.to_owned(),
            method: value("method")?.to_owned(),
            bytes: value("bytes")?.parse()?,
            ns: value("ns")?.parse()?,
            hinted: value("hinted")? == "1",
        })
    }
}

/// Ends the tracing, also if a test fails.
struct Tracing {
    probe: bool,
}

impl Tracing {
    /// Enables the event: the module's tracepoint, or what docs/kernel/observing.md names for kernels that refuse it.
    fn start() -> Result<Tracing, Failed> {
        let probe = module::kernel()? < (6, 12);
        if probe {
            let book = include_str!("../../../../docs/kernel/observing.md");
            let line = book.lines().find_map(|line| {
                line.strip_prefix("# echo '")?.strip_suffix("' > /sys/kernel/tracing/kprobe_events")
            });
            put("kprobe_events", line.ok_or("docs/kernel/observing.md has no kprobe")?)?;
        }
        let tracing = Tracing { probe };
        put("trace", "")?;
        put(&format!("{EVENT}/enable"), "1")?;
        Ok(tracing)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = put(&format!("{EVENT}/enable"), "0");
        if self.probe {
            let _ = put("kprobe_events", "-:bulkmem/bulkmem_extent");
        }
    }
}

/// Runs `work` and returns the events.
fn traced(work: impl FnOnce() -> Result<(), Failed>) -> Result<Vec<Event>, Failed> {
    let tracing = Tracing::start()?;
    work()?;
    let text = fs::read_to_string(Path::new(TRACING).join("trace"))?;
    drop(tracing);
    assert!(!text.contains("LOST"), "{text}");
    text.lines().filter(|line| line.contains(" bulkmem_extent: ")).map(Event::parse).collect()
}

/// The counters that the events add up to, by method and name.
type Sums = BTreeMap<(String, &'static str), u64>;

fn sums() -> Result<Sums, Failed> {
    let mut sums = Sums::new();
    for method in METHODS {
        for name in ["extents", "bytes", "ns", "hinted"] {
            sums.insert((method.to_owned(), name), counter(&format!("{method}/{name}"))?);
        }
    }
    Ok(sums)
}

fn sums_of(events: &[Event]) -> Sums {
    let mut sums = Sums::new();
    for event in events {
        let values =
            [("extents", 1), ("bytes", event.bytes), ("ns", event.ns), ("hinted", u64::from(event.hinted))];
        for (name, value) in values {
            *sums.entry((event.method.clone(), name)).or_default() += value;
        }
    }
    sums
}

/// Runs `work` and checks that the events add up to what it adds to the counters, in no more time than it takes.
fn traced_as_counted(work: impl FnOnce() -> Result<(), Failed>) -> Result<Vec<Event>, Failed> {
    let before = sums()?;
    let mut elapsed = Duration::ZERO;
    let events = traced(|| {
        let start = Instant::now();
        let result = work();
        elapsed = start.elapsed();
        result
    })?;
    let after = sums()?;
    let nonzero = |sums: &Sums| -> Sums {
        sums.iter().filter(|(_, sum)| **sum != 0).map(|(key, sum)| (key.clone(), *sum)).collect()
    };
    let counted: Sums = after.iter().map(|(key, sum)| (key.clone(), sum - before[key])).collect();
    let traced = sums_of(&events);
    assert_eq!(nonzero(&traced), nonzero(&counted), "traced, counted\n{events:#?}");
    let ns: u64 = events.iter().map(|event| event.ns).sum();
    assert!(events.iter().all(|event| event.ns > 0), "{events:#?}");
    assert!(u128::from(ns) <= elapsed.as_nanos(), "{ns} ns of {elapsed:?}\n{events:#?}");
    Ok(events)
}

/// Returns the name of the kernel's function that the livepatch replaces.
fn replaced() -> Result<String, Failed> {
    let mut functions = fs::read_dir("/sys/kernel/livepatch/bulkmem/vmlinux")?.flatten();
    let names = functions.by_ref().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names =
        names.filter(|name| name.starts_with("clear_huge_page") || name.starts_with("folio_zero"));
    let name = names.next().ok_or("the livepatch replaces no function that clears")?;
    Ok(name.split(',').next().unwrap_or_default().to_owned())
}

fn every_extent_is_traced(method: &str) -> Result<(), Failed> {
    choose(method, "large")?;
    let mapping = HugeMapping::new(Source::Pool2M, 4)?;
    let device = Device::open()?;
    device.hint(mapping.address(), 2 * MIDDLE as u64)?;
    let events = traced_as_counted(|| {
        for (page, offset) in [0, MIDDLE / 2, MIDDLE - 1, 100 * SMALL].into_iter().enumerate() {
            mapping.touch(page * MIDDLE + offset);
        }
        Ok(())
    })?;
    let function = replaced()?;
    assert!(events.iter().all(|event| event.function == function), "{function}: {events:#?}");
    // The pages around the touched one are extents of stock.
    let own: Vec<(u64, bool)> = events
        .iter()
        .filter(|event| event.method == method && event.bytes > 5 * SMALL as u64)
        .map(|event| (event.bytes / SMALL as u64, event.hinted))
        .collect();
    let expected: &[(u64, bool)] = match method {
        "stock" => &[(512, true), (512, true), (512, false), (512, false)],
        _ => &[(509, true), (254, true), (253, true), (509, false), (98, false), (409, false)],
    };
    assert_eq!(own, expected, "{events:#?}");
    Ok(())
}

fn device_memory() -> Result<(), Failed> {
    choose("prefetchw", "large")?;
    module::set("chunk", "65536")?;
    reset()?;
    let allocate = |attribute| -> Result<Vec<(String, u64)>, Failed> {
        let events = traced_as_counted(|| {
            DeviceMemory::new(2 * MIDDLE, MemoryOptions::default().attribute(attribute))?;
            Ok(())
        })?;
        assert!(events.iter().all(|event| event.function == "device" && !event.hinted), "{events:#?}");
        Ok(events.into_iter().map(|event| (event.method, event.bytes)).collect())
    };
    let both = |method: &str| vec![(method.to_owned(), MIDDLE as u64); 2];
    assert_eq!(allocate(Attribute::Wb)?, both("prefetchw"));
    assert_eq!((longest("prefetchw")?, longest("movnti")?), (65536, 0));
    assert_eq!(allocate(Attribute::Wc)?, both("prefetchw"));
    // This memory comes from the pool.
    assert_eq!(allocate(Attribute::Wc)?, both("movnti"));
    assert_eq!((longest("prefetchw")?, longest("movnti")?), (65536, SMALL as u64));
    Ok(())
}

fn longest(method: &str) -> Result<u64, Failed> {
    Ok(counter(&format!("{method}/longest"))?)
}

/// Makes the search for the longest stretch of each method start again.
pub(crate) fn reset() -> Result<(), Failed> {
    for method in METHODS {
        module::put_counter(&format!("{method}/longest"), "0")?;
    }
    Ok(())
}

/// Touches a huge page at `offset`, and returns the longest stretches of the method and of stock.
pub(crate) fn stretches(method: &str, chunk: usize, offset: usize) -> Result<(u64, u64), Failed> {
    choose(method, "large")?;
    module::set("chunk", chunk.to_string())?;
    reset()?;
    HugeMapping::new(Source::Pool2M, 1)?.touch(offset);
    for other in METHODS {
        assert!(longest(other)? == 0 || other == method || other == "stock", "{other}");
    }
    Ok((longest(method)?, longest("stock")?))
}

/// Returns what [`stretches`] must return, according to the documentation.
pub(crate) fn expected(method: &str, chunk: usize, offset: usize) -> Result<(u64, u64), Failed> {
    let (touched, pages) = (offset / SMALL, MIDDLE / SMALL);
    let (first, end) = (touched.saturating_sub(2), (touched + 3).min(pages));
    let whole = first.max(pages - end) * SMALL;
    let around = (end - first) * SMALL;
    let (own, stock) = match method {
        // A page at a time; from 7.0 on the ranges before and after the touched pages, which are shorter than 32 MiB.
        "stock" if module::kernel()? < (7, 0) => (SMALL, SMALL),
        "stock" => (whole, whole),
        _ => (chunk.min(whole), around),
    };
    Ok((own as u64, stock as u64))
}

fn the_longest_stretch_is_the_chunk(method: &str) -> Result<(), Failed> {
    for chunk in [SMALL, 3 * SMALL, 64 << 10, 511 * SMALL, MIDDLE, GIGANTIC] {
        for offset in [0, MIDDLE / 2, MIDDLE - 1] {
            let found = stretches(method, chunk, offset)?;
            assert_eq!(found, expected(method, chunk, offset)?, "chunk {chunk}, touched at {offset}");
        }
    }
    Ok(())
}

fn the_longest_stretch_starts_again_at_0() -> Result<(), Failed> {
    let before = stretches("movnti", 65536, 0)?;
    assert_eq!(before.0, 65536);
    for value in ["1", "-1", "all"] {
        let refused = module::put_counter("movnti/longest", value);
        let number = refused.as_ref().err().and_then(io::Error::raw_os_error);
        assert!(number == Some(libc::EINVAL), "{value:?}: {refused:?}");
        assert_eq!(longest("movnti")?, before.0, "{value:?}");
    }
    // Smaller stretches do not change the maximum.
    module::set("chunk", "4096")?;
    HugeMapping::new(Source::Pool2M, 1)?.touch(0);
    assert_eq!(longest("movnti")?, before.0);
    module::put_counter("movnti/longest", "0")?;
    assert_eq!(longest("movnti")?, 0);
    HugeMapping::new(Source::Pool2M, 1)?.touch(0);
    assert_eq!(longest("movnti")?, 4096);
    // The self-test at load time does not count.
    module::gone()?;
    module::load("")?;
    assert_eq!(METHODS.map(|method| longest(method).ok()), [Some(0); 6]);
    Ok(())
}
