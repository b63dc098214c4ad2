//! Tests what is refused, with which error, and that a refusal changes nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;

use libc::{MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    Attribute, Description, KINDS, Kind, Probe, Reserved, each_kind, fill, holds, memory, once, try_map,
};
use crate::device::{Device, MEMORY};
use crate::huge::{MIDDLE, SMALL};
use crate::module;
use crate::process::Child;

const BOTH: i32 = PROT_READ | PROT_WRITE;

pub(super) fn tests(suite: &mut Suite) {
    once(suite, "descriptions_that_mean_nothing_are_refused", descriptions_that_mean_nothing_are_refused);
    once(suite, "a_refused_description_changes_nothing", a_refused_description_changes_nothing);
    each_kind(suite, "mappings_that_are_not_offered_are_refused", mappings_that_are_not_offered_are_refused);
    each_kind(suite, "advice_takes_nothing_away", advice_takes_nothing_away);
    each_kind(suite, "it_cannot_be_pinned", it_cannot_be_pinned);
    each_kind(suite, "debuggers_see_it", debuggers_see_it);
    once(suite, "only_root_may_open_it", only_root_may_open_it);
    once(suite, "a_mapping_holds_the_module", a_mapping_holds_the_module);
}

/// Opens the device with this access only.
fn open_for(read: bool, write: bool) -> io::Result<File> {
    OpenOptions::new().read(read).write(write).open(MEMORY)
}

fn error<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn descriptions_that_mean_nothing_are_refused() -> Result<(), Failed> {
    let good = Description::from(Kind { attribute: Attribute::Wb, page: SMALL });
    let device = Device::open_at(MEMORY)?;
    let cases = [
        (Description { attribute: 3, ..good }, libc::EOPNOTSUPP),
        (Description { attribute: 4, ..good }, libc::EINVAL),
        (Description { attribute: u32::MAX, ..good }, libc::EINVAL),
        (Description { page_shift: 0, ..good }, libc::EINVAL),
        (Description { page_shift: 13, ..good }, libc::EINVAL),
        (Description { page_shift: 30, ..good }, libc::EINVAL),
        (Description { page_shift: 64 + 12, ..good }, libc::EINVAL),
        (Description { node: 63, ..good }, libc::EINVAL),
        (Description { node: -2, ..good }, libc::EINVAL),
        (Description { node: i32::MAX, ..good }, libc::EINVAL),
        (Description { node: i32::MIN, ..good }, libc::EINVAL),
        (Description { flags: 1, ..good }, libc::EINVAL),
        (Description { reserved: 1, ..good }, libc::EINVAL),
        (Description { size: 16, ..good }, libc::EINVAL),
        // Write-through and another fault: the other fault determines the error.
        (Description { attribute: 3, flags: 1, ..good }, libc::EINVAL),
    ];
    for (description, wanted) in cases {
        assert_eq!(error(device.describe(&description)), wanted, "{description:?}");
    }
    assert_eq!(error(device.ioctl(super::DESCRIBE, 8)), libc::EFAULT);
    Ok(())
}

fn a_refused_description_changes_nothing() -> Result<(), Failed> {
    let kind = Kind { attribute: Attribute::Wc, page: MIDDLE };
    let device = Device::of(kind)?;
    let wrong = Description { flags: 4, ..Kind { attribute: Attribute::Uc, page: SMALL }.into() };
    assert_eq!(error(device.describe(&wrong)), libc::EINVAL);
    let mapping = device.map(MIDDLE)?;
    mapping.touch(0);
    let user = Probe::open()?.at(mapping.address())?.user;
    assert_eq!((user.size, user.memory_type), (MIDDLE as u64, kind.attribute.memory_type()));
    Ok(())
}

fn mappings_that_are_not_offered_are_refused(kind: Kind) -> Result<(), Failed> {
    let before = super::free_memory()?;
    let device = Device::of(kind)?;
    let fd = device.0.as_fd();
    let map = |length, prot, flags, offset| try_map(fd, 0, length, prot, flags, offset);
    assert_eq!(map(MIDDLE, BOTH, MAP_SHARED, 0), Ok(()), "what is offered");
    assert_eq!(map(MIDDLE, PROT_READ, MAP_SHARED, 0), Ok(()), "what is offered");
    assert_eq!(map(MIDDLE, BOTH, MAP_PRIVATE, 0), Err(libc::EINVAL), "private");
    assert_eq!(map(MIDDLE, PROT_READ, MAP_PRIVATE, 0), Err(libc::EINVAL), "private, to read");
    assert_eq!(map(MIDDLE, BOTH | PROT_EXEC, MAP_SHARED, 0), Err(libc::EINVAL), "executable");
    assert_eq!(map(MIDDLE, BOTH, MAP_SHARED, SMALL as i64), Err(libc::EINVAL), "from an offset");
    assert_eq!(map(MIDDLE, BOTH, MAP_SHARED, MIDDLE as i64), Err(libc::EINVAL), "from an offset");
    assert_eq!(map(1 << 46, BOTH, MAP_SHARED, 0), Err(libc::ENOMEM), "more than there is");

    let reserved = Reserved::new(4 * MIDDLE)?;
    let fixed = |address, length| try_map(fd, address, length, BOTH, MAP_SHARED | MAP_FIXED, 0);
    let odd = if kind.page == SMALL { Ok(()) } else { Err(libc::EINVAL) };
    assert_eq!(
        map(MIDDLE + SMALL, BOTH, MAP_SHARED, 0),
        odd,
        "a length that is not a multiple of the page size"
    );
    assert_eq!(
        fixed(reserved.aligned() + SMALL, MIDDLE),
        odd,
        "an address that is not a multiple of the page size"
    );
    assert_eq!(fixed(reserved.aligned(), MIDDLE), Ok(()), "an address that is one");

    for (read, write) in [(true, false), (false, true)] {
        let file = open_for(read, write)?;
        let device = Device(file);
        device.describe(&kind.into()).or_else(|refused| match refused.raw_os_error() {
            Some(libc::EACCES | libc::EBADF) => Ok(()),
            _ => Err(refused),
        })?;
        for prot in [PROT_READ, BOTH] {
            let result = try_map(device.0.as_fd(), 0, MIDDLE, prot, MAP_SHARED, 0);
            assert_eq!(result, Err(libc::EACCES), "opened with read {read}, write {write}");
        }
    }

    let mut mapping = device.map(2 * MIDDLE)?;
    fill(mapping.bytes_mut(), 1);
    let start: *mut libc::c_void = mapping.bytes_mut().as_mut_ptr().cast();
    // SAFETY: the mapping's own range; the test expects a refusal.
    let executable = unsafe { libc::mprotect(start, MIDDLE, BOTH | PROT_EXEC) };
    assert_eq!((executable, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EACCES)));
    for old in [0, 2 * MIDDLE] {
        // SAFETY: as above. A length of 0 requests a second mapping of the same memory.
        let moved = unsafe { libc::mremap(start, old, 3 * MIDDLE, libc::MREMAP_MAYMOVE) };
        let failed = (moved == libc::MAP_FAILED, io::Error::last_os_error().raw_os_error());
        assert_eq!(failed, (true, Some(libc::EFAULT)), "grown from {old}");
    }
    holds(mapping.bytes(), 1, "the bytes after refusals")?;
    drop(mapping);
    super::all_back(before)
}

fn advice_takes_nothing_away(kind: Kind) -> Result<(), Failed> {
    let mut mapping = memory(kind, 2 * MIDDLE)?;
    fill(mapping.bytes_mut(), 2);
    for advice in 0..=25 {
        // Many requests are refused, which is allowed.
        let _ = mapping.advise(advice);
        holds(mapping.bytes(), 2, &format!("the bytes after madvise({advice})"))?;
    }
    assert_eq!(error(mapping.advise(libc::MADV_DONTNEED)), libc::EINVAL);
    assert_ne!(error(mapping.advise(libc::MADV_REMOVE)), 0, "a hole was punched");
    holds(mapping.bytes(), 2, "the bytes")
}

/// Tests `move_pages`, which queries a page's node, and `vmsplice`, which pins it.
fn it_cannot_be_pinned(kind: Kind) -> Result<(), Failed> {
    let mut mapping = memory(kind, MIDDLE)?;
    fill(mapping.bytes_mut(), 3);
    let mut ends = [0; 2];
    // SAFETY: writes two numbers to a local.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let piece = libc::iovec { iov_base: mapping.bytes_mut().as_mut_ptr().cast(), iov_len: SMALL };
    let page = [piece.iov_base];
    let mut status = [0];
    // SAFETY: queries one page and writes one number. Any answer is allowed, as long as the kernel survives.
    unsafe { libc::syscall(libc::SYS_move_pages, 0, 1, page.as_ptr(), 0, status.as_mut_ptr(), 0) };
    // SAFETY: a pipe and a piece of memory of this test, which is refused or outlives the mapping, as the test expects.
    let spliced = unsafe { libc::vmsplice(ends[1], &raw const piece, 1, libc::SPLICE_F_NONBLOCK) };
    let failed = (spliced, io::Error::last_os_error().raw_os_error());
    assert_eq!(failed, (-1, Some(libc::EFAULT)));
    // Looks at every entry of the page tables.
    std::fs::read("/proc/self/smaps")?;
    for end in ends {
        // SAFETY: opened above, and closed once.
        unsafe { libc::close(end) };
    }
    // Copying works, because it takes no references.
    let path = "/tmp/copy";
    std::fs::write(path, mapping.bytes())?;
    let copied = std::fs::read(path)?;
    std::fs::remove_file(path)?;
    holds(&copied, 3, "the bytes that write() took")
}

fn debuggers_see_it(kind: Kind) -> Result<(), Failed> {
    use std::os::unix::fs::FileExt;

    let mut mapping = memory(kind, 2 * MIDDLE)?;
    fill(mapping.bytes_mut(), 4);
    let own = std::fs::OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut seen = vec![0; 3 * SMALL];
    // Across pages and across the boundary of a huge page.
    let offset = MIDDLE - SMALL - 8;
    own.read_exact_at(&mut seen, (mapping.address() + offset) as u64)?;
    assert_eq!(seen, mapping.bytes()[offset..][..seen.len()], "what a debugger reads");
    seen.fill(0x77);
    own.write_all_at(&seen, (mapping.address() + offset) as u64)?;
    assert_eq!(seen, mapping.bytes()[offset..][..seen.len()], "what a debugger wrote");

    // SAFETY: the mapping's own range, without references to it.
    assert_eq!(unsafe { libc::mprotect(mapping.bytes_mut().as_mut_ptr().cast(), MIDDLE, PROT_READ) }, 0);
    let refused = own.write_at(&seen, mapping.address() as u64);
    assert!(refused.is_err(), "a debugger writes to what may only be read");
    Ok(())
}

fn only_root_may_open_it() -> Result<(), Failed> {
    Child::spawn(|| {
        // SAFETY: a child process with one thread.
        assert_eq!(unsafe { libc::setuid(1000) }, 0);
        for (read, write) in [(true, true), (true, false), (false, true)] {
            assert_eq!(error(open_for(read, write)), libc::EACCES);
        }
        Ok(())
    })?
    .succeed()
}

fn a_mapping_holds_the_module() -> Result<(), Failed> {
    let mut mapping = memory(KINDS[5], MIDDLE)?;
    fill(mapping.bytes_mut(), 5);
    module::settle()?;
    module::enable(false)?;
    module::until("the livepatch is there", || Ok(!std::fs::exists("/sys/kernel/livepatch/bulkmem")?))?;
    // The file is closed; only the mapping holds the module.
    for _ in 0..20 {
        let refused = error(module::remove());
        assert!([libc::EAGAIN, libc::EBUSY].contains(&refused), "rmmod under a mapping ended with {refused}");
    }
    holds(mapping.bytes(), 5, "the bytes")?;
    drop(mapping);
    module::until("the module is in use", || Ok(module::remove().is_ok()))?;
    module::fresh()?;
    Ok(())
}
