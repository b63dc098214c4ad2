//! Tests the content of new memory, that it stays, and its attributes.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    Answer, Attribute, Description, Kind, Probe, Range, all_back, dirt, drain, each_kind, fill, free_memory,
    holds, is_zero, meminfo, memory, once,
};
use crate::device::{Device, MEMORY};
use crate::huge::{HugeMapping, MIDDLE, SMALL};
use crate::module::Counters;

pub(super) fn tests(suite: &mut Suite) {
    each_kind(
        suite,
        "new_memory_is_zero_and_keeps_what_is_written",
        new_memory_is_zero_and_keeps_what_is_written,
    );
    each_kind(suite, "a_gigabyte_is_zero", a_gigabyte_is_zero);
    each_kind(suite, "what_it_was_before_is_never_seen", what_it_was_before_is_never_seen);
    each_kind(suite, "page_tables_and_direct_map_agree", page_tables_and_direct_map_agree);
    each_kind(suite, "clearing_is_counted", clearing_is_counted);
    once(suite, "without_a_description_it_is_ordinary_memory", without_a_description_it_is_ordinary_memory);
    each_kind(suite, "the_direct_map_stays_in_2_mib", the_direct_map_stays_in_2_mib);
    each_kind(suite, "memory_is_allocated_step_by_step", memory_is_allocated_step_by_step);
    once(suite, "only_the_devices_memory_is_populated", only_the_devices_memory_is_populated);
    once(suite, "a_node_is_kept_to", a_node_is_kept_to);
    if Path::new(EXAMPLE).exists() {
        once(suite, "the_books_example_runs", the_books_example_runs);
    } else {
        suite.skip("memory::the_books_example_runs", "this run does not take it along");
    }
}

/// The program in docs/kernel/device.md.
const EXAMPLE: &str = "/bin/device-example";

fn sizes(kind: Kind) -> [usize; 4] {
    if kind.page == SMALL {
        [SMALL, 3 * SMALL, MIDDLE + SMALL, (32 << 20) + 5 * SMALL]
    } else {
        [MIDDLE, 3 * MIDDLE, 17 * MIDDLE, 33 * MIDDLE]
    }
}

fn new_memory_is_zero_and_keeps_what_is_written(kind: Kind) -> Result<(), Failed> {
    for length in sizes(kind) {
        dirt(16 << 20)?;
        let device = Device::of(kind)?;
        let mut mapping = device.map(length)?;
        is_zero(&mapping, &format!("{length} bytes"))?;
        fill(mapping.bytes_mut(), 7);
        // Another mapping of the same file gets other memory.
        let mut other = device.map(length)?;
        is_zero(&other, "a second mapping")?;
        fill(other.bytes_mut(), 8);
        // The mappings outlive the file.
        drop(device);
        holds(mapping.bytes(), 7, "the bytes")?;
        drop(mapping);
        holds(other.bytes(), 8, "the second mapping's bytes")?;
        drop(other);
        is_zero(&memory(kind, length)?, "memory that was ours before")?;
    }
    Ok(())
}

fn a_gigabyte_is_zero(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let length = (1 << 30).min(before / 2 / MIDDLE * MIDDLE);
    let mapping = memory(kind, length)?;
    is_zero(&mapping, &format!("{length} bytes"))?;
    drop(mapping);
    all_back(before)
}

fn what_it_was_before_is_never_seen(kind: Kind) -> Result<(), Failed> {
    let length = 128 << 20;
    let probe = Probe::open()?;
    // One node: otherwise the second mapping could get memory of the other node.
    let device = Device::of(kind)?;
    device.describe(&Description { node: 0, ..kind.into() })?;
    let mut mapping = device.map(3 * length)?;
    mapping.dirty();
    let dirty: HashSet<u64> = answers(&probe, &mapping)?.iter().map(|answer| answer.frame / 512).collect();
    drop(mapping);
    let mapping = device.map(length)?;
    is_zero(&mapping, "memory that was dirty")?;
    // Zeros only prove something in frames that were dirty; how many of them come back depends on the allocator.
    let answers = answers(&probe, &mapping)?;
    let reused = answers.iter().filter(|answer| dirty.contains(&(answer.frame / 512))).count();
    if reused < answers.len() / 16 {
        return Err(format!("only {reused} of {} pages had been dirty before", answers.len()).into());
    }
    Ok(())
}

/// Visits the first and the last page of every 2 MiB.
fn answers(probe: &Probe, mapping: &HugeMapping) -> Result<Vec<Answer>, Failed> {
    let mut answers = Vec::new();
    for offset in (0..mapping.length()).step_by(MIDDLE) {
        let last = (offset + MIDDLE).min(mapping.length()) - SMALL;
        mapping.touch(offset);
        for offset in [offset, last] {
            answers.push(probe.at(mapping.address() + offset)?);
        }
    }
    Ok(answers)
}

fn page_tables_and_direct_map_agree(kind: Kind) -> Result<(), Failed> {
    let probe = Probe::open()?;
    let mapping = memory(kind, 16 * MIDDLE)?;
    if !mapping.address().is_multiple_of(kind.page) {
        return Err(format!("the address {:#x} is not aligned to the page size", mapping.address()).into());
    }
    let answers = answers(&probe, &mapping)?;
    let wanted = kind.attribute.memory_type();
    for answer in &answers {
        let types = (answer.user.memory_type, answer.direct.memory_type);
        if types != (wanted, wanted) || answer.user.size != kind.page as u64 {
            return Err(format!("{kind} is mapped so: {answer:?}").into());
        }
        if answer.references != 0 {
            return Err(format!("the kernel could take a reference to {kind}: {answer:?}").into());
        }
    }
    drop(mapping);
    drain()?;
    for answer in answers {
        let now = probe.frame(answer.frame)?;
        if now.direct.memory_type != Attribute::Wb.memory_type() {
            return Err(
                format!("returned to the allocator with another attribute than write-back: {now:?}").into()
            );
        }
    }
    Ok(())
}

fn clearing_is_counted(kind: Kind) -> Result<(), Failed> {
    for length in [kind.page, 24 * MIDDLE] {
        let before = Counters::read()?;
        let mapping = memory(kind, length)?;
        let counted = Counters::read()?.since(&before);
        // Memory is allocated by 2 MiB.
        if counted.bytes() != length.next_multiple_of(MIDDLE) as u64 || counted.get("faults") != 0 {
            return Err(format!("{length} bytes were counted so: {counted:?}").into());
        }
        drop(mapping);
    }
    Ok(())
}

fn without_a_description_it_is_ordinary_memory() -> Result<(), Failed> {
    let mapping = Device::open_at(MEMORY)?.map(3 * SMALL)?;
    mapping.touch(SMALL);
    let answer = Probe::open()?.at(mapping.address() + SMALL)?;
    assert_eq!((answer.user.size, answer.user.memory_type), (SMALL as u64, Attribute::Wb.memory_type()));
    Ok(())
}

/// Checks the costs in docs/kernel/device.md: memory is retyped by 2 MiB, whatever the pages of the mapping.
fn the_direct_map_stays_in_2_mib(kind: Kind) -> Result<(), Failed> {
    drain()?;
    let before = meminfo("DirectMap4k")?;
    drop(memory(kind, 64 << 20)?);
    let after = meminfo("DirectMap4k")?;
    // Large pages at the edges of the range may have been split for other allocations.
    if after > before + 2 * MIDDLE {
        return Err(format!("{} bytes of the direct map were broken into 4 KiB", after - before).into());
    }
    Ok(())
}

/// A mapping takes memory when it is touched, by 2 MiB, so that it does not hold the address space for long.
fn memory_is_allocated_step_by_step(kind: Kind) -> Result<(), Failed> {
    let cleared = |work: &dyn Fn() -> Result<(), Failed>| -> Result<u64, Failed> {
        let before = Counters::read()?;
        work()?;
        Ok(Counters::read()?.since(&before).bytes())
    };
    let length = 64 << 20;
    let device = Device::of(kind)?;
    let reserved = cleared(&|| {
        device.reserve(length)?;
        Ok(())
    })?;
    assert_eq!(reserved, 0, "by mmap");
    let mapping = device.reserve(length)?;
    let touch = |offset: usize| {
        mapping.touch(offset);
        Ok(())
    };
    assert_eq!(cleared(&|| touch(5 * MIDDLE + 77))?, MIDDLE as u64, "by a touch");
    assert_eq!(cleared(&|| touch(6 * MIDDLE - 1))?, 0, "by a touch next to it");
    let populate =
        |from: usize, length: usize| Ok(device.populate(&Range::new(mapping.address() + from, length))?);
    let start = MIDDLE - SMALL;
    assert_eq!(
        cleared(&|| populate(start, 2 * SMALL))?,
        2 * MIDDLE as u64,
        "by populating across a boundary"
    );
    assert_eq!(cleared(&|| populate(0, 2 * MIDDLE))?, 0, "what is there");
    assert_eq!(cleared(&|| populate(0, length))?, (length - 3 * MIDDLE) as u64, "the rest");
    is_zero(&mapping, "what was populated")
}

/// The range of a request to populate memory is checked, and nothing else is touched.
fn only_the_devices_memory_is_populated() -> Result<(), Failed> {
    let kind = Kind { attribute: Attribute::Wb, page: SMALL };
    let device = Device::of(kind)?;
    let mapping = device.reserve(4 * MIDDLE)?;
    let good = Range::new(mapping.address(), 4 * MIDDLE);
    let error = |range: Range| device.populate(&range).map_err(|error| error.raw_os_error());
    let invalid = [
        Range { size: 23, ..good },
        Range { flags: 1, ..good },
        Range { length: 0, ..good },
        Range { length: 1, ..good },
        Range { address: good.address + 1, ..good },
        Range { length: 1 << 57, ..good },
        Range { length: 0_u64.wrapping_sub(SMALL as u64), ..good },
    ];
    for range in invalid {
        assert_eq!(error(range), Err(Some(libc::EINVAL)), "{range:?}");
    }
    let ordinary = HugeMapping::new(crate::huge::Source::Transparent, 1)?;
    assert_eq!(error(Range::new(ordinary.address(), MIDDLE)), Err(Some(libc::EFAULT)), "other memory");
    assert_eq!(error(Range::new(0, SMALL)), Err(Some(libc::EFAULT)), "nothing");
    let beyond = Range { length: good.length + (1 << 30), ..good };
    assert_eq!(error(beyond), Err(Some(libc::EFAULT)), "beyond the end");
    assert_eq!(error(good), Ok(()));
    Ok(())
}

fn a_node_is_kept_to() -> Result<(), Failed> {
    let probe = Probe::open()?;
    let nodes = (0..64)
        .filter(|node| std::fs::exists(format!("/sys/devices/system/node/node{node}")).unwrap_or(false));
    for node in nodes {
        for page_shift in [12, 21] {
            let kind = Kind { attribute: Attribute::Wb, page: 1 << page_shift };
            let device = Device::of(kind)?;
            device.describe(&Description { node, ..kind.into() })?;
            let mapping = device.map(24 * MIDDLE)?;
            for answer in answers(&probe, &mapping)? {
                assert_eq!(answer.node, node as u64, "the page is on another node than asked");
            }
        }
    }
    Ok(())
}

fn the_books_example_runs() -> Result<(), Failed> {
    let output = Command::new(EXAMPLE).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || said != "42, and beside it 0\n" {
        return Err(format!("{}: {said:?} {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}
