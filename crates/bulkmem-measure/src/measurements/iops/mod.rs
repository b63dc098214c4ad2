//! Random input and output of blocks: the sources' `fio` table, by method.

mod access;
mod attributes;
mod workers;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem_kmod::Attribute;

use self::access::{Access, accesses};
use self::workers::{Job, Team};
use crate::engine::implementation::MethodSet;
use crate::engine::run::{Measure, Run, Sample, Sampler};
use crate::engine::workload::last_level;
use crate::engine::{Config, Direction, Measurement, Metric, Peers, Row, units};
use crate::target::device::Attributes;
use crate::target::{Opened, Target, TargetOptions, Want};
use crate::{MeasureError, OptionName};

/// Bytes of ordinary memory that are worked on, at least, where nobody says how many.
const USUAL: u64 = 1 << 30;
/// A sample lasts no longer: nothing could be shown meanwhile, and nobody could stop it.
const LONGEST: Duration = Duration::from_secs(2);
/// A sample lasts no shorter.
const SHORTEST: Duration = Duration::from_millis(1);
/// The most threads.
const MOST_THREADS: usize = 1024;

/// How to measure random input and output.
#[derive(Clone, Debug)]
pub struct IopsOptions {
    /// What is read from and written to; its size is the working set.
    pub target: TargetOptions,
    /// The cache attributes of memory of the kernel module's device, which is the target then: one such target for each.
    pub attributes: Attributes,
    /// Bytes of a block.
    pub blocks: Vec<u64>,
    /// Reading, writing, or both.
    pub directions: Vec<Direction>,
    /// The share of reads where it is both, percent.
    pub mix: u8,
    /// Numbers of threads, each of which works on a part of its own.
    pub threads: Vec<usize>,
    /// How long a sample takes: half of it counts operations, half times each of them.
    pub time: Duration,
    /// Which methods.
    pub methods: MethodSet,
    /// Who else.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl IopsOptions {
    /// The source's: blocks of 4 KiB in ordinary memory, and mixed besides; by one thread and by all processors.
    pub fn new() -> IopsOptions {
        let mut threads = vec![1, Machine::current().processors.clamp(1, MOST_THREADS)];
        threads.dedup();
        IopsOptions {
            target: TargetOptions::ram(),
            attributes: Attributes::Own,
            blocks: vec![4096],
            directions: vec![Direction::Read, Direction::Write, Direction::Mixed],
            mix: 70,
            threads,
            time: Duration::from_millis(500),
            methods: MethodSet::Representative,
            peers: Peers::All,
            runs: 5,
        }
    }

    fn want(&self) -> Want {
        let writes = self.directions.iter().any(|direction| *direction != Direction::Read);
        let threads = self.threads.iter().copied().max().unwrap_or(1) as u64;
        let least = self.blocks.iter().copied().max().unwrap_or(1).saturating_mul(threads);
        let usual = last_level(Machine::current()).saturating_mul(8).max(USUAL);
        // Where that is more than can be had without anybody suffering, less must do; all targets are there at once.
        let targets = self.attributes.asked().len().max(1) as u64;
        let usual = usual.min(crate::memory_left().bytes / 4 / targets).max(least);
        Want { writes, least, usual }
    }
}

impl Default for IopsOptions {
    fn default() -> IopsOptions {
        IopsOptions::new()
    }
}

impl Measure for IopsOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Iops
    }

    fn validate(&self) -> Result<(), MeasureError> {
        let refuse = |option, reason: String| Err(MeasureError::Option { option, reason });
        if let Some(block) = self.blocks.iter().find(|block| **block == 0 || **block % 64 != 0) {
            return refuse(
                OptionName::Block,
                format!("{block} bytes are not whole cache lines; give a multiple of 64"),
            );
        }
        if let Some(threads) = self.threads.iter().find(|threads| !(1..=MOST_THREADS).contains(*threads)) {
            return refuse(OptionName::Threads, format!("{threads} threads; give 1 to {MOST_THREADS}"));
        }
        if self.mix > 100 {
            return refuse(OptionName::Mix, format!("{} % are more than all; give 0 to 100", self.mix));
        }
        if !(SHORTEST..=LONGEST).contains(&self.time) {
            let reason =
                format!("{:?} for a sample; give {SHORTEST:?} to {LONGEST:?}, and more --runs", self.time);
            return refuse(OptionName::Time, reason);
        }
        for direction in &self.directions {
            if access::methods(&self.methods, *direction)?.is_empty() {
                return refuse(
                    OptionName::Methods,
                    format!("no method of those given can {}", access::verb(*direction)),
                );
            }
        }
        if !self.attributes.of_device() {
            return self.target.check(self.want());
        }
        self.attributes.check()?;
        // What is not the attribute's affair; each needs as much.
        let targets = self.attributes.asked().len().max(1) as u64;
        let bytes = self.target.size.unwrap_or(self.want().usual).max(self.want().least);
        crate::target::device::check(bytes.saturating_mul(targets), self.target.page_size)?;
        self.of(Attribute::Wb).check(self.want())
    }

    fn seconds(&self) -> f64 {
        let groups = self.directions.len() * self.blocks.len() * self.threads.len();
        // The policy, the usual methods, and the peers.
        let samplers = 9 * self.attributes.asked().len().max(1);
        groups as f64 * samplers as f64 * (self.runs + 1) as f64 * self.time.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        run.expect_groups(self.directions.len() * self.blocks.len() * self.threads.len());
        let wanted = match &self.attributes {
            Attributes::Own => vec![self.target.clone()],
            attributes => attributes.possible(run)?.into_iter().map(|attribute| self.of(attribute)).collect(),
        };
        let mut targets = Vec::new();
        for target in wanted {
            // Where somebody asks to stop meanwhile, nothing was measured here; what others measured stays.
            let Some(target) = target.open_for(run, self.want())? else { return Ok(()) };
            run.backed_by(target.backing_page_size());
            target.note().into_iter().for_each(|note| run.note(note));
            targets.push(target);
        }
        let clock = workers::clock_ns();
        run.note(format!(
            "operations are counted in one half of each sample and timed one by one in the other; {clock} ns for reading \
             the clock are taken off each latency"
        ));
        for &direction in &self.directions {
            for &block in &self.blocks {
                for &threads in &self.threads {
                    if run.stopped() {
                        return Ok(());
                    }
                    let job = Job { direction, mix: self.mix, block: block as usize, time: self.time, clock };
                    let mut samplers = Vec::new();
                    for target in &mut targets {
                        samplers.extend(self.samplers(run, target, job, threads)?);
                    }
                    let plural = if threads == 1 { "" } else { "s" };
                    let verb = access::verb(direction);
                    let what = format!("{verb} of {}, {threads} thread{plural}", units::bytes(block));
                    run.interleave(&what, Metric::Iops, self.runs, &mut samplers)?;
                    for target in &targets {
                        let config = Config {
                            direction: Some(direction),
                            chunk: Some(block),
                            threads: Some(threads),
                            ..target.config()
                        };
                        let what = match targets.len() {
                            1 => what.clone(),
                            _ => format!("{what}, {}", config.attribute.as_deref().unwrap_or_default()),
                        };
                        conclude(run, &what, &config);
                    }
                }
            }
        }
        attributes::conclude(run);
        Ok(())
    }
}

impl IopsOptions {
    /// Memory of the device as target.
    fn of(&self, attribute: Attribute) -> TargetOptions {
        TargetOptions { target: Target::Module, attribute: Some(attribute), ..self.target.clone() }
    }

    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        target: &mut Opened,
        job: Job,
        threads: usize,
    ) -> Result<Vec<Sampler<'c>>, MeasureError> {
        let mixed = job.direction == Direction::Mixed;
        let config = Config {
            chunk: Some(job.block as u64),
            direction: Some(job.direction),
            mix: mixed.then_some(self.mix),
            threads: Some(threads),
            ..target.config()
        };
        let raw_range = target.raw_range();
        let stop: &'c AtomicBool = run.stop_flag();
        let (accesses, note) = accesses(run.policy(), &self.methods, self.peers, job, raw_range.length)?;
        note.into_iter().for_each(|note| run.note(note));
        for Access { candidate, ways } in &accesses {
            let chosen = match job.direction {
                Direction::Read => ways.read.0.chosen(ways.read.1, job.block),
                Direction::Write => ways.write.0.chosen(ways.write.1, job.block),
                // Two choices, which need not be the same.
                Direction::Mixed => None,
            };
            run.chooses(candidate, &config, chosen);
        }
        let sampler = |Access { candidate, ways }| {
            let mut team = Team::new(raw_range, threads, job.block)?;
            let sample = move || -> Result<Sample, MeasureError> { team.sample(job, &ways, stop) };
            Ok(Sampler { candidate, config: config.clone(), sample: Box::new(sample), counted: false })
        };
        accesses.into_iter().map(sampler).collect()
    }
}

/// What the source measured by memcpy and by MOVNTI in write-back memory, thousands of operations a second.
const PUBLISHED: [(Direction, f64, f64); 2] =
    [(Direction::Read, 3600.0, 2400.0), (Direction::Write, 2500.0, 2600.0)];

/// Who is best, and how MOVNTI does against memcpy beside the source's figures.
fn conclude(run: &mut Run<'_>, what: &str, config: &Config) {
    let here = |row: &&Row| {
        // But for the share of reads.
        Config { mix: None, ..row.config.clone() } == *config
            && matches!(row.candidate.kind, crate::Kind::Method | crate::Kind::Peer)
    };
    let best = run.rows().filter(here).max_by(|a, b| a.stats.median.total_cmp(&b.stats.median));
    let Some((name, most)) = best.map(|row| (row.candidate.name.clone(), row.stats.median)) else { return };
    let of = |name: &str| {
        run.rows().filter(here).find(|row| row.candidate.name == name).map(|row| row.stats.median)
    };
    let plain = of(bulkmem::method::c_library().name);
    let against = plain.map_or_else(String::new, |plain| format!(", {:.2} times memcpy", most / plain));
    let mut text = format!("{what}: {name} is the best{against}.");
    let as_published = config.chunk == Some(4096) && config.attribute.as_deref() == Some("wb");
    let published = PUBLISHED.iter().find(|it| Some(it.0) == config.direction && as_published);
    if let (Some((_, copied, streamed)), Some(plain), Some(streaming)) = (published, plain, of("movnti")) {
        text += &format!(
            " movnti runs at {:.2} times memcpy; published (Elliott 2015, write-back): {:.2}.",
            streaming / plain,
            streamed / copied
        );
    }
    run.add_finding(text);
}

#[cfg(test)]
mod tests;
