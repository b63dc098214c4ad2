//! Tests that every byte is zero, whatever the page held before, by each method, from each source of huge pages, and
//! wherever it is touched first; and that the counters are exact.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{GIGANTIC, HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, CACHED, Fault, counted};
use crate::process::Child;
use crate::sizes::chosen;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("clearing::available_says_what_the_processor_has", available_says_what_the_processor_has);
    // CLZERO is tested on the machine that supports it, where ryzen.rs requires it.
    for method in module::possible() {
        let name = |test: &str, size| format!("clearing::{test}::{method}::{size}");
        let sizes: &[_] = if CACHED.contains(&method) { &["large", "cached"] } else { &["large"] };
        for size in sizes {
            let set = move || choose(method, size);
            for source in [Source::Pool2M, Source::Transparent] {
                suite.test(&name(&format!("refaulted::{source:?}"), size), move || {
                    set().and_then(|()| refaulted(source))
                });
            }
            suite.test(&name("file", size), move || set().and_then(|()| file()));
            suite.test(&name("fallocate", size), move || set().and_then(|()| fallocate()));
        }
    }
    suite.test("clearing::shared_memory_is_not_covered", shared_memory_is_not_covered);
    suite.test("clearing::populated_at_once", populated_at_once);
    suite.test("clearing::chunks_divide_the_extent_or_not", chunks_divide_the_extent_or_not);
    suite.test("clearing::copy_on_write_clears_nothing::Pool2M", || copy_on_write(Source::Pool2M));
    suite.test("clearing::copy_on_write_clears_nothing::Transparent", || copy_on_write(Source::Transparent));
}

fn available_says_what_the_processor_has() -> Result<(), Failed> {
    module::fresh()?;
    assert_eq!(module::available()?, module::possible());
    Ok(())
}

/// Makes a method clear everything, as the method for large extents or as the one for small ones.
pub(crate) fn choose(method: &str, size: &str) -> Result<(), Failed> {
    module::fresh()?;
    if size == "large" {
        module::set("threshold", "0")?;
        module::set("method", method)?;
    } else {
        module::set("threshold", u64::MAX.to_string())?;
        module::set("cached_method", method)?;
    }
    Ok(())
}

/// Transparent huge pages of shared memory are cleared by the kernel, as docs/kernel/README.md says.
fn shared_memory_is_not_covered() -> Result<(), Failed> {
    const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    module::fresh()?;
    let before = chosen(SWITCH)?;
    fs::write(SWITCH, "force")?;
    let result = counted(&[], || {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 3 * MIDDLE, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        for page in 0..3 {
            // SAFETY: within the mapping.
            unsafe { start.cast::<u8>().add(page * MIDDLE).write_volatile(1) };
        }
        // Adds up the processors' own counters, which older kernels do too rarely.
        fs::read("/proc/sys/vm/stat_refresh")?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        // SAFETY: nothing refers to it.
        unsafe { libc::munmap(start, 3 * MIDDLE) };
        let huge = memory.lines().find(|line| line.starts_with("ShmemHugePages:"));
        assert!(huge.is_some_and(|line| !line.contains(" 0 kB")), "no huge pages: {huge:?}");
        Ok(())
    });
    fs::write(SWITCH, before)?;
    result
}

/// Offsets of the first touch of a huge page: at its ends, near them, where the part cleared last reaches an end exactly,
/// and inside.
fn offsets() -> [usize; 11] {
    let last = MIDDLE / SMALL - 1;
    [
        0,
        SMALL - 1,
        SMALL,
        2 * SMALL,
        3 * SMALL,
        MIDDLE / 2,
        (last - 100) * SMALL + 17,
        (last - 3) * SMALL,
        (last - 2) * SMALL,
        (last - 1) * SMALL,
        MIDDLE - 1,
    ]
}

/// The frames that tests of this process have dirtied.
static DIRTIED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

fn dirtied(frames: &[u64]) -> usize {
    let mut known = DIRTIED.lock().expect("no test panics in here");
    let known = known.get_or_insert_default();
    let again = frames.iter().filter(|frame| known.contains(frame)).count();
    known.extend(frames);
    again
}

pub(crate) fn all_zero(mapping: &HugeMapping, page: usize, what: &str) -> Result<(), Failed> {
    match mapping.first_dirt() {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {:#x} of page {} is not 0", at % page, at / page).into()),
    }
}

/// Touches each page at another offset, and checks that all of them are huge, zero, and counted.
fn touch_and_judge(mapping: &HugeMapping, what: &str) -> Result<Vec<u64>, Failed> {
    let offsets = offsets();
    let faults = offsets.map(|offset| Fault { size: MIDDLE, offset, hint: 0 });
    counted(&faults, || {
        for (page, offset) in offsets.iter().enumerate() {
            mapping.touch(page * MIDDLE + offset);
        }
        Ok(())
    })?;
    let frames = mapping.frames()?;
    assert!(!frames.contains(&0), "every page was touched");
    all_zero(mapping, MIDDLE, what)?;
    Ok(frames)
}

fn refaulted(source: Source) -> Result<(), Failed> {
    let pages = offsets().len();
    // Dirty the pages once, so that the checks below are not about memory that was never written.
    let mut mapping = HugeMapping::new(source, pages)?;
    dirtied(&touch_and_judge(&mapping, "at first")?);
    mapping.dirty();
    drop(mapping);

    let mut mapping = HugeMapping::new(source, pages)?;
    let again = dirtied(&touch_and_judge(&mapping, "again")?);
    if again == 0 {
        return Err("no page came again, so that this showed nothing".into());
    }
    mapping.dirty();
    mapping.discard()?;
    dirtied(&touch_and_judge(&mapping, "after they were dropped")?);
    mapping.dirty();
    Ok(())
}

/// Creates a file in huge pages and removes its name.
fn huge_file(pages: usize) -> std::io::Result<File> {
    let path = "/dev/hugepages-2M/clearing";
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    fs::remove_file(path)?;
    file.set_len((pages * MIDDLE) as u64)?;
    Ok(file)
}

fn file() -> Result<(), Failed> {
    let pages = offsets().len();
    for what in ["a file", "a file again"] {
        let file = huge_file(pages)?;
        let mut mapping = HugeMapping::of_file(file.as_fd(), pages * MIDDLE, MIDDLE)?;
        dirtied(&touch_and_judge(&mapping, what)?);
        mapping.dirty();
    }
    Ok(())
}

fn fallocate() -> Result<(), Failed> {
    const PAGES: usize = 4;
    // Dirty the pages that fallocate() will get.
    let mut before = HugeMapping::new(Source::Pool2M, PAGES)?;
    before.dirty();
    dirtied(&before.frames()?);
    drop(before);

    let file = huge_file(PAGES)?;
    let faults = [Fault { size: MIDDLE, offset: 0, hint: 0 }; PAGES];
    counted(&faults, || {
        // SAFETY: an open file; the call does not access memory of this process.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, (PAGES * MIDDLE) as i64) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    })?;
    let mapping = HugeMapping::of_file(file.as_fd(), PAGES * MIDDLE, MIDDLE)?;
    all_zero(&mapping, MIDDLE, "fallocate")?;
    if dirtied(&mapping.frames()?) == 0 {
        return Err("no page came again, so that this showed nothing".into());
    }
    Ok(())
}

fn populated_at_once() -> Result<(), Failed> {
    const PAGES: usize = 6;
    for source in [Source::Pool2M, Source::Transparent] {
        choose("prefetchw", "large")?;
        let mapping = HugeMapping::new(source, PAGES)?;
        counted(&[Fault { size: MIDDLE, offset: 0, hint: 0 }; PAGES], || Ok(mapping.populate()?))?;
        all_zero(&mapping, MIDDLE, &format!("{source:?}"))?;
    }
    Ok(())
}

fn chunks_divide_the_extent_or_not() -> Result<(), Failed> {
    for chunk in [SMALL, 3 * SMALL, 511 * SMALL, 512 * SMALL, 513 * SMALL, GIGANTIC] {
        for method in module::available()? {
            choose(&method, "large")?;
            module::set("chunk", chunk.to_string())?;
            let mut mapping = HugeMapping::new(Source::Pool2M, offsets().len())?;
            dirtied(&touch_and_judge(&mapping, &format!("{method}, chunks of {chunk}"))?);
            mapping.dirty();
        }
    }
    Ok(())
}

fn copy_on_write(source: Source) -> Result<(), Failed> {
    choose("movnti", "large")?;
    let mut mapping = HugeMapping::new(source, 2)?;
    mapping.dirty();
    mapping.bytes_mut()[5] = 1;
    let held = std::mem::ManuallyDrop::new(mapping);
    counted(&[], || {
        let address = held.address();
        Child::spawn(move || {
            let bytes = address as *mut u8;
            // SAFETY: the child's copy of the parent's mapping, used by its only thread.
            unsafe {
                assert_eq!(bytes.add(5).read(), 1, "the child sees what the parent wrote");
                bytes.add(6).write(2);
                assert_eq!(bytes.add(5).read(), 1, "and sees it in the copy");
                assert_eq!(bytes.add(MIDDLE - 1).read(), 0xa5);
            }
            Ok(())
        })?
        .succeed()
    })?;
    let mut mapping = std::mem::ManuallyDrop::into_inner(held);
    assert_eq!(&mapping.bytes()[4..8], [0xa5, 1, 0xa5, 0xa5], "the parent keeps its own");
    // Pages that the child faults in are zero, too.
    Child::spawn(move || {
        let mut mapping = HugeMapping::new(source, 2)?;
        mapping.touch(MIDDLE + 1);
        mapping.touch(1);
        all_zero(&mapping, MIDDLE, "in the child")?;
        mapping.dirty();
        Ok(())
    })?
    .succeed()?;
    mapping.dirty();
    Ok(())
}
