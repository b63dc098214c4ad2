//! Loads, reconfigures, disables and unloads the module while threads fault, and kills processes during a fault.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::device::{Device, HINT, Hint};
use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, CACHED, Counters, METHODS, until};
use crate::process::{Child, End};

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("stress::switched_under_faults", switched_under_faults);
    suite.test("stress::hinted_under_faults", hinted_under_faults);
    suite.test("stress::disabled_and_enabled_under_faults", disabled_and_enabled_under_faults);
    suite.test("stress::unloaded_and_loaded_under_faults", unloaded_and_loaded_under_faults);
    suite.test("stress::disabled_leaves_all_to_the_kernel", disabled_leaves_all_to_the_kernel);
    suite.test("stress::killed_in_faults", killed_in_faults);
}

const FAULTING: usize = 3;

/// Returns the seed of a test's random choices: a new one, or the one in BULKMEM_SEED, to repeat a failure.
pub(crate) fn seeded(test: &str) -> Rng {
    let seed = std::env::var("BULKMEM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("{test}: BULKMEM_SEED={seed}");
    Rng::with_seed(seed)
}

/// Touches two new pages anywhere, checks that they are zero, and dirties them.
fn fault(rng: &mut Rng) -> Result<(), Failed> {
    let source = if rng.bool() { Source::Pool2M } else { Source::Transparent };
    let mut mapping = HugeMapping::new(source, 2)?;
    mapping.touch(rng.usize(..2 * MIDDLE));
    match mapping.first_dirt() {
        None => mapping.dirty(),
        Some(at) => return Err(format!("{source:?}: byte {at:#x} is not 0").into()),
    }
    Ok(())
}

/// Runs `work` while threads fault, and checks that each of them faulted and only found zeros.
fn under_faults(rng: &mut Rng, work: impl FnOnce(&mut Rng) -> Result<(), Failed>) -> Result<(), Failed> {
    let stop = AtomicBool::new(false);
    let faults: [AtomicU64; FAULTING] = Default::default();
    thread::scope(|scope| {
        let threads: Vec<_> = faults
            .iter()
            .map(|count| {
                let mut rng = rng.fork();
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) || count.load(Ordering::Relaxed) == 0 {
                        fault(&mut rng)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), Failed>(())
                })
            })
            .collect();
        let result = work(rng);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| Failed::from("a faulting thread panicked"))??;
        }
        result
    })
}

/// Sets random valid parameters.
fn switch(rng: &mut Rng, available: &[String]) -> Result<(), Failed> {
    let of = |rng: &mut Rng, names: &[&str]| loop {
        let name = names[rng.usize(..names.len())];
        if available.iter().any(|known| known == name) {
            break name.to_owned();
        }
    };
    module::set("method", of(rng, &METHODS))?;
    module::set("cached_method", of(rng, &CACHED))?;
    module::set("threshold", [0, MIDDLE as u64 + 1][rng.usize(..2)].to_string())?;
    module::set("chunk", (rng.u64(1..=1024) * 4096).to_string())?;
    module::set("prefetch_distance", (rng.u64(1..=1024) * 64).to_string())?;
    Ok(())
}

fn switched_under_faults() -> Result<(), Failed> {
    let mut rng = seeded("switched_under_faults");
    module::fresh()?;
    let available = module::available()?;
    let before = Counters::read()?;
    under_faults(&mut rng, |rng| {
        for _ in 0..40 {
            switch(rng, &available)?;
            thread::sleep(Duration::from_millis(rng.u64(..40)));
        }
        Ok(())
    })?;
    let counted = Counters::read()?.since(&before);
    // All pages here have the same size; if none was free, the kernel cleared base pages without the module.
    assert!(counted.get("faults") > 0);
    assert_eq!(counted.bytes(), counted.get("faults") * MIDDLE as u64);
    Ok(())
}

/// Adds and removes hints in every way while faults look them up.
fn hinted_under_faults() -> Result<(), Failed> {
    let mut rng = seeded("hinted_under_faults");
    module::fresh()?;
    module::set("method", "movnti")?;
    module::set("cached_method", "prefetchw")?;
    module::set("threshold", (MIDDLE as u64 + 1).to_string())?;
    let before = Counters::read()?;
    let rounds = 60;
    under_faults(&mut rng, |rng| {
        for _ in 0..rounds {
            let device = Device::open()?;
            // Random pieces of the address space; each addition also removes hints of dead processes.
            for _ in 0..rng.usize(1..8) {
                device.hint(0, (1 << (47 - rng.u32(..8))) - SMALL as u64)?;
            }
            thread::sleep(Duration::from_millis(rng.u64(..20)));
            match rng.u8(..3) {
                0 => device.unhint()?,
                1 => drop(device),
                _ => {
                    // The child ends while its hints exist, and only the shared file remains.
                    let mut child = Command::new("/bin/true");
                    let descriptor = device.0.as_raw_fd();
                    // SAFETY: between fork and exec, only one system call with a local runs.
                    unsafe {
                        child.pre_exec(move || {
                            let hint = Hint::new(0, MIDDLE as u64);
                            match libc::ioctl(descriptor, HINT, &raw const hint) {
                                0 => Ok(()),
                                _ => Err(io::Error::last_os_error()),
                            }
                        })
                    };
                    assert!(child.status()?.success());
                }
            }
        }
        Ok(())
    })?;
    let counted = Counters::read()?.since(&before);
    assert_eq!(counted.get("hints"), 0);
    assert_eq!(counted.bytes(), counted.get("faults") * MIDDLE as u64);
    // Some faults found a hint and used the method for large extents.
    assert!(counted.get("movnti/hinted") > 0, "{counted:?}");
    assert_eq!(counted.get("movnti/hinted"), counted.get("movnti/extents"));
    Ok(())
}

fn disabled_and_enabled_under_faults() -> Result<(), Failed> {
    let mut rng = seeded("disabled_and_enabled_under_faults");
    module::fresh()?;
    under_faults(&mut rng, |rng| {
        for _ in 0..4 {
            module::enable(false)?;
            thread::sleep(Duration::from_millis(rng.u64(..20)));
            // Re-enable it during its transition; if that is too late, load it again.
            if module::enable(true).is_err() {
                until("the livepatch is there", || Ok(!fs::exists("/sys/kernel/livepatch/bulkmem")?))?;
                until("the module is in use", || Ok(module::remove().is_ok()))?;
                module::load("")?;
            }
            module::settle()?;
        }
        Ok(())
    })?;
    let before = Counters::read()?;
    fault(&mut rng)?;
    assert!(Counters::read()?.since(&before).get("faults") > 0, "at the end it is enabled, and counts");
    Ok(())
}

fn unloaded_and_loaded_under_faults() -> Result<(), Failed> {
    let mut rng = seeded("unloaded_and_loaded_under_faults");
    module::fresh()?;
    let available = module::available()?;
    under_faults(&mut rng, |rng| {
        for _ in 0..3 {
            switch(rng, &available)?;
            module::unload()?;
            thread::sleep(Duration::from_millis(rng.u64(..50)));
            module::load("")?;
        }
        Ok(())
    })
}

fn disabled_leaves_all_to_the_kernel() -> Result<(), Failed> {
    module::fresh()?;
    module::set("threshold", "0")?;
    // The open file holds the module and its counters.
    let device = Device::open()?;
    device.hint(0, 1 << 46)?;
    module::enable(false)?;
    until("the livepatch is there", || Ok(!fs::exists("/sys/kernel/livepatch/bulkmem")?))?;
    let before = Counters::read()?;
    let mapping = HugeMapping::new(Source::Pool2M, 1)?;
    mapping.touch(0);
    assert_eq!(mapping.first_dirt(), None);
    assert_eq!(Counters::read()?.since(&before), Counters::default());
    drop(device);
    until("the module is in use", || Ok(module::remove().is_ok()))?;
    Ok(())
}

/// Returns a counter of the pool of 2 MiB pages.
fn pool(counter: &str) -> std::io::Result<usize> {
    let text = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{counter}"))?;
    text.trim().parse().map_err(std::io::Error::other)
}

fn killed_in_faults() -> Result<(), Failed> {
    let mut rng = seeded("killed_in_faults");
    module::fresh()?;
    module::set("threshold", "0")?;
    // Many scheduling points inside one clearing.
    module::set("chunk", "4096")?;
    let available = module::available()?;
    let free = pool("free_hugepages")?;
    let device = Device::open()?;
    for round in 0..24 {
        module::set("method", &available[round % available.len()])?;
        let mut theirs = rng.fork();
        let child = Child::spawn(|| {
            device.hint(0, 1 << 46)?;
            loop {
                fault(&mut theirs)?;
            }
        })?;
        thread::sleep(Duration::from_millis(rng.u64(1..60)));
        match child.kill()? {
            End::Signal(libc::SIGKILL) => {}
            end => return Err(format!("a faulting child was not killed, but ended with {end:?}").into()),
        }
    }
    until("the killed processes' pages are in use", || Ok(pool("free_hugepages")? == free))?;
    until("their hints are there", || Ok(Counters::read()?.get("hints") == 0))?;
    // Pages that they left half written come back as zeros.
    let mapping = HugeMapping::new(Source::Pool2M, free)?;
    mapping.populate()?;
    match mapping.first_dirt() {
        None => Ok(()),
        Some(at) => Err(format!("byte {at:#x} of the pool is not 0").into()),
    }
}
