//! Persistent writes by block: the length at which stores that bypass the cache and stores that write lines back cross over,
//! and the cost of lines that leave the processor half-written.

use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method::{self, Method};
use bulkmem::policy::Choice;

use super::block_writer::{BlockWriter, SOURCE};
use super::{PersistOptions, name, want, writing};
use crate::engine::clock::spin;
use crate::engine::contrast::{self, Contrast};
use crate::engine::units::bytes;
use crate::engine::{
    Candidate, Config, Implementation, Kind, LINE, Measure, Measurement, Metric, Pattern, RawRange, Result,
    Row, Run, distinct,
};
use crate::measurements::checks;
use crate::measurements::participants::sampler;
use crate::target::{TargetOptions, check_all, open_all};

/// Time of a sample.
const SAMPLE: Duration = Duration::from_millis(10);
/// Length of a pause, nanoseconds.
const PAUSE: f64 = 500.0;
/// Blocks of non-temporal stores that complete each line before the next.
pub(crate) const WHOLE: &str = "whole lines";
/// The same, half a line further: the fence after each block splits a line.
const MISALIGNED: &str = "misaligned";
/// Blocks in which the first half of every line is written before the second half of any.
pub(crate) const HALVES: &str = "half lines";
const PUBLISHED: &str = " Published (Patocka 2020, dm-writecache on Optane): stores that are written back are faster \
                         from between 512 B and 1 KiB on.";

/// Options for measuring persistent writes by block.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct BlocksOptions {
    /// Measured at the same time, interleaved.
    pub targets: Vec<TargetOptions>,
    pub patterns: Vec<Pattern>,
    /// Bytes between two fences, each a multiple of 64.
    pub blocks: Vec<u64>,
    pub runs: usize,
}

impl BlocksOptions {
    /// The same targets, orders and runs, to be measured afterwards; blocks of 64 bytes to 4 KiB unless blocks are given.
    pub fn after(persist: &PersistOptions) -> BlocksOptions {
        let blocks = match persist.blocks.as_slice() {
            [] => (6..=12).map(|power| 1 << power).collect(),
            given => given.to_vec(),
        };
        // A file that the measurement before keeps exists by then.
        let again = |target: &TargetOptions| TargetOptions {
            overwrite: target.overwrite || target.keep,
            ..target.clone()
        };
        let targets = persist.targets.iter().map(again).collect();
        BlocksOptions { targets, patterns: persist.patterns.clone(), blocks, runs: persist.candidates.runs }
    }
}

/// Returns MOVNTI, and 8-byte stores with the fastest instruction that writes lines back and always evicts them.
fn methods() -> impl Iterator<Item = &'static Method> {
    let write_back = ["store_8_clflushopt", "store_8_clflush"];
    let first = |names: &[&str]| {
        names.iter().filter_map(|name| method::by_name(name)).find(|method| method.available())
    };
    [first(&["movnti"]), first(&write_back)].into_iter().flatten()
}

impl Measure for BlocksOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Blocks
    }

    fn validate(&self) -> Result<()> {
        checks::blocks(&self.blocks)?;
        check_all(&self.targets, want(&self.blocks, &self.targets))
    }

    fn seconds(&self) -> f64 {
        let samples = |pattern: &Pattern| if *pattern == Pattern::Sequential { 8 } else { 2 };
        let samples: usize = self.patterns.iter().map(samples).sum();
        let all = samples * self.blocks.len() * self.targets.len() * (self.runs + 1);
        all as f64 * SAMPLE.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        if methods().count() < 2 {
            run.note("not measured by block: this machine does not have movnti, or store_8_clflushopt or store_8_clflush");
            return Ok(());
        }
        let stop = run.observer.stop;
        run.expect_groups(self.patterns.len() * self.blocks.len());
        let mut targets = open_all(run, &self.targets, want(&self.blocks, &self.targets))?;
        for (pattern, block) in
            self.patterns.iter().flat_map(|it| self.blocks.iter().map(|block| (*it, *block)))
        {
            let mut samplers = Vec::new();
            for target in &mut targets {
                let range = target.memory.raw_range();
                let config = Config {
                    operation: Some(Operation::CopyPersist),
                    chunk: Some(block),
                    pattern: Some(pattern),
                    ..target.config.clone()
                };
                let writer = |range| BlockWriter::new(range, pattern, Some(block), stop).lasting(SAMPLE);
                for method in methods() {
                    let implementation = Implementation::Method(Choice::of(method, Operation::CopyPersist));
                    samplers.push(writing(implementation, &config, block as usize, writer(range)));
                }
                // A block in one piece, and room for it half a line further.
                let fits = block <= SOURCE as u64 && block as usize + LINE <= range.length;
                if pattern == Pattern::Random || !fits {
                    continue;
                }
                for (name, pauses) in
                    [WHOLE, MISALIGNED, HALVES].into_iter().flat_map(|it| [(it, false), (it, true)])
                {
                    let shift = if name == MISALIGNED { LINE / 2 } else { 0 };
                    let range =
                        RawRange { start: range.start.wrapping_add(shift), length: range.length - shift };
                    let mut writer = writer(range);
                    let label = if pauses { format!("{name}, pause") } else { name.to_owned() };
                    let candidate = Candidate::named(Kind::Control, &label);
                    samplers.push(sampler(candidate, &config, false, move || {
                        writer.sample(|dst, src, length| {
                            // SAFETY: the writer stays within the target; the source is as long, and the block consists of
                            // whole words.
                            unsafe { write_lines(dst, src, length, name == HALVES, pauses) }
                        })
                    }));
                }
            }
            let what = format!("{}, blocks of {}", name(pattern), bytes(block));
            run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
        }
        let rows: Vec<Row> = run.rows().cloned().collect();
        for target in distinct(rows.iter().map(|row| &row.config.target)) {
            let of = |pattern| {
                let wanted =
                    move |row: &&Row| row.config.target == *target && row.config.pattern == Some(pattern);
                rows.iter().filter(wanted).collect::<Vec<_>>()
            };
            let target = target.as_deref().unwrap_or_default();
            for pattern in self.patterns.iter().copied() {
                let published = if pattern == Pattern::Sequential { PUBLISHED } else { "" };
                let text = describe(&compared(&of(pattern)));
                let text = text.map(|text| format!("{target}, {} writes: {text}.{published}", name(pattern)));
                contrast::conclude(run, self.runs, text);
            }
            if let Some(text) = half_written(&of(Pattern::Sequential)) {
                contrast::conclude(run, self.runs, Some(format!("{target}: {text}")));
            }
        }
        Ok(())
    }
}

/// Writes a block by non-temporal stores: line by line, or the first half of each line and then the second half of each. The
/// pause is in the middle.
///
/// # Safety
/// `dst` is valid for writes and `src` for reads of `length` bytes; `length` is a multiple of [`LINE`], `dst` of 8. The caller
/// fences afterwards.
unsafe fn write_lines(dst: *mut u8, src: *const u8, length: usize, halves: bool, pauses: bool) {
    // SAFETY: as the caller's; the parts lie within the block.
    let write = |from: usize, length| unsafe { stream(dst.add(from), src.add(from), length) };
    let pause = || {
        if pauses {
            spin(PAUSE);
        }
    };
    if halves {
        (0..length).step_by(LINE).for_each(|line| write(line, LINE / 2));
        pause();
        (0..length).step_by(LINE).for_each(|line| write(line + LINE / 2, LINE / 2));
    } else {
        let middle = length / 2 / LINE * LINE;
        write(0, middle);
        pause();
        write(middle, length - middle);
    }
}

/// Copies words by non-temporal stores.
///
/// # Safety
/// As [`write_lines`], but `length` only has to be a multiple of 8.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(dst: *mut u8, src: *const u8, length: usize) {
    for at in (0..length).step_by(8) {
        // SAFETY: the caller vouches for both ranges, and fences.
        unsafe {
            let word = src.add(at).cast::<i64>().read_unaligned();
            std::arch::x86_64::_mm_stream_si64(dst.add(at).cast(), word);
        }
    }
}

/// Other architectures have none of the methods, and nothing is measured.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(dst: *mut u8, src: *const u8, length: usize) {
    // SAFETY: passed on from the caller; the target and the source are apart.
    unsafe { dst.copy_from_nonoverlapping(src, length) }
}

/// Returns by how much MOVNTI is faster than the method that writes lines back, by block; rows of one target and order.
pub(crate) fn compared(rows: &[&Row]) -> Vec<(u64, Contrast)> {
    let of = |row: &&&Row, bypasses: bool| {
        row.candidate.kind == Kind::Method && (row.candidate.name == "movnti") == bypasses
    };
    let pair = |row: &&Row| {
        let other = rows.iter().find(|other| of(other, false) && other.config == row.config)?;
        Some((row.config.chunk?, Contrast::of(row, other)?))
    };
    let mut all: Vec<_> = rows.iter().filter(|row| of(row, true)).filter_map(pair).collect();
    all.sort_by_key(|(block, _)| *block);
    all
}

/// A length at which the faster method changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Crossover {
    /// Interpolated.
    pub(crate) at: f64,
    /// The nearest lengths at which one method, and the other one, is distinguishably faster.
    pub(crate) interval: [u64; 2],
    /// True if MOVNTI is faster for longer blocks.
    pub(crate) bypassing: bool,
}

/// Returns the changes of the faster method along the blocks.
pub(crate) fn crossovers(compared: &[(u64, Contrast)]) -> Vec<Crossover> {
    let decided: Vec<_> = compared.iter().filter(|(_, contrast)| contrast.distinguishable()).collect();
    let changes = decided.windows(2).filter(|pair| (pair[0].1.by > 0.0) != (pair[1].1.by > 0.0));
    let change = |pair: &[&(u64, Contrast)]| {
        let [from, to] = [pair[0].0, pair[1].0];
        let [before, after] = [pair[0], pair[1]].map(|(_, contrast)| (contrast.by / 100.0).ln_1p());
        let at = from as f64 * (to as f64 / from as f64).powf(before / (before - after));
        Crossover { at, interval: [from, to], bypassing: after > 0.0 }
    };
    changes.map(change).collect()
}

/// Returns the crossover in words, or which is faster, and the lengths without a distinguishable difference; `None` without
/// blocks, or with too few samples of them.
pub(crate) fn describe(compared: &[(u64, Contrast)]) -> Option<String> {
    let faster = |bypassing: bool| {
        if bypassing { "non-temporal stores are faster" } else { "stores that are written back are faster" }
    };
    let range = format!("from {} to {}", bytes(compared.first()?.0), bytes(compared.last()?.0));
    let (decided, open): (Vec<_>, Vec<_>) =
        compared.iter().partition(|(_, contrast)| contrast.distinguishable());
    let Some((_, one)) = decided.first() else {
        let enough = compared.iter().all(|(_, contrast)| contrast.enough);
        return enough.then(|| format!("neither kind of store is distinguishably faster {range}"));
    };
    let lengths = |of: &[(u64, Contrast)]| of.iter().map(|it| bytes(it.0)).collect::<Vec<_>>().join(", ");
    let changes = crossovers(compared);
    let mut text = if changes.is_empty() {
        let times = decided.iter().map(|(_, it)| (it.by / 100.0).ln_1p().abs().exp());
        let (least, most) =
            times.fold((f64::INFINITY, 0.0), |(least, most), it| (it.min(least), it.max(most)));
        let range = if open.is_empty() { range } else { format!("at {}", lengths(&decided)) };
        format!("{} {range}, {least:.2} to {most:.2} times", faster(one.by > 0.0))
    } else {
        let change = |it: &Crossover| {
            let [at, low, high] = [it.at.round() as u64, it.interval[0], it.interval[1]].map(bytes);
            format!("{} from about {at} on ({low} to {high})", faster(it.bypassing))
        };
        changes.iter().map(change).collect::<Vec<_>>().join("; ")
    };
    if !open.is_empty() {
        text += &format!("; no distinguishable difference at {}", lengths(&open));
    }
    Some(text)
}

/// Returns how much longer blocks with half-written lines take, at the shortest and at the longest block; rows of one target.
fn half_written(rows: &[&Row]) -> Option<String> {
    let blocks = || rows.iter().filter(|row| row.candidate.name == WHOLE).filter_map(|row| row.config.chunk);
    let ends = [blocks().min()?, blocks().max()?];
    let at_ends = |name: &str, pause: &str| {
        let at = |block| {
            let contrast = longer(rows, block, [name, WHOLE].map(|it| format!("{it}{pause}")))?;
            let by = || format!("{:+.0} %", contrast.by);
            Some(if contrast.distinguishable() { by() } else { "no difference".to_owned() })
        };
        Some(format!("{name}: {} and {}", at(ends[0])?, at(ends[1])?))
    };
    let [from, to] = ends.map(bytes);
    Some(format!(
        "compared with whole lines, non-temporal stores take longer by, in blocks of {from} and of {to}: {}; {}; both with a \
         pause of {PAUSE} ns in the middle: {}; {}.",
        at_ends(MISALIGNED, "")?,
        at_ends(HALVES, "")?,
        at_ends(MISALIGNED, ", pause")?,
        at_ends(HALVES, ", pause")?,
    ))
}

/// Returns by how much more time the first candidate takes than the second one, at a block.
pub(crate) fn longer(rows: &[&Row], block: u64, names: [String; 2]) -> Option<Contrast> {
    let of =
        |name: &String| rows.iter().find(|it| it.candidate.name == *name && it.config.chunk == Some(block));
    // Of speeds: the quotient of times is the other way round.
    Contrast::of(of(&names[1])?, of(&names[0])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;

    fn contrast(by: f64) -> Contrast {
        Contrast { by, interval: [by - 5.0, by + 5.0], enough: true }
    }

    #[test]
    fn the_crossover_is_between_the_nearest_decided_lengths() {
        let published = [(512, contrast(33.0)), (1024, contrast(-7.0)), (2048, contrast(-34.0))];
        let found = crossovers(&published);
        assert_eq!((found.len(), found[0].interval, found[0].bypassing), (1, [512, 1024], false));
        assert!((850.0..950.0).contains(&found[0].at), "{found:?}");
        assert_eq!(
            describe(&published).unwrap(),
            "stores that are written back are faster from about 890 B on (512 B to 1 KiB)"
        );
        // Lengths without a distinguishable difference widen the interval.
        let noisy =
            [(256, contrast(-40.0)), (512, contrast(-4.0)), (1024, contrast(3.0)), (2048, contrast(25.0))];
        let found = crossovers(&noisy);
        assert_eq!((found.len(), found[0].interval, found[0].bypassing), (1, [256, 2048], true));
        assert_eq!(
            describe(&noisy[2..]).unwrap(),
            "non-temporal stores are faster at 2 KiB, 1.25 to 1.25 times; no distinguishable difference at 1 KiB"
        );
        assert!(describe(&noisy).unwrap().ends_with("; no distinguishable difference at 512 B, 1 KiB"));
        assert_eq!(
            describe(&published[1..]).unwrap(),
            "stores that are written back are faster from 1 KiB to 2 KiB, 1.08 to 1.52 times"
        );
        assert_eq!(
            describe(&noisy[1..3]).unwrap(),
            "neither kind of store is distinguishably faster from 512 B to 1 KiB"
        );
        assert_eq!(describe(&[]), None);
        assert_eq!(describe(&[(64, Contrast { enough: false, ..contrast(50.0) })]), None);
    }

    /// In both orders, every byte of a block is written, once.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn blocks_are_written_whole_in_either_order() {
        let source: Vec<u8> = (0..4096u32).map(|at| (at % 251) as u8).collect();
        for (length, shift) in [64, 128, 192, 4096].into_iter().flat_map(|length| [(length, 0), (length, 32)])
        {
            for (halves, pauses) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut words = vec![u64::MAX; (length + 64) / 8];
                // SAFETY: the shifted block lies in the vector.
                unsafe {
                    let dst = words.as_mut_ptr().cast::<u8>();
                    write_lines(dst.add(shift), source.as_ptr(), length, halves, pauses);
                    method::fence();
                }
                let found: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(found[shift..shift + length], source[..length]);
                let rest = found[..shift].iter().chain(&found[shift + length..]);
                assert!(rest.copied().all(|byte| byte == u8::MAX), "{length} {shift} {halves}");
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_target_has_both_methods_and_the_half_written_lines() {
        let folder = tempfile::tempdir().unwrap();
        let sized =
            TargetOptions { size: Some(64 << 10), page_size: "4K".parse().unwrap(), ..TargetOptions::ram() };
        let file = TargetOptions { target: folder.path().join("file"), ..sized.clone() };
        let tight = PersistOptions {
            targets: vec![TargetOptions { size: Some(4096), ..sized.clone() }],
            blocks: vec![4096],
            ..PersistOptions::default()
        };
        let rows = testing::run(&BlocksOptions::after(&tight), false).0.unwrap().rows;
        assert_eq!(rows.len(), 4, "nothing is misaligned in a target of one block");
        let persist = PersistOptions {
            targets: vec![sized, file],
            blocks: vec![64, 8192],
            ..PersistOptions::default()
        };
        let options = BlocksOptions::after(&persist);
        let results = testing::run(&options, false).0.unwrap();
        for (pattern, block, count) in [
            (Pattern::Sequential, 64, 8),
            (Pattern::Sequential, 8192, 2),
            (Pattern::Random, 64, 2),
            (Pattern::Random, 8192, 2),
        ] {
            let at = |row: &&Row| (row.config.pattern, row.config.chunk) == (Some(pattern), Some(block));
            let rows: Vec<&Row> = results.rows.iter().filter(at).collect();
            assert_eq!(rows.len(), 2 * count, "{pattern:?} {block}");
            for half in [&rows[..count], &rows[count..]] {
                assert!(
                    half.iter()
                        .all(|row| row.config.target == half[0].config.target && row.samples.len() == 5)
                );
                assert_eq!(compared(half).len(), 1);
            }
        }
        let of = |word: &str| results.findings.iter().filter(|it| it.text.contains(word)).count();
        assert_eq!((of("sequential writes: "), of("random writes: "), of("half lines")), (2, 2, 2));
    }
}
