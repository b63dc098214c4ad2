//! Tests what the other tests rely on, without the module: the machine is configured as requested, and the checks detect
//! dirty bytes.

use std::fs::{self, File};
use std::os::fd::AsFd;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{self, HugeMapping, MIDDLE, SMALL, Source};

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("frame::a_warning_stops_the_machine", a_warning_stops_the_machine);
    suite.test("frame::the_module_is_for_this_kernel", the_module_is_for_this_kernel);
    suite.test("frame::the_kernel_has_what_is_replaced", the_kernel_has_what_is_replaced);
    suite.test("frame::dirt_is_seen_wherever_it_is", dirt_is_seen_wherever_it_is);
    suite.test("frame::files_are_in_huge_pages", files_are_in_huge_pages);
    suite.test("checked::the_kernel_checks_to_the_end", the_kernel_checks_to_the_end);
    for source in [Source::Pool2M, Source::Transparent] {
        suite.test(&format!("frame::huge_pages_can_be_had::{source:?}"), move || {
            huge_pages_can_be_had(source)
        });
    }
}

fn a_warning_stops_the_machine() -> Result<(), Failed> {
    let value = fs::read_to_string("/proc/sys/kernel/panic_on_warn")?;
    if value.trim() != "1" {
        return Err(format!("panic_on_warn is {value:?}").into());
    }
    Ok(())
}

fn the_module_is_for_this_kernel() -> Result<(), Failed> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let wanted = format!("vermagic={} ", release.trim());
    let module = fs::read("/bulkmem.ko")?;
    if !module.windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
        return Err(format!("/bulkmem.ko has no {wanted:?}").into());
    }
    Ok(())
}

fn the_kernel_has_what_is_replaced() -> Result<(), Failed> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let found = |name: &str| symbols.lines().filter(|line| line.split(' ').nth(2) == Some(name)).count();
    let counts = (found("clear_huge_page"), found("folio_zero_user"));
    if counts != (1, 0) && counts != (0, 1) {
        return Err(format!("clear_huge_page and folio_zero_user are there {counts:?} times").into());
    }
    Ok(())
}

/// On the debug kernel, after other tests: KASAN is there, and lockdep has not switched itself off.
fn the_kernel_checks_to_the_end() -> Result<(), Failed> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    assert!(symbols.lines().any(|line| line.ends_with(" kasan_report")), "this kernel is without KASAN");
    let statistics = fs::read_to_string("/proc/lockdep_stats")?;
    let state = statistics.lines().find_map(|line| line.trim().strip_prefix("debug_locks:"));
    match state.map(str::trim) {
        Some("1") => Ok(()),
        _ => Err(format!("lockdep is off: {statistics}").into()),
    }
}

fn dirt_is_seen_wherever_it_is() -> Result<(), Failed> {
    let mut bytes = vec![0; 3 * SMALL + 5];
    for at in 0..bytes.len() {
        bytes[at] = 0x80;
        if huge::first_dirt(&bytes) != Some(at) {
            return Err(format!("dirt at {at} was seen at {:?}", huge::first_dirt(&bytes)).into());
        }
        bytes[at] = 0;
    }
    assert_eq!(huge::first_dirt(&bytes), None);
    Ok(())
}

fn huge_pages_can_be_had(source: Source) -> Result<(), Failed> {
    let mut mapping = HugeMapping::new(source, 1)?;
    assert_eq!(mapping.frames()?, [0], "nothing is there before it is touched");
    mapping.touch(source.page() / 2);
    let frames = mapping.frames()?;
    assert!(frames[0] != 0, "one touch gives one huge page");
    if let Some(at) = mapping.first_dirt() {
        return Err(format!("byte {at:#x} of a new page is not 0").into());
    }
    mapping.bytes_mut()[MIDDLE - 1] = 1;
    assert_eq!(mapping.first_dirt(), Some(MIDDLE - 1));
    mapping.dirty();
    assert_eq!(mapping.first_dirt(), Some(0));
    assert!(mapping.bytes().iter().all(|byte| *byte != 0), "dirt leaves no byte out");
    Ok(())
}

fn files_are_in_huge_pages() -> Result<(), Failed> {
    let path = "/dev/hugepages-2M/frame";
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    fs::remove_file(path)?;
    file.set_len(MIDDLE as u64)?;
    let mapping = HugeMapping::of_file(file.as_fd(), MIDDLE, MIDDLE)?;
    assert_eq!(mapping.length(), MIDDLE);
    mapping.touch(0);
    assert!(mapping.frames()?[0] != 0);
    Ok(())
}
