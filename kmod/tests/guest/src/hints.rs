//! Tests thresholds and hints on both sides of each boundary.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::device::{Device, Hint};
use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, Counters, Fault, counted, until};
use crate::process::Child;

const PAGES: usize = 8;
/// The length of the tests' hints, and the threshold.
const LONG: u64 = 8 << 20;

pub(crate) fn tests(suite: &mut Suite) {
    for source in [Source::Pool2M, Source::Transparent] {
        let mut add = |name: &str, test: fn(Source) -> Result<(), Failed>| {
            suite.test(&format!("hints::{name}::{source:?}"), move || test(source));
        };
        add("threshold_of_single_pages", threshold_of_single_pages);
        add("threshold_of_hints", threshold_of_hints);
        add("first_last_and_beyond", first_last_and_beyond);
        add("edges_inside_a_page", edges_inside_a_page);
        add("shorter_than_a_page", shorter_than_a_page);
        add("the_longest_counts", the_longest_counts);
        add("a_thread_shares_them", a_thread_shares_them);
        add("a_forked_child_has_none", a_forked_child_has_none);
        add("undone", undone);
        add("closed", closed);
    }
    suite.test("hints::end_with_the_process", end_with_the_process);
    suite.test("hints::end_with_a_killed_process", end_with_a_killed_process);
    suite.test("hints::end_with_exec", end_with_exec);
    suite.test("hints::have_a_limit", have_a_limit);
    suite.test("hints::one_process_leaves_room_for_others", one_process_leaves_room_for_others);
    suite.test("hints::structures_can_grow", structures_can_grow);
    suite.test("hints::nonsense_is_refused", nonsense_is_refused);
    suite.test("hints::only_root_may", only_root_may);
}

/// Sets a method for large extents that cannot be set for small ones.
pub(crate) fn choose(threshold: u64) -> io::Result<()> {
    module::fresh()?;
    module::set("method", "movnti")?;
    module::set("cached_method", "prefetchw")?;
    module::set("threshold", threshold.to_string())
}

/// Touches each offset; the number next to it is the length of the hint that contains it.
pub(crate) fn touch(mapping: &HugeMapping, touches: &[(usize, u64)]) -> Result<(), Failed> {
    let fault = |(offset, hint): &(usize, u64)| Fault { size: MIDDLE, offset: offset % MIDDLE, hint: *hint };
    let faults: Vec<Fault> = touches.iter().map(fault).collect();
    counted(&faults, || {
        for (offset, _) in touches {
            mapping.touch(*offset);
        }
        Ok(())
    })?;
    match mapping.frames() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the test got no huge pages: {error}").into()),
    }
}

fn threshold_of_single_pages(source: Source) -> Result<(), Failed> {
    let size = MIDDLE as u64;
    for threshold in [0, 1, size - 4096, size - 1, size, size + 1, size + 4096, u64::MAX] {
        choose(threshold)?;
        let mapping = HugeMapping::new(source, 3)?;
        // Check that the prediction distinguishes lengths on both sides of the threshold.
        let before = Counters::read()?;
        touch(&mapping, &[(5, 0), (2 * MIDDLE - 1, 0), (2 * MIDDLE + MIDDLE / 2, 0)])?;
        let after = Counters::read()?.since(&before);
        assert_eq!(after.get("skipped"), if threshold <= size { 0 } else { 3 });
    }
    Ok(())
}

fn threshold_of_hints(source: Source) -> Result<(), Failed> {
    for (threshold, skipped) in [(LONG - 1, 0), (LONG, 0), (LONG + 1, 4)] {
        choose(threshold)?;
        let mapping = HugeMapping::new(source, 4)?;
        let device = Device::open()?;
        device.hint(mapping.address(), LONG)?;
        let before = Counters::read()?;
        touch(&mapping, &[0, 1, 2, 3].map(|page| (page * MIDDLE + MIDDLE / 2, LONG)))?;
        let after = Counters::read()?.since(&before);
        assert_eq!(after.get("skipped"), skipped);
        let hinted = if skipped == 0 { "movnti/hinted" } else { "prefetchw/hinted" };
        assert_eq!(after.get(hinted), 2 * 4, "the two stretches around the touched page, of four pages");
    }
    Ok(())
}

fn first_last_and_beyond(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, PAGES)?;
    let device = Device::open()?;
    assert_eq!(Counters::read()?.get("hints"), 0);
    device.hint(mapping.address() + 2 * MIDDLE, LONG)?;
    assert_eq!(Counters::read()?.get("hints"), 1);
    let touches: Vec<_> =
        (0..PAGES).map(|page| (page * MIDDLE + 77, if (2..6).contains(&page) { LONG } else { 0 })).collect();
    touch(&mapping, &touches)
}

fn edges_inside_a_page(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let start = 2 * MIDDLE + MIDDLE / 2;
    let end = start + LONG as usize;
    for (offset, hint) in [(start - 1, 0), (start, LONG), (end - 1, LONG), (end, 0)] {
        let mapping = HugeMapping::new(source, PAGES)?;
        let device = Device::open()?;
        device.hint(mapping.address() + start, LONG)?;
        touch(&mapping, &[(offset, hint)])?;
    }
    Ok(())
}

fn shorter_than_a_page(source: Source) -> Result<(), Failed> {
    // The huge page is longer than the hint, so no extent comes from the hint.
    for length in [SMALL as u64, MIDDLE as u64] {
        choose(MIDDLE as u64)?;
        let mapping = HugeMapping::new(source, 1)?;
        let device = Device::open()?;
        device.hint(mapping.address(), length)?;
        touch(&mapping, &[(9, length)])?;
    }
    Ok(())
}

fn the_longest_counts(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, PAGES)?;
    let device = Device::open()?;
    let other = Device::open()?;
    let start = mapping.address();
    device.hint(start, 2 * MIDDLE as u64)?;
    other.hint(start + MIDDLE, LONG)?;
    device.hint(start + MIDDLE, 3 * MIDDLE as u64)?;
    assert_eq!(Counters::read()?.get("hints"), 3);
    touch(&mapping, &[(0, 2 * MIDDLE as u64), (MIDDLE, LONG), (4 * MIDDLE, LONG), (5 * MIDDLE, 0)])?;
    // Removing one file's hints leaves those of the other.
    other.unhint()?;
    touch(&mapping, &[(3 * MIDDLE, 3 * MIDDLE as u64), (6 * MIDDLE, 0)])
}

fn a_thread_shares_them(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, 4)?;
    let device = Device::open()?;
    device.hint(mapping.address(), LONG)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| touch(&mapping, &[(MIDDLE, LONG)]));
        thread.join().map_err(|_| Failed::from("the thread panicked"))?
    })
}

fn a_forked_child_has_none(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = std::mem::ManuallyDrop::new(HugeMapping::new(source, 4)?);
    let device = Device::open()?;
    device.hint(mapping.address(), LONG)?;
    // The child has the addresses and the open file, but the hint belongs to the parent's address space.
    Child::spawn(|| touch(&mapping, &[(0, 0), (3 * MIDDLE, 0)]))?.succeed()?;
    // The child's end does not remove the parent's hint.
    touch(&mapping, &[(0, LONG), (3 * MIDDLE, LONG)])?;
    drop(std::mem::ManuallyDrop::into_inner(mapping));
    Ok(())
}

fn undone(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, 4)?;
    let device = Device::open()?;
    device.hint(mapping.address(), LONG)?;
    touch(&mapping, &[(0, LONG)])?;
    device.unhint()?;
    assert_eq!(Counters::read()?.get("hints"), 0);
    touch(&mapping, &[(MIDDLE, 0)])?;
    // Removing no hints is not an error, and the range can be hinted again.
    device.unhint()?;
    device.hint(mapping.address(), LONG)?;
    touch(&mapping, &[(2 * MIDDLE, LONG)])
}

fn closed(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let mapping = HugeMapping::new(source, 4)?;
    let device = Device::open()?;
    let second = device.0.try_clone()?;
    device.hint(mapping.address(), LONG)?;
    drop(device);
    touch(&mapping, &[(0, LONG)])?;
    drop(second);
    assert_eq!(Counters::read()?.get("hints"), 0, "the file is closed for the last time");
    touch(&mapping, &[(MIDDLE, 0)])
}

/// Creates a pipe: the reading end and the writing end.
pub(crate) fn pipe() -> io::Result<(std::fs::File, std::fs::File)> {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors to a local of that size.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors that nothing else owns.
    let [read, write] = ends.map(|end| std::fs::File::from(unsafe { OwnedFd::from_raw_fd(end) }));
    Ok((read, write))
}

/// Starts a child that declares a hint through the parent's file, reports it, and then does `next`.
fn hinting_child(device: &Device, next: impl FnOnce() -> Result<(), Failed>) -> Result<Child, Failed> {
    let (mut read, mut write) = pipe()?;
    let child = Child::spawn(move || {
        let mapping = HugeMapping::new(Source::Pool2M, 4)?;
        device.hint(mapping.address(), LONG)?;
        touch(&mapping, &[(0, LONG)])?;
        write.write_all(b"!")?;
        drop(write);
        next()
    })?;
    // This fails if the child ends without reporting.
    read.read_exact(&mut [0])?;
    Ok(child)
}

fn no_hints_remain() -> io::Result<()> {
    until("there are hints", || Ok(Counters::read()?.get("hints") == 0))
}

fn end_with_the_process() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    hinting_child(&device, || Ok(()))?.succeed()?;
    no_hints_remain()?;
    Ok(())
}

pub(crate) fn sleep_for_ever() -> Result<(), Failed> {
    loop {
        std::thread::park();
    }
}

fn end_with_a_killed_process() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    let child = hinting_child(&device, sleep_for_ever)?;
    assert_eq!(Counters::read()?.get("hints"), 1, "the child lives");
    child.kill()?;
    no_hints_remain()?;
    Ok(())
}

fn end_with_exec() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    let descriptor = device.0.as_raw_fd();
    let child = hinting_child(&device, || {
        // The file stays open across exec: the hint ends because its address space does.
        // SAFETY: an open descriptor; only its flags change.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
        Err(Command::new("/bin/sleep").arg("1000").exec().into())
    })?;
    no_hints_remain()?;
    // The child still exists and has the file open.
    child.kill().map(|_| ())?;
    device.hint(0, LONG)?;
    assert_eq!(Counters::read()?.get("hints"), 1);
    Ok(())
}

fn have_a_limit() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    let mut taken = 0;
    let error = loop {
        match device.hint(taken * MIDDLE, LONG) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken <= 1 << 16, "one process can fill the kernel's memory with hints");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    assert_eq!(Counters::read()?.get("hints"), taken as u64);
    // The limit is that of the process, whichever file it uses.
    let other = Device::open()?;
    let refused = other.hint(0, LONG).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::ENOSPC)), "another file of the process");
    // Another process has its own limit, also with the same file, and removing hints makes room.
    Child::spawn(|| {
        device.hint(0, LONG)?;
        Device::open()?.hint(0, LONG)?;
        Ok(())
    })?
    .succeed()?;
    device.unhint()?;
    other.hint(0, LONG)?;
    assert_eq!(Counters::read()?.get("hints"), 1);
    Ok(())
}

/// One process uses many files to take as many hints as it can; another process still gets its own.
fn one_process_leaves_room_for_others() -> Result<(), Failed> {
    choose(LONG)?;
    let mut files = Vec::new();
    for _ in 0..80 {
        let device = Device::open()?;
        while device.hint(0, LONG).is_ok() {}
        files.push(device);
    }
    Child::spawn(|| Ok(Device::open()?.hint(MIDDLE, LONG)?))?.succeed()
}

/// The structures may grow: a longer one is accepted if the module knows everything that is set in it.
fn structures_can_grow() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    let hint = Hint::new(MIDDLE, LONG);
    let error = |hint: Hint| device.hint_as(&hint).map_err(|error| error.raw_os_error());
    for size in [0, 4, 16, Hint::SIZE - 1] {
        assert_eq!(error(Hint { size, ..hint }), Err(Some(libc::EINVAL)), "of {size} bytes");
    }
    assert_eq!(error(Hint { flags: 1, ..hint }), Err(Some(libc::EINVAL)), "an unknown flag");
    assert_eq!(error(Hint { flags: 1 << 31, ..hint }), Err(Some(libc::EINVAL)), "an unknown flag");
    for later in [1, 1 << 63] {
        assert_eq!(error(Hint { size: Hint::SIZE + 8, later, ..hint }), Err(Some(libc::E2BIG)));
    }
    assert_eq!(error(Hint { size: u32::MAX, ..hint }), Err(Some(libc::E2BIG)));
    assert_eq!(Counters::read()?.get("hints"), 0, "nothing of it was taken");
    assert_eq!(error(Hint { size: Hint::SIZE + 8, ..hint }), Ok(()));
    assert_eq!(error(Hint { later: 7, ..hint }), Ok(()), "what is after the structure does not count");
    assert_eq!(Counters::read()?.get("hints"), 2);
    // A request for a file of a namespace (NS_GET_PARENT) is none of this device.
    assert_eq!(device.ioctl(0xb702, 0).map_err(|error| error.raw_os_error()), Err(Some(libc::ENOTTY)));
    assert_eq!(Counters::read()?.get("hints"), 2);
    Ok(())
}

fn nonsense_is_refused() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    assert_eq!(device.abi()?, 2);
    let refused = |what: &str, result: io::Result<()>, wanted: i32| match result
        .map_err(|error| error.raw_os_error())
    {
        Err(Some(number)) if number == wanted => Ok(()),
        other => Err(Failed::from(format!("{what}: {other:?} in place of error {wanted}"))),
    };
    // Beyond the addresses of every processor, including five-level page tables.
    let whole = 1_u64 << 57;
    refused("no bytes", device.hint(MIDDLE, 0), libc::EINVAL)?;
    refused("an address inside a page", device.hint(MIDDLE + 1, LONG), libc::EINVAL)?;
    refused("a part of a page", device.hint(MIDDLE, LONG + 1), libc::EINVAL)?;
    refused("past the end", device.hint(MIDDLE, whole), libc::EINVAL)?;
    refused("around the end", device.hint(MIDDLE, 0_u64.wrapping_sub(SMALL as u64)), libc::EINVAL)?;
    refused("the kernel's addresses", device.hint(usize::MAX << 47, LONG), libc::EINVAL)?;
    refused("no memory", device.hint_at(0), libc::EFAULT)?;
    refused("the kernel's memory", device.hint_at(usize::MAX << 47), libc::EFAULT)?;
    refused("an unknown request", device.ioctl(0xc4ff, 0), libc::ENOTTY)?;
    refused("a request of another device", device.ioctl(0x5401, 0), libc::ENOTTY)?;
    assert_eq!(Counters::read()?.get("hints"), 0, "nothing of it was taken");
    device.hint(0, (1 << 47) - SMALL as u64)?;
    Ok(())
}

fn only_root_may() -> Result<(), Failed> {
    module::fresh()?;
    Child::spawn(|| {
        // SAFETY: changes the user of this child only.
        if unsafe { libc::setresuid(1000, 1000, 1000) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        for (read, write) in [(true, false), (false, true), (true, true)] {
            match OpenOptions::new().read(read).write(write).open("/dev/bulkmem") {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                other => return Err(format!("a user's open gave {other:?}").into()),
            }
        }
        Ok(())
    })?
    .succeed()
}
