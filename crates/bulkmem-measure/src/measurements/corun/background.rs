//! The work in the background: clearing memory at a limited rate, or keeping the processor as busy without touching
//! memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bulkmem::Operation;
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use crate::engine::arena::RawRange;
use crate::engine::clock::Clock;
use crate::engine::implementation::Implementation;
use crate::measurements::corun::cpus;

/// The work for each chunk.
#[derive(Clone, Copy)]
pub(super) enum Work<'p> {
    /// Clears the chunk.
    Clear(Implementation<'p>),
    /// Spins for so many nanoseconds.
    Spin(f64),
}

/// The memory, the bytes per call, the rate and the processors.
#[derive(Clone, Copy)]
pub(super) struct Background {
    pub(super) whole: RawRange,
    /// Bytes; at most the length of `whole`.
    pub(super) chunk: usize,
    /// GB/s, which is bytes per nanosecond.
    pub(super) rate: f64,
    /// The processors it may run on. Default: those of the calling thread.
    pub(super) processors: Option<CpuSet>,
}

/// The work done in the background while the victim ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Bytes cleared; 0 for spinning.
    pub(super) bytes: u64,
    /// Seconds.
    pub(super) seconds: f64,
    /// Seconds of processor time used.
    pub(super) busy: f64,
}

// SAFETY: the range is an address and a length; the caller of `alongside` reserves the memory for this thread.
unsafe impl Send for Background {}

impl Background {
    /// Works in another thread while `victim` runs in this one.
    ///
    /// # Safety
    /// The range is valid for writes, and no other code uses it concurrently.
    pub(super) unsafe fn alongside<T>(self, work: Work<'_>, victim: impl FnOnce() -> T) -> (T, Done) {
        let (stop, chunks) = (AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let (stop, chunks) = (&stop, &chunks);
            let thread = scope.spawn(move || self.work(work, stop, chunks, ready));
            let stopping = Stopping { stop, thread: thread.thread().clone() };
            // The thread ends only when it is stopped, so it always completes the first chunk.
            _ = is_ready.recv();
            let (start, before) = (Instant::now(), chunks.load(Ordering::Relaxed));
            let outcome = victim();
            let (seconds, after) = (start.elapsed().as_secs_f64(), chunks.load(Ordering::Relaxed));
            drop(stopping);
            let (busy, alive) = thread.join().unwrap_or_default();
            let bytes = if matches!(work, Work::Clear(_)) { (after - before) * self.chunk as u64 } else { 0 };
            // Processor time is known for the thread's whole life; takes the part in which the victim ran.
            (outcome, Done { bytes, seconds, busy: busy / alive.max(1e-9) * seconds })
        })
    }

    /// Works until stopped. Returns seconds of processor time and of wall-clock time.
    fn work(
        self,
        work: Work<'_>,
        stop: &AtomicBool,
        chunks: &AtomicU64,
        ready: mpsc::Sender<()>,
    ) -> (f64, f64) {
        if let Some(processors) = &self.processors {
            cpus::bind(processors);
        }
        let (start, busy) = (Instant::now(), processor_time());
        let chunks_in_all = self.whole.length / self.chunk;
        let pause = self.chunk as f64 / self.rate;
        for done in 0u64.. {
            match work {
                Work::Clear(implementation) => {
                    let at = self.whole.start.wrapping_add(done as usize % chunks_in_all * self.chunk);
                    // SAFETY: the chunk lies in the range, which the caller of `alongside` reserves for this thread.
                    unsafe { implementation.run(Operation::Clear, at, at, self.chunk, 0) }
                }
                Work::Spin(ns) => Clock::new().spin(ns),
            }
            chunks.fetch_add(1, Ordering::Relaxed);
            if done == 0 {
                _ = ready.send(());
            }
            let due = start + Duration::from_secs_f64((done + 1) as f64 * pause / 1e9);
            while !stop.load(Ordering::Relaxed) {
                match due.checked_duration_since(Instant::now()) {
                    Some(rest) if !rest.is_zero() => thread::park_timeout(rest),
                    _ => break,
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        (processor_time() - busy, start.elapsed().as_secs_f64())
    }
}

/// Stops the work in the background, also if the victim panics.
struct Stopping<'s> {
    stop: &'s AtomicBool,
    thread: Thread,
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Returns the processor time of this thread in seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::implementation::{self, MethodSet};

    fn background(memory: &mut [u8], rate: f64) -> Background {
        let whole = RawRange { start: memory.as_mut_ptr(), length: memory.len() };
        Background { whole, chunk: 1024, rate, processors: None }
    }

    #[test]
    fn memory_is_cleared_all_over_beside_the_victim_and_no_longer() {
        let mut memory = vec![1u8; 16 * 1024];
        let choice =
            implementation::methods(&MethodSet::Named(vec!["portable".into()]), Operation::Clear).unwrap()[0];
        let background = background(&mut memory, 1.0);
        let mut bytes = 0;
        // On a busy machine several rounds may be needed.
        while bytes == 0 || memory.iter().any(|byte| *byte != 0) {
            let rest = || thread::sleep(Duration::from_millis(5));
            // SAFETY: the vector outlives the call, and is not used concurrently.
            let ((), done) =
                unsafe { background.alongside(Work::Clear(Implementation::Method(choice)), rest) };
            assert!(done.bytes.is_multiple_of(1024) && done.seconds >= 0.005 && done.busy > 0.0, "{done:?}");
            bytes += done.bytes;
        }
    }

    #[test]
    fn spinning_touches_nothing_and_a_long_pause_ends_at_once() {
        let mut memory = vec![1u8; 4096];
        // A chunk every 1000 seconds.
        let background = background(&mut memory, 1e-9);
        // SAFETY: as above.
        let (answer, done) = unsafe { background.alongside(Work::Spin(1000.0), || 42) };
        assert_eq!((answer, done.bytes), (42, 0));
        assert!(memory.iter().all(|byte| *byte == 1));
    }
}
