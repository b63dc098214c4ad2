//! The work in the background: an operation on memory at a limited rate, by a method or by the kernel, or keeping the
//! processor as busy without touching memory; and the processors of that and of the victim.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use bulkmem::Operation;
use rustix::mm::{Advice, madvise};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::engine::buffer::populate;
use crate::engine::clock::{processor_times, spin};
use crate::engine::placement::Pinned;
use crate::engine::{FILL_BYTE, Implementation, MeasureError, RawRange, Result};

/// The work for each chunk.
#[derive(Clone, Copy)]
pub(super) enum Work<'p> {
    Operation(Operation, Implementation<'p>),
    /// Has the kernel unmap the pages and map new ones, which it clears.
    Kernel,
    /// Spins for so many nanoseconds.
    Spin(f64),
}

#[derive(Clone, Copy)]
pub(super) struct Background {
    pub(super) whole: RawRange,
    /// As long as `whole`; ignored by operations without a source.
    pub(super) source: *const u8,
    /// Bytes; at most the length of `whole`.
    pub(super) chunk: usize,
    /// GB/s, which is bytes per nanosecond.
    pub(super) rate: f64,
    /// The processors it may run on. Default: those of the calling thread.
    pub(super) processors: Option<CpuSet>,
}

// SAFETY: the range is an address and a length; the caller of `alongside` reserves the memory for this thread.
unsafe impl Send for Background {}

impl Background {
    /// Works in another thread while `victim` runs in this one. Returns what was done by then: gigabytes written, the rate,
    /// and the share of the time that the thread used its processor.
    ///
    /// # Safety
    /// The ranges are valid for writes, the source for reads, and no other code uses them concurrently. No reference to
    /// memory that the kernel clears exists.
    pub(super) unsafe fn alongside<T>(
        self,
        work: Work<'_>,
        victim: impl FnOnce() -> T,
    ) -> Result<(T, [(&'static str, f64); 3])> {
        let chunks = &AtomicU64::new(0);
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            // The work ends when this is dropped, also if the victim panics.
            let (running, ended) = mpsc::channel();
            let thread = scope.spawn(move || self.work(work, &ended, chunks, ready));
            // The thread ends only when it is stopped, so it always completes the first chunk.
            _ = is_ready.recv();
            let (start, before) = (Instant::now(), chunks.load(Ordering::Relaxed));
            let outcome = victim();
            let (seconds, after) = (start.elapsed().as_secs_f64(), chunks.load(Ordering::Relaxed));
            drop(running);
            let refused = |source| MeasureError::System { doing: "have the kernel clear memory", source };
            let [busy, alive] = thread.join().unwrap_or(Ok([0.0; 2])).map_err(refused)?;
            let bytes = if matches!(work, Work::Spin(_)) { 0 } else { (after - before) * self.chunk as u64 };
            let gigabytes = bytes as f64 / 1e9;
            // Processor time is known for the thread's whole life, not only for the part in which the victim ran.
            let busy = ("busy_percent", busy / alive.max(1e-9) * 100.0);
            Ok((outcome, [("written_gb", gigabytes), ("rate", gigabytes / seconds), busy]))
        })
    }

    /// Works until the sender of `ended` is gone. Returns seconds of processor time and of wall-clock time.
    /// [`io::Error`] if the kernel refuses memory.
    fn work(
        self,
        work: Work<'_>,
        ended: &Receiver<()>,
        chunks: &AtomicU64,
        ready: Sender<()>,
    ) -> io::Result<[f64; 2]> {
        let _pinned = pinned(self.processors);
        let start = Instant::now();
        let pause = self.chunk as f64 / self.rate;
        for done in 0u64.. {
            let at = done as usize % (self.whole.length / self.chunk) * self.chunk;
            match work {
                Work::Operation(operation, implementation) => {
                    let (dst, src) = (self.whole.start.wrapping_add(at), self.source.wrapping_add(at));
                    // SAFETY: the chunk lies in the ranges, which the caller of `alongside` reserves for this thread.
                    unsafe { implementation.run(1, operation, FILL_BYTE, (dst, src, self.chunk)) }
                }
                Work::Kernel => {
                    let start = self.whole.start.wrapping_add(at);
                    // SAFETY: as above. The pages are released only now, so that the kernel clears others than the last
                    // ones, which are in the cache.
                    unsafe {
                        madvise(start.cast(), self.chunk, Advice::LinuxDontNeed)?;
                        populate(start, self.chunk)?;
                    }
                }
                Work::Spin(ns) => spin(ns),
            }
            chunks.fetch_add(1, Ordering::Relaxed);
            if done == 0 {
                _ = ready.send(());
            }
            let due = start + Duration::from_secs_f64((done + 1) as f64 * pause / 1e9);
            let rest = due.saturating_duration_since(Instant::now());
            if ended.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        Ok([processor_times(libc::RUSAGE_THREAD).iter().sum(), start.elapsed().as_secs_f64()])
    }
}

/// The processors of both; `None` leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Placement {
    pub(super) victim: Option<CpuSet>,
    pub(super) background: Option<CpuSet>,
    pub(super) note: Option<&'static str>,
}

const UNKNOWN: &str =
    "the kernel does not report which processors may be used, so it places clearing and command itself";
const SHARED: &str = "there is only one processor: the clearing and the command share it";

impl Placement {
    /// Places the background on the last processor and the victim on the others; with `same`, or if there is only one, both
    /// on the last.
    pub(super) fn new(same: bool) -> Placement {
        sched_getaffinity(None).map_or(Placement { note: Some(UNKNOWN), ..Placement::default() }, |allowed| {
            Placement::of(&allowed, same)
        })
    }

    fn of(allowed: &CpuSet, same: bool) -> Placement {
        let Some(last) = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)) else {
            return Placement::default();
        };
        let (mut one, mut others) = (CpuSet::new(), *allowed);
        one.set(last);
        others.unset(last);
        let alone = others.count() == 0;
        let victim = if same || alone { one } else { others };
        Placement { victim: Some(victim), background: Some(one), note: (alone && !same).then_some(SHARED) }
    }
}

/// Restricts this thread, and what it starts, to processors until dropped. If the kernel refuses, it runs where it ran: the
/// processors were allowed before.
pub(super) fn pinned(processors: Option<CpuSet>) -> Option<Pinned> {
    Pinned::to(&processors?).ok()
}

#[cfg(test)]
mod tests {
    use bulkmem::Pages;
    use bulkmem::machine::Machine;

    use super::*;
    use crate::engine::buffer::map;
    use crate::engine::implementation::{self, MethodSet};

    fn background(memory: &mut [u8], rate: f64) -> Background {
        let whole = RawRange { start: memory.as_mut_ptr(), length: memory.len() };
        Background { whole, source: whole.start, chunk: 1024, rate, processors: None }
    }

    #[test]
    fn memory_is_cleared_all_over_beside_the_victim_and_no_longer() {
        let mut memory = vec![1u8; 16 * 1024];
        let choice =
            implementation::methods(&MethodSet::Named(vec!["portable".into()]), Operation::Clear).unwrap()[0];
        let (background, method) = (background(&mut memory, 1.0), Implementation::Method(choice));
        let mut bytes = 0;
        // On a busy machine several rounds may be needed.
        while bytes == 0 || memory.iter().any(|byte| *byte != 0) {
            let rest = || thread::sleep(Duration::from_millis(5));
            // SAFETY: the vector outlives the call, and is not used concurrently.
            let ((), done) =
                unsafe { background.alongside(Work::Operation(Operation::Clear, method), rest) }.unwrap();
            let [(_, gigabytes), (_, rate), (_, busy)] = done;
            let cleared = (gigabytes * 1e9).round() as u64;
            assert!(cleared.is_multiple_of(1024) && busy > 0.0, "{done:?}");
            assert!(cleared == 0 || gigabytes / rate >= 0.005, "{done:?}");
            bytes += cleared;
        }
    }

    #[test]
    fn spinning_touches_nothing_and_a_long_pause_ends_at_once() {
        let mut memory = vec![1u8; 4096];
        // A chunk every 1000 seconds.
        let background = background(&mut memory, 1e-9);
        // SAFETY: as above.
        let (answer, [written, ..]) = unsafe { background.alongside(Work::Spin(1000.0), || 42) }.unwrap();
        assert_eq!((answer, written), (42, ("written_gb", 0.0)));
        assert!(memory.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn the_kernel_clears_every_page_anew_and_a_refusal_is_an_error() {
        let length = 16 * Machine::current().page_size;
        let mut mapping = map(length, Pages::Base).unwrap();
        let start = mapping.as_mut_ptr();
        let whole = RawRange { start, length };
        let chunk = length / 4;
        // Without a limit.
        let background = Background { whole, source: start, chunk, rate: f64::INFINITY, processors: None };
        let dirty = |at: usize| start.wrapping_add(at * chunk);
        // SAFETY: within the mapping, which only this test uses.
        (0..4).for_each(|at| unsafe { dirty(at).write_volatile(1) });
        // SAFETY: as above.
        let is_clear = || (0..4).all(|at| unsafe { dirty(at).read_volatile() } == 0);
        let rest = || thread::sleep(Duration::from_millis(5));
        while !is_clear() {
            // SAFETY: as above.
            let ((), [(_, gigabytes), ..]) = unsafe { background.alongside(Work::Kernel, rest) }.unwrap();
            assert!(((gigabytes * 1e9).round() as usize).is_multiple_of(chunk));
        }
        drop(mapping);
        let whole = RawRange { start: std::ptr::without_provenance_mut(1), length };
        let nowhere = Background { whole, ..background };
        // SAFETY: the kernel refuses an address within a page.
        let refused = unsafe { nowhere.alongside(Work::Kernel, || ()) }.unwrap_err();
        assert!(refused.to_string().contains("have the kernel clear memory"), "{refused}");
    }

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn the_background_has_the_last_processor_for_itself_where_there_is_another() {
        let apart = Placement::of(&set(&[1, 4, 7]), false);
        assert_eq!((apart.victim, apart.background), (Some(set(&[1, 4])), Some(set(&[7]))));
        let same = Placement::of(&set(&[1, 4, 7]), true);
        assert_eq!((same.victim, same.background, same.note), (Some(set(&[7])), Some(set(&[7])), None));
        let alone = Placement::of(&set(&[3]), false);
        assert_eq!((alone.victim, alone.background), (Some(set(&[3])), Some(set(&[3]))));
        assert!(alone.note.unwrap().contains("only one processor"));
        assert_eq!(Placement::of(&set(&[]), false), Placement::default());
    }

    #[test]
    fn a_thread_comes_back_to_where_it_was() {
        let before = sched_getaffinity(None).unwrap();
        let placement = Placement::new(false);
        {
            let _pinned = pinned(placement.background);
            assert_eq!(sched_getaffinity(None).unwrap(), placement.background.unwrap());
        }
        assert!(pinned(None).is_none());
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
