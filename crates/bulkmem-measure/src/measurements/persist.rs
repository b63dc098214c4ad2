//! Persistent writes by width, order and way to make them durable: the sources' `thrp-write` table.

mod block_writer;

use std::sync::atomic::AtomicBool;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};

use self::block_writer::{BlockWriter, write_by};
use crate::engine::implementation::{self, MethodSet};
use crate::engine::peers::{self, Peer};
use crate::engine::run::{Measure, Run, Sample, Sampler};
use crate::engine::workload::last_level;
use crate::engine::{Candidate, Config, Measurement, Metric, Pattern, Peers, Row, units};
use crate::target::{Durable, Opened, TargetOptions, Want};
use crate::{Kind, MeasureError, OptionName};

/// Bytes between two fences of random writes, where nobody says how many.
const RANDOM_BLOCK: u64 = 64;
/// Blocks are whole cache lines.
const LINE: u64 = crate::engine::LINE as u64;
/// Bytes of ordinary memory that are written to, at least, where nobody says how many.
const USUAL: u64 = 256 << 20;

/// How a method makes bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It writes them past the cache.
    Nontemporal,
    /// It stores them, and writes the lines back.
    WriteBack,
}

/// Checked before the first sample.
const PERSISTS: &str = "this architecture has methods that persist";

/// How to measure persistent writes.
#[derive(Clone, Debug)]
pub struct PersistOptions {
    /// Where to write.
    pub target: TargetOptions,
    /// In which order.
    pub patterns: Vec<Pattern>,
    /// Bytes between two fences, each a multiple of 64. Empty: for sequential writes the whole target, as the source has
    /// it; for random ones 64.
    pub blocks: Vec<u64>,
    /// Bytes a store, of the usual methods.
    pub widths: Vec<u64>,
    /// Which methods.
    pub methods: MethodSet,
    /// Who else.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl PersistOptions {
    /// The source's: all widths, both orders, in ordinary memory.
    pub fn new() -> PersistOptions {
        PersistOptions {
            target: TargetOptions::ram(),
            patterns: vec![Pattern::Sequential, Pattern::Random],
            blocks: Vec::new(),
            widths: PersistOptions::WIDTHS.to_vec(),
            methods: MethodSet::Representative,
            peers: Peers::All,
            runs: 5,
        }
    }

    /// Bytes that the stores of methods have.
    pub const WIDTHS: [u64; 5] = [4, 8, 16, 32, 64];

    fn want(&self) -> Want {
        let machine = Machine::current();
        let least = self.blocks.iter().copied().max().unwrap_or(0).max(machine.page_size as u64);
        let usual = last_level(machine).saturating_mul(8).clamp(USUAL, 1 << 30);
        // Where that is more than can be had without anybody suffering, less must do.
        let usual = usual.min(crate::memory_left().bytes / 4).max(least);
        Want { writes: true, least, usual }
    }

    /// Orders, with the bytes between two fences; `None` for a single fence at the end.
    fn cases(&self) -> Vec<(Pattern, Option<u64>)> {
        let of = |pattern: &Pattern| -> Vec<(Pattern, Option<u64>)> {
            match (self.blocks.as_slice(), pattern) {
                ([], Pattern::Sequential) => vec![(Pattern::Sequential, None)],
                ([], Pattern::Random) => vec![(Pattern::Random, Some(RANDOM_BLOCK))],
                (blocks, pattern) => blocks.iter().map(|block| (*pattern, Some(*block))).collect(),
            }
        };
        self.patterns.iter().flat_map(of).collect()
    }

    /// The methods, and what is to be said of those that this machine lacks.
    fn choices(&self) -> Result<(Vec<Choice>, Option<String>), MeasureError> {
        let mut choices = implementation::methods(&persisting(&self.methods), Operation::CopyPersist)?;
        if self.methods != MethodSet::Representative {
            return Ok((choices, None));
        }
        let wanted = |method: &Method| width(method).is_none_or(|width| self.widths.contains(&width));
        choices.retain(|choice| wanted(choice.method));
        let lacking: Vec<&str> = method::all()
            .filter(|method| method.does(Operation::CopyPersist) && !method.available() && wanted(method))
            .map(|method| method.name)
            .collect();
        let note = format!("this machine lacks the instructions of {}", lacking.join(", "));
        Ok((choices, (!lacking.is_empty()).then_some(note)))
    }
}

impl Default for PersistOptions {
    fn default() -> PersistOptions {
        PersistOptions::new()
    }
}

/// The usual methods are all that persist.
fn persisting(wanted: &MethodSet) -> MethodSet {
    match wanted {
        MethodSet::Representative => MethodSet::All,
        other => other.clone(),
    }
}

impl Measure for PersistOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Persist
    }

    fn validate(&self) -> Result<(), MeasureError> {
        if let Some(block) = self.blocks.iter().find(|block| **block == 0 || **block % LINE != 0) {
            return Err(MeasureError::Option {
                option: OptionName::Block,
                reason: format!("{block} bytes are not whole cache lines; give a multiple of {LINE}"),
            });
        }
        if let Some(width) = self.widths.iter().find(|width| !PersistOptions::WIDTHS.contains(width)) {
            return Err(MeasureError::Option {
                option: OptionName::Width,
                reason: format!("no store writes {width} bytes; 4, 8, 16, 32 and 64 are to be had"),
            });
        }
        let (choices, lacking) = self.choices()?;
        if choices.is_empty() {
            let why = lacking.unwrap_or_else(|| "no method of this architecture persists".to_owned());
            return Err(MeasureError::Option { option: OptionName::Width, reason: why });
        }
        self.target.check(self.want())
    }

    fn seconds(&self) -> f64 {
        let bytes = self.target.size.unwrap_or(self.want().usual) as f64;
        let methods = self.choices().map_or(0, |(choices, _)| choices.len()) + 4;
        // What is slow is cut short.
        methods as f64 * self.cases().len() as f64 * (self.runs + 1) as f64 * (bytes / 4e9).clamp(0.002, 1.0)
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        let (choices, lacking) = self.choices()?;
        lacking.into_iter().for_each(|note| run.note(note));
        let peers = match self.peers {
            Peers::None => Vec::new(),
            Peers::All => peers::peers(Operation::CopyPersist).unwrap_or_else(|reason| {
                run.note(reason);
                Vec::new()
            }),
        };
        let cases = self.cases();
        run.expect_groups(cases.len());
        // Where somebody asks to stop meanwhile, nothing was measured here; what others measured stays.
        let Some(mut target) = self.target.open_for(run, self.want())? else { return Ok(()) };
        run.backed_by(target.backing_page_size());
        target.note().into_iter().for_each(|note| run.note(note));
        for (pattern, block) in cases {
            if run.stopped() {
                break;
            }
            let mut samplers = self.samplers(run, &mut target, pattern, block, &choices, &peers);
            let order = if pattern == Pattern::Random { "random" } else { "sequential" };
            let what = block.map_or(order.to_owned(), |block| {
                format!("{order}, a fence for each {}", units::bytes(block))
            });
            run.interleave(&what, Metric::Bandwidth, self.runs, &mut samplers)?;
            conclude(run, &what, pattern, block, target.durable());
        }
        Ok(())
    }
}

impl PersistOptions {
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        target: &mut Opened,
        pattern: Pattern,
        block: Option<u64>,
        choices: &[Choice],
        peers: &[Peer],
    ) -> Vec<Sampler<'c>> {
        let config = Config {
            operation: Some(Operation::CopyPersist),
            chunk: block,
            pattern: Some(pattern),
            ..target.config()
        };
        let raw_range = target.raw_range();
        let (stop, policy): (&'c AtomicBool, _) = (run.stop_flag(), run.policy());
        let along = || BlockWriter::new(raw_range, pattern, block, stop);
        let extent = block.unwrap_or(raw_range.length as u64) as usize;
        let sampler = |candidate, width, sample| Sampler {
            candidate,
            config: Config { width, ..config.clone() },
            sample,
            counted: true,
        };
        let mut walk = along();
        let candidate = Candidate::named(Kind::Policy, "policy");
        run.chooses(&candidate, &config, policy.choose(Operation::CopyPersist, extent, Intent::Throughput));
        let mut samplers = vec![sampler(
            candidate,
            None,
            Box::new(move || {
                // Chosen anew for each write, as a program's calls are.
                walk.sample(|dst, src, length| {
                    let choice = policy.choose(Operation::CopyPersist, extent, Intent::Throughput);
                    // SAFETY: the walk stays within the target; a policy's choices can be used here.
                    unsafe { write_by(&choice.expect(PERSISTS), dst, src, length) }
                })
            }) as Box<dyn FnMut() -> Result<Sample, MeasureError> + 'c>,
        )];
        for choice in choices.iter().copied() {
            let mut walk = along();
            let sample = Box::new(move || {
                // SAFETY: the walk stays within the target; choices are checked against this machine where they are
                // made.
                walk.sample(|dst, src, length| unsafe { write_by(&choice, dst, src, length) })
            });
            samplers.push(sampler(Candidate::method(&choice), width(choice.method), sample));
        }
        for peer in peers.iter().copied() {
            let mut walk = along();
            let sample = Box::new(move || {
                // SAFETY: the walk stays within the target.
                walk.sample(|dst, src, length| unsafe { peer.run_unfenced(dst, src, length) })
            });
            samplers.push(sampler(Candidate::named(Kind::Peer, peer.name), None, sample));
        }
        samplers
    }
}

/// Bytes a store of a method writes.
fn width(method: &Method) -> Option<u64> {
    let name = method.name;
    let families = [
        ("movnti_4", 4),
        ("movnti", 8),
        ("store_8", 8),
        ("nontemporal_sse2", 16),
        ("store_sse2", 16),
        ("nontemporal_avx512", 64),
        ("store_avx512", 64),
        ("movdir64b", 64),
        ("nontemporal_avx", 32),
        ("store_avx", 32),
    ];
    families.into_iter().find(|(family, _)| name.starts_with(family)).map(|(_, width)| width)
}

fn way(method: &Method) -> Way {
    if method.effect == CacheEffect::Evicts { Way::WriteBack } else { Way::Nontemporal }
}

/// What the source measured, GB/s: the best of the non-temporal widths, and the best of those with CLWB; in ordinary
/// memory and in an NVDIMM.
const PUBLISHED: [(&str, f64, f64); 2] = [("ordinary memory", 4.2, 5.1), ("an NVDIMM", 1.3, 1.6)];

/// At which widths writing past the cache wins, and by how much against the source's figures.
fn conclude(run: &mut Run<'_>, what: &str, pattern: Pattern, block: Option<u64>, durable: Durable) {
    let config = |row: &&Row| row.config.pattern == Some(pattern) && row.config.chunk == block;
    let of_methods = |row: &&Row| config(row) && row.candidate.kind == Kind::Method;
    let rows: Vec<(Way, Option<u64>, String, f64)> = run
        .rows()
        .filter(of_methods)
        .filter_map(|row| {
            let method = method::by_name(&row.candidate.name)?;
            Some((way(method), row.config.width, row.candidate.name.clone(), row.stats.median))
        })
        .collect();
    let best = |wanted: Way, at: Option<u64>| {
        rows.iter()
            .filter(|(way, width, ..)| *way == wanted && at.is_none_or(|at| *width == Some(at)))
            .max_by(|a, b| a.3.total_cmp(&b.3))
    };
    let (Some(past), Some(back)) = (best(Way::Nontemporal, None), best(Way::WriteBack, None)) else { return };
    let (mut wins, mut loses) = (Vec::new(), Vec::new());
    for width in PersistOptions::WIDTHS {
        if let (Some(past), Some(back)) =
            (best(Way::Nontemporal, Some(width)), best(Way::WriteBack, Some(width)))
        {
            if past.3 >= back.3 { &mut wins } else { &mut loses }.push(width.to_string());
        }
    }
    let at = match (wins.is_empty(), loses.is_empty()) {
        (_, true) => "at every width".to_owned(),
        (true, _) => "at no width".to_owned(),
        _ => format!("at {} bytes, and loses at {}", wins.join(", "), loses.join(", ")),
    };
    let ratio = past.3 / back.3;
    let mut text = format!(
        "{what}: writing past the cache wins over storing and writing back {at}. The best of either: {} {:.2} GB/s, {} \
         {:.2} GB/s; a ratio of {ratio:.2}.",
        past.2, past.3, back.2, back.3
    );
    if pattern == Pattern::Sequential && block.is_none() {
        let (memory, past, back) = PUBLISHED[usize::from(durable == Durable::Dax)];
        text += &format!(" Published (Patocka 2020, {memory}): {past} and {back} GB/s; {:.2}.", past / back);
    }
    run.add_finding(text);
}

#[cfg(test)]
mod tests;
