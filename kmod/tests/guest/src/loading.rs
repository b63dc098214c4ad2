//! Tests loading: refusals, defaults, and what prevents the module from being removed.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use libtest_mimic::Failed;
use rustix::fs::{Mode, OFlags};
use testkit::harness::Suite;

use crate::device::Device;
use crate::module;

/// The threshold if the processor does not report the size of its last-level cache.
const UNKNOWN_CACHE: u64 = 8 << 20;

pub(crate) fn tests(suite: &mut Suite) {
    for method in module::possible() {
        let name = format!("loading::refused_where_the_self_test_fails::{method}");
        suite.test(&name, move || refused_where_the_self_test_fails(method));
    }
    suite.test("loading::bad_parameters", bad_parameters);
    suite.test("loading::parameters_in_any_order", parameters_in_any_order);
    suite.test("loading::defaults_fit_the_processor", defaults_fit_the_processor);
    suite.test("loading::quirk_forbids_movnti", quirk_forbids_movnti);
    suite.test("loading::twice", twice);
    suite.test("loading::removed_only_after_it_is_disabled", removed_only_after_it_is_disabled);
    suite.test("loading::removed_only_after_the_device_is_closed", removed_only_after_the_device_is_closed);
    suite.test("loading::many_times", many_times);
    // For a module that was made wrong on purpose.
    suite.test("unpatchable::nothing_stays", nothing_stays);
}

/// Checks that loading fails with this error and leaves nothing behind.
pub(crate) fn refused(parameters: &str, error: i32) -> Result<(), Failed> {
    module::gone()?;
    match module::load(parameters).map_err(|error| error.raw_os_error()) {
        Err(Some(number)) if number == error => {}
        other => return Err(format!("{parameters:?}: {other:?} in place of error {error}").into()),
    }
    assert!(!module::is_loaded(), "{parameters:?} was refused, and yet the module is there");
    for rest in [
        "/dev/bulkmem",
        "/dev/bulkmem-memory",
        "/sys/class/misc/bulkmem",
        "/sys/devices/bulkmem",
        "/sys/kernel/livepatch/bulkmem",
        "/sys/module/bulkmem",
    ] {
        assert!(!Path::new(rest).exists(), "{parameters:?} was refused, and yet {rest} is there");
    }
    Ok(())
}

/// Runs `work` and returns the messages that the kernel logs during it.
pub(crate) fn logged(work: impl FnOnce() -> Result<(), Failed>) -> Result<String, Failed> {
    let log = rustix::fs::open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    rustix::fs::seek(&log, rustix::fs::SeekFrom::End(0))?;
    work()?;
    let mut text = String::new();
    let mut record = [0; 8192];
    loop {
        match rustix::io::read(&log, &mut record) {
            Ok(length) => text += &String::from_utf8_lossy(&record[..length]),
            Err(rustix::io::Errno::AGAIN) => return Ok(text),
            Err(error) => return Err(error.into()),
        }
    }
}

fn refused_where_the_self_test_fails(method: &str) -> Result<(), Failed> {
    let text = logged(|| refused(&format!("selftest_fault={method}"), libc::EIO))?;
    let said = text.lines().any(|line| line.contains(&format!("bulkmem: self-test: {method}: ")));
    assert!(said, "the log does not say which method failed: {text}");
    // The module has no fault without the planted one.
    module::load("")?;
    assert_eq!(module::get("selftest_fault")?, "");
    Ok(())
}

fn bad_parameters() -> Result<(), Failed> {
    for parameters in [
        "method=fast",
        "method=",
        "cached_method=movnti",
        "chunk=0",
        "chunk=4097",
        "chunk=1073745920",
        "prefetch_distance=65600",
        "threshold=-1",
        "threshold=much",
        "ignore_quirks=2",
        "available=stock",
        "selftest_fault=everything",
        "method=stock chunk=1",
    ] {
        refused(parameters, libc::EINVAL)?;
    }
    for method in module::METHODS {
        if !module::possible().contains(&method) {
            refused(&format!("method={method}"), libc::EOPNOTSUPP)?;
        }
    }
    Ok(())
}

fn parameters_in_any_order() -> Result<(), Failed> {
    module::gone()?;
    module::load("threshold=12345 chunk=12288 method=stock prefetch_distance=128 cached_method=stock")?;
    for (parameter, value) in [
        ("threshold", "12345"),
        ("chunk", "12288"),
        ("method", "stock"),
        ("prefetch_distance", "128"),
        ("cached_method", "stock"),
    ] {
        assert_eq!(module::get(parameter)?, value, "{parameter}");
    }
    module::gone()?;
    Ok(())
}

/// Returns a value of /proc/cpuinfo.
fn processor(field: &str) -> Result<String, Failed> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == field));
    let value = line.and_then(|line| line.split_once(':'));
    Ok(value.ok_or_else(|| format!("/proc/cpuinfo has no {field}"))?.1.trim().to_owned())
}

/// True if docs/kernel/parameters.md lists this processor as one on which MOVNTI is slow.
fn movnti_is_slow() -> Result<bool, Failed> {
    let model: u32 = processor("model")?.parse()?;
    // Skylake; Skylake-X, Cascade Lake, Cooper Lake; Skylake, desktop.
    let slow = [78, 85, 94];
    Ok(processor("vendor_id")? == "GenuineIntel" && processor("cpu family")? == "6" && slow.contains(&model))
}

/// Returns the size of the last-level cache, as the kernel reports it.
fn last_cache() -> Result<u64, Failed> {
    let mut last = (0, UNKNOWN_CACHE);
    let Ok(caches) = fs::read_dir("/sys/devices/system/cpu/cpu0/cache") else { return Ok(UNKNOWN_CACHE) };
    for cache in caches {
        let folder = cache?.path();
        let read = |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned());
        let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size")) else { continue };
        let level: u32 = level.parse()?;
        if kind != "Instruction" && level >= last.0 {
            last = (level, size.trim_end_matches('K').parse::<u64>()? << 10);
        }
    }
    Ok(last.1)
}

fn defaults_fit_the_processor() -> Result<(), Failed> {
    module::gone()?;
    module::load("")?;
    let possible = module::possible();
    let flags = processor("flags")?;
    let has = |flag| flags.split(' ').any(|known| known == flag);
    let erms = if has("erms") { "rep_stosb" } else { "stock" };
    let large = if possible.contains(&"clzero") {
        "clzero"
    } else if !movnti_is_slow()? {
        "movnti"
    } else if possible.contains(&"prefetchw") {
        "prefetchw"
    } else {
        erms
    };
    assert_eq!(module::get("method")?, large);
    assert_eq!(module::get("cached_method")?, erms);
    assert_eq!(module::get("chunk")?, "2097152");
    assert_eq!(module::get("prefetch_distance")?, "4096");
    assert_eq!(module::get("ignore_quirks")?, "N");
    // AMD processors report it in a CPUID leaf that this feature implies; without it, the kernel makes up a size.
    let told = processor("vendor_id")? == "GenuineIntel" || has("topoext");
    let threshold = if told { last_cache()? } else { UNKNOWN_CACHE };
    assert_eq!(module::get("threshold")?, threshold.to_string());
    Ok(())
}

fn refused_while_loaded(parameter: &str, value: &str) -> Result<(), Failed> {
    let before = module::Parameters::read()?;
    match module::set(parameter, value) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        other => return Err(format!("{parameter} = {value}: {other:?}").into()),
    }
    assert_eq!(module::Parameters::read()?, before);
    Ok(())
}

fn quirk_forbids_movnti() -> Result<(), Failed> {
    // A processor with the quirk needs no pretence.
    let pretend = if movnti_is_slow()? { "" } else { "pretend_movnt_slow=1 " };
    refused(&format!("{pretend}method=movnti"), libc::EOPNOTSUPP)?;
    refused(&format!("{pretend}method=movnti ignore_quirks=0"), libc::EOPNOTSUPP)?;
    for order in ["method=movnti ignore_quirks=1", "ignore_quirks=1 method=movnti"] {
        module::load(&format!("{pretend}{order}"))?;
        assert_eq!(module::get("method")?, "movnti");
        // The forbidden combination cannot be reached in the other order either.
        refused_while_loaded("ignore_quirks", "0")?;
        module::unload()?;
    }

    module::load(pretend)?;
    assert_ne!(module::get("method")?, "movnti");
    refused_while_loaded("method", "movnti")?;
    module::set("ignore_quirks", "1")?;
    module::set("method", "movnti")?;
    refused_while_loaded("ignore_quirks", "0")?;
    module::set("method", "stock")?;
    module::set("ignore_quirks", "0")?;
    refused_while_loaded("method", "movnti")?;
    module::gone()?;
    Ok(())
}

fn twice() -> Result<(), Failed> {
    module::fresh()?;
    match module::load("") {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => Err(format!("a second time: {other:?}").into()),
    }
}

/// Checks that the module cannot be removed now.
fn stays(why: &str) -> Result<(), Failed> {
    match module::remove() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {}
        other => return Err(format!("removed although {why}: {other:?}").into()),
    }
    assert!(module::is_loaded());
    Ok(())
}

fn disable() -> io::Result<()> {
    module::settle()?;
    module::enable(false)?;
    module::until("the livepatch is there", || Ok(!Path::new("/sys/kernel/livepatch/bulkmem").exists()))
}

fn removed_only_after_it_is_disabled() -> Result<(), Failed> {
    module::fresh()?;
    stays("its livepatch is enabled")?;
    module::unload()?;
    assert!(!module::is_loaded());
    Ok(())
}

fn removed_only_after_the_device_is_closed() -> Result<(), Failed> {
    module::fresh()?;
    let device = Device::open()?;
    let counters = File::open("/sys/class/misc/bulkmem/faults")?;
    disable()?;
    stays("its device is open")?;
    // The mapping still works.
    assert_eq!(device.abi()?, 2);
    drop(device);
    module::until("the module is in use", || Ok(module::remove().is_ok()))?;
    // An open counter does not hold the module; reading it afterwards fails.
    let mut byte = [0];
    match io::Read::read(&mut &counters, &mut byte) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        other => Err(format!("a counter of a module that is gone: {other:?}").into()),
    }
}

/// Returns the KiB in slabs and percpu memory, where a leak of the module would show.
fn kernel_memory() -> Result<u64, Failed> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let mut sum = 0;
    for name in ["SUnreclaim:", "Percpu:", "VmallocUsed:"] {
        let line = text.lines().find(|line| line.starts_with(name)).ok_or(name)?;
        sum += line.split_whitespace().nth(1).ok_or(name)?.parse::<u64>()?;
    }
    Ok(sum)
}

fn many_times() -> Result<(), Failed> {
    let cycle = |parameters: &str, works: bool| -> Result<(), Failed> {
        assert_eq!(module::load(parameters).is_ok(), works, "{parameters:?}");
        if works { Ok(module::unload()?) } else { Ok(()) }
    };
    module::gone()?;
    let mut memory = Vec::new();
    for _ in 0..3 {
        for _ in 0..4 {
            cycle("", true)?;
            cycle("selftest_fault=stock", false)?;
            cycle("pretend_movnt_slow=1 method=movnti", false)?;
        }
        memory.push(kernel_memory()?);
    }
    // The module's image alone is as large as this, so a dozen leaked ones would be detected.
    assert!(memory[2] < memory[1] + 512, "KiB of kernel memory after each dozen: {memory:?}");
    Ok(())
}

/// If the last step of loading fails, the steps before it are undone, including the device.
fn nothing_stays() -> Result<(), Failed> {
    for _ in 0..3 {
        let text = logged(|| refused("", libc::EINVAL))?;
        assert!(
            text.contains("bulkmem: cannot replace no_such_function and copy_user_"),
            "the log does not say why: {text}"
        );
    }
    Ok(())
}
