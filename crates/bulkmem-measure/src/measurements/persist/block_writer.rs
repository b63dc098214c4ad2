//! Writes a target from end to end, in order or at random, with a fence after each block.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::method;

use crate::engine::arena::write_something;
use crate::engine::run::OPERATIONS;
use crate::engine::{Pattern, Permutation, RawRange, Result, Sample, go_on};

/// Bytes of the source; they stay in the first-level cache.
pub(super) const SOURCE: usize = 4096;
/// Bytes between two looks at the clock.
const CLOCK_CHECK_BYTES: u64 = 256 << 10;
/// Usual least time of a sample. A target that takes less is written again.
const LEAST: Duration = Duration::from_millis(2);
/// Usual most time of a sample. A slower one writes part of the target, and the next one continues there.
const MOST: Duration = Duration::from_millis(500);

/// Writes blocks and keeps its position between samples.
#[derive(Debug)]
pub(super) struct BlockWriter<'s> {
    target: RawRange,
    source: Box<Source>,
    block: usize,
    /// Number of blocks in the target.
    blocks: usize,
    /// The current block, and the bytes of it that are written.
    next: usize,
    done: usize,
    /// The order, if it is random.
    permutation: Option<Permutation>,
    /// The least and the most time of a sample.
    time: [Duration; 2],
    stop: &'s AtomicBool,
}

#[repr(align(4096))]
#[derive(Debug)]
struct Source([u8; SOURCE]);

impl<'s> BlockWriter<'s> {
    /// Creates a writer of a target in blocks. Without `block`, the target is one block. Bytes after the last whole block
    /// are left unchanged.
    pub(super) fn new(
        target: RawRange,
        pattern: Pattern,
        block: Option<u64>,
        stop: &'s AtomicBool,
    ) -> BlockWriter<'s> {
        let block = block.map_or(target.length, |block| block as usize);
        let mut source = Box::new(Source([0; SOURCE]));
        write_something(&mut source.0);
        let blocks = target.length / block;
        let mut permutation = (pattern == Pattern::Random).then_some(Permutation(1));
        let next = permutation.as_mut().map_or(0, |permutation| permutation.next(blocks as u64) as usize);
        BlockWriter { target, source, block, blocks, next, done: 0, permutation, time: [LEAST, MOST], stop }
    }

    /// Writes part of the target in a sample, for that time, and continues there in the next one.
    pub(super) fn lasting(self, time: Duration) -> BlockWriter<'s> {
        BlockWriter { time: [time; 2], ..self }
    }

    /// Takes one sample: GB/s, and nanoseconds per 8 bytes and per block with its fence. `write` receives a piece of the
    /// target, a source and a length, and issues no fence.
    pub(super) fn sample(&mut self, write: impl FnMut(*mut u8, *const u8, usize)) -> Result<Sample> {
        let begun = Instant::now();
        let (whole, stop, [least, most]) = ((self.blocks * self.block) as u64, self.stop, self.time);
        let enough = |bytes| {
            let elapsed = begun.elapsed();
            stop.load(Ordering::Relaxed) || elapsed >= most || (bytes >= whole && elapsed >= least)
        };
        let bytes = self.walk(enough, write, method::fence);
        let ns = begun.elapsed().as_secs_f64() * 1e9;
        go_on(stop)?;
        let each = |part: usize| ns / bytes as f64 * part as f64;
        let mut also = vec![("per_8_bytes_ns", each(8)), (OPERATIONS, bytes as f64 / whole as f64)];
        if self.blocks > 1 {
            also.push(("per_block_ns", each(self.block)));
        }
        Ok(Sample { value: bytes as f64 / ns, also })
    }

    /// Writes block after block, each followed by a fence, until `enough` returns true, which it calls at the end of each
    /// pass and every [`CLOCK_CHECK_BYTES`]. Returns the number of bytes written.
    fn walk(
        &mut self,
        mut enough: impl FnMut(u64) -> bool,
        mut write: impl FnMut(*mut u8, *const u8, usize),
        mut fence: impl FnMut(),
    ) -> u64 {
        let whole = (self.blocks * self.block) as u64;
        let after = |bytes: u64| (bytes + CLOCK_CHECK_BYTES).min((bytes / whole + 1) * whole);
        let (mut bytes, mut look) = (0, after(0));
        loop {
            let at = self.target.start.wrapping_add(self.next * self.block + self.done);
            let piece = SOURCE.min(self.block - self.done);
            write(at, self.source.0.as_ptr(), piece);
            self.done += piece;
            bytes += piece as u64;
            let ended = self.done == self.block;
            if ended {
                fence();
                self.done = 0;
                self.next = match &mut self.permutation {
                    Some(permutation) => permutation.next(self.blocks as u64) as usize,
                    None => (self.next + 1) % self.blocks,
                };
            }
            if bytes >= look {
                look = after(bytes);
                if enough(bytes) {
                    if !ended {
                        fence();
                    }
                    return bytes;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::engine::MeasureError;

    /// The written lines, each with the number of fences before it, and the number of fences.
    fn walked(
        length: usize,
        pattern: Pattern,
        block: Option<u64>,
        passes: u64,
    ) -> (Vec<(usize, usize)>, usize) {
        let stop = AtomicBool::new(false);
        let target = RawRange { start: std::ptr::without_provenance_mut(1 << 20), length };
        let mut along = BlockWriter::new(target, pattern, block, &stop);
        let whole = (along.blocks * along.block) as u64;
        let (fences, mut lines) = (std::cell::Cell::new(0), Vec::new());
        let bytes = along.walk(
            |bytes| bytes >= passes * whole,
            |dst, _, length| {
                let at = dst.addr() - (1 << 20);
                lines.extend((at..at + length).step_by(64).map(|line| (line, fences.get())));
            },
            || fences.set(fences.get() + 1),
        );
        assert_eq!(bytes, passes * whole);
        (lines, fences.get())
    }

    #[test]
    fn every_line_is_written_once_a_pass_in_either_order() {
        for length in [64, 4096, 4096 * 3 + 64, 600 << 10] {
            for block in [None, Some(64), Some(192), Some(4096), Some(8192)] {
                if block.is_some_and(|block| block > length as u64) {
                    continue;
                }
                for pattern in [Pattern::Sequential, Pattern::Random] {
                    let (lines, _) = walked(length, pattern, block, 3);
                    let mut counts: HashMap<usize, u32> = HashMap::new();
                    lines.iter().for_each(|(line, _)| *counts.entry(*line).or_default() += 1);
                    let block = block.map_or(length, |block| block as usize);
                    assert_eq!(counts.len(), length / block * block / 64, "{length} {block} {pattern:?}");
                    assert!(counts.values().all(|count| *count == 3), "{length} {block} {pattern:?}");
                    let rises = lines.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 64).count();
                    if pattern == Pattern::Sequential {
                        assert_eq!(rises, lines.len() - 3, "in order but at the end of a pass");
                    } else if block == 64 && length > 4096 {
                        assert!(rises < lines.len() / 4, "{rises} of {}", lines.len());
                    }
                }
            }
        }
    }

    #[test]
    fn there_is_a_fence_behind_each_block() {
        let (lines, fences) = walked(64 << 10, Pattern::Random, Some(256), 1);
        assert_eq!(fences, 256);
        assert!(lines.chunks(4).enumerate().all(|(before, block)| block.iter().all(|line| line.1 == before)));
        let (lines, fences) = walked(1 << 20, Pattern::Sequential, None, 2);
        assert_eq!((fences, lines.len()), (2, 2 << 14), "one a pass");
    }

    /// A sample that is cut short is fenced, and the next one continues after it.
    #[test]
    fn what_takes_long_goes_on_where_it_was() {
        let stop = AtomicBool::new(false);
        let target = RawRange { start: std::ptr::without_provenance_mut(4096), length: 1 << 20 };
        let mut along = BlockWriter::new(target, Pattern::Sequential, None, &stop);
        let (mut seen, mut fences) = (Vec::new(), 0);
        for _ in 0..8 {
            let part = along.walk(|_| true, |dst, _, _| seen.push(dst.addr() - 4096), || fences += 1);
            assert_eq!(part, CLOCK_CHECK_BYTES);
        }
        assert_eq!(fences, 8);
        let expected: Vec<usize> = (0..2).flat_map(|_| (0..1 << 20).step_by(SOURCE)).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_sample_says_what_a_write_takes_and_ends_when_told() {
        let mut memory = vec![0u8; 64 << 10];
        let target = RawRange { start: memory.as_mut_ptr(), length: memory.len() };
        let stop = AtomicBool::new(false);
        let mut along = BlockWriter::new(target, Pattern::Random, Some(128), &stop);
        // SAFETY: the walk stays within the vector.
        let copy =
            |dst: *mut u8, src: *const u8, length| unsafe { dst.copy_from_nonoverlapping(src, length) };
        let sample = along.sample(copy).unwrap();
        let also: HashMap<&str, f64> = sample.also.into_iter().collect();
        assert!((also["per_8_bytes_ns"] * sample.value - 8.0).abs() < 1e-6);
        assert!((also["per_block_ns"] * sample.value - 128.0).abs() < 1e-6);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(along.sample(copy), Err(MeasureError::Interrupted)));
        let source = along.source.0;
        assert!(memory.chunks(128).all(|block| *block == source[..128]));
    }
}
