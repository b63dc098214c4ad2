//! Threads that read and write random blocks, count the operations, and time each of them.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bulkmem::{Mapping, Pages};

use crate::engine::arena::write_something;
use crate::engine::buffer::map;
use crate::engine::latency::Latencies;
use crate::engine::{Direction, Implementation, Permutation, RawRange, Result, Sample, go_on, threads};
use crate::measurements::iops::access::Access;

/// Longest sleep of the thread that waits for the end of a sample.
const NAP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'p> {
    pub(super) access: Access<'p>,
    pub(super) direction: Direction,
    /// Share of reads in mixed input and output, percent.
    pub(super) mix: u8,
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
    /// Creates threads, each with an equal part of the target in whole blocks. Fails if the kernel refuses the memory for
    /// buffers.
    pub(super) fn new(target: RawRange, threads: usize, block: usize) -> Result<Team> {
        let share = target.length / threads / block * block;
        let worker = |index: usize| {
            let mut buffer = map(block, Pages::Base)?;
            write_something(&mut buffer);
            let part = RawRange { start: target.start.wrapping_add(index * share), length: share };
            let seed = index as u64 + 1;
            let (permutation, random) = (Permutation(seed), fastrand::Rng::with_seed(seed));
            Ok(Worker { part, buffer, permutation, random })
        };
        Ok(Team { workers: (0..threads).map(worker).collect::<Result<_, _>>()? })
    }

    /// Takes one sample: first the operations per second of all threads together, then the latency of each operation.
    /// [`MeasureError::Interrupted`] if `stop` was set.
    pub(super) fn sample(&mut self, job: &Job<'_>, stop: &AtomicBool) -> Result<Sample> {
        let half = job.time / 2;
        let rates = self.together(half, stop, |worker, done| worker.repeat(job, done, false).0)?;
        let timed = self.together(half, stop, |worker, done| worker.repeat(job, done, true).1)?;
        go_on(stop)?;
        let mut latencies = Latencies::new(job.clock);
        timed.iter().flatten().for_each(|part| latencies.add(part));
        Ok(Sample { value: rates.iter().sum(), also: latencies.quantiles() })
    }

    /// Runs all threads concurrently until the time is over or `stop` is set.
    fn together<T: Send>(
        &mut self,
        time: Duration,
        stop: &AtomicBool,
        work: impl Fn(&mut Worker, &AtomicBool) -> T + Sync,
    ) -> Result<Vec<T>> {
        threads::check_room(self.workers.len())?;
        let (gate, ready, done) = (&RwLock::new(()), &AtomicUsize::new(0), &AtomicBool::new(false));
        let work = &work;
        thread::scope(|scope| {
            let closed = gate.write();
            let start = |worker| {
                threads::spawn(scope, move || {
                    ready.fetch_add(1, Ordering::Relaxed);
                    drop(gate.read());
                    work(worker, done)
                })
            };
            // If the system has no more threads, dropping `closed` opens the gate, and the running threads see `done`.
            let threads = self.workers.iter_mut().map(start).collect::<Result<Vec<_>, _>>();
            let threads = threads.inspect_err(|_| done.store(true, Ordering::Relaxed))?;
            while ready.load(Ordering::Relaxed) < threads.len() {
                thread::yield_now();
            }
            drop(closed);
            let begun = Instant::now();
            while !stop.load(Ordering::Relaxed)
                && let Some(left) = time.checked_sub(begun.elapsed())
            {
                thread::sleep(left.min(NAP));
            }
            done.store(true, Ordering::Relaxed);
            let joined = threads.into_iter().map(|thread| thread.join());
            Ok(joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect())
        })
    }
}

impl Worker {
    /// Performs at least one operation. Returns operations per second and, if `timed`, the latencies.
    fn repeat(&mut self, job: &Job<'_>, done: &AtomicBool, timed: bool) -> (f64, Option<Latencies>) {
        let mut latencies = timed.then(|| Latencies::new(job.clock));
        let (begun, mut operations) = (Instant::now(), 0u64);
        loop {
            match &mut latencies {
                Some(latencies) => latencies.time(|| self.one(job)),
                None => self.one(job),
            }
            operations += 1;
            if done.load(Ordering::Relaxed) {
                return (operations as f64 / begun.elapsed().as_secs_f64(), latencies);
            }
        }
    }

    fn one(&mut self, job: &Job<'_>) {
        let slot = self.permutation.next((self.part.length / job.block) as u64);
        let at = self.part.start.wrapping_add(slot as usize * job.block);
        let buffer = self.buffer.as_mut_ptr();
        let reads = match job.direction {
            Direction::Read => true,
            Direction::Write => false,
            Direction::Mixed => self.random.u8(..100) < job.mix,
        };
        let Access { read, write } = job.access;
        let ((implementation, operation), dst, src) = match (reads, read.0) {
            // Reading alone has no destination.
            (true, Implementation::Read) => (read, at, at),
            (true, _) => (read, buffer, at),
            (false, _) => (write, at, buffer),
        };
        // SAFETY: the block lies in this worker's part of the target, which lives as long as the run's samplers and is
        // writable if the direction writes. The buffer has the same length and lies apart from it. The implementations
        // support their operations.
        unsafe { implementation.run(1, operation, 0, (dst, src.cast_const(), job.block)) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bulkmem::Operation;
    use bulkmem::method;
    use bulkmem::policy::Choice;

    use super::*;
    use crate::engine::MeasureError;
    use crate::engine::MethodSet;
    use crate::measurements::iops::access::methods;

    fn job(direction: Direction, access: Access<'_>) -> Job<'_> {
        Job { access, direction, mix: 70, block: 256, time: Duration::from_millis(4), clock: 0 }
    }

    fn raw_range(memory: &mut [u8]) -> RawRange {
        RawRange { start: memory.as_mut_ptr(), length: memory.len() }
    }

    fn by(name: &str) -> Access<'static> {
        let (choice, operation) = methods(&MethodSet::Named(vec![name.into()]), Direction::Write).unwrap()[0];
        let plain = Choice::of(method::c_library(), Operation::Copy);
        Access {
            read: (Implementation::Method(plain), Operation::Copy),
            write: (Implementation::Method(choice), operation),
        }
    }

    /// Each worker comes to each block of its part once before it comes to any again, and to no other's.
    #[test]
    fn blocks_are_written_once_a_pass_each_by_its_worker() {
        let mut memory = vec![0u8; 3 * 256 * 10 + 100];
        let mut team = Team::new(raw_range(&mut memory), 3, 256).unwrap();
        let access = by("portable");
        for (index, worker) in team.workers.iter_mut().enumerate() {
            assert_eq!(worker.part.length, 2560);
            for written in 1..=10 {
                worker.buffer.fill(index as u8 + 1);
                worker.one(&job(Direction::Write, access));
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
            let access = Access { read: itself, write: itself };
            worker.buffer.fill(names);
            worker.one(&job(Direction::Write, access));
            assert!(memory.iter().all(|byte| *byte == names), "{}", choice.method.name);
            if operation == Operation::Copy {
                memory.fill(names ^ 0xFF);
                worker.one(&job(Direction::Read, access));
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
            worker.one(&job(Direction::Mixed, by("portable")));
            reads += u32::from(worker.buffer[0] == 1);
        }
        assert!((6700..7300).contains(&reads), "{reads} of 10000");
    }

    #[test]
    fn samples_count_all_threads_and_quantiles_rise() {
        let mut memory = vec![1u8; 1 << 16];
        let stop = AtomicBool::new(false);
        let mut team = Team::new(raw_range(&mut memory), 2, 256).unwrap();
        let sample = team.sample(&job(Direction::Mixed, by("portable")), &stop).unwrap();
        assert!(sample.value > 2.0 / 0.01, "two threads did at least an operation each: {sample:?}");
        let names: Vec<&str> = sample.also.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"]);
        assert!(
            sample.also[0].1 >= 1.0 && sample.also.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{sample:?}"
        );
        stop.store(true, Ordering::Relaxed);
        let stopped = team.sample(&job(Direction::Read, by("portable")), &stop);
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
