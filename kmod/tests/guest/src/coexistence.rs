//! Tests the module with the rest of the kernel: taint, tracing that is disabled or traces the replaced function, and
//! another livepatch, and kernels that refuse the module. `docs/kernel/install.md` documents this behaviour.

use std::fs;
use std::io;
use std::path::Path;

use bulkmem_kmod::Module;
use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::loading::{logged, refused};
use crate::module::{self, Fault, counted};

const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const TRACING: &str = "/sys/kernel/debug/tracing";

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("coexistence::taints_as_documented", taints_as_documented);
    suite.test("coexistence::needs_ftrace_to_load", needs_ftrace_to_load);
    suite.test("coexistence::keeps_ftrace_on", keeps_ftrace_on);
    suite.test("coexistence::probed_where_it_replaces", probed_where_it_replaces);
    suite.test("coexistence::a_cumulative_livepatch_is_noticed", a_cumulative_livepatch_is_noticed);
    suite.test("unsigned::is_refused", is_refused);
    suite.test("blacklisted::is_refused", is_refused);
}

fn taints_as_documented() -> Result<(), Failed> {
    module::gone()?;
    module::load("")?;
    assert_eq!(fs::read_to_string("/sys/module/bulkmem/taint")?.trim(), "OEK");
    let tainted: u64 = fs::read_to_string("/proc/sys/kernel/tainted")?.trim().parse()?;
    // Out-of-tree module, unsigned module, livepatch.
    assert_eq!(tainted & 45056, 45056, "the kernel's taint is {tainted}");
    Ok(())
}

/// From Linux 7.3 on, ftrace cannot be turned off.
fn ftrace_stays_on() -> Result<(), Failed> {
    assert!(module::kernel()? >= (7, 3), "this kernel can turn ftrace off");
    assert_eq!(fs::read_to_string(FTRACE)?.trim(), "1");
    Ok(())
}

fn needs_ftrace_to_load() -> Result<(), Failed> {
    module::gone()?;
    match fs::write(FTRACE, "0") {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return ftrace_stays_on(),
        result => result?,
    }
    let result = logged(|| refused("", libc::EBUSY));
    fs::write(FTRACE, "1")?;
    let text = result?;
    for line in ["livepatch: failed to register ftrace handler for function", "bulkmem: cannot replace"] {
        assert!(text.contains(line), "the log has no {line:?}: {text}");
    }
    Ok(())
}

fn keeps_ftrace_on() -> Result<(), Failed> {
    module::fresh()?;
    match fs::write(FTRACE, "0") {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => ftrace_stays_on(),
        result => {
            fs::write(FTRACE, "1")?;
            Err(format!("with the module loaded, turning ftrace off gave {result:?}").into())
        }
    }
}

/// A kprobe on the replaced function reports its calls, which run the module's function.
fn probed_where_it_replaces() -> Result<(), Failed> {
    module::fresh()?;
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let replaced = ["clear_huge_page", "folio_zero_user"]
        .into_iter()
        .find(|name| symbols.lines().any(|line| line.split(' ').nth(2) == Some(name)))
        .ok_or("neither function is there")?;
    let events = format!("{TRACING}/kprobe_events");
    let switch = format!("{TRACING}/events/kprobes/bulkmem_test/enable");
    fs::write(&events, format!("p:kprobes/bulkmem_test {replaced}\n"))?;
    let hits = (|| {
        fs::write(&switch, "1")?;
        let mapping = HugeMapping::new(Source::Pool2M, 2)?;
        counted(&[Fault { size: MIDDLE, offset: 0, hint: 0 }; 2], || {
            mapping.touch(0);
            mapping.touch(MIDDLE);
            Ok(())
        })?;
        assert_eq!(mapping.first_dirt(), None);
        let profile = fs::read_to_string(format!("{TRACING}/kprobe_profile"))?;
        let line =
            profile.lines().find(|line| line.contains("bulkmem_test")).ok_or("the probe is not there")?;
        Ok::<_, Failed>(line.split_whitespace().nth(1).ok_or("the probe has no count")?.parse::<u64>()?)
    })();
    // Opening the list for writing with truncation removes every probe.
    let off = fs::write(&switch, "0").and_then(|()| fs::write(&events, ""));
    let hits = hits?;
    off?;
    assert_eq!(hits, 2, "the probe saw each call");
    Ok(())
}

/// The probe's second module replaces every livepatch, as vendors' do.
fn a_cumulative_livepatch_is_noticed() -> Result<(), Failed> {
    const OTHER: &str = "/sys/kernel/livepatch/bulkmem_cumulative";
    module::fresh()?;
    module::insert("/bulkmem_cumulative.ko", "")?;
    module::until("our livepatch is there", || Ok(!Path::new("/sys/kernel/livepatch/bulkmem").exists()))?;
    let (status, mapping) = (Module::running().status()?, HugeMapping::new(Source::Pool2M, 1)?);
    assert_eq!((status.loaded, status.livepatch), (true, None));
    assert_eq!(status.superseded_by.as_deref(), Some("bulkmem_cumulative"));
    counted(&[], || {
        mapping.touch(0);
        Ok(())
    })?;
    module::until("it is in transition", || {
        Ok(fs::read_to_string(format!("{OTHER}/transition"))?.trim() == "0")
    })?;
    fs::write(format!("{OTHER}/enabled"), "0")?;
    module::until("it is there", || Ok(!Path::new(OTHER).exists()))?;
    for name in [c"bulkmem_cumulative", c"bulkmem"] {
        module::until("the module is there", || Ok(module::remove_named(name).is_ok()))?;
    }
    module::fresh()?;
    assert_eq!(Module::running().status()?.superseded_by, None);
    Ok(())
}

/// Kernels that refuse unsigned modules, or this one by name, each with its own message.
fn is_refused() -> Result<(), Failed> {
    let line = fs::read_to_string("/proc/cmdline")?;
    let (error, words) = if line.contains("lockdown=") {
        (libc::EPERM, "unsigned module loading is restricted; see man kernel_lockdown.7")
    } else if line.contains("module.sig_enforce") {
        (libc::EKEYREJECTED, "Loading of unsigned module is rejected")
    } else if line.contains("module_blacklist=bulkmem") {
        (libc::EPERM, "Module bulkmem is blacklisted")
    } else {
        return Err(io::Error::other("this kernel takes the module").into());
    };
    let text = logged(|| refused("", error))?;
    assert!(text.contains(words), "the log has no {words:?}: {text}");
    Ok(())
}
