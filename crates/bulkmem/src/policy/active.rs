//! The process-wide policy. The first operation loads it without allocating or waiting, or [`init`] does.
//!
//! One thread loads it into static memory. Calls that arrive in between, from other threads or from a signal handler
//! that interrupted the loading, get `None` and use built-in methods. A child process that was forked while another
//! thread was loading finds that the claim is its parent's, and loads into memory of its own.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::environment;
use super::load::Loaded;
use super::rules::Rules;
use super::{Policy, PolicyError};
use crate::errno;
use crate::once::Once;
use crate::signals::without_signals;

/// How often loading can start: in the process, in a child that was forked during loading, and in a child of that child.
const SLOTS: usize = 3;

/// Longest time that [`init`] waits for another thread to load. It takes a millisecond at most, unless a network file
/// system is slow.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

struct Slot(UnsafeCell<Loaded<'static>>);

// SAFETY: a slot is written by the one thread that claimed it, and read only after it was published.
unsafe impl Sync for Slot {}

static SLOT: [Slot; SLOTS] = [const { Slot(UnsafeCell::new(Loaded::EMPTY)) }; SLOTS];

/// The policy once it is loaded; null before.
static ACTIVE: AtomicPtr<Loaded<'static>> = AtomicPtr::new(ptr::null_mut());

/// The claim to load: the number of slots in use in the upper half, the process ID in the lower.
static CLAIM: AtomicU64 = AtomicU64::new(0);

/// The active rules, which the first call loads; `None` while they are being loaded elsewhere.
#[inline(always)]
pub(crate) fn rules() -> Option<&'static Rules> {
    loaded().map(|loaded| &loaded.rules)
}

#[inline(always)]
fn loaded() -> Option<&'static Loaded<'static>> {
    // SAFETY: null, or a slot that was published after it had been written for the last time.
    match unsafe { ACTIVE.load(Ordering::Acquire).as_ref() } {
        Some(loaded) => Some(loaded),
        None => load(),
    }
}

#[cold]
#[inline(never)]
fn load() -> Option<&'static Loaded<'static>> {
    let claim = CLAIM.load(Ordering::Acquire);
    let slot = (claim >> 32) as usize;
    let mine = SLOT.get(slot)?;
    let process = process();
    if slot > 0 && claim as u32 == process {
        // Another thread of this process is loading, or the code that this signal handler interrupted.
        return None;
    }
    // A handler that leaves by a jump would leave the claim without a thread that loads.
    without_signals(|| errno::kept(|| claim_and_load(claim, process, mine)))
}

fn claim_and_load(claim: u64, process: u32, mine: &'static Slot) -> Option<&'static Loaded<'static>> {
    let next = ((claim >> 32) + 1) << 32 | u64::from(process);
    CLAIM.compare_exchange(claim, next, Ordering::AcqRel, Ordering::Acquire).ok()?;
    let Some(environment) = environment::current() else {
        // Too early: the constructor is still running. Nothing was written to the slot, so a later call may
        // claim it, unless a process that shares this memory went on from here.
        let _ = CLAIM.compare_exchange(next, claim, Ordering::AcqRel, Ordering::Acquire);
        return None;
    };
    // SAFETY: the exchange gives each slot to one thread, once, and nothing reads it before it is published.
    unsafe { (*mine.0.get()).load(&environment) };
    // With memory that is shared after vfork, another process may have published in the meantime; its policy is as good.
    let published =
        ACTIVE.compare_exchange(ptr::null_mut(), mine.0.get(), Ordering::AcqRel, Ordering::Acquire);
    let active = published.map_or_else(|active| active, |_| mine.0.get());
    // SAFETY: published; nothing writes to it any more.
    unsafe { active.as_ref() }
}

/// See [`crate::init`].
pub(crate) fn init() -> Result<(), PolicyError> {
    let loaded = wait();
    log_once(loaded);
    match loaded {
        Some(loaded) if loaded.disobeys() => problems().into_iter().next().map_or(Ok(()), Err),
        Some(_) => Ok(()),
        None => Err(PolicyError::NotLoaded),
    }
}

/// See [`super::problems`].
pub(super) fn problems() -> Vec<PolicyError> {
    wait().map_or_else(|| vec![PolicyError::NotLoaded], |loaded| Policy::of_loaded(loaded).1)
}

/// See [`Policy::global`].
pub(super) fn global() -> &'static Policy {
    static GLOBAL: Once<Policy> = Once::new();
    let loaded = wait();
    let policy = GLOBAL.get_or_init(|| match loaded {
        Some(loaded) => Policy::of_loaded(loaded).0,
        None => Policy::defaults(crate::machine::Machine::current()),
    });
    log_once(loaded);
    policy
}

/// Sends what could not be used to the `log` facade, once in a process. Operations never do: a logger may allocate, lock,
/// and use this library. No lock is held while it logs, so the logger can call
/// any function, [`init`] and [`global`] too.
fn log_once(loaded: Option<&Loaded<'static>>) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if LOGGED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(loaded) = loaded else { return log::warn!("{}", PolicyError::NotLoaded) };
    let (policy, errors) = Policy::of_loaded(loaded);
    for refused in &policy.origin().refused {
        log::warn!("{} is not used: {}", refused.path.display(), refused.reason);
    }
    for error in errors.iter().filter(|error| !matches!(error, PolicyError::Profile { .. })) {
        match std::error::Error::source(error) {
            Some(source) => log::warn!("{error}: {source}"),
            None => log::warn!("{error}"),
        }
    }
}

/// The policy, when the thread that loads it has done so. `None` if none does: the process was forked in the middle of
/// loading too often, or into a new PID namespace where it has the number of the process that loads, or the thread ended.
fn wait() -> Option<&'static Loaded<'static>> {
    let start = Instant::now();
    loop {
        if let Some(loaded) = loaded() {
            return Some(loaded);
        }
        let claim = CLAIM.load(Ordering::Acquire);
        let exhausted = (claim >> 32) as usize >= SLOTS && claim as u32 != process();
        if exhausted || start.elapsed() > LONGEST_WAIT {
            return None;
        }
        std::thread::yield_now();
    }
}

fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}
