//! Tests many operations at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use libtest_mimic::Failed;
use testkit::harness::Suite;

use super::{
    KINDS, Kind, all_back, each_kind, fill, first_change, free_memory, holds, is_zero, memory, once,
};
use crate::huge::{MIDDLE, SMALL};
use crate::module;
use crate::process::Child;

pub(super) fn tests(suite: &mut Suite) {
    once(suite, "many_threads_map_and_unmap", many_threads_map_and_unmap);
    once(suite, "processes_and_their_children", processes_and_their_children);
    each_kind(suite, "faults_race_with_changes_of_the_mapping", faults_race_with_changes_of_the_mapping);
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
        // The pools shrink and grow at the same time.
        let start = Instant::now();
        while start.elapsed() < TIME {
            for limit in ["0", "4", "32"] {
                module::set("memory_pool", limit).expect("a valid limit");
            }
        }
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
