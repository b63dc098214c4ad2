//! One memory, several mappings: children, halves, moved and protected pieces; and the end of the last one.

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
    // The first half is mapped by the parent's touch, the second by the child's.
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
    // SAFETY: two numbers to write to.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let shared = &mapping;
    let child = Child::spawn(|| {
        let mut byte = 0u8;
        // SAFETY: waits for the parent's byte, which goes to a local.
        assert_eq!(unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) }, 1);
        holds(shared.bytes(), 3, "what the child sees")
    })?;
    drop(mapping);
    // What is free now must not be the child's.
    super::dirt(length)?;
    // SAFETY: one byte of a constant, and the ends are closed once.
    unsafe {
        assert_eq!(libc::write(ends[1], b"x".as_ptr().cast(), 1), 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    child.succeed()?;
    all_back(before)
}

fn unmap(address: usize, length: usize) {
    // SAFETY: the callers give a piece of a mapping of theirs, of which nobody holds a reference.
    assert_eq!(unsafe { libc::munmap(address as *mut _, length) }, 0);
}

fn is_mapped(address: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: one page's answer, to one byte.
    unsafe { libc::mincore(address as *mut _, SMALL, (&raw mut there).cast()) == 0 }
}

fn holes_leave_the_rest(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let probe = Probe::open()?;
    let mut mapping = memory(kind, LENGTH)?;
    fill(mapping.bytes_mut(), 4);
    let start = mapping.address();
    let frames = frames(&probe, &mapping, 0..LENGTH)?;
    // A page amid a huge page, the first page, and from amid one huge page into the next but one.
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
        // SAFETY: mapped, by the line above, and nobody else knows it.
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
    // The last huge page has no hole, and stays whole.
    assert_eq!(probe.at(start + LENGTH - SMALL)?.user.size, kind.page as u64);
    drop(mapping);
    all_back(before)
}

/// Moves a mapping of ours; the address it is at now.
fn move_to(from: usize, length: usize, to: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: from a mapping of the caller's into address space that it reserved; nobody holds a reference to either.
    let moved = unsafe { libc::mremap(from as *mut _, length, length, flags, to) };
    assert_eq!(moved.addr(), to, "{}", io::Error::last_os_error());
}

fn it_can_be_moved(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let probe = Probe::open()?;
    // Where large pages fit, and where they do not.
    for shift in [0, SMALL] {
        let reserved = Reserved::new(LENGTH + 2 * MIDDLE)?;
        let to = reserved.aligned() + shift;
        let mut mapping = ManuallyDrop::new(memory(kind, LENGTH)?);
        fill(&mut mapping.bytes_mut()[..LENGTH / 2], 5);
        let frames = frames(&probe, &mapping, 0..LENGTH / 2)?;
        move_to(mapping.address(), LENGTH, to);
        // SAFETY: mapped there now, until `reserved` goes, and nobody else knows it.
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
        // SAFETY: a piece of the mapping; nobody uses it in a way that it forbids, but children that are to die of it.
        assert_eq!(unsafe { libc::mprotect((start + offset) as *mut _, length, prot) }, 0);
    };
    let dies = |offset: usize| -> Result<(), Failed> {
        let child = Child::spawn(|| {
            // SAFETY: what this does to the child, and to nobody else, is what is tested.
            unsafe { ((start + offset) as *mut u8).write_volatile(1) };
            Ok(())
        })?;
        assert_eq!(child.wait()?, End::Signal(libc::SIGSEGV));
        Ok(())
    };
    // A page amid a huge page; a whole huge page; all.
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

/// Kills children at moments spread over what they do.
fn killed(kind: Kind, work: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    let before = free_memory()?;
    for round in 0..8 {
        let child = Child::spawn(|| {
            loop {
                work()?;
            }
        })?;
        std::thread::sleep(Duration::from_millis(7 + 23 * round));
        assert_eq!(child.kill()?, End::Signal(libc::SIGKILL), "the child ended by itself");
    }
    all_back(before)?;
    is_zero(&memory(kind, LENGTH)?, "what the killed had")?;
    // Not one page went back as anything else than write-back: the kernel would refuse to change it.
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
        // With a child of its own, which dies with nobody waiting for it.
        // SAFETY: the child does nothing but write to its memory until it is killed with its parent.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // SAFETY: numbers only; it asks to die with its parent, and ends.
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
