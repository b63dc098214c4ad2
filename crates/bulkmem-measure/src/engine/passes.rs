//! Passes over memory, timed: the samples of `clear`, `fill`, `copy` and `chunks`.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bulkmem::Operation;

use crate::engine::run::{OPERATIONS, go_on};
use crate::engine::threads::split;
use crate::engine::{Counting, FILL_BYTE, Implementation, Result, Sample};

/// A sample spans at least this long, where the number of loops is left to the measurement.
const SAMPLE_NS: f64 = 2e6;
/// From this length on each loop is timed separately, as reading the clock then costs nothing in comparison.
const TIMED_ALONE: usize = 1 << 20;

/// An operation on memory, pass after pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passes {
    pub(crate) operation: Operation,
    pub(crate) byte: u8,
    pub(crate) dst: *mut u8,
    /// The source of a copy; ignored otherwise.
    pub(crate) src: *const u8,
    pub(crate) length: usize,
    /// Bytes a call, at least 1.
    pub(crate) chunk: usize,
    pub(crate) threads: usize,
    /// How often a sample works through the memory; enough to be timed well where not given.
    pub(crate) loops: Option<u32>,
    /// If set, so many threads write other bytes to memory before it is cleared, outside the timed part.
    /// Some processors clear zeros faster than other bytes, but programs do not clear zeros.
    pub(crate) rewritten_by: Option<usize>,
}

impl Passes {
    /// Returns a sampler of an implementation, in GB/s. While `counting` is active, nothing is rewritten.
    ///
    /// # Safety
    /// As long as the sampler is used, `dst..dst+length` is valid for reads and writes, for copies `src..src+length` for
    /// reads; they lie apart, and no other thread uses them. The implementation has the operation.
    pub(crate) unsafe fn sampler<'c>(
        self,
        implementation: Implementation<'c>,
        stop: &'c AtomicBool,
        counting: Rc<Counting>,
    ) -> impl FnMut() -> Result<Sample> + 'c {
        let rewritten_by = self.rewritten_by.filter(|_| self.operation == Operation::Clear);
        let rewriter = rewritten_by
            .and_then(|threads| Some((implementation.rewriter(self.chunk.min(self.length))?, threads)));
        let work = Work { passes: self, implementation, rewriter, stop, counting };
        let mut loops = self.loops;
        move || {
            let loops = match loops {
                Some(loops) => loops,
                None => *loops.insert(work.enough()?),
            };
            let ns = work.time(loops)?;
            let loops = f64::from(loops);
            Ok(Sample { value: self.length as f64 * loops / ns, also: vec![(OPERATIONS, loops)] })
        }
    }
}

struct Work<'c> {
    passes: Passes,
    implementation: Implementation<'c>,
    /// The implementation that writes other bytes, and its number of threads.
    rewriter: Option<(Implementation<'static>, usize)>,
    stop: &'c AtomicBool,
    counting: Rc<Counting>,
}

impl Work<'_> {
    /// How many loops can be timed well.
    fn enough(&self) -> Result<u32> {
        let mut loops = 1;
        loop {
            let ns = self.time(loops)?.max(1.0);
            if ns >= SAMPLE_NS / 10.0 || loops >= 1 << 24 {
                return Ok((f64::from(loops) * SAMPLE_NS / ns).ceil() as u32);
            }
            loops *= 8;
        }
    }

    fn time(&self, loops: u32) -> Result<f64> {
        let (parts, each) = match &self.rewriter {
            Some(_) if self.passes.length >= TIMED_ALONE => (loops, 1),
            _ => (1, loops),
        };
        let mut ns = 0.0;
        for _ in 0..parts {
            self.rewrite();
            let start = Instant::now();
            for _ in 0..each {
                go_on(self.stop)?;
                self.once();
            }
            ns += start.elapsed().as_secs_f64() * 1e9;
        }
        Ok(ns)
    }

    fn rewrite(&self) {
        let Passes { dst, src, length, .. } = self.passes;
        if let Some((rewriter, threads)) = self.rewriter.as_ref().filter(|_| !self.counting.active()) {
            // SAFETY: who made the sampler vouches for the memory.
            unsafe { rewriter.run(*threads, Operation::Fill, FILL_BYTE, (dst, src, length)) }
        }
    }

    fn once(&self) {
        let Work { passes, implementation, .. } = self;
        let Passes { operation, byte, dst, src, length, chunk, threads, .. } = *passes;
        if chunk >= length {
            // SAFETY: who made the sampler vouches for the memory, and that the implementation can do the operation.
            return unsafe { implementation.run(threads, operation, byte, (dst, src, length)) };
        }
        split(threads, dst, src, length, |dst, src, length| {
            for from in (0..length).step_by(chunk) {
                let part = (dst.wrapping_add(from), src.wrapping_add(from), chunk.min(length - from));
                // SAFETY: as above; parts and chunks lie within the memory, and parts apart.
                unsafe { implementation.run(1, operation, byte, part) }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bulkmem::Intent;
    use bulkmem::machine::Machine;
    use bulkmem::method;
    use bulkmem::policy::{Choice, Policy};

    use super::*;
    use crate::engine::MeasureError;

    fn rounds(operation: Operation, memory: &mut [u8], chunk: usize, threads: usize) -> Passes {
        let length = memory.len() / 2;
        let dst = memory.as_mut_ptr();
        Passes {
            operation,
            byte: 7,
            dst,
            src: dst.wrapping_add(length),
            length,
            chunk,
            threads,
            loops: Some(2),
            rewritten_by: Some(2),
        }
    }

    /// Every implementation works on all of the memory, whatever the chunk and the number of threads, and on no more.
    #[test]
    fn all_of_the_memory_is_worked_on() {
        let stop = AtomicBool::new(false);
        let policy = Policy::defaults(Machine::current());
        for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
            for (chunk, threads) in [(usize::MAX, 1), (usize::MAX, 3), (5000, 1), (4096, 2)] {
                let choice = Choice::of(method::by_name("portable").unwrap(), operation);
                for implementation in [
                    Implementation::Method(choice),
                    Implementation::policy(&policy, Intent::Throughput, 100_000),
                ] {
                    let mut memory = vec![1; 2 * 100_000];
                    memory[100_000..].fill(3);
                    let rounds = rounds(operation, &mut memory, chunk, threads);
                    // SAFETY: the memory lives until the sampler is gone, and its halves lie apart.
                    let mut sampler = unsafe { rounds.sampler(implementation, &stop, Rc::default()) };
                    assert!(sampler().unwrap().value > 0.0);
                    drop(sampler);
                    let expected = match operation {
                        Operation::Clear => 0,
                        Operation::Fill => 7,
                        _ => 3,
                    };
                    let case = format!("{operation} by {chunk} bytes, {threads} threads");
                    assert!(memory[..100_000].iter().all(|byte| *byte == expected), "{case}");
                    assert!(memory[100_000..].iter().all(|byte| *byte == 3), "{case}");
                }
            }
        }
    }

    #[test]
    fn what_is_cleared_held_other_bytes_before() {
        let stop = AtomicBool::new(false);
        let mut memory = vec![0; 1 << 21];
        let clear = rounds(Operation::Clear, &mut memory, usize::MAX, 1);
        for name in ["c_library", "portable", "clzero", "movnti"] {
            let Some(method) = method::by_name(name).filter(|method| method.available()) else { continue };
            let implementation = Implementation::Method(Choice::of(method, Operation::Clear));
            let rewriter = implementation.rewriter(clear.length).expect("a clearer has one");
            let work = Work {
                passes: clear,
                implementation,
                rewriter: Some((rewriter, 1)),
                stop: &stop,
                counting: Rc::default(),
            };
            work.rewrite();
            assert!(memory[..1 << 20].iter().all(|byte| *byte == FILL_BYTE), "{name}");
            work.once();
            assert!(memory.iter().all(|byte| *byte == 0), "{name}");
            // What is counted is the clear alone.
            work.counting.clone().during(0, || work.rewrite());
            assert!(memory.iter().all(|byte| *byte == 0), "{name}");
        }
    }

    #[test]
    fn short_operations_are_repeated_until_they_can_be_timed_and_stopping_ends_it() {
        let stop = AtomicBool::new(false);
        let mut memory = vec![0; 128];
        let passes = Passes { loops: None, ..rounds(Operation::Fill, &mut memory, usize::MAX, 1) };
        let implementation = Implementation::Method(Choice::of(method::c_library(), Operation::Fill));
        let work = Work { passes, implementation, rewriter: None, stop: &stop, counting: Rc::default() };
        assert!(work.enough().unwrap() > 100);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(work.time(1), Err(MeasureError::Interrupted)));
    }
}
