//! Tests many operations at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    KINDS, Kind, Probe, all_back, each_kind, fill, first_change, free_memory, holds, is_zero, meminfo,
    memory, once,
};
use crate::huge::{MIDDLE, SMALL};
use crate::process::Child;

pub(super) fn tests(suite: &mut Suite) {
    once(suite, "many_threads_map_and_unmap", many_threads_map_and_unmap);
    once(suite, "processes_and_their_children", processes_and_their_children);
    each_kind(suite, "faults_race_with_changes_of_the_mapping", faults_race_with_changes_of_the_mapping);
    once(suite, "broken_memory_is_kept_from_everybody", broken_memory_is_kept_from_everybody);
}

const TIME: Duration = Duration::from_secs(3);

fn seed() -> u64 {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    seed
}

/// Maps memory of any kind, checks it, writes, and checks again.
fn once_around(random: &mut fastrand::Rng) -> Result<(), Failed> {
    let kind = KINDS[random.usize(..KINDS.len())];
    let length = kind.page * random.usize(1..=if kind.page == SMALL { 900 } else { 6 });
    let mut mapping = memory(kind, length)?;
    is_zero(&mapping, "new memory")?;
    let own = random.u64(..);
    fill(mapping.bytes_mut(), own);
    thread::yield_now();
    holds(mapping.bytes(), own, "the bytes")
}

fn many_threads_map_and_unmap() -> Result<(), Failed> {
    let before = free_memory()?;
    let seed = seed();
    let rounds = AtomicU64::new(0);
    let results: Vec<Result<(), String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|index| {
                let rounds = &rounds;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + index);
                    let start = Instant::now();
                    while start.elapsed() < TIME {
                        once_around(&mut random)
                            .map_err(|failed| failed.message().unwrap_or("failed").to_owned())?;
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    for result in results {
        result?;
    }
    assert!(rounds.into_inner() > 0, "no thread finished a round");
    all_back(before)
}

fn processes_and_their_children() -> Result<(), Failed> {
    let before = free_memory()?;
    let seed = seed();
    let children: Vec<Child> = (0..4)
        .map(|index| {
            Child::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + index);
                let start = Instant::now();
                while start.elapsed() < TIME {
                    let kind = KINDS[random.usize(..KINDS.len())];
                    let mut mapping = memory(kind, 2 * MIDDLE)?;
                    fill(mapping.bytes_mut(), index);
                    let shared = &mut mapping;
                    let child = Child::spawn(|| {
                        holds(shared.bytes(), index, "what the child sees")?;
                        fill(shared.bytes_mut(), index + 100);
                        Ok(())
                    })?;
                    if random.bool() {
                        child.succeed()?;
                        holds(mapping.bytes(), index + 100, "what the parent sees")?;
                    } else {
                        child.kill()?;
                    }
                    once_around(&mut random)?;
                }
                Ok(())
            })
        })
        .collect::<Result<_, _>>()?;
    for child in children {
        child.succeed()?;
    }
    all_back(before)
}

/// Threads touch a whole mapping while another splits, protects and forks it: every touch must reach the same page.
fn faults_race_with_changes_of_the_mapping(kind: Kind) -> Result<(), Failed> {
    let before = free_memory()?;
    let seed = seed();
    for round in 0..4 {
        let length = 8 * MIDDLE;
        let mut mapping = memory(kind, length)?;
        let start = mapping.address();
        if round % 2 == 1 {
            fill(mapping.bytes_mut(), 3);
        }
        let stop = AtomicBool::new(false);
        let touched = AtomicU64::new(0);
        thread::scope(|scope| {
            for index in 0..3 {
                let (stop, touched) = (&stop, &touched);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + index);
                    while !stop.load(Ordering::Relaxed) {
                        // The even pages are never unmapped.
                        let page = random.usize(..length / SMALL / 2) * 2;
                        let at = (start + page * SMALL) as *const AtomicU64;
                        // SAFETY: always mapped for reading and writing, and only accessed atomically.
                        unsafe { (*at).fetch_xor(0, Ordering::Relaxed) };
                        touched.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut random = fastrand::Rng::with_seed(seed ^ round);
            let begin = Instant::now();
            while begin.elapsed() < TIME / 6 {
                let page = random.usize(..length / SMALL / 2) * 2 + 1;
                let at = (start + page * SMALL) as *mut libc::c_void;
                for prot in [PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE] {
                    // SAFETY: an odd page, which no other thread uses.
                    assert_eq!(unsafe { libc::mprotect(at, SMALL, prot) }, 0);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(touched.into_inner() > 0, "nothing was touched");
        let words = mapping.bytes();
        let intact = if round % 2 == 1 { first_change(words, 3) } else { mapping.first_dirt() };
        if let Some(at) = intact {
            return Err(format!("the bytes at offset {at:#x} changed").into());
        }
    }
    all_back(before)
}

/// Marks a page as broken, as the machine-check handler would.
fn broken_memory_is_kept_from_everybody() -> Result<(), Failed> {
    let inject = "/sys/kernel/debug/hwpoison/corrupt-pfn";
    let probe = Probe::open()?;
    for kind in KINDS {
        let corrupted = meminfo("HardwareCorrupted")?;
        let mut mapping = memory(kind, 2 * MIDDLE)?;
        fill(mapping.bytes_mut(), 5);
        let victim = probe.at(mapping.address() + MIDDLE + 7 * SMALL)?;
        // The kernel may report that it cannot handle such a page.
        let _ = std::fs::write(inject, victim.frame.to_string());
        if meminfo("HardwareCorrupted")? <= corrupted {
            return Err(format!("{inject} did not break frame {:#x}", victim.frame).into());
        }
        drop(mapping);
        let flags = std::fs::File::open("/proc/kpageflags")?;
        let mut entry = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&flags, &mut entry, victim.frame * 8)?;
        let entry = u64::from_ne_bytes(entry);
        // Bits 19 and 10: broken and free.
        assert_eq!((entry >> 19 & 1, entry >> 10 & 1), (1, 0), "the broken page's flags are {entry:#x}");
        let now = probe.frame(victim.frame)?;
        assert_eq!(now.direct.memory_type, super::Attribute::Wb.memory_type());
        drop(memory(kind, 64 << 20)?);
    }
    Ok(())
}
