//! Runs a prefault: threads that take steps from the queue, and the calling thread, which waits and reports progress. If there
//! is one thread and nothing to report, the calling thread works itself.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bulkmem::without_signals;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::error::{Cause, Error};
use crate::memory::Memory;
use crate::numa::{self, NumberList, Topology};
use crate::options::{Options, Placement, Progress, Ready};
use crate::pace::{Clock, Pace};
use crate::pages::can_populate;
use crate::queue::{Piece, Queue};
use crate::room::Room;

/// Duration of a step, so that cancellation takes effect soon.
const STEP: Duration = Duration::from_millis(4);
/// Longest first step, bytes.
const FIRST: u64 = 2 << 20;
/// Longest step, bytes: the page tables of its window take 128 KiB.
const LONGEST: u64 = 64 << 20;
/// Longest steps of all threads together, bytes, so that the page tables of their windows take 512 KiB.
const LONGEST_OF_ALL: u64 = 256 << 20;
/// Time between two calls of the observer.
const REPORT: Duration = Duration::from_millis(5);
/// Stack of a thread, bytes.
const STACK: usize = 128 << 10;

/// State that the threads share.
struct Shared<'a> {
    memory: &'a dyn Memory,
    queue: Queue<'a>,
    pieces: Vec<Piece>,
    topology: Topology,
    /// The nodes to take pages from in turn.
    interleave: Option<NumberList>,
    pace: Pace<'a>,
    clock: &'a dyn Clock,
    touch: bool,
    /// The requested range, of which bytes count as ready.
    wanted: Range<u64>,
    ready: AtomicU64,
    longest: u64,
    /// A thread has failed.
    stop: AtomicBool,
    /// The observer has cancelled, or panicked.
    cancelled: AtomicBool,
    cancel: Option<&'a AtomicBool>,
    failed: Mutex<Option<Cause>>,
    /// Threads that have not ended.
    active: Mutex<usize>,
    ended: Condvar,
}

/// For each processor: more gain nothing.
const MOST_THREADS: usize = 4;

/// Prefaults memory. `wanted` is the requested range within it; `pieces` are the parts with nodes of their own.
pub(crate) fn run(
    memory: &dyn Memory,
    wanted: Range<u64>,
    pieces: Vec<Piece>,
    options: &Options<'_>,
    clock: &dyn Clock,
) -> Result<Ready, Error> {
    let total = wanted.end - wanted.start;
    let failed = |cause| Error { ready: 0, total, cause };
    let topology = Topology::current();
    let (pieces, interleave) = placed(pieces, options, &topology, memory).map_err(failed)?;
    let processors = numa::processors().0.len().max(1);
    let count = match options.threads {
        0 => processors,
        given => given.min(processors.saturating_mul(MOST_THREADS)),
    };
    let start = clock.now();
    let shared = Shared {
        memory,
        queue: Queue::new(
            memory,
            pieces.clone(),
            Room::new(memory.supply(), options.keep_free, options.limits),
        ),
        pieces,
        topology,
        interleave,
        pace: Pace::new(clock, options.rate, options.cpu_share),
        clock,
        touch: options.touch || !can_populate(),
        wanted,
        ready: AtomicU64::new(0),
        longest: (LONGEST_OF_ALL / count as u64).clamp(FIRST, LONGEST),
        stop: AtomicBool::new(false),
        cancelled: AtomicBool::new(false),
        cancel: options.cancel,
        failed: Mutex::new(None),
        active: Mutex::new(0),
        ended: Condvar::new(),
    };
    let progress = || Progress::new(shared.ready.load(Relaxed), total, clock.now().saturating_sub(start));
    let mut threads = 0;
    let started = thread::scope(|scope| {
        let mut outcome = Ok(());
        if count == 1 && options.observer.is_none() {
            *shared.active() += 1;
            threads = 1;
            let _restored = numa::KeptPlacement::current();
            shared.work(0, 1);
            return outcome;
        }
        for index in 0..count {
            *shared.active() += 1;
            let shared = &shared;
            let work = move || shared.work(index, count);
            let thread = thread::Builder::new().name("prefault".into()).stack_size(STACK);
            match without_signals(|| thread.spawn_scoped(scope, work)) {
                Ok(_) => threads += 1,
                Err(error) => {
                    *shared.active() -= 1;
                    // The others do the work.
                    outcome = if threads > 0 { Ok(()) } else { Err(error) };
                    break;
                }
            }
        }
        shared.watch(options, &progress);
        outcome
    });
    started.map_err(|source| failed(Cause::System { doing: "start a thread", source }))?;
    let ready = shared.ready.load(Relaxed);
    if let Some(observer) = options.observer {
        // Nothing is left to cancel.
        _ = observer(&progress());
    }
    let cause = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match cause {
        None if ready == total => Ok(Ready {
            bytes: total,
            page_size: memory.page(),
            threads,
            elapsed: clock.now().saturating_sub(start),
        }),
        cause => Err(Error { ready, total, cause: cause.unwrap_or(Cause::Cancelled) }),
    }
}

/// Divides the pieces by the nodes of the options. Also returns the nodes to take pages from in turn.
fn placed(
    pieces: Vec<Piece>,
    options: &Options<'_>,
    topology: &Topology,
    memory: &dyn Memory,
) -> Result<(Vec<Piece>, Option<NumberList>), Cause> {
    let allowed = topology.memory();
    let known = |wanted: &NumberList| {
        let missing = NumberList(&wanted.0 - &allowed.0);
        if missing.0.is_empty() && !wanted.0.is_empty() {
            return Ok(());
        }
        let what = if wanted.0.is_empty() {
            "no NUMA node is named".to_owned()
        } else {
            format!("NUMA node {missing} has no memory that this process may use, which are {allowed}")
        };
        Err(Cause::unsupported(what, "name some of those"))
    };
    let end = pieces.last().map_or(0, |piece| piece.range.end);
    match &options.placement {
        Placement::Default => Ok((pieces, None)),
        Placement::Interleave(nodes) => {
            let nodes = if nodes.0.is_empty() { &allowed } else { nodes };
            known(nodes)?;
            Ok((vec![Piece { range: 0..end, nodes: None }], Some(nodes.clone())))
        }
        Placement::Nodes(nodes) => {
            known(nodes)?;
            let (count, unit) = (nodes.0.len() as u64, memory.unit());
            let border = |index: u64| (end / count * index / unit * unit).min(end);
            let piece = |(index, node): (u64, &usize)| {
                let last = if index + 1 == count { end } else { border(index + 1) };
                Piece { range: border(index)..last, nodes: Some(NumberList([*node].into())) }
            };
            Ok(((0..).zip(&nodes.0).map(piece).collect(), None))
        }
    }
}

impl Shared<'_> {
    fn active(&self) -> std::sync::MutexGuard<'_, usize> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Relaxed) || self.cancel.is_some_and(|flag| flag.load(Relaxed))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.cancelled()
    }

    /// Waits for the threads, and calls the observer. If it panics, the threads end soon, and the panic goes on then.
    fn watch(&self, options: &Options<'_>, progress: &dyn Fn() -> Progress) {
        let _cancels = OnPanic(|| self.cancelled.store(true, Relaxed));
        let mut active = self.active();
        while *active > 0 {
            active = match options.observer {
                None => self.ended.wait(active).unwrap_or_else(PoisonError::into_inner),
                Some(observer) => {
                    drop(active);
                    if observer(&progress()).is_break() {
                        self.cancelled.store(true, Relaxed);
                    }
                    let active = self.active();
                    if *active == 0 {
                        return;
                    }
                    self.ended.wait_timeout(active, REPORT).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The work of one of `count` threads: its own piece, then what is left of the others.
    fn work(&self, index: usize, count: usize) {
        // A defect of a thread must not leave the caller waiting for it.
        let _ends = OnPanic(|| {
            self.stop.store(true, Relaxed);
            self.end();
        });
        let own = index * self.pieces.len() / count;
        let order = (own..self.pieces.len()).chain(0..own);
        let result = order.map(|piece| self.piece(piece)).find(Result::is_err);
        if let Some(Err(cause)) = result {
            self.stop.store(true, Relaxed);
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        }
        self.end();
    }

    /// Ends a thread.
    fn end(&self) {
        *self.active() -= 1;
        self.ended.notify_all();
    }

    fn piece(&self, piece: usize) -> Result<(), Cause> {
        let stopped = || self.stopped();
        let mut placed = false;
        let mut want = FIRST;
        loop {
            let turn = self.pace.turn(&stopped);
            let Some(part) = self.queue.next(piece, want.min(self.pace.longest()), &stopped)? else {
                return Ok(());
            };
            turn.begin(part.end - part.start);
            let begun = self.clock.now();
            let result = if placed { Ok(()) } else { self.place(piece) };
            placed = true;
            let result = result.and_then(|()| self.step(&part));
            self.queue.done(&part);
            result?;
            let took = self.clock.now().saturating_sub(begun);
            let fits = (part.end - part.start) as f64 * STEP.as_secs_f64() / took.as_secs_f64().max(1e-9);
            want = (fits as u64).min(want * 2).clamp(self.memory.unit().min(self.longest), self.longest);
            self.pace.rest(took, &stopped);
        }
    }

    /// Moves this thread, and the memory that it causes, to the nodes of a piece.
    fn place(&self, piece: usize) -> Result<(), Cause> {
        let nodes = self.pieces[piece].nodes.as_ref();
        // With one node, there is nothing to choose, and a container may forbid choosing.
        if self.topology.online.0.len() < 2 {
            return Ok(());
        }
        if let Some(nodes) = nodes {
            let processors = nodes.0.iter().filter_map(|node| self.topology.processors.get(node));
            let processors = NumberList(processors.flat_map(|list| list.0.iter().copied()).collect());
            // Memory of nodes without processors (CXL) is mapped from anywhere.
            if !processors.0.is_empty() && sched_getaffinity(None).is_ok() {
                // The thread may run elsewhere, which is slower and no error.
                _ = sched_setaffinity(None, &processors.cpu_set());
            }
        }
        let chosen = match (nodes, &self.interleave) {
            (Some(nodes), _) => numa::bind(nodes),
            (None, Some(nodes)) => numa::interleave(nodes),
            (None, None) => Ok(()),
        };
        chosen.map_err(|source| Cause::System { doing: "take memory from NUMA nodes", source })
    }

    fn step(&self, part: &Range<u64>) -> Result<(), Cause> {
        let count = |part: &Range<u64>| {
            let (start, end) = (part.start.max(self.wanted.start), part.end.min(self.wanted.end));
            self.ready.fetch_add(end.saturating_sub(start), Relaxed);
        };
        if self.memory.populate(part, self.touch).is_ok() {
            count(part);
            return Ok(());
        }
        // Page by page: finds the pages of the part that are ready, and the one that is not. Even if another thread failed
        // and ends the work, so that the pages that this step already has are counted; but not after a cancellation.
        let page = self.memory.page();
        let mut at = part.start;
        while at < part.end && !self.cancelled() {
            let one =
                at..((self.memory.origin() + at) / page * page + page - self.memory.origin()).min(part.end);
            self.memory.populate(&one, self.touch).map_err(|error| self.memory.cause(error, &one))?;
            count(&one);
            at = one.end;
        }
        Ok(())
    }
}

/// Calls a function if a panic unwinds its scope.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}
