//! Tests pages with hardware errors, injected as the machine-check handler reports them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{Kind, Probe, counter, drain, each_kind, fill, is_zero, meminfo, memory};
use crate::huge::{HugeMapping, MIDDLE, SMALL};
use crate::process::{Child, End};

pub(super) fn tests(suite: &mut Suite) {
    each_kind(suite, "a_broken_page_is_not_mapped", a_broken_page_is_not_mapped);
    each_kind(suite, "a_broken_page_does_not_return", a_broken_page_does_not_return);
}

/// Marks a frame as broken.
pub(super) fn poison(frame: u64) -> Result<(), Failed> {
    let inject = "/sys/kernel/debug/hwpoison/corrupt-pfn";
    let before = meminfo("HardwareCorrupted")?;
    // The kernel may report that it cannot handle such a page.
    let _ = std::fs::write(inject, frame.to_string());
    if meminfo("HardwareCorrupted")? <= before {
        return Err(format!("{inject} did not break frame {frame:#x}").into());
    }
    Ok(())
}

fn protect(mapping: &HugeMapping, offset: usize, prot: i32) {
    let start = (mapping.address() + offset) as *mut libc::c_void;
    // SAFETY: a page of this test's mapping; only children that are expected to die violate the protection.
    assert_eq!(unsafe { libc::mprotect(start, SMALL, prot) }, 0);
}

/// The page is broken while it is allocated but not mapped: touching it must not map it.
fn a_broken_page_is_not_mapped(kind: Kind) -> Result<(), Failed> {
    drain()?;
    let device = crate::device::Device::of(kind)?;
    let mut mapping = device.reserve(2 * MIDDLE)?;
    let broken = 7 * SMALL;
    // A mapping of its own, which the first touch of another page leaves out.
    protect(&mapping, broken, PROT_NONE);
    mapping.touch(0);
    let frame = Probe::open()?.at(mapping.address())?.frame + 7;
    poison(frame)?;
    protect(&mapping, broken, PROT_READ | PROT_WRITE);
    let address = mapping.address();
    let dies = |offset: usize| -> Result<End, Failed> {
        let child = Child::spawn(|| {
            // SAFETY: within the mapping; only this child is affected.
            unsafe { ((address + offset) as *mut u8).write_volatile(1) };
            Ok(())
        })?;
        Ok(child.wait()?)
    };
    assert_eq!(dies(broken)?, End::Signal(libc::SIGBUS));
    assert_eq!(dies(broken + SMALL - 1)?, End::Signal(libc::SIGBUS));
    for offset in [broken - 1, broken + SMALL, MIDDLE + broken] {
        assert_eq!(dies(offset)?, End::Exit(0), "offset {offset:#x}");
    }
    let own = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut page = [0; SMALL];
    let at = (address + broken) as u64;
    let refused = own.read_at(&mut page, at).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::EIO)), "a debugger reads");
    let refused = own.write_at(&page, at).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::EIO)), "a debugger writes");
    own.read_exact_at(&mut page, at + SMALL as u64)?;
    // The rest is usable.
    fill(&mut mapping.bytes_mut()[MIDDLE..], 3);
    super::holds(&mapping.bytes()[MIDDLE..], 3, "the rest")
}

/// A broken page is neither reused by the pool, nor freed, whenever it broke.
fn a_broken_page_does_not_return(kind: Kind) -> Result<(), Failed> {
    drain()?;
    let probe = Probe::open()?;
    let retyped = kind.attribute != super::Attribute::Wb;
    for while_free in [false, true] {
        if while_free && !retyped {
            continue;
        }
        let lost = counter("lost")?;
        let mapping = memory(kind, 4 * MIDDLE)?;
        let frame = probe.at(mapping.address() + MIDDLE)?.frame + 3;
        if !while_free {
            poison(frame)?;
        }
        drop(mapping);
        if while_free {
            assert_eq!(counter("pooled")?, 4);
            poison(frame)?;
        }
        let mapping = memory(kind, 8 * MIDDLE)?;
        assert_eq!(counter("lost")?, lost + 1, "broken while free: {while_free}");
        for offset in (0..mapping.length()).step_by(MIDDLE) {
            let found = probe.at(mapping.address() + offset)?.frame;
            assert_ne!(found / 512, frame / 512, "broken while free: {while_free}");
        }
        is_zero(&mapping, "new memory")?;
        drop(mapping);
        drain()?;
        // Broken, not free, and of the same type: as write-back it could be loaded speculatively.
        let mut entry = [0; 8];
        File::open("/proc/kpageflags")?.read_exact_at(&mut entry, frame * 8)?;
        let entry = u64::from_ne_bytes(entry);
        assert_eq!((entry >> 19 & 1, entry >> 10 & 1), (1, 0), "the broken page's flags are {entry:#x}");
        assert_eq!(probe.frame(frame)?.direct.memory_type, kind.attribute.memory_type());
    }
    Ok(())
}
