//! Threads that read and write random blocks, count the operations, and time each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bulkmem::{Mapping, Pages};
use hdrhistogram::Histogram;

use crate::MeasureError;
use crate::engine::Direction;
use crate::engine::arena::{RawRange, write_something};
use crate::engine::positions::Permutation;
use crate::engine::run::Sample;
use crate::engine::threads;
use crate::measurements::iops::access::Ways;

/// Significant digits of latencies.
const DIGITS: u8 = 3;
/// Longest latency that is recorded, nanoseconds; a minute is longer than any sample.
const LONGEST_NS: u64 = 60_000_000_000;
/// The quantiles that are reported.
const QUANTILES: [(&str, f64); 4] =
    [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999), ("p9999_ns", 0.9999)];
/// Longest sleep of the thread that waits for the end of a sample.
const NAP: Duration = Duration::from_millis(20);

/// The work of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) direction: Direction,
    /// Share of reads in mixed input and output, percent.
    pub(super) mix: u8,
    /// Bytes of a block.
    pub(super) block: usize,
    pub(super) time: Duration,
    /// Time of reading the clock, nanoseconds.
    pub(super) clock: u64,
}

/// The threads of a sampler, with where each of them is.
#[derive(Debug)]
pub(super) struct Team {
    workers: Vec<Worker>,
}

/// One thread: a part of the target, a buffer, and the order of blocks.
#[derive(Debug)]
struct Worker {
    part: RawRange,
    buffer: Mapping,
    permutation: Permutation,
    random: fastrand::Rng,
}

// SAFETY: a worker uses its part of the target only through raw pointers, and no other worker has that part.
unsafe impl Send for Worker {}

impl Team {
    /// Creates threads, each with an equal part of the target in whole blocks.
    ///
    /// # Errors
    /// If the kernel refuses the memory for buffers.
    pub(super) fn new(target: RawRange, threads: usize, block: usize) -> Result<Team, MeasureError> {
        let share = target.length / threads / block * block;
        let worker = |index: usize| {
            let refused = |source| MeasureError::Mapping { bytes: block as u64, source };
            let mut buffer = Mapping::new(block, Pages::Base).map_err(refused)?;
            write_something(&mut buffer);
            let part = RawRange { start: target.start.wrapping_add(index * share), length: share };
            let seed = index as u64 + 1;
            Ok(Worker {
                part,
                buffer,
                permutation: Permutation::new(seed),
                random: fastrand::Rng::with_seed(seed),
            })
        };
        Ok(Team { workers: (0..threads).map(worker).collect::<Result<_, _>>()? })
    }

    /// Takes one sample: first the operations per second of all threads together, then the latency of each operation.
    ///
    /// # Errors
    /// [`MeasureError::Interrupted`] if `stop` was set.
    pub(super) fn sample(
        &mut self,
        job: Job,
        ways: &Ways<'_>,
        stop: &AtomicBool,
    ) -> Result<Sample, MeasureError> {
        let half = job.time / 2;
        let rates = self.together(half, stop, |worker, done| worker.count(job, ways, done))?;
        let timed = self.together(half, stop, |worker, done| worker.time(job, ways, done))?;
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        let mut latencies = latencies();
        for part in timed {
            latencies.add(part).expect("all have the same bounds");
        }
        let also = QUANTILES.map(|(name, quantile)| (name, latencies.value_at_quantile(quantile) as f64));
        Ok(Sample { value: rates.iter().sum(), also: also.to_vec() })
    }

    /// Runs all threads concurrently until the time is over or `stop` is set.
    fn together<T: Send>(
        &mut self,
        time: Duration,
        stop: &AtomicBool,
        work: impl Fn(&mut Worker, &AtomicBool) -> T + Sync,
    ) -> Result<Vec<T>, MeasureError> {
        let (gate, done) = (RwLock::new(()), AtomicBool::new(false));
        let (gate, done, work) = (&gate, &done, &work);
        thread::scope(|scope| {
            let closed = gate.write();
            let (tell, ready) = mpsc::channel();
            let start = |worker| {
                let tell = tell.clone();
                threads::spawn(scope, move || {
                    _ = tell.send(());
                    drop(gate.read());
                    work(worker, done)
                })
            };
            // If the system has no more threads, dropping `closed` opens the gate, and the running threads see `done`.
            let threads = self.workers.iter_mut().map(start).collect::<Result<Vec<_>, _>>();
            let threads = threads.inspect_err(|_| done.store(true, Ordering::Relaxed))?;
            ready.iter().take(threads.len()).for_each(drop);
            drop(closed);
            let until = Instant::now() + time;
            while !stop.load(Ordering::Relaxed) {
                match until.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => break,
                    left => thread::sleep(left.min(NAP)),
                }
            }
            done.store(true, Ordering::Relaxed);
            let joined = threads.into_iter().map(|thread| thread.join());
            Ok(joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect())
        })
    }
}

impl Worker {
    /// Returns operations per second, of at least one.
    fn count(&mut self, job: Job, ways: &Ways<'_>, done: &AtomicBool) -> f64 {
        let (begun, mut operations) = (Instant::now(), 0u64);
        loop {
            self.one(job, ways);
            operations += 1;
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
        operations as f64 / begun.elapsed().as_secs_f64()
    }

    /// Returns the latency of each operation, of at least one.
    fn time(&mut self, job: Job, ways: &Ways<'_>, done: &AtomicBool) -> Histogram<u64> {
        let mut latencies = latencies();
        loop {
            let before = Instant::now();
            self.one(job, ways);
            let ns = before.elapsed().as_nanos() as u64;
            latencies.saturating_record(ns.saturating_sub(job.clock).max(1));
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
        latencies
    }

    /// Performs one operation on the next block.
    fn one(&mut self, job: Job, ways: &Ways<'_>) {
        let slot = self.permutation.next((self.part.length / job.block) as u64);
        let at = self.part.start.wrapping_add(slot as usize * job.block);
        let reads = match job.direction {
            Direction::Read => true,
            Direction::Write => false,
            Direction::Mixed => self.random.u8(..100) < job.mix,
        };
        let buffer = self.buffer.as_mut_ptr();
        // SAFETY: the block lies in this worker's part of the target, which lives as long as the run's samplers and is
        // writable if the direction writes. The buffer has the same length and lies apart from it. The implementations
        // support their operations.
        unsafe {
            match reads {
                // Reading alone has no destination.
                true if matches!(ways.read.0, crate::engine::implementation::Implementation::Read) => {
                    ways.read.0.run(ways.read.1, at, at, job.block, 0);
                }
                true => ways.read.0.run(ways.read.1, buffer, at, job.block, 0),
                false => ways.write.0.run(ways.write.1, at, buffer, job.block, 0),
            }
        }
    }
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are far enough apart")
}

/// Measures the time of reading the clock, nanoseconds: the median of the times between two readings.
pub(super) fn clock_ns() -> u64 {
    let mut times: Vec<u128> = (0..10_001).map(|_| Instant::now().elapsed().as_nanos()).collect();
    times.sort_unstable();
    times[times.len() / 2] as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bulkmem::Operation;
    use bulkmem::method;
    use bulkmem::policy::Choice;

    use super::*;
    use crate::engine::MethodSet;
    use crate::engine::implementation::Implementation;
    use crate::measurements::iops::access::methods;

    fn job(direction: Direction) -> Job {
        Job { direction, mix: 70, block: 256, time: Duration::from_millis(4), clock: 0 }
    }

    fn raw_range(memory: &mut [u8]) -> RawRange {
        RawRange { start: memory.as_mut_ptr(), length: memory.len() }
    }

    fn by(name: &str) -> Ways<'static> {
        let (choice, operation) = methods(&MethodSet::Named(vec![name.into()]), Direction::Write).unwrap()[0];
        let plain = Choice::of(method::c_library(), Operation::Copy);
        Ways {
            read: (Implementation::Method(plain), Operation::Copy),
            write: (Implementation::Method(choice), operation),
        }
    }

    /// Each worker comes to each block of its part once before it comes to any again, and to no other's.
    #[test]
    fn blocks_are_written_once_a_pass_each_by_its_worker() {
        let mut memory = vec![0u8; 3 * 256 * 10 + 100];
        let mut team = Team::new(raw_range(&mut memory), 3, 256).unwrap();
        let ways = by("portable");
        for (index, worker) in team.workers.iter_mut().enumerate() {
            assert_eq!(worker.part.length, 2560);
            for written in 1..=10 {
                worker.buffer.fill(index as u8 + 1);
                worker.one(job(Direction::Write), &ways);
                let part = &memory[index * 2560..(index + 1) * 2560];
                let done = part.chunks(256).filter(|block| block.iter().all(|byte| *byte == index as u8 + 1));
                assert_eq!(done.count(), written);
            }
        }
        let seen: HashSet<u8> = memory[..7680].iter().copied().collect();
        assert_eq!(seen, HashSet::from([1, 2, 3]));
        assert!(memory[7680..].iter().all(|byte| *byte == 0), "after the last whole part");
    }

    #[test]
    fn a_block_holds_what_was_written_by_every_method() {
        let mut memory = vec![0u8; 256];
        let mut team = Team::new(raw_range(&mut memory), 1, 256).unwrap();
        let worker = &mut team.workers[0];
        let mut names = 0;
        for (choice, operation) in methods(&MethodSet::All, Direction::Write).unwrap() {
            names += 1;
            let itself = (Implementation::Method(choice), operation);
            let ways = Ways { read: itself, write: itself };
            worker.buffer.fill(names);
            worker.one(job(Direction::Write), &ways);
            assert!(memory.iter().all(|byte| *byte == names), "{}", choice.method.name);
            if operation == Operation::Copy {
                memory.fill(names ^ 0xFF);
                worker.one(job(Direction::Read), &ways);
                assert!(worker.buffer.iter().all(|byte| *byte == names ^ 0xFF), "{}", choice.method.name);
            }
        }
        assert!(names >= 2);
    }

    #[test]
    fn about_the_share_asked_for_is_read() {
        let mut memory = vec![7u8; 256];
        let mut team = Team::new(raw_range(&mut memory), 1, 256).unwrap();
        let worker = &mut team.workers[0];
        let mut reads = 0;
        for _ in 0..10_000 {
            memory.fill(1);
            worker.buffer.fill(2);
            worker.one(job(Direction::Mixed), &by("portable"));
            reads += u32::from(worker.buffer[0] == 1);
        }
        assert!((6700..7300).contains(&reads), "{reads} of 10000");
    }

    #[test]
    fn samples_count_all_threads_and_quantiles_rise() {
        let mut memory = vec![1u8; 1 << 16];
        let stop = AtomicBool::new(false);
        let mut team = Team::new(raw_range(&mut memory), 2, 256).unwrap();
        let sample = team.sample(job(Direction::Mixed), &by("portable"), &stop).unwrap();
        assert!(sample.value > 2.0 / 0.01, "two threads did at least an operation each: {sample:?}");
        let names: Vec<&str> = sample.also.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"]);
        assert!(
            sample.also[0].1 >= 1.0 && sample.also.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{sample:?}"
        );
        stop.store(true, Ordering::Relaxed);
        let stopped = team.sample(job(Direction::Read), &by("portable"), &stop);
        assert!(matches!(stopped, Err(MeasureError::Interrupted)));
    }

    /// Each thread counts its own, and the reported value is the sum.
    #[test]
    fn everybody_works_at_once() {
        let mut memory = vec![1u8; 4096];
        let stop = AtomicBool::new(true);
        let mut team = Team::new(raw_range(&mut memory), 4, 256).unwrap();
        let starts =
            team.together(Duration::from_secs(60), &stop, |worker, _| worker.part.start.addr()).unwrap();
        assert_eq!(starts.len(), 4);
        assert_eq!(starts.iter().collect::<HashSet<_>>().len(), 4);
    }
}
