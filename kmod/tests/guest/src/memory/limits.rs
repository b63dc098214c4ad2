//! Tests the limits: locked memory, memory cgroups, and the memory of the machine.

use std::fs;
use std::os::fd::AsFd;

use libc::{MAP_SHARED, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{KINDS, Kind, all_back, each_kind, fill, free_memory, holds, is_zero, meminfo, once, try_map};
use crate::device::Device;
use crate::huge::{HugeMapping, MIDDLE, SMALL};
use crate::module;
use crate::process::{Child, End};

pub(super) fn tests(suite: &mut Suite) {
    each_kind(
        suite,
        "the_locked_memory_limit_is_kept_to_the_unit",
        the_locked_memory_limit_is_kept_to_the_unit,
    );
    each_kind(suite, "killed_users_are_uncharged", killed_users_are_uncharged);
    each_kind(suite, "another_user_may_end_the_charge", another_user_may_end_the_charge);
    once(suite, "the_limit_does_not_bind_root", the_limit_does_not_bind_root);
    each_kind(suite, "a_memory_cgroup_is_charged", a_memory_cgroup_is_charged);
    once(suite, "more_than_there_is_is_refused", || more_than_there_is_is_refused(KINDS[2]));
    once(suite, "more_huge_pages_than_there_are_are_refused", || more_than_there_is_is_refused(KINDS[5]));
}

const LIMIT: usize = 16 * MIDDLE;

fn limit_memory(limit: usize) {
    let limit = libc::rlimit { rlim_cur: limit as u64, rlim_max: limit as u64 };
    // SAFETY: the call only reads a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
}

/// Becomes a user with a limit and without capabilities; it can become `saved` again.
fn become_user(user: u32, saved: u32) {
    limit_memory(LIMIT);
    // SAFETY: passes numbers only; the process has one thread.
    assert_eq!(unsafe { libc::setresuid(user, user, saved) }, 0);
}

/// A user can allocate the whole limit and not a byte more: nothing else is charged.
fn nothing_is_charged(device: &Device) {
    let map = |length| try_map(device.0.as_fd(), 0, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    assert_eq!(map(LIMIT + MIDDLE), Err(libc::ENOMEM), "2 MiB more than the limit");
    assert_eq!(map(LIMIT), Ok(()), "the limit itself");
}

fn the_locked_memory_limit_is_kept_to_the_unit(kind: Kind) -> Result<(), Failed> {
    // Opened by root: another test covers the mode of the file.
    let device = Device::of(kind)?;
    Child::spawn(|| {
        become_user(1000, 1000);
        nothing_is_charged(&device);
        let first = device.map(LIMIT - MIDDLE)?;
        let last = device.map(MIDDLE)?;
        assert!(device.map(MIDDLE).is_err(), "2 MiB more than the limit");
        drop(last);
        let mut last = device.map(MIDDLE)?;
        fill(last.bytes_mut(), 1);
        // While any part is mapped, the whole memory exists and is charged.
        let start = first.address();
        // SAFETY: a piece of this test's mapping, without references to it.
        assert_eq!(unsafe { libc::munmap((start + MIDDLE) as *mut _, LIMIT - 2 * MIDDLE) }, 0);
        assert!(device.map(MIDDLE).is_err(), "2 MiB more while a part of the others is mapped");
        drop(first);
        holds(last.bytes(), 1, "the memory that stayed")?;
        drop(last);
        nothing_is_charged(&device);
        // Memory shared with a child is charged once.
        let shared = device.map(LIMIT / 2)?;
        Child::spawn(|| {
            let _own = device.map(LIMIT / 2)?;
            assert!(device.map(MIDDLE).is_err(), "2 MiB more than the limit");
            Ok(())
        })?
        .succeed()?;
        drop(shared);
        nothing_is_charged(&device);
        Ok(())
    })?
    .succeed()
}

fn killed_users_are_uncharged(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let device = Device::of(kind)?;
    for round in 0..8 {
        let child = Child::spawn(|| {
            become_user(1001, 1001);
            loop {
                drop(device.map(LIMIT)?);
            }
        })?;
        std::thread::sleep(std::time::Duration::from_millis(5 + 17 * round));
        assert_eq!(child.kill()?, End::Signal(libc::SIGKILL), "the child ended before it was killed");
        Child::spawn(|| {
            become_user(1001, 1001);
            nothing_is_charged(&device);
            Ok(())
        })?
        .succeed()?;
    }
    all_back(before)
}

fn another_user_may_end_the_charge(kind: Kind) -> Result<(), Failed> {
    let device = Device::of(kind)?;
    Child::spawn(|| {
        become_user(1002, 0);
        let mapping = device.map(LIMIT)?;
        let mut ends = [0; 2];
        // SAFETY: writes two numbers to a local.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let heir = Child::spawn(|| {
            let mut byte = 0u8;
            // SAFETY: reads the parent's byte into a local, then becomes root and another user.
            unsafe {
                assert_eq!(libc::read(ends[0], (&raw mut byte).cast(), 1), 1);
                assert_eq!(libc::setresuid(0, 0, 0), 0);
            }
            become_user(1003, 1003);
            nothing_is_charged(&device);
            // SAFETY: this process's own mapping, which nothing else unmaps: it ends by `_exit`.
            assert_eq!(unsafe { libc::munmap(mapping.address() as *mut _, LIMIT) }, 0);
            nothing_is_charged(&device);
            Ok(())
        })?;
        drop(mapping);
        assert!(device.map(MIDDLE).is_err(), "uncharged while the heir has it mapped");
        // SAFETY: writes one byte of a constant.
        assert_eq!(unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) }, 1);
        heir.succeed()?;
        nothing_is_charged(&device);
        Ok(())
    })?
    .succeed()
}

fn the_limit_does_not_bind_root() -> Result<(), Failed> {
    let kind = Kind { attribute: super::Attribute::Wb, page: SMALL };
    let device = Device::of(kind)?;
    Child::spawn(|| {
        limit_memory(0);
        drop(device.map(LIMIT)?);
        Ok(())
    })?
    .succeed()
}

/// A cgroup, removed when dropped.
struct Group(&'static str);

impl Group {
    fn new(limit: usize) -> Result<Group, Failed> {
        let group = Group("/sys/fs/cgroup/bulkmem");
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
        fs::create_dir(group.0)?;
        fs::write(format!("{}/memory.max", group.0), limit.to_string())?;
        Ok(group)
    }

    fn number(&self, file: &str, key: &str) -> Result<usize, Failed> {
        let text = fs::read_to_string(format!("{}/{file}", self.0))?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        Ok(value.trim().parse().map_err(|error| format!("{file}: {error}: {text:?}"))?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0);
    }
}

fn a_memory_cgroup_is_charged(kind: Kind) -> Result<(), Failed> {
    // The pool's memory outlives its users and is charged to no group.
    module::set("memory_pool", "0")?;
    let group = Group::new(64 << 20)?;
    let device = Device::of(kind)?;
    Child::spawn(|| {
        fs::write(format!("{}/cgroup.procs", group.0), std::process::id().to_string())?;
        let before = group.number("memory.current", "")?;
        let mapping = device.map(32 << 20)?;
        let charged = group.number("memory.current", "")?.saturating_sub(before);
        assert!(charged >= 32 << 20, "{charged} bytes are charged for 32 MiB");
        let refused = device.map(64 << 20).map(drop).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::ENOMEM)), "more than the group may have");
        assert_eq!(group.number("memory.events", "oom_kill ")?, 0);
        is_zero(&mapping, "what was had before")?;
        drop(mapping);
        let charged = group.number("memory.current", "")?.saturating_sub(before);
        assert!(charged < 8 << 20, "{charged} bytes are charged still");
        Ok(())
    })?
    .succeed()
}

fn out_of_memory_kills() -> Result<u64, Failed> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let value = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok(value.and_then(|value| value.parse().ok()).ok_or("/proc/vmstat has no oom_kill")?)
}

fn more_than_there_is_is_refused(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let kills = out_of_memory_kills()?;
    let device = Device::of(kind)?;
    let total = meminfo("MemTotal")?.next_multiple_of(MIDDLE);
    for length in [total, 4 * total, usize::MAX >> 18 & !(MIDDLE - 1)] {
        let refused = try_map(device.0.as_fd(), 0, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        assert_eq!(refused, Err(libc::ENOMEM), "{length} bytes");
    }
    // Allocate all memory piece by piece, while another process has memory of its own.
    let mut bystander = HugeMapping::new(crate::huge::Source::Transparent, 32)?;
    fill(bystander.bytes_mut(), 1);
    Child::spawn(|| {
        let mut all = Vec::new();
        let mut piece = 64 << 20;
        while piece >= kind.page.max(1 << 20) {
            match device.map(piece) {
                Ok(mapping) => all.push(mapping),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
                    piece /= 2;
                }
            }
        }
        let had: usize = all.iter().map(HugeMapping::length).sum();
        assert!(had > before / 2, "only {had} of {before} bytes could be had");
        let pages = |mapping: &HugeMapping| (0..mapping.length()).step_by(SMALL);
        for (index, mapping) in all.iter_mut().enumerate() {
            for offset in pages(mapping) {
                mapping.bytes_mut()[offset] = index as u8;
            }
        }
        for (index, mapping) in all.iter().enumerate() {
            assert!(
                pages(mapping).all(|offset| mapping.bytes()[offset] == index as u8),
                "a full machine mixes pages up"
            );
        }
        Ok(())
    })?
    .succeed()?;
    holds(bystander.bytes(), 1, "the bystander's bytes")?;
    drop(bystander);
    assert_eq!(out_of_memory_kills()?, kills, "the kernel killed a process for it");
    all_back(before)
}
