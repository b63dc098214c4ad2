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
use crate::engine::run::{Measure, Run, Sampler};
use crate::engine::workload::last_level;
use crate::engine::{Config, Direction, Measurement, Metric, Peers, Row, units};
use crate::measurements::checks::{self, MOST_THREADS, invalid};
use crate::measurements::participants::sampler;
use crate::target::device::{self, Attributes};
use crate::target::{Opened, Target, TargetOptions, Want};
use crate::{MeasureError, OptionName};

/// Least bytes of ordinary memory to work on, by default.
const USUAL: u64 = 1 << 30;
/// Longest sample: during one, there is no progress and no stopping.
const LONGEST: Duration = Duration::from_secs(2);
/// Shortest sample.
const SHORTEST: Duration = Duration::from_millis(1);

/// Options for measuring random input and output.
#[derive(Clone, Debug)]
pub struct IopsOptions {
    /// The target to read from and write to; its size is the working set.
    pub target: TargetOptions,
    /// Cache attributes of memory of the kernel module's device, which then are the targets: one for each.
    pub attributes: Attributes,
    /// Bytes per block.
    pub blocks: Vec<u64>,
    /// Reading, writing, or both.
    pub directions: Vec<Direction>,
    /// Share of reads in mixed input and output, percent.
    pub mix: u8,
    /// Numbers of threads. Each thread works on its own part of the target.
    pub threads: Vec<usize>,
    /// Time of a sample. One half counts operations, the other times each of them.
    pub time: Duration,
    /// The methods.
    pub methods: MethodSet,
    /// The other participants.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl IopsOptions {
    /// Blocks of 4 KiB in ordinary memory, as in the source; reads, writes and both; by one thread and by all processors.
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
        // Leaves most of the memory to other processes; all targets are allocated at the same time.
        let targets = self.attributes.requested().len().max(1) as u64;
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
        checks::blocks(&self.blocks)?;
        checks::threads(&self.threads)?;
        if self.mix > 100 {
            return invalid(OptionName::Mix, format!("{} % is more than all; give 0 to 100", self.mix));
        }
        if !(SHORTEST..=LONGEST).contains(&self.time) {
            let reason =
                format!("{:?} for a sample; give {SHORTEST:?} to {LONGEST:?}, and more --runs", self.time);
            return invalid(OptionName::Time, reason);
        }
        for direction in &self.directions {
            if access::methods(&self.methods, *direction)?.is_empty() {
                let reason = format!("none of the given methods can {}", access::verb(*direction));
                return invalid(OptionName::Methods, reason);
            }
        }
        if !self.attributes.of_device() {
            return self.target.check(self.want());
        }
        self.attributes.check()?;
        // Each target needs the same memory.
        let targets = self.attributes.requested().len().max(1) as u64;
        let bytes = self.target.size.unwrap_or(self.want().usual).max(self.want().least);
        device::check(bytes.saturating_mul(targets), self.target.page_size)?;
        self.of(Attribute::Wb).check(self.want())
    }

    fn seconds(&self) -> f64 {
        let groups = self.directions.len() * self.blocks.len() * self.threads.len();
        // The policy, the usual methods, and the peers.
        let samplers = 9 * self.attributes.requested().len().max(1);
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
            let Some(target) = target.open_for(run, self.want())? else { return Ok(()) };
            run.backed_by(target.backing_page_size());
            target.note().into_iter().for_each(|note| run.note(note));
            targets.push(target);
        }
        let clock = workers::clock_ns();
        run.note(format!(
            "one half of each sample counts operations and the other times each of them; {clock} ns for reading the clock \
             are subtracted from each latency"
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
    /// Returns memory of the device as the target.
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
        let (accesses, note) =
            accesses(run.policy(), &self.methods, self.peers, (job.direction, job.block), raw_range.length)?;
        note.into_iter().for_each(|note| run.note(note));
        for Access { candidate, ways } in &accesses {
            let chosen = match job.direction {
                Direction::Read => ways.read.0.chosen(ways.read.1, job.block),
                Direction::Write => ways.write.0.chosen(ways.write.1, job.block),
                // Two choices, which may differ.
                Direction::Mixed => None,
            };
            run.chooses(candidate, &config, chosen);
        }
        let samplers = accesses.into_iter().map(|Access { candidate, ways }| {
            let mut team = Team::new(raw_range, threads, job.block)?;
            Ok(sampler(candidate, &config, false, move || team.sample(job, &ways, stop)))
        });
        samplers.collect()
    }
}

/// Published thousands of operations a second by memcpy and by MOVNTI in write-back memory.
const PUBLISHED: [(Direction, f64, f64); 2] =
    [(Direction::Read, 3600.0, 2400.0), (Direction::Write, 2500.0, 2600.0)];

/// Summarizes which candidate is the best, and compares MOVNTI and memcpy with the source's figures.
fn conclude(run: &mut Run<'_>, what: &str, config: &Config) {
    let here = |row: &&Row| {
        // `config` is without the share of reads.
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
