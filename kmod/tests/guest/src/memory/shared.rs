//! Tests several mappings of the same memory: in children, in halves, moved, protected; and the end of the last one.

use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use libc::{PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    Answer, Attribute, Kind, Probe, Reserved, all_back, each_kind, fill, first_change, free_memory, holds,
    is_zero, memory,
};
use crate::huge::{HugeMapping, MIDDLE, SMALL};
use crate::process::{Child, End};

pub(super) fn tests(suite: &mut Suite) {
    each_kind(suite, "a_child_shares_it", a_child_shares_it);
    each_kind(suite, "a_child_outlives_its_parents_mapping", a_child_outlives_its_parents_mapping);
    each_kind(suite, "holes_leave_the_rest", holes_leave_the_rest);
    each_kind(suite, "it_can_be_moved", it_can_be_moved);
    each_kind(suite, "protection_changes_and_comes_back", protection_changes_and_comes_back);
    each_kind(suite, "killed_while_mapping", killed_while_mapping);
    each_kind(suite, "killed_in_use", killed_in_use);
}

const LENGTH: usize = 4 * MIDDLE;

fn a_child_shares_it(kind: Kind) -> Result<(), Failed> {
    let probe = Probe::open()?;
    let mut mapping = memory(kind, LENGTH)?;
    // The parent's touch maps the first half, the child's the second.
    fill(&mut mapping.bytes_mut()[..LENGTH / 2], 1);
    let frames: Vec<u64> = frames(&probe, &mapping, 0..LENGTH / 2)?;
    let shared = &mut mapping;
    let child = Child::spawn(|| {
        holds(&shared.bytes()[..LENGTH / 2], 1, "what the child sees")?;
        let answers = answers(&probe, shared, 0..LENGTH / 2)?;
        for answer in &answers {
            assert_eq!(answer.user.memory_type, kind.attribute.memory_type(), "in the child");
            assert_eq!(answer.user.size, kind.page as u64, "in the child");
        }
        assert_eq!(answers.iter().map(|answer| answer.frame).collect::<Vec<_>>(), frames, "in the child");
        fill(shared.bytes_mut(), 2);
        Ok(())
    })?;
    child.succeed()?;
    holds(mapping.bytes(), 2, "what the parent sees")
}

fn answers(probe: &Probe, mapping: &HugeMapping, range: std::ops::Range<usize>) -> io::Result<Vec<Answer>> {
    range.step_by(SMALL).map(|offset| probe.at(mapping.address() + offset)).collect()
}

fn frames(probe: &Probe, mapping: &HugeMapping, range: std::ops::Range<usize>) -> io::Result<Vec<u64>> {
    Ok(answers(probe, mapping, range)?.into_iter().map(|answer| answer.frame).collect())
}

fn a_child_outlives_its_parents_mapping(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let length = 64 << 20;
    let mut mapping = memory(kind, length)?;
    fill(mapping.bytes_mut(), 3);
    let mut ends = [0; 2];
    // SAFETY: writes two numbers to a local.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let shared = &mapping;
    let child = Child::spawn(|| {
        let mut byte = 0u8;
        // SAFETY: reads the parent's byte into a local.
        assert_eq!(unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) }, 1);
        holds(shared.bytes(), 3, "what the child sees")
    })?;
    drop(mapping);
    // The child's memory must not be free.
    super::dirt(length)?;
    // SAFETY: writes one byte of a constant, and closes each end once.
    unsafe {
        assert_eq!(libc::write(ends[1], b"x".as_ptr().cast(), 1), 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    child.succeed()?;
    all_back(before)
}

fn unmap(address: usize, length: usize) {
    // SAFETY: the callers pass a piece of their own mapping, without references to it.
    assert_eq!(unsafe { libc::munmap(address as *mut _, length) }, 0);
}

fn is_mapped(address: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: writes one byte for one page.
    unsafe { libc::mincore(address as *mut _, SMALL, (&raw mut there).cast()) == 0 }
}

fn holes_leave_the_rest(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let probe = Probe::open()?;
    let mut mapping = memory(kind, LENGTH)?;
    fill(mapping.bytes_mut(), 4);
    let start = mapping.address();
    let frames = frames(&probe, &mapping, 0..LENGTH)?;
    // A page inside a huge page, the first page, and a range from inside one huge page to the next but one.
    let holes = [(MIDDLE / 2, SMALL), (0, SMALL), (MIDDLE + 5 * SMALL, MIDDLE)];
    for (offset, length) in holes {
        unmap(start + offset, length);
    }
    for offset in (0..LENGTH).step_by(SMALL) {
        let hole = holes.iter().any(|(from, length)| (*from..from + length).contains(&offset));
        assert_eq!(is_mapped(start + offset), !hole, "offset {offset:#x}");
        if hole {
            continue;
        }
        // SAFETY: mapped, as the line above checks, and used only here.
        let page = unsafe { std::slice::from_raw_parts((start + offset) as *const u8, SMALL) };
        if let Some(at) = first_change(page, 4 ^ (offset as u64 / 8)) {
            return Err(
                format!("byte {at} of the page at {offset:#x} changed when others were unmapped").into()
            );
        }
        let answer = probe.at(start + offset)?;
        assert_eq!(answer.frame, frames[offset / SMALL], "another page at {offset:#x}");
        assert_eq!(answer.user.memory_type, kind.attribute.memory_type(), "offset {offset:#x}");
    }
    // The last huge page has no hole and stays a huge page.
    assert_eq!(probe.at(start + LENGTH - SMALL)?.user.size, kind.page as u64);
    drop(mapping);
    all_back(before)
}

/// Moves a mapping and returns its new address.
fn move_to(from: usize, length: usize, to: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: from the caller's mapping into address space that it reserved, without references to either.
    let moved = unsafe { libc::mremap(from as *mut _, length, length, flags, to) };
    assert_eq!(moved.addr(), to, "{}", io::Error::last_os_error());
}

fn it_can_be_moved(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let probe = Probe::open()?;
    // To an address where large pages fit, and to one where they do not.
    for shift in [0, SMALL] {
        let reserved = Reserved::new(LENGTH + 2 * MIDDLE)?;
        let to = reserved.aligned() + shift;
        let mut mapping = ManuallyDrop::new(memory(kind, LENGTH)?);
        fill(&mut mapping.bytes_mut()[..LENGTH / 2], 5);
        let frames = frames(&probe, &mapping, 0..LENGTH / 2)?;
        move_to(mapping.address(), LENGTH, to);
        // SAFETY: mapped there until `reserved` is dropped, and used only here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, LENGTH) };
        holds(&bytes[..LENGTH / 2], 5, "the bytes at their new place")?;
        assert!(bytes[LENGTH / 2..].iter().all(|byte| *byte == 0), "what was not touched before is not 0");
        for (index, frame) in frames.iter().enumerate() {
            let answer = probe.at(to + index * SMALL)?;
            assert_eq!((answer.frame, answer.user.memory_type), (*frame, kind.attribute.memory_type()));
        }
        fill(bytes, 6);
        holds(bytes, 6, "the bytes written at their new place")?;
    }
    all_back(before)
}

fn protection_changes_and_comes_back(kind: Kind) -> Result<(), Failed> {
    let probe = Probe::open()?;
    let mut mapping = memory(kind, LENGTH)?;
    fill(mapping.bytes_mut(), 7);
    let start = mapping.address();
    let protect = |offset: usize, length: usize, prot: i32| {
        // SAFETY: a piece of the mapping; only children that are expected to die violate the protection.
        assert_eq!(unsafe { libc::mprotect((start + offset) as *mut _, length, prot) }, 0);
    };
    let dies = |offset: usize| -> Result<(), Failed> {
        let child = Child::spawn(|| {
            // SAFETY: this only affects the child, as the test expects.
            unsafe { ((start + offset) as *mut u8).write_volatile(1) };
            Ok(())
        })?;
        assert_eq!(child.wait()?, End::Signal(libc::SIGSEGV));
        Ok(())
    };
    // A page inside a huge page, a whole huge page, everything.
    for (offset, length) in [(MIDDLE / 2, SMALL), (MIDDLE, MIDDLE), (0, LENGTH)] {
        protect(offset, length, PROT_READ);
        dies(offset)?;
        holds(mapping.bytes(), 7, "the bytes, to be read only")?;
        protect(offset, length, libc::PROT_NONE);
        dies(offset)?;
        protect(offset, length, PROT_READ | PROT_WRITE);
        holds(mapping.bytes(), 7, "the bytes after both protections")?;
        mapping.touch(offset);
        fill(mapping.bytes_mut(), 7);
        holds(mapping.bytes(), 7, "the bytes written again")?;
        let user = probe.at(start + offset)?.user;
        assert_eq!(user.memory_type, kind.attribute.memory_type());
    }
    Ok(())
}

/// Kills children at moments spread over their work.
fn killed(kind: Kind, work: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    let before = free_memory()?;
    for round in 0..8 {
        let child = Child::spawn(|| {
            loop {
                work()?;
            }
        })?;
        std::thread::sleep(Duration::from_millis(7 + 23 * round));
        assert_eq!(child.kill()?, End::Signal(libc::SIGKILL), "the child ended before it was killed");
    }
    all_back(before)?;
    is_zero(&memory(kind, LENGTH)?, "what the killed had")?;
    // Every page was returned as write-back: otherwise the kernel would refuse to change its type again.
    let wc = Kind { attribute: Attribute::Wc, page: kind.page };
    drop(memory(wc, 256 << 20)?);
    Ok(())
}

fn killed_while_mapping(kind: Kind) -> Result<(), Failed> {
    killed(kind, || {
        drop(memory(kind, 256 << 20)?);
        Ok(())
    })
}

fn killed_in_use(kind: Kind) -> Result<(), Failed> {
    killed(kind, || {
        let mut mapping = memory(kind, 16 << 20)?;
        // The child has a child of its own, which dies without a parent waiting for it.
        // SAFETY: the child only writes to its own memory until it is killed with its parent.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // SAFETY: passes numbers only; requests a signal at the parent's death, and ends.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            fill(mapping.bytes_mut(), 9);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        fill(mapping.bytes_mut(), 9);
        // SAFETY: the child from above.
        unsafe { libc::waitpid(forked, std::ptr::null_mut(), 0) };
        Ok(())
    })
}
