//! Tests who may use which device, and that each can be left out.

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libc::{MAP_SHARED, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{Attribute, Kind, once, try_map};
use crate::device::{Device, HINTS, MEMORY};
use crate::huge::{MIDDLE, SMALL};
use crate::module::{self, Counters};
use crate::process::Child;

pub(super) fn tests(suite: &mut Suite) {
    once(suite, "hints_do_not_give_memory", hints_do_not_give_memory);
    once(suite, "memory_needs_a_capability", memory_needs_a_capability);
    once(suite, "the_limit_is_compared_before_the_capability", the_limit_is_compared_before_the_capability);
    once(suite, "each_device_can_be_left_out", each_device_can_be_left_out);
}

const KIND: Kind = Kind { attribute: Attribute::Wc, page: SMALL };

/// Opens both devices to every user, as a careless udev rule might.
fn open_to_all() -> Result<(), Failed> {
    for device in [HINTS, MEMORY] {
        fs::set_permissions(device, Permissions::from_mode(0o666))?;
    }
    Ok(())
}

fn close_to_all() -> Result<(), Failed> {
    for device in [HINTS, MEMORY] {
        fs::set_permissions(device, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Runs `work` as a user without capabilities, whose limit of locked memory is 8 MiB.
fn as_user(work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    Child::spawn(|| {
        let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
        // SAFETY: reads a local; then changes the user of this child only.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
            assert_eq!(libc::setresuid(1000, 1000, 1000), 0);
        }
        work()
    })?
    .succeed()
}

fn map(device: &Device, length: usize) -> Result<(), i32> {
    try_map(device.0.as_fd(), 0, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0)
}

fn hints_do_not_give_memory() -> Result<(), Failed> {
    open_to_all()?;
    as_user(|| {
        let device = Device::open()?;
        device.hint(MIDDLE, MIDDLE as u64)?;
        let described = device.describe(&KIND.into()).map_err(|error| error.raw_os_error());
        assert_eq!(described, Err(Some(libc::ENOTTY)));
        assert_eq!(map(&device, MIDDLE), Err(libc::ENODEV));
        Ok(())
    })?;
    // Nor the other way round.
    let device = Device::of(KIND)?;
    let hinted = device.hint(MIDDLE, MIDDLE as u64).map_err(|error| error.raw_os_error());
    assert_eq!(hinted, Err(Some(libc::ENOTTY)));
    close_to_all()
}

fn memory_needs_a_capability() -> Result<(), Failed> {
    open_to_all()?;
    let opened = || Device::of(KIND).map_err(|error| error.raw_os_error());
    as_user(|| {
        assert_eq!(opened().err(), Some(Some(libc::EPERM)), "permissions alone");
        Ok(())
    })?;
    module::set("memory_unprivileged", "1")?;
    let unset = || module::set("memory_unprivileged", "0");
    // The child tells by this file that it has the device open; the parent removes it.
    let sign = Path::new("/tmp/opened");
    let child = Child::spawn(|| {
        as_user(|| {
            let device = Device::of(KIND)?;
            let mapping = device.map(MIDDLE)?;
            fs::write(sign, "")?;
            module::until("the parent is busy", || Ok(!sign.exists()))?;
            assert_eq!(map(&device, MIDDLE), Err(libc::EPERM), "after the parameter was unset");
            mapping.touch(5);
            Ok(())
        })
    })?;
    module::until("the child is busy", || Ok(sign.exists()))?;
    unset()?;
    fs::remove_file(sign)?;
    child.succeed()?;
    // Root may pass its file on.
    let device = Device::of(KIND)?;
    as_user(|| {
        assert_eq!(map(&device, MIDDLE), Ok(()));
        Ok(())
    })?;
    close_to_all()
}

/// The security modules log every check of a capability that the caller does not have, so none may be needless.
fn the_limit_is_compared_before_the_capability() -> Result<(), Failed> {
    let tracing = "/sys/kernel/debug/tracing";
    let put = |file: &str, text: &str| fs::write(format!("{tracing}/{file}"), text);
    let device = Device::of(KIND)?;
    put("set_ftrace_filter", "capable")?;
    put("current_tracer", "function")?;
    let checks = |length: usize, wanted: Result<(), i32>| -> Result<usize, Failed> {
        put("trace", "")?;
        as_user(|| {
            assert_eq!(map(&device, length), wanted);
            Ok(())
        })?;
        let trace = fs::read_to_string(format!("{tracing}/trace"))?;
        Ok(trace.lines().filter(|line| line.contains("capable <-bulkmem")).count())
    };
    let (within, beyond) = (checks(8 << 20, Ok(()))?, checks(10 << 20, Err(libc::ENOMEM))?);
    put("current_tracer", "nop")?;
    put("set_ftrace_filter", "")?;
    assert_eq!((within, beyond), (0, 1), "checks within the limit, and beyond");
    Ok(())
}

fn each_device_can_be_left_out() -> Result<(), Failed> {
    for (parameters, hints, memory) in [
        ("hint_device=0", false, true),
        ("memory_device=0", true, false),
        ("hint_device=0 memory_device=0", false, false),
    ] {
        module::gone()?;
        module::load(parameters)?;
        assert_eq!((Path::new(HINTS).exists(), Path::new(MEMORY).exists()), (hints, memory), "{parameters}");
        // The counters are there all the same.
        let folder = if hints { "/sys/class/misc/bulkmem" } else { "/sys/devices/bulkmem" };
        let faults = fs::read_to_string(format!("{folder}/faults"))?;
        crate::huge::HugeMapping::new(crate::huge::Source::Transparent, 1)?.touch(0);
        assert_ne!(fs::read_to_string(format!("{folder}/faults"))?, faults, "{parameters}");
        if memory {
            Device::of(KIND)?.map(MIDDLE)?.touch(0);
        }
        module::unload()?;
        assert!(!Path::new(folder).exists(), "{folder} outlives the module");
    }
    module::fresh()?;
    Counters::read()?;
    Ok(())
}
