//! Tests the automatic rule: ranges that one call faults in are extents, without a hint.

use std::io;
use std::ptr::null_mut;
use std::thread;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::callers::{ALL, LONG};
use crate::hints::{choose, touch};
use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module::{self, Counters, Fault, counted};
use crate::process::Child;

const PAGES: usize = 4;

pub(crate) fn tests(suite: &mut Suite) {
    for source in [Source::Pool2M, Source::Transparent] {
        let mut add = |name: &str, test: fn(Source) -> Result<(), Failed>| {
            suite.test(&format!("automatic::{name}::{source:?}"), move || test(source));
        };
        add("off_by_default", off_by_default);
        add("populating", populating);
        add("locking", locking);
        add("buffers_of_io_uring", buffers_of_io_uring);
        add("only_the_range_of_the_call", only_the_range_of_the_call);
        add("only_while_the_call_lasts", only_while_the_call_lasts);
    }
    suite.test("automatic::mapping_with_map_populate", mapping_with_map_populate);
    suite.test("automatic::many_threads", many_threads);
    suite.test("automatic::switched_under_calls", switched_under_calls);
    suite.test("automatic::short_pins_are_no_extents", short_pins_are_no_extents);
    suite.test("loading::automatic_from_the_start", automatic_from_the_start);
}

/// Chooses parameters with the automatic rule, which ends with the value.
pub(crate) struct Automatic;

impl Automatic {
    pub(crate) fn on() -> Result<Automatic, Failed> {
        choose(LONG)?;
        assert_eq!(module::get("automatic")?, "N");
        module::set("automatic", "1")?;
        Ok(Automatic)
    }
}

impl Drop for Automatic {
    fn drop(&mut self) {
        if let Err(error) = module::set("automatic", "0") {
            eprintln!("the automatic rule stays: {error}");
        }
    }
}

/// Returns the faults of a call that faults in `pages` pages from their start on, in an extent of this length.
fn each(pages: usize, extent: u64) -> Vec<Fault> {
    vec![Fault { size: MIDDLE, offset: 0, hint: extent }; pages]
}

fn populate(mapping: &HugeMapping) -> Result<(), Failed> {
    Ok(mapping.populate()?)
}

fn off_by_default(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, PAGES)?;
    counted(&each(PAGES, 0), || populate(&mapping))?;
    let mapping = HugeMapping::new(source, PAGES)?;
    counted(&each(PAGES, 0), || pin(&mapping, PAGES * MIDDLE))
}

fn populating(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    for threshold in [LONG, LONG + 1] {
        module::set("threshold", threshold.to_string())?;
        let mapping = HugeMapping::new(source, PAGES)?;
        counted(&each(PAGES, LONG), || populate(&mapping))?;
        mapping.frames()?;
    }
    Ok(())
}

fn locking(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    let mapping = HugeMapping::new(source, PAGES)?;
    counted(&each(PAGES, LONG), || {
        // SAFETY: locks the value's own mapping; unmapping it unlocks it.
        let result = unsafe { libc::mlock(mapping.pointer(), mapping.length()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
    })
}

fn mapping_with_map_populate() -> Result<(), Failed> {
    let _on = Automatic::on()?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_POPULATE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let length = PAGES * MIDDLE;
    let mapped = counted(&each(PAGES, LONG), || {
        // SAFETY: without MAP_FIXED, the mapping replaces no other.
        let mapped = unsafe { libc::mmap(null_mut(), length, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error().into()) } else { Ok(mapped) }
    })?;
    // SAFETY: the mapping above, which nothing refers to.
    unsafe { libc::munmap(mapped, length) };
    Ok(())
}

/// `struct io_uring_params`, of which only the size matters here.
#[repr(C, align(8))]
struct IoUringParams([u8; 120]);

/// Registers the start of a mapping as a buffer of io_uring, which pins it until this function returns.
fn pin(mapping: &HugeMapping, length: usize) -> Result<(), Failed> {
    const REGISTER_BUFFERS: usize = 0;
    let mut params = IoUringParams([0; 120]);
    // SAFETY: the parameters are zeros of their size, which the kernel fills in.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, &raw mut params.0) };
    if ring < 0 {
        return Err(format!("io_uring_setup: {}", io::Error::last_os_error()).into());
    }
    let ring = ring as i32;
    let buffer = libc::iovec { iov_base: mapping.pointer(), iov_len: length };
    // SAFETY: one buffer inside the mapping, which outlives the ring.
    let result =
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_BUFFERS, &raw const buffer, 1) };
    let error = io::Error::last_os_error();
    // SAFETY: the descriptor of this function.
    unsafe { libc::close(ring) };
    if result == 0 { Ok(()) } else { Err(format!("io_uring_register: {error}").into()) }
}

fn buffers_of_io_uring(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    module::set("threshold", u64::MAX.to_string())?;
    let mapping = HugeMapping::new(source, PAGES)?;
    counted(&each(PAGES, ALL), || pin(&mapping, PAGES * MIDDLE))?;
    mapping.frames()?;
    Ok(())
}

fn short_pins_are_no_extents() -> Result<(), Failed> {
    let _on = Automatic::on()?;
    for length in [4096, MIDDLE - 4096] {
        let mapping = HugeMapping::new(Source::Pool2M, 1)?;
        counted(&each(1, 0), || pin(&mapping, length))?;
    }
    Ok(())
}

fn only_the_range_of_the_call(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    // The extents are those of two calls, and a page of another mapping is none of them.
    let first = HugeMapping::new(source, PAGES)?;
    let second = HugeMapping::new(source, PAGES + 1)?;
    counted(&each(PAGES, LONG), || populate(&first))?;
    counted(&each(PAGES + 1, LONG + MIDDLE as u64), || populate(&second))
}

fn only_while_the_call_lasts(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    let mut mapping = HugeMapping::new(source, PAGES)?;
    populate(&mapping)?;
    mapping.discard()?;
    touch(&mapping, &[(MIDDLE, 0)])?;
    // Also in a child of this process, and after a call that fails.
    Child::spawn(|| touch(&HugeMapping::new(source, 1)?, &[(0, 0)]))?.succeed()?;
    let gone = mapping.address();
    drop(mapping);
    // SAFETY: the range is not mapped, which the call reports; it changes no memory.
    let result = unsafe { libc::madvise(gone as *mut _, PAGES * MIDDLE, libc::MADV_POPULATE_WRITE) };
    // EINVAL: before Linux 5.14.
    let error = io::Error::last_os_error().raw_os_error();
    assert!(result == -1 && matches!(error, Some(libc::ENOMEM | libc::EINVAL)), "{error:?}");
    let again = HugeMapping::new(source, 1)?;
    touch(&again, &[(MIDDLE / 2, 0)])
}

fn many_threads() -> Result<(), Failed> {
    let _on = Automatic::on()?;
    let before = Counters::read()?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..4 {
                        populate(&HugeMapping::new(Source::Pool2M, PAGES)?)?;
                    }
                    Ok::<_, Failed>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let since = Counters::read()?.since(&before);
    // The threads' own memory may add faults that are not hinted.
    assert_eq!(since.get("movnti/hinted"), 6 * 4 * PAGES as u64, "{since:?}");
    assert_eq!(since.get("skipped"), since.get("faults") - 6 * 4 * PAGES as u64, "{since:?}");
    Ok(())
}

fn switched_under_calls() -> Result<(), Failed> {
    let on = Automatic::on()?;
    let children: Vec<Child> = (0..3)
        .map(|_| {
            Child::spawn(|| {
                loop {
                    let mapping = HugeMapping::new(Source::Pool2M, PAGES)?;
                    populate(&mapping)?;
                    assert_eq!(mapping.first_dirt(), None);
                }
            })
        })
        .collect::<io::Result<_>>()?;
    for round in 0..12 {
        module::set("automatic", if round % 2 == 0 { "0" } else { "1" })?;
        thread::sleep(std::time::Duration::from_millis(50));
    }
    for child in children {
        child.kill()?;
    }
    // It is on, and no call that was in progress at a switch is remembered.
    let mapping = HugeMapping::new(Source::Pool2M, PAGES)?;
    touch(&mapping, &[(0, 0)])?;
    let mapping = HugeMapping::new(Source::Pool2M, PAGES)?;
    counted(&each(PAGES, LONG), || populate(&mapping))?;
    drop(on);
    module::settle()?;
    Ok(())
}

fn automatic_from_the_start() -> Result<(), Failed> {
    let with = |parameters: &str| -> Result<(), Failed> {
        module::gone()?;
        module::load(&format!("method=movnti cached_method=prefetchw threshold={LONG} {parameters}"))?;
        Ok(())
    };
    crate::loading::refused("automatic=perhaps", libc::EINVAL)?;
    with("automatic=1")?;
    assert_eq!(module::get("automatic")?, "Y");
    let mapping = HugeMapping::new(Source::Transparent, PAGES)?;
    counted(&each(PAGES, LONG), || populate(&mapping))?;
    // Unloaded while it is on.
    with("")?;
    let mapping = HugeMapping::new(Source::Transparent, PAGES)?;
    counted(&each(PAGES, 0), || populate(&mapping))?;
    module::gone()?;
    Ok(())
}
