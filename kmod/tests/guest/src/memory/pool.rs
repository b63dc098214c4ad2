//! Tests the pools of memory that keeps its type: what is reused, its content, its bound, and the rate of retyping.

use std::collections::HashSet;

use libc::{MAP_SHARED, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    Attribute, Description, KINDS, Kind, POOL, Probe, counter, drain, each_kind, fill, free_memory, is_zero,
    memory, once, try_map,
};
use crate::device::{Device, MEMORY};
use crate::huge::{HugeMapping, MIDDLE, SMALL};
use crate::module;
use crate::process::Child;

pub(super) fn tests(suite: &mut Suite) {
    each_kind(suite, "mappings_in_a_loop_retype_nothing_new", mappings_in_a_loop_retype_nothing_new);
    each_kind(suite, "reused_memory_is_zero", reused_memory_is_zero);
    each_kind(suite, "a_part_of_a_mapping_keeps_all_of_it", a_part_of_a_mapping_keeps_all_of_it);
    once(suite, "the_pool_is_bounded", the_pool_is_bounded);
    once(suite, "the_pool_keeps_to_the_node", the_pool_keeps_to_the_node);
    once(suite, "the_pools_limit_is_checked", the_pools_limit_is_checked);
    once(suite, "unloading_releases_the_pool", unloading_releases_the_pool);
    once(suite, "users_retype_at_a_limited_rate", users_retype_at_a_limited_rate);
}

/// Units in a full pool.
const FULL: usize = (POOL << 20) / MIDDLE;

fn is_retyped(kind: Kind) -> bool {
    kind.attribute != Attribute::Wb
}

fn mappings_in_a_loop_retype_nothing_new(kind: Kind) -> Result<(), Failed> {
    drain()?;
    drop(memory(kind, kind.page)?);
    let before = (counter("retyped")?, counter("changes")?, counter("reused")?);
    for _ in 0..50 {
        drop(memory(kind, kind.page)?);
    }
    let reused = if is_retyped(kind) { 50 } else { 0 };
    assert_eq!((counter("retyped")?, counter("changes")?), (before.0, before.1), "retyped, TLBs flushed");
    assert_eq!(counter("reused")?, before.2 + reused);
    Ok(())
}

/// Returns the frames of the first page of every 2 MiB.
fn frames(mapping: &HugeMapping) -> Result<HashSet<u64>, Failed> {
    let probe = Probe::open()?;
    let frame = |offset: usize| Ok(probe.at(mapping.address() + offset)?.frame);
    (0..mapping.length()).step_by(MIDDLE).map(frame).collect()
}

fn reused_memory_is_zero(kind: Kind) -> Result<(), Failed> {
    drain()?;
    let length = 4 * MIDDLE;
    let mut mapping = memory(kind, length)?;
    let first = frames(&mapping)?;
    mapping.dirty();
    drop(mapping);
    // Another process, which also may use other pages.
    Child::spawn(|| {
        let other = Kind { page: if kind.page == SMALL { MIDDLE } else { SMALL }, ..kind };
        for kind in [kind, other] {
            let mut mapping = memory(kind, length)?;
            is_zero(&mapping, "memory of another process")?;
            if is_retyped(kind) {
                assert_eq!(frames(&mapping)?, first, "other memory is no evidence");
            }
            for offset in (0..length).step_by(SMALL) {
                let answer = Probe::open()?.at(mapping.address() + offset)?;
                assert_eq!(answer.user.memory_type, kind.attribute.memory_type());
                assert_eq!(answer.direct.memory_type, kind.attribute.memory_type());
            }
            mapping.dirty();
        }
        Ok(())
    })?
    .succeed()
}

fn a_part_of_a_mapping_keeps_all_of_it(kind: Kind) -> Result<(), Failed> {
    drain()?;
    let length = 4 * MIDDLE;
    let mut mapping = memory(kind, length)?;
    fill(mapping.bytes_mut(), 1);
    // SAFETY: all but the last page of this test's mapping, without references to it.
    assert_eq!(unsafe { libc::munmap(mapping.address() as *mut _, length - kind.page) }, 0);
    assert_eq!(counter("pooled")?, 0, "free while a page is mapped");
    let first = memory(kind, length)?;
    is_zero(&first, "other memory")?;
    drop(mapping);
    drop(first);
    assert_eq!(counter("pooled")?, if is_retyped(kind) { 2 * length / MIDDLE } else { 0 });
    Ok(())
}

fn the_pool_is_bounded() -> Result<(), Failed> {
    drain()?;
    let probe = Probe::open()?;
    for (index, attribute) in [Attribute::Wc, Attribute::Uc].into_iter().enumerate() {
        let kind = Kind { attribute, page: MIDDLE };
        let mapping = memory(kind, 3 * FULL * MIDDLE)?;
        let all = frames(&mapping)?;
        assert_eq!(counter("pooled")?, index * FULL, "free while mapped");
        drop(mapping);
        assert_eq!(counter("pooled")?, (index + 1) * FULL);
        let kept = |frame: &&u64| {
            probe.frame(**frame).is_ok_and(|it| it.direct.memory_type == attribute.memory_type())
        };
        assert_eq!(all.iter().filter(kept).count(), FULL, "of this type still");
    }
    // A smaller limit applies immediately.
    module::set("memory_pool", "4")?;
    assert_eq!(counter("pooled")?, 4);
    // What is in use when the limit falls is released later.
    let mapping = memory(KINDS[2], 2 * MIDDLE)?;
    module::set("memory_pool", "0")?;
    assert_eq!(counter("pooled")?, 0);
    drop(mapping);
    assert_eq!(counter("pooled")?, 0);
    Ok(())
}

fn the_pool_keeps_to_the_node() -> Result<(), Failed> {
    drain()?;
    let kind = Kind { attribute: Attribute::Wc, page: MIDDLE };
    let probe = Probe::open()?;
    for node in [0, 1, 0, 1] {
        if !std::fs::exists(format!("/sys/devices/system/node/node{node}"))? {
            continue;
        }
        let device = Device::of(kind)?;
        device.describe(&Description { node, ..kind.into() })?;
        let mapping = device.map(4 * MIDDLE)?;
        for frame in frames(&mapping)? {
            assert_eq!(probe.frame(frame)?.node, node as u64);
        }
    }
    Ok(())
}

fn the_pools_limit_is_checked() -> Result<(), Failed> {
    for value in ["-1", "3", "1026", "much", "\n"] {
        let error = module::set("memory_pool", value).map_err(|error| error.raw_os_error());
        assert_eq!(error, Err(Some(libc::EINVAL)), "{value:?}");
        assert_eq!(module::get("memory_pool")?, POOL.to_string());
    }
    module::set("memory_pool", "1024")?;
    assert_eq!(module::get("memory_pool")?, "1024");
    Ok(())
}

fn unloading_releases_the_pool() -> Result<(), Failed> {
    drain()?;
    let before = free_memory()?;
    let mapping = memory(KINDS[3], FULL * MIDDLE)?;
    let all = frames(&mapping)?;
    drop(mapping);
    assert_eq!(counter("pooled")?, FULL);
    module::unload()?;
    let probe = Probe::open()?;
    for frame in all {
        assert_eq!(probe.frame(frame)?.direct.memory_type, Attribute::Wb.memory_type());
    }
    super::fresh()?;
    super::all_back(before)
}

/// A user may retype a limited amount within a moment; what is not retyped does not count.
fn users_retype_at_a_limited_rate() -> Result<(), Failed> {
    const BURST: usize = 256 << 20;
    drain()?;
    module::set("memory_unprivileged", "1")?;
    std::os::unix::fs::chown(MEMORY, Some(1004), None)?;
    let kind = Kind { attribute: Attribute::Wc, page: MIDDLE };
    let map = |device: &Device, length| {
        let refused =
            try_map(super::AsFd::as_fd(&device.0), 0, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        assert!(refused.is_ok() || refused == Err(libc::EAGAIN), "{refused:?}");
        refused.is_ok()
    };
    Child::spawn(|| {
        let limit = libc::rlimit { rlim_cur: 4 << 30, rlim_max: 4 << 30 };
        // SAFETY: reads a local; then changes the user of this child only.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
            assert_eq!(libc::setresuid(1004, 1004, 1004), 0);
        }
        let device = Device::of(kind)?;
        assert!(!map(&device, BURST + MIDDLE), "more than is ever allowed");
        let first = device.reserve(BURST)?;
        assert!(!map(&device, BURST), "twice what is allowed");
        // Write-back memory is not retyped.
        let plain = Device::of(Kind { attribute: Attribute::Wb, page: MIDDLE })?;
        assert!(map(&plain, BURST) && map(&plain, BURST + MIDDLE));
        drop(first);
        assert!(map(&device, BURST), "nothing was retyped");
        // What comes from the pool does not count.
        drop(device.map(FULL * MIDDLE)?);
        for _ in 0..20 {
            drop(device.map(FULL * MIDDLE)?);
        }
        Ok(())
    })?
    .succeed()?;
    // The rate is for users.
    let device = Device::of(kind)?;
    let first = device.reserve(2 * BURST)?;
    assert!(map(&device, BURST));
    drop(first);
    std::os::unix::fs::chown(MEMORY, Some(0), None)?;
    Ok(())
}
