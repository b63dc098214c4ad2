//! Options, progress and results.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::numa::NumberList;
use crate::shared::Limits;

/// The NUMA nodes that new pages come from. Pages that exist stay on their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// As the memory's own policy says (mbind(2)), else the calling thread's. Each thread runs on the nodes that its piece
    /// is bound to, if it is bound.
    #[default]
    Default,
    /// These nodes. With several, the memory is divided into a contiguous piece for each. Each thread runs on the node of
    /// its piece.
    Nodes(NumberList),
    /// These nodes in turn, page by page; all that may be used, if the list is empty. Threads run on any processor.
    Interleave(NumberList),
}

/// A state of a prefault, for callbacks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are ready.
    pub ready: u64,
    /// Bytes to prefault.
    pub total: u64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Average rate, bytes per second; 0 at the start.
    pub rate: f64,
    /// Remaining time at that rate; `None` at the start.
    pub remaining: Option<Duration>,
}

impl Progress {
    pub(crate) fn new(ready: u64, total: u64, elapsed: Duration) -> Progress {
        let rate = if elapsed.is_zero() { 0.0 } else { ready as f64 / elapsed.as_secs_f64() };
        let seconds = (total - ready) as f64 / rate;
        Progress { ready, total, elapsed, rate, remaining: Duration::try_from_secs_f64(seconds).ok() }
    }
}

/// The result of a prefault that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// Bytes that are ready: all that were requested.
    pub bytes: u64,
    /// Size in bytes of the pages that the mapping or the file system has. Transparent huge pages count as base pages.
    pub page_size: u64,
    /// Threads that did the work.
    pub threads: usize,
    /// Time that it took.
    pub elapsed: Duration,
}

/// A callback for progress. [`ControlFlow::Break`] cancels.
pub(crate) type Observer<'a> = dyn Fn(&Progress) -> ControlFlow<()> + 'a;

/// Options of a prefault.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use bulkmem_prefault::Options;
///
/// let show = |progress: &bulkmem_prefault::Progress| {
///     println!("{} of {} bytes", progress.ready, progress.total);
///     ControlFlow::Continue(())
/// };
/// let background = Options::new().threads(2).rate(1 << 30).cpu_share(0.25).progress(&show);
/// # drop(background);
/// ```
#[derive(Clone)]
pub struct Options<'a> {
    pub(crate) threads: usize,
    pub(crate) placement: Placement,
    pub(crate) rate: Option<NonZeroU64>,
    pub(crate) cpu_share: f64,
    pub(crate) lock: bool,
    pub(crate) keep_free: Option<u64>,
    pub(crate) limits: Option<&'a Limits>,
    pub(crate) observer: Option<&'a Observer<'a>>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) touch: bool,
}

/// Memory that stays free by default, bytes.
pub const KEEP_FREE: u64 = 16 << 20;

impl Default for Options<'_> {
    /// One thread, no limits of speed, no lock, and [`KEEP_FREE`].
    fn default() -> Self {
        Options {
            threads: 1,
            placement: Placement::Default,
            rate: None,
            cpu_share: 1.0,
            lock: false,
            keep_free: None,
            limits: None,
            observer: None,
            cancel: None,
            touch: false,
        }
    }
}

impl<'a> Options<'a> {
    /// Returns the default options.
    pub fn new() -> Options<'a> {
        Options::default()
    }

    /// Divides the work among this many threads. 0 means one for each processor that the process may use. The calling thread
    /// waits and reports progress. If it is 1 and there is no progress to report, no thread is started: the calling thread does
    /// the work. Default: 1.
    #[must_use]
    pub fn threads(self, threads: usize) -> Options<'a> {
        Options { threads, ..self }
    }

    /// Sets the NUMA nodes that new pages come from. Default: [`Placement::Default`].
    #[must_use]
    pub fn placement(self, placement: Placement) -> Options<'a> {
        Options { placement, ..self }
    }

    /// Limits the rate of all threads together, in bytes per second, for work in the background. 0 means no limit. Default:
    /// no limit.
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> Options<'a> {
        Options { rate: NonZeroU64::new(bytes_per_second), ..self }
    }

    /// Limits the share of its processor that each thread uses: above 0, up to 1. Values outside of that are clamped. Default:
    /// 1.
    #[must_use]
    pub fn cpu_share(self, share: f64) -> Options<'a> {
        let share = if share.is_nan() { 1.0 } else { share.clamp(0.001, 1.0) };
        Options { cpu_share: share, ..self }
    }

    /// Locks the memory (mlock(2)), so that it is never swapped. Locks either all of it or nothing: after an error, the
    /// memory that this call locked is unlocked. Not for files, because a lock ends with its mapping. Default: false.
    #[must_use]
    pub fn lock(self, lock: bool) -> Options<'a> {
        Options { lock, ..self }
    }

    /// Leaves at least this many bytes below every memory limit: of control groups, of the machine's and the nodes'
    /// available memory, of a tmpfs, of the huge pages that are free and not reserved. Default: [`KEEP_FREE`] of memory,
    /// nothing of a tmpfs or of huge pages.
    #[must_use]
    pub fn keep_free(self, bytes: u64) -> Options<'a> {
        Options { keep_free: Some(bytes), ..self }
    }

    /// Shares what is read of the memory limits with other prefaults, which makes many small ones faster. Default: each prefault
    /// reads them.
    #[must_use]
    pub fn limits(self, limits: &'a Limits) -> Options<'a> {
        Options { limits: Some(limits), ..self }
    }

    /// Calls `observer` on the calling thread, about every five milliseconds and at the end. [`ControlFlow::Break`] cancels.
    /// So does a panic, which goes on when the threads have ended and the memory is unlocked.
    #[must_use]
    pub fn progress(self, observer: &'a dyn Fn(&Progress) -> ControlFlow<()>) -> Options<'a> {
        Options { observer: Some(observer), ..self }
    }

    /// Cancels when `flag` becomes true: each thread ends within 10 ms plus the time to clear one page.
    #[must_use]
    pub fn cancel(self, flag: &'a AtomicBool) -> Options<'a> {
        Options { cancel: Some(flag), ..self }
    }

    /// Touches each page as on kernels before 5.14, which do not have `MADV_POPULATE_WRITE`. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_populate(self, touch: bool) -> Options<'a> {
        Options { touch, ..self }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .field("placement", &self.placement)
            .field("rate", &self.rate)
            .field("cpu_share", &self.cpu_share)
            .field("lock", &self.lock)
            .field("keep_free", &self.keep_free)
            .finish_non_exhaustive()
    }
}
