//! Persistent writes by width, order and kind of store: the sources' `thrp-write` table.

mod block_writer;
mod blocks;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::{Intent, Operation, Options};

use self::block_writer::BlockWriter;
pub use self::blocks::BlocksOptions;
pub(crate) use self::blocks::{Crossover, HALVES, WHOLE, compared, crossovers, describe, longer};
use crate::engine::contrast::conclude;
use crate::engine::{
    Config, Contrast, Implementation, Kind, Measure, Measurement, MethodSet, Metric, Pattern, Result, Row,
    Run, Sampler, distinct, implementation, units,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::{Candidates, participant};
use crate::target::{TargetOptions, Want, check_all, open_all};

/// Default number of bytes between two fences of random writes.
const RANDOM_BLOCK: u64 = 64;
/// Least bytes of ordinary memory to write to, by default.
const USUAL: u64 = 256 << 20;

/// Options for measuring persistent writes.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct PersistOptions {
    /// Measured at the same time, interleaved.
    pub targets: Vec<TargetOptions>,
    pub patterns: Vec<Pattern>,
    /// Bytes between two fences, each a multiple of 64. Empty: the whole target for sequential writes, as in the source,
    /// and 64 for random ones.
    pub blocks: Vec<u64>,
    /// Bytes per store, for the representative methods.
    pub widths: Vec<u64>,
    pub candidates: Candidates,
}

impl Default for PersistOptions {
    /// As in the source: all widths and both orders, in ordinary memory.
    fn default() -> PersistOptions {
        PersistOptions {
            targets: vec![TargetOptions::ram()],
            patterns: vec![Pattern::Sequential, Pattern::Random],
            blocks: Vec::new(),
            widths: PersistOptions::WIDTHS.to_vec(),
            candidates: Candidates::default(),
        }
    }
}

impl PersistOptions {
    /// Bytes per store of the methods.
    pub const WIDTHS: [u64; 5] = [4, 8, 16, 32, 64];

    fn want(&self) -> Want {
        want(&self.blocks, &self.targets)
    }

    /// Returns the orders with the bytes between two fences; `None` for a single fence at the end.
    fn cases(&self) -> Vec<(Pattern, Option<u64>)> {
        let usual = |pattern| (pattern, (pattern == Pattern::Random).then_some(RANDOM_BLOCK));
        let given = |pattern| self.blocks.iter().map(move |block| (pattern, Some(*block)));
        let patterns = self.patterns.iter().copied();
        if self.blocks.is_empty() {
            patterns.map(usual).collect()
        } else {
            patterns.flat_map(given).collect()
        }
    }

    /// Returns the candidates, the representative methods being all that persist, and a note on those that this machine does
    /// not support.
    pub(super) fn candidates(&self) -> (Candidates, Option<String>) {
        if self.candidates.methods != MethodSet::Representative {
            return (self.candidates.clone(), None);
        }
        let wanted = |method: &&Method| {
            let width = width(method);
            method.does(Operation::CopyPersist) && width.is_none_or(|width| self.widths.contains(&width))
        };
        let mut lacking = Vec::new();
        let mut named: Vec<String> = Vec::new();
        for method in method::all().filter(wanted) {
            if method.available() { &mut named } else { &mut lacking }.push(method.name.to_owned());
        }
        let note = format!("this machine does not have the instructions of {}", lacking.join(", "));
        let candidates = Candidates { methods: MethodSet::Named(named), ..self.candidates };
        (candidates, (!lacking.is_empty()).then_some(note))
    }
}

/// Returns the requirements on targets that are written in such blocks.
fn want(blocks: &[u64], targets: &[TargetOptions]) -> Want {
    let page = Machine::current().page_size as u64;
    let least = blocks.iter().copied().max().unwrap_or(0).max(page);
    Want::new(true, least, USUAL..=1 << 30, targets.len() as u64)
}

/// Persists by a policy, a method that persists, or a peer, without a fence.
///
/// # Safety
/// As [`CopyFn`](method::CopyFn).
pub(super) unsafe fn write_by(
    implementation: &Implementation<'_>,
    dst: *mut u8,
    src: *const u8,
    length: usize,
) {
    let options = match implementation {
        Implementation::Peer(peer) => {
            // SAFETY: passed on from the caller.
            return unsafe { peer.unfenced().run(Operation::CopyPersist, dst, src, length, 0) };
        }
        Implementation::Method(choice) | Implementation::Dispatched(choice) => {
            let entry = choice.method.code().copy_persist.expect("only methods that persist are selected");
            // SAFETY: passed on from the caller.
            return unsafe { (entry.unfenced)(dst, src, length, &choice.parameters) };
        }
        Implementation::Policy(.., options) | Implementation::Populating(options) => options,
        Implementation::PlainFunctions | Implementation::Read => &Options::new(),
    };
    // SAFETY: passed on from the caller.
    unsafe { options.copy_persist_unfenced(dst, src, length) }
        .expect("this architecture has methods that persist");
}

impl Measure for PersistOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Persist
    }

    fn validate(&self) -> Result<()> {
        checks::blocks(&self.blocks)?;
        for width in &self.widths {
            let reason = format!("no store writes {width} bytes; give 4, 8, 16, 32 or 64");
            require(PersistOptions::WIDTHS.contains(width), "--width", reason)?;
        }
        let (candidates, lacking) = self.candidates();
        let methods = implementation::methods(&candidates.methods, Operation::CopyPersist)?;
        let reason = lacking.unwrap_or_else(|| "no method of this architecture persists".to_owned());
        require(!methods.is_empty(), "--width", reason)?;
        check_all(&self.targets, self.want())
    }

    fn seconds(&self) -> f64 {
        let bytes = |target: &TargetOptions| target.size.unwrap_or(self.want().usual) as f64;
        // Bytes per second: between fences after short blocks, each waits for memory.
        let speed = |(_, block): (Pattern, Option<u64>)| match block {
            Some(block) if block < 1024 => 4e8,
            _ => 2e9,
        };
        let methods = implementation::methods(&self.candidates().0.methods, Operation::CopyPersist);
        let methods = methods.map_or(0, |choices| choices.len()) + 4;
        let bytes: Vec<f64> = self.targets.iter().map(bytes).collect();
        // Slow samples are cut short.
        let sample = |case| bytes.iter().map(|bytes| (bytes / speed(case)).clamp(0.002, 1.0)).sum::<f64>();
        let samples = self.cases().into_iter().map(sample).sum::<f64>();
        (methods * (self.candidates.runs + 1)) as f64 * samples
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (candidates, lacking) = self.candidates();
        lacking.into_iter().for_each(|note| run.note(note));
        let (cases, stop) = (self.cases(), run.observer.stop);
        run.expect_groups(cases.len());
        let mut targets = open_all(run, &self.targets, self.want())?;
        for (pattern, chunk) in cases {
            let operation = Operation::CopyPersist;
            let (mut samplers, mut configs) = (Vec::new(), Vec::new());
            for target in &mut targets {
                let range = target.memory.raw_range();
                let extent = chunk.map_or(range.length, |block| block as usize);
                let config = target.config.clone();
                let config = Config { operation: Some(operation), chunk, pattern: Some(pattern), ..config };
                for implementation in
                    candidates.implementations(run, operation, &[Intent::Throughput], extent)?
                {
                    let mut config = config.clone();
                    if let Implementation::Method(choice) = implementation {
                        config.width = width(choice.method);
                    }
                    let writer = BlockWriter::new(range, pattern, chunk, stop);
                    samplers.push(writing(implementation, &config, extent, writer));
                }
                configs.push(config);
            }
            let fence = chunk.map(|block| format!(", a fence for each {}", units::bytes(block)));
            let what = format!("{}{}", name(pattern), fence.unwrap_or_default());
            run.interleave(&what, Metric::Bandwidth, candidates.runs, &mut samplers)?;
            for config in &configs {
                let target = config.target.as_deref().filter(|_| configs.len() > 1);
                let target = target.map(|target| format!("{target}, ")).unwrap_or_default();
                let wanted = |row: &&Row| Config { width: None, ..row.config.clone() } == *config;
                let rows: Vec<&Row> = run.rows().filter(wanted).collect();
                let text = summary(&rows, &format!("{target}{what}"));
                conclude(run, candidates.runs, text);
            }
        }
        Ok(())
    }
}

fn name(pattern: Pattern) -> &'static str {
    if pattern == Pattern::Random { "random" } else { "sequential" }
}

/// Returns a sampler that writes the writer's target, `extent` bytes between two fences.
fn writing<'c>(
    implementation: Implementation<'c>,
    config: &Config,
    extent: usize,
    mut writer: BlockWriter<'c>,
) -> Sampler<'c> {
    participant(&implementation, config, extent, true, move || {
        // SAFETY: the writer stays within the target; choices were checked against this machine, and a policy chooses only
        // methods that can be used here.
        writer.sample(|dst, src, length| unsafe { write_by(&implementation, dst, src, length) })
    })
}

/// Returns the bytes per store of a method that persists.
fn width(method: &Method) -> Option<u64> {
    method.name.rsplit('_').find_map(|word| match word {
        "4" => Some(4),
        "8" | "movnti" => Some(8),
        "sse2" => Some(16),
        "avx" => Some(32),
        "avx512" | "movdir64b" => Some(64),
        _ => None,
    })
}

/// Compares the best that bypasses the cache with the best that writes lines back, by width, and both with the source's figures.
/// `rows` are those of a target and an order. `None` without both, or with too few samples.
fn summary(rows: &[&Row], what: &str) -> Option<String> {
    let best = |writes_back: bool, width: Option<u64>| {
        let wanted = |row: &&Row| {
            let method = method::by_name(&row.candidate.name).filter(|_| row.candidate.kind == Kind::Method);
            (width.is_none() || row.config.width == width)
                && method.is_some_and(|it| (it.effect == CacheEffect::Evicts) == writes_back)
        };
        rows.iter().copied().filter(wanted).max_by(|a, b| a.stats.median.total_cmp(&b.stats.median))
    };
    let compare = |width| {
        let (past, back) = (best(false, width)?, best(true, width)?);
        Some((past, back, Contrast::of(past, back).filter(|it| it.enough)?))
    };
    let words = |contrast: &Contrast| match contrast.distinguishable() {
        false => "as fast within the noise",
        true if contrast.by > 0.0 => "faster",
        true => "slower",
    };
    let (past, back, contrast) = compare(None)?;
    let by_width = PersistOptions::WIDTHS.into_iter();
    let by_width = by_width.filter_map(|width| Some((width.to_string(), words(&compare(Some(width))?.2))));
    let by_width: Vec<(String, &str)> = by_width.collect();
    let at = |verdict: &str| {
        let widths = by_width.iter().filter(|it| it.1 == verdict).map(|it| it.0.as_str());
        format!("{verdict} at {} bytes", widths.collect::<Vec<_>>().join(", "))
    };
    let verdict = match distinct(by_width.iter().map(|it| it.1)).as_slice() {
        _ if by_width.len() < 2 => words(&contrast).to_owned(),
        [all] => format!("{all} at every width"),
        several => several.iter().map(|it| at(it)).collect::<Vec<_>>().join("; "),
    };
    let [ratio, low, high] =
        [contrast.by, contrast.interval[0], contrast.interval[1]].map(|percent| 1.0 + percent / 100.0);
    let mut text = format!(
        "{what}: compared with storing and writing back, bypassing the cache is {verdict}. The best of each: {} {:.2} GB/s, {} \
         {:.2} GB/s; a ratio of {ratio:.2} ({low:.2} to {high:.2}).",
        past.candidate.name, past.stats.median, back.candidate.name, back.stats.median
    );
    let config = &past.config;
    if config.pattern == Some(Pattern::Sequential) && config.chunk.is_none() {
        // GB/s of the best non-temporal width and the best with CLWB.
        let (memory, past, back) = match config.durable {
            Some(true) => ("an NVDIMM", 1.3, 1.6),
            _ => ("ordinary memory", 4.2, 5.1),
        };
        text += &format!(" Published (Patocka 2020, {memory}): {past} and {back} GB/s; {:.2}.", past / back);
    }
    Some(text)
}

#[cfg(test)]
mod tests;
