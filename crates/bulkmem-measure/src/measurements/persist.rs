//! Persistent writes by width, order and kind of store: the sources' `thrp-write` table.

mod block_writer;

use std::sync::atomic::AtomicBool;

use bulkmem::machine::Machine;
use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation};

use self::block_writer::{BlockWriter, write_by};
use crate::engine::implementation::{self, MethodSet};
use crate::engine::peers::{self, Peer};
use crate::engine::run::{Measure, Run, Sampler};
use crate::engine::workload::last_level;
use crate::engine::{Candidate, Config, Measurement, Metric, Pattern, Peers, Row, units};
use crate::measurements::checks::{self, invalid};
use crate::measurements::participants::sampler;
use crate::target::{Durable, Opened, TargetOptions, Want};
use crate::{Kind, MeasureError, OptionName};

/// Default number of bytes between two fences of random writes.
const RANDOM_BLOCK: u64 = 64;
/// Least bytes of ordinary memory to write to, by default.
const USUAL: u64 = 256 << 20;

/// The way in which a method makes bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Stores that bypass the cache.
    Nontemporal,
    /// Ordinary stores, and instructions that write lines back.
    WriteBack,
}

/// Checked before the first sample.
const PERSISTS: &str = "this architecture has methods that persist";

/// Options for measuring persistent writes.
#[derive(Clone, Debug)]
pub struct PersistOptions {
    /// The target to write to.
    pub target: TargetOptions,
    /// The orders of blocks.
    pub patterns: Vec<Pattern>,
    /// Bytes between two fences, each a multiple of 64. Empty: the whole target for sequential writes, as in the source,
    /// and 64 for random ones.
    pub blocks: Vec<u64>,
    /// Bytes per store, for the representative methods.
    pub widths: Vec<u64>,
    /// The methods.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl PersistOptions {
    /// As in the source: all widths and both orders, in ordinary memory.
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

    /// Bytes per store of the methods.
    pub const WIDTHS: [u64; 5] = [4, 8, 16, 32, 64];

    fn want(&self) -> Want {
        let machine = Machine::current();
        let least = self.blocks.iter().copied().max().unwrap_or(0).max(machine.page_size as u64);
        let usual = last_level(machine).saturating_mul(8).clamp(USUAL, 1 << 30);
        // Leaves most of the memory to other processes.
        let usual = usual.min(crate::memory_left().bytes / 4).max(least);
        Want { writes: true, least, usual }
    }

    /// Returns the orders with the bytes between two fences; `None` for a single fence at the end.
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

    /// Returns the methods, and a note on those that this machine does not support.
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
        let note = format!("this machine does not have the instructions of {}", lacking.join(", "));
        Ok((choices, (!lacking.is_empty()).then_some(note)))
    }
}

impl Default for PersistOptions {
    fn default() -> PersistOptions {
        PersistOptions::new()
    }
}

/// Returns the methods to measure: the representative ones are all that persist.
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
        checks::blocks(&self.blocks)?;
        if let Some(width) = self.widths.iter().find(|width| !PersistOptions::WIDTHS.contains(width)) {
            let reason = format!("no store writes {width} bytes; give 4, 8, 16, 32 or 64");
            return invalid(OptionName::Width, reason);
        }
        let (choices, lacking) = self.choices()?;
        if choices.is_empty() {
            let why = lacking.unwrap_or_else(|| "no method of this architecture persists".to_owned());
            return invalid(OptionName::Width, why);
        }
        self.target.check(self.want())
    }

    fn seconds(&self) -> f64 {
        let bytes = self.target.size.unwrap_or(self.want().usual) as f64;
        let methods = self.choices().map_or(0, |(choices, _)| choices.len()) + 4;
        // Slow samples are cut short.
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
        let writer = || BlockWriter::new(raw_range, pattern, block, stop);
        let extent = block.unwrap_or(raw_range.length as u64) as usize;
        let choose = move || policy.choose(Operation::CopyPersist, extent, Intent::Throughput);
        let mut policy_writer = writer();
        let candidate = Candidate::named(Kind::Policy, "policy");
        run.chooses(&candidate, &config, choose());
        let mut samplers = vec![sampler(candidate, &config, true, move || {
            // Chosen anew for each write, as in a program's calls.
            policy_writer.sample(|dst, src, length| {
                // SAFETY: the writer stays within the target, and a policy chooses only methods that can be used here.
                unsafe { write_by(&choose().expect(PERSISTS), dst, src, length) }
            })
        })];
        for choice in choices.iter().copied() {
            let mut writer = writer();
            let config = Config { width: width(choice.method), ..config.clone() };
            samplers.push(sampler(Candidate::method(&choice), &config, true, move || {
                // SAFETY: the writer stays within the target; choices were checked against this machine.
                writer.sample(|dst, src, length| unsafe { write_by(&choice, dst, src, length) })
            }));
        }
        for peer in peers.iter().copied() {
            let mut writer = writer();
            samplers.push(sampler(Candidate::named(Kind::Peer, peer.name), &config, true, move || {
                // SAFETY: the writer stays within the target.
                writer.sample(|dst, src, length| unsafe { peer.run_unfenced(dst, src, length) })
            }));
        }
        samplers
    }
}

/// Returns the bytes per store of a method.
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

/// Published GB/s of the best non-temporal width and the best with CLWB, in ordinary memory and in an NVDIMM.
const PUBLISHED: [(&str, f64, f64); 2] = [("ordinary memory", 4.2, 5.1), ("an NVDIMM", 1.3, 1.6)];

/// Summarizes at which widths bypassing the cache is faster, compared with the source's figures.
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
        _ => format!("at {} bytes, and slower at {}", wins.join(", "), loses.join(", ")),
    };
    let ratio = past.3 / back.3;
    let mut text = format!(
        "{what}: bypassing the cache is faster than storing and writing back {at}. The best of each: {} {:.2} GB/s, {} {:.2} \
         GB/s; a ratio of {ratio:.2}.",
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
