//! Filling units in the background, on a thread of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bulkmem_prefault::{Cause, Limits, Options, prefault_file};

use crate::hooks::{Hooks, Step};
use crate::kind::Kind;
use crate::memory::Memory;
use crate::sys;
use crate::unit::Unit;

/// Bytes that are filled at a time; of larger pages, one page. Between two steps, the thread checks what is left to others and
/// its rate.
const STEP: u64 = 16 << 20;

/// The reason why a unit was not filled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    /// Filling would leave others less than their share.
    #[error("others would be left with too little memory")]
    NoRoom,
    /// The daemon needs the memory for others, or ends.
    #[error("cancelled")]
    Cancelled,
    /// A limit is near (of a control group, a node), or the kernel has no memory.
    #[error(transparent)]
    Prefault(Cause),
    /// The kernel refuses something else.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<bulkmem_prefault::Error> for FillError {
    fn from(error: bulkmem_prefault::Error) -> FillError {
        match error.cause {
            Cause::Cancelled => FillError::Cancelled,
            cause => FillError::Prefault(cause),
        }
    }
}

/// A unit that the thread is to fill, for one of the pool's supplies.
type Order = (usize, Kind);
/// A unit for a supply, or the reason why there is none.
pub(crate) type Filled = (usize, Result<Unit, FillError>);

/// The thread that fills units.
#[derive(Debug)]
pub(crate) struct Filler {
    orders: Sender<Order>,
    filled: Receiver<Filled>,
    /// Readable when a unit is filled.
    pub(crate) wake: OwnedFd,
    progress: Arc<Progress>,
}

/// State that the thread shares with the daemon.
#[derive(Debug, Default)]
struct Progress {
    cancel: AtomicBool,
    /// Bytes of the current unit that are filled.
    done: AtomicU64,
    /// All bytes that were ever filled.
    total: AtomicU64,
}

impl Filler {
    /// Starts the thread. `rate` limits it to so many bytes per second.
    pub(crate) fn start(memory: Memory, rate: Option<u64>, hooks: Hooks) -> io::Result<Filler> {
        let (orders, received) = channel::<Order>();
        let (sender, filled) = channel();
        let (wake, bell) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)?;
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let (started, has_started) = channel();
        thread::Builder::new().name("fill".to_owned()).spawn(move || {
            // Only this thread, on Linux. If it fails, filling competes with others; the rate still limits it.
            _ = rustix::process::setpriority_process(None, 19);
            _ = started.send(());
            let mut throttle = Throttle { rate, next: Instant::now() };
            let limits = Limits::new();
            for (supply, kind) in received {
                let result = fill(kind, &memory, &mut throttle, &limits, &shared, &hooks);
                shared.done.store(0, Ordering::Relaxed);
                if sender.send((supply, result)).is_err() {
                    return;
                }
                // A full pipe wakes the reader too.
                _ = rustix::io::write(&bell, &[0]);
            }
        })?;
        // Starting a thread needs system calls that the daemon forbids afterwards.
        _ = has_started.recv();
        Ok(Filler { orders, filled, wake, progress })
    }

    /// Orders a unit.
    pub(crate) fn order(&self, supply: usize, kind: Kind) {
        self.progress.cancel.store(false, Ordering::Relaxed);
        if self.orders.send((supply, kind)).is_err() {
            log::error!("the thread that fills memory has ended: restart the daemon");
        }
    }

    /// Stops filling the current unit after the current step.
    pub(crate) fn cancel(&self) {
        self.progress.cancel.store(true, Ordering::Relaxed);
    }

    /// Returns the next result, if there is one.
    pub(crate) fn result(&self) -> Option<Filled> {
        let mut drained = [0; 16];
        while rustix::io::read(&self.wake, &mut drained).is_ok_and(|bytes| bytes == drained.len()) {}
        self.filled.try_recv().ok()
    }

    /// Returns the filled bytes of the current unit, and of all units.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.progress.done.load(Ordering::Relaxed), self.progress.total.load(Ordering::Relaxed))
    }
}

/// A limit of the bytes per second over all units.
struct Throttle {
    rate: Option<u64>,
    /// The time before which nothing is filled.
    next: Instant,
}

impl Throttle {
    /// Time between two looks at whether waiting was cancelled.
    const SLICE: Duration = Duration::from_millis(100);

    /// Waits until the next step is allowed, or cancelled.
    fn wait(&self, cancel: &AtomicBool) {
        while !cancel.load(Ordering::Relaxed) {
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Throttle::SLICE));
        }
    }

    /// Accounts for filled bytes.
    fn add(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            self.next =
                self.next.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        }
    }
}

fn fill(
    kind: Kind,
    memory: &Memory,
    throttle: &mut Throttle,
    limits: &Limits,
    progress: &Progress,
    hooks: &Hooks,
) -> Result<Unit, FillError> {
    let unit = Unit::create(kind)?;
    hooks.reach(Step::Created);
    sys::bind_thread(kind.node)?;
    let mut done = 0;
    while done < kind.unit {
        let step = STEP.max(kind.page.bytes()).min(kind.unit - done);
        throttle.wait(&progress.cancel);
        // For all that is left of the unit: a part of one would be filled in vain, again and again.
        if memory.room(kind.page, kind.node)? < i128::from(kind.unit - done) {
            return Err(FillError::NoRoom);
        }
        // On this thread. Also clears base pages, which fallocate would leave to the tenant's page faults.
        prefault_file(
            &unit.file,
            done..done + step,
            &Options::new().cancel(&progress.cancel).limits(limits),
        )?;
        done += step;
        progress.done.store(done, Ordering::Relaxed);
        progress.total.fetch_add(step, Ordering::Relaxed);
        throttle.add(step);
    }
    hooks.reach(Step::Filled);
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kind::PageSize;

    fn memory() -> Memory {
        Memory { root: PathBuf::from("/"), keep_free: 1 }
    }

    fn next(filler: &Filler) -> Filled {
        loop {
            let mut fds = [rustix::event::PollFd::new(&filler.wake, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
            if let Some(filled) = filler.result() {
                return filled;
            }
        }
    }

    #[test]
    fn a_filled_unit_has_all_its_pages() {
        let filler = Filler::start(memory(), None, Hooks::default()).unwrap();
        let kind = Kind::new(PageSize::Base, 20 << 20, None).unwrap();
        filler.order(3, kind);
        let (supply, unit) = next(&filler);
        let about = rustix::fs::fstat(unit.unwrap().file).unwrap();
        assert_eq!((supply, about.st_blocks * 512), (3, 20 << 20));
        assert_eq!(filler.progress(), (0, 20 << 20));
    }

    #[test]
    fn the_share_of_others_is_not_touched() {
        let greedy = Memory { keep_free: 100, ..memory() };
        let filler = Filler::start(greedy, None, Hooks::default()).unwrap();
        filler.order(0, Kind::new(PageSize::Base, 4096, None).unwrap());
        assert!(matches!(next(&filler), (0, Err(FillError::NoRoom))));
    }

    #[test]
    fn a_unit_that_does_not_fit_is_not_begun() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        // There is room for a step, and not for the unit.
        let text = format!("MemTotal: 1000000 kB\nMemAvailable: {} kB\n", 10_000 + ((2 * STEP) >> 10));
        std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
        let filler =
            Filler::start(Memory { root: root.path().to_owned(), keep_free: 1 }, None, Hooks::default());
        let filler = filler.unwrap();
        filler.order(0, Kind::new(PageSize::Base, 2 * STEP + 4096, None).unwrap());
        assert!(matches!(next(&filler), (0, Err(FillError::NoRoom))));
        assert_eq!(filler.progress(), (0, 0));
        filler.order(0, Kind::new(PageSize::Base, STEP, None).unwrap());
        assert!(matches!(next(&filler), (0, Ok(_))));
    }

    #[test]
    fn filling_can_be_cancelled() {
        // One step takes a second at this rate, so that the next one finds the flag.
        let filler = Filler::start(memory(), Some(STEP), Hooks::default()).unwrap();
        filler.order(0, Kind::new(PageSize::Base, 64 << 20, None).unwrap());
        filler.cancel();
        assert!(matches!(next(&filler), (0, Err(FillError::Cancelled))));
    }

    #[test]
    fn a_node_that_does_not_exist_is_an_error() {
        let filler = Filler::start(memory(), None, Hooks::default()).unwrap();
        filler.order(0, Kind::new(PageSize::Base, 4096, Some(1023)).unwrap());
        assert!(matches!(next(&filler), (0, Err(FillError::System(_)))));
    }
}
