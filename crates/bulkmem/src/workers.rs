//! Worker threads that the caller keeps, and how a call hands them its pieces.
//!
//! Each worker has a [`Slot`] with a pointer to the task that it has to do. The calling thread keeps the task on its
//! stack, stores the pointer, and unparks the worker. The worker does its piece, stores null and unparks the calling
//! thread, which returns only when the slots of all its workers are null. No other thread writes to the slots in between:
//! the calling thread holds [`Workers::turn`].
//!
//! # Orderings
//!
//! Both stores to a slot are Release and both loads Acquire, so that everything before the call comes before the pieces,
//! and the pieces, with the fence at the end of each, come before everything after the call. A thread that waits looks at
//! the slot again each time that it is unparked, and [`Thread::unpark`] remembers one that comes before
//! [`thread::park`], so no wake-up is lost. One that comes late only makes a later `park` return early, as it may.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::{hint, io, iter, mem, ptr};

use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::signals::without_signals;

/// Threads that wait for work, for calls with [`Options::workers`](crate::Options::workers).
///
/// [`Options::threads`](crate::Options::threads) starts threads in every call, which takes 50 to 100 µs for each and
/// sometimes a scheduler tick (milliseconds). Workers are started once. After a call they spin for 50 to 150 µs and
/// then sleep, and the next call wakes them within microseconds.
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use bulkmem::{Options, Workers};
///
/// let workers = Workers::new(NonZeroUsize::MIN)?; // with the calling thread, two threads for each call
/// let options = Options::new().workers(&workers);
/// let mut memory = vec![1; 8 << 20];
/// for chunk in memory.chunks_mut(2 << 20) {
///     options.clear(chunk);
/// }
/// assert!(memory.iter().all(|&byte| byte == 0));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// - **Pieces** are assigned in order: the first to the calling thread, the next to the first worker, and so on. With
///   workers that are [pinned](Workers::pinned) in order, the same thread on the same processor works on the same part of
///   the same memory in every call, so that each part can stay on its processor's NUMA node and in its caches.
/// - **One call at a time** uses the workers. A call that finds them busy does not wait: its thread does all pieces.
/// - **A forked child** has no workers, so its threads do all pieces. It is recognized by its process id. The first
///   process of a new PID namespace can have the id of its parent; it must neither use nor drop the parent's workers.
/// - **Signals**: workers block the same signals as other threads of the library: all except those of their own faults.
/// - **Dropping** it ends the threads and waits for that, except in a forked child.
#[derive(Debug)]
pub struct Workers {
    /// Locked by the call that uses the workers. Never waited for.
    turn: Mutex<()>,
    /// The process that has the threads.
    process: Pid,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    slot: Arc<Slot>,
    thread: JoinHandle<()>,
}

impl Workers {
    /// Starts `count` threads. They may run on the processors that the current thread may run on.
    ///
    /// # Errors
    /// If the system does not start that many threads.
    pub fn new(count: NonZeroUsize) -> io::Result<Workers> {
        Workers::start(iter::repeat_n(None, count.get()))
    }

    /// Starts one thread for each of these processors and pins it there. Processors are numbered as in
    /// `/sys/devices/system/cpu`; they can be repeated. Leave one for the calling thread, which this function does not pin.
    ///
    /// ```no_run
    /// use bulkmem::{Options, Workers};
    ///
    /// // The calling thread runs on processor 0. Processors 0 to 3 belong to one NUMA node, 4 to 7 to another.
    /// let workers = Workers::pinned(&[1, 2, 3, 4, 5, 6, 7])?;
    /// let mut memory = vec![1; 64 << 20];
    /// Options::new().workers(&workers).clear(&mut memory); // processors 4 to 7 clear the second half
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no processors, if this process may not run on one of them, or if the system does not start that many
    /// threads.
    pub fn pinned(processors: &[usize]) -> io::Result<Workers> {
        if processors.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no processors: name at least one"));
        }
        Workers::start(processors.iter().copied().map(Some))
    }

    /// Starts a thread for each, pinned to the processor if there is one, and waits until all are ready.
    fn start(processors: impl Iterator<Item = Option<usize>>) -> io::Result<Workers> {
        let mut workers = Workers { turn: Mutex::new(()), process: getpid(), workers: Vec::new() };
        let (report, reports) = mpsc::channel();
        for (at, processor) in processors.enumerate() {
            let slot = Arc::new(Slot::default());
            let (own, report) = (Arc::clone(&slot), report.clone());
            let body = move || {
                // The receiver is gone if a later thread did not start.
                let _ = report.send(processor.map_or(Ok(()), pin));
                drop(report);
                own.work(at + 1);
            };
            let builder = thread::Builder::new().name("bulkmem".to_owned());
            let thread = without_signals(|| builder.spawn(body))?;
            workers.workers.push(Worker { slot, thread });
        }
        drop(report);
        reports.into_iter().collect::<io::Result<()>>()?;
        Ok(workers)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Calls `work` with each number below `pieces`, at least 1, on the calling thread and the workers.
    #[cfg(feature = "unstable-internals")]
    #[doc(hidden)]
    pub fn share(&self, pieces: usize, work: impl Fn(usize) + Sync) {
        self.run(pieces, work);
    }

    /// Calls `work` with each number below `pieces`: 0 on the calling thread, each other number on the worker of that
    /// number, counted from 1. The calling thread also does the pieces that have no worker; if the workers are busy or
    /// belong to another process, those are all. Returns when every piece is done; passes a panic on.
    pub(crate) fn run(&self, pieces: usize, work: impl Fn(usize) + Sync) {
        let task = Task { work: &work, caller: thread::current(), panics: Mutex::default() };
        let turn = self.turn.try_lock();
        let available = if turn.is_ok() && self.process == getpid() { self.count() } else { 0 };
        let helpers = &self.workers[..available.min(pieces.saturating_sub(1))];
        // From the first `assign` to the last `wait_until` nothing unwinds: `Task::run` catches panics of `work`.
        for helper in helpers {
            helper.assign(&task);
        }
        task.run(0);
        (helpers.len() + 1..pieces).for_each(|piece| task.run(piece));
        for helper in helpers {
            wait_until(|| helper.slot.task.load(Acquire).is_null());
        }
        drop(turn);
        let panics = task.panics.into_inner().unwrap_or_else(PoisonError::into_inner);
        let first = panics.into_iter().next();
        if let Some(payload) = first {
            resume_unwind(payload);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let workers = mem::take(&mut self.workers);
        if self.process != getpid() {
            // A forked child: the threads do not exist, and joining or detaching them is undefined behavior.
            return mem::forget(workers);
        }
        for worker in &workers {
            worker.slot.stop.store(true, Release);
            worker.thread.thread().unpark();
        }
        for worker in workers {
            // Workers do not panic: `Task::run` catches panics.
            let _ = worker.thread.join();
        }
    }
}

impl Worker {
    /// Gives the worker, which is idle, its piece of a task. The caller keeps the task until the slot is null again.
    fn assign(&self, task: &Task<'_>) {
        self.slot.task.store(ptr::from_ref(task).cast_mut().cast(), Release);
        self.thread.thread().unpark();
    }
}

/// Pins the current thread to a processor.
fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    let pinned = if processor < CpuSet::MAX_CPU {
        set.set(processor);
        sched_setaffinity(None, &set)
    } else {
        Err(rustix::io::Errno::INVAL)
    };
    pinned.map_err(|error| {
        let remedy = "Cpus_allowed_list in /proc/self/status has the processors that it can be pinned to";
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!("cannot pin a worker to processor {processor}: {error}; {remedy}"),
        )
    })
}

/// What a worker and the calling thread share. In cache lines of its own: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// Null while the worker has nothing to do. The lifetime is not the real one: the task lives until this is null again.
    task: AtomicPtr<Task<'static>>,
    /// True if the worker is to end.
    stop: AtomicBool,
}

impl Slot {
    /// Does the piece of that number of every task, until `stop` is set.
    fn work(&self, piece: usize) {
        loop {
            wait_until(|| !self.task.load(Acquire).is_null() || self.stop.load(Acquire));
            // SAFETY: `Workers::run` keeps the task, without moving it, until it has seen the null stored below, and
            // nothing here uses the task after that store. Acquire pairs with the store in `assign`, so the task is
            // initialized. It is only shared, and `Task` is `Sync`.
            let Some(task) = (unsafe { self.task.load(Acquire).as_ref() }) else {
                return; // The wait ended without a task.
            };
            task.run(piece);
            let caller = task.caller.clone();
            self.task.store(ptr::null_mut(), Release);
            caller.unpark();
        }
    }
}

/// One call, on the stack of its thread.
struct Task<'c> {
    work: &'c (dyn Fn(usize) + Sync),
    caller: Thread,
    /// Payloads of panics, dropped only after all pieces, because that can panic too.
    panics: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Task<'_> {
    /// Does a piece. Does not unwind.
    fn run(&self, piece: usize) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (self.work)(piece))) {
            self.panics.lock().unwrap_or_else(PoisonError::into_inner).push(payload);
        }
    }
}

/// How often a thread looks before it parks. With 15 to 50 ns each, this takes about as long as waking a parked thread, or a
/// few times as long. With 300, two threads cleared 256 KiB to 1 MiB at 0.60 of the speed of two processes; with this, at 0.70.
const SPINS: usize = if cfg!(miri) { 3 } else { 3000 };

/// Returns when `ready` does. The thread that makes it ready unparks the current one afterwards. Counts instead of
/// reading a clock, which panics if a system call filter forbids it.
fn wait_until(ready: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if ready() {
            return;
        }
        hint::spin_loop();
    }
    while !ready() {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    //! These run under Miri too.

    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread::ThreadId;

    use super::*;

    fn workers(count: usize) -> Workers {
        Workers::new(NonZeroUsize::new(count).unwrap()).unwrap()
    }

    /// The thread that did each piece. Checks that each was done once.
    fn threads_of(workers: &Workers, pieces: usize) -> Vec<ThreadId> {
        let done = Mutex::new(vec![None; pieces]);
        workers.run(pieces, |piece| {
            let before = done.lock().unwrap()[piece].replace(thread::current().id());
            assert_eq!(before, None, "piece {piece}");
        });
        done.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn every_piece_is_done_once_and_always_by_the_same_thread() {
        let workers = workers(3);
        let first = threads_of(&workers, 4);
        assert_eq!(first[0], thread::current().id());
        for at in 0..4 {
            assert!(!first[..at].contains(&first[at]), "{first:?}");
        }
        for round in 0..if cfg!(miri) { 5 } else { 5000 } {
            for pieces in 1..=4 {
                assert_eq!(threads_of(&workers, pieces), first[..pieces]);
            }
            if round % 50 == 0 {
                // The workers park.
                thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        let more = threads_of(&workers, 7);
        assert_eq!(more[..4], first);
        assert_eq!(more[4..], [first[0]; 3], "those without a worker");
    }

    /// Without a data race, says Miri.
    #[test]
    fn a_call_sees_what_came_before_and_is_seen_after() {
        let workers = workers(2);
        let mut counts = [0; 3];
        for round in 1..20 {
            let start = AtomicPtr::new(counts.as_mut_ptr());
            workers.run(3, |piece| {
                // SAFETY: each piece has an element of its own, and nothing else uses `counts` during the call.
                unsafe { *start.load(Relaxed).add(piece) += 1 }
            });
            assert_eq!(counts, [round; 3]);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_pieces_ended_and_workers_survive_it() {
        let workers = workers(3);
        for guilty in [vec![0], vec![2], vec![0, 1, 2, 3], vec![5]] {
            let done = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                workers.run(6, |piece| {
                    done.fetch_add(1, Relaxed);
                    if guilty.contains(&piece) {
                        std::panic::panic_any(piece);
                    }
                });
            }));
            let payload = result.unwrap_err();
            assert!(guilty.contains(payload.downcast_ref().unwrap()));
            assert_eq!(done.into_inner(), 6);
            assert_eq!(threads_of(&workers, 4).len(), 4);
        }
        let first = threads_of(&workers, 4);
        assert_ne!(first[0], first[1], "the workers are free again");
    }

    #[test]
    fn nested_calls_are_done_by_the_thread_that_makes_them() {
        let workers = workers(2);
        let nested = Mutex::new(Vec::new());
        workers.run(3, |_| {
            let inner = threads_of(&workers, 5);
            nested.lock().unwrap().push((thread::current().id(), inner));
        });
        let nested = nested.into_inner().unwrap();
        assert_eq!(nested.len(), 3);
        for (outer, inner) in nested {
            assert_eq!(inner, [outer; 5]);
        }
    }

    #[test]
    fn several_threads_share_the_workers_and_none_waits_for_another() {
        let workers = workers(2);
        // The first call does not end before the second has.
        let (started, ended) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                workers.run(3, |piece| {
                    if piece == 1 {
                        started.wait();
                        ended.wait();
                    }
                });
            });
            started.wait();
            assert_eq!(threads_of(&workers, 3), [thread::current().id(); 3]);
            ended.wait();
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 5 } else { 2000 } {
                        threads_of(&workers, 3);
                    }
                });
            }
        });
    }

    #[test]
    fn dropping_them_ends_the_threads() {
        for used in [false, true] {
            let workers = workers(3);
            if used {
                threads_of(&workers, 4);
            }
            let slots: Vec<_> = workers.workers.iter().map(|worker| Arc::downgrade(&worker.slot)).collect();
            assert!(slots.iter().all(|slot| slot.strong_count() == 2));
            drop(workers);
            assert!(slots.iter().all(|slot| slot.strong_count() == 0), "a thread still has its slot");
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pinned_workers_run_on_their_processors() {
        let own = rustix::thread::sched_getaffinity(None).unwrap();
        let processors: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&at| own.is_set(at)).take(3).collect();
        let workers = Workers::pinned(&processors).unwrap();
        let seen = Mutex::new(vec![own; processors.len() + 1]);
        workers.run(processors.len() + 1, |piece| {
            let affinity = rustix::thread::sched_getaffinity(None).unwrap();
            seen.lock().unwrap()[piece] = affinity;
        });
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen[0], own, "the calling thread is not pinned");
        for (affinity, processor) in seen[1..].iter().zip(processors) {
            assert!(affinity.count() == 1 && affinity.is_set(processor), "{affinity:?} for {processor}");
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn processors_that_do_not_exist_are_an_error() {
        for missing in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            let error = Workers::pinned(&[missing]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("processor {missing}: ")), "{error}");
        }
        assert_eq!(Workers::pinned(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
