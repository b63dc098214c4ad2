//! Tests with hardly any free memory: huge pages may be unavailable, but those that are faulted in are zero.

use std::fs;
use std::thread;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{HugeMapping, MIDDLE, SMALL, Source};
use crate::module::{self, Counters};
use crate::stress::seeded;

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("pressure::zeros_or_nothing", zeros_or_nothing);
}

/// Returns the bytes of available memory.
fn available() -> Result<usize, Failed> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).ok_or("no MemAvailable")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}

/// The least memory to leave, so that the kernel does not kill processes.
const LEFT: usize = 64 << 20;

fn zeros_or_nothing() -> Result<(), Failed> {
    let mut rng = seeded("zeros_or_nothing");
    module::fresh()?;
    module::set("threshold", "0")?;
    module::set("chunk", "4096")?;
    // Pages beyond the pool come from the remaining memory.
    let overcommit = "/proc/sys/vm/nr_overcommit_hugepages";
    fs::write(overcommit, "4")?;
    let before = Counters::read()?;

    // Allocate everything in base pages, and free every other 16 KiB of the last part, so that the free memory is
    // fragmented.
    let mut hogs = Vec::new();
    while available()? > LEFT {
        let mut hog = HugeMapping::new(Source::Transparent, 4)?;
        hog.advise(libc::MADV_NOHUGEPAGE)?;
        for offset in (0..hog.length()).step_by(SMALL) {
            hog.bytes_mut()[offset] = 0xa5;
        }
        hogs.push(hog);
    }
    for hog in hogs.iter().rev().take(4) {
        hog.advise_pieces(4 * SMALL, libc::MADV_DONTNEED)?;
    }

    let mut had = 0;
    for round in 0..30 {
        module::set("method", &module::available()?[round % module::available()?.len()])?;
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let mut rng = rng.fork();
                thread::spawn(move || {
                    let source = if rng.bool() { Source::Pool2M } else { Source::Transparent };
                    // The pool is empty, and there may be no memory to extend it.
                    let Ok(mut mapping) = HugeMapping::new(source, 2) else { return Ok(0) };
                    mapping.touch(rng.usize(..2 * MIDDLE));
                    match mapping.first_dirt() {
                        None => mapping.dirty(),
                        Some(at) => return Err(Failed::from(format!("{source:?}: byte {at:#x} is not 0"))),
                    }
                    Ok(1)
                })
            })
            .collect();
        for thread in threads {
            had += thread.join().map_err(|_| Failed::from("a thread panicked"))??;
        }
    }
    drop(hogs);
    fs::write(overcommit, "0")?;
    assert!(had > 0, "there was no memory at all");
    let counted = Counters::read()?.since(&before);
    assert!(counted.get("faults") > 0, "there was no huge page at all");
    assert_eq!(counted.bytes(), counted.get("faults") * MIDDLE as u64);
    // Huge pages are available again after the memory is freed.
    let before = Counters::read()?;
    let mapping = HugeMapping::new(Source::Transparent, 2)?;
    mapping.touch(0);
    mapping.touch(MIDDLE);
    assert_eq!(mapping.first_dirt(), None);
    assert_eq!(Counters::read()?.since(&before).get("faults"), 2);
    Ok(())
}
