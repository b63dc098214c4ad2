//! Random input and output of blocks: the sources' `fio` table, by method.

mod access;
mod workers;

use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem_kmod::Attribute;

use self::access::accesses;
use self::workers::{Job, Team};
use crate::engine::{
    Config, Dimension, Direction, Kind, Measure, Measurement, Metric, Result, Row, Run, Sampler, latency,
    units,
};
use crate::measurements::checks::{self, MOST_THREADS, require};
use crate::measurements::participants::{Candidates, sampler};
use crate::target::device::{self, Attributes};
use crate::target::{Opened, TargetOptions, Want};

/// Least bytes of ordinary memory to work on, by default.
const USUAL: u64 = 1 << 30;

/// Options for measuring random input and output.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct IopsOptions {
    /// The target to read from and write to; its size is the working set.
    pub target: TargetOptions,
    /// Cache attributes of memory of the kernel module's device, which then are the targets: one for each.
    pub attributes: Attributes,
    pub blocks: Vec<u64>,
    pub directions: Vec<Direction>,
    /// Share of reads in mixed input and output, percent.
    pub mix: u8,
    /// Numbers of threads. Each thread works on its own part of the target.
    pub threads: Vec<usize>,
    /// Time of a sample. One half counts operations, the other times each of them.
    pub time: Duration,
    pub candidates: Candidates,
}

impl Default for IopsOptions {
    /// Blocks of 4 KiB in ordinary memory, as in the source; reads, writes and both; by one thread and by all processors.
    fn default() -> IopsOptions {
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
            candidates: Candidates::default(),
        }
    }
}

impl IopsOptions {
    fn want(&self) -> Want {
        let writes = self.directions.iter().any(|direction| *direction != Direction::Read);
        let threads = self.threads.iter().copied().max().unwrap_or(1) as u64;
        let least = self.blocks.iter().copied().max().unwrap_or(1).saturating_mul(threads);
        Want::new(writes, least, USUAL..=u64::MAX, self.target_count())
    }

    /// All targets are allocated at the same time.
    fn target_count(&self) -> u64 {
        self.attributes.requested().len().max(1) as u64
    }

    /// Returns the directions, blocks and numbers of threads that are measured together.
    fn cases(&self) -> Vec<(Direction, u64, usize)> {
        let by_threads = |direction, block| self.threads.iter().map(move |it| (direction, block, *it));
        let by_block = |&direction| self.blocks.iter().flat_map(move |it| by_threads(direction, *it));
        self.directions.iter().flat_map(by_block).collect()
    }

    /// Returns memory of the device as the target.
    fn of(&self, attribute: Attribute) -> TargetOptions {
        TargetOptions {
            target: bulkmem_kmod::MEMORY_PATH.into(),
            attribute: Some(attribute),
            ..self.target.clone()
        }
    }
}

impl Measure for IopsOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Iops
    }

    fn validate(&self) -> Result<()> {
        checks::blocks(&self.blocks)?;
        checks::threads(&self.threads)?;
        checks::mix(self.mix)?;
        checks::sample_time(self.time)?;
        for direction in &self.directions {
            let methods = access::methods(&self.candidates.methods, *direction)?;
            // All methods can write.
            require(!methods.is_empty(), "--method", "none of the given methods can read")?;
        }
        if self.attributes.requested().is_empty() {
            return self.target.check(self.want());
        }
        self.attributes.check()?;
        // Each target needs the same memory.
        let bytes = self.target.size.unwrap_or(self.want().usual).max(self.want().least);
        device::check(bytes.saturating_mul(self.target_count()), self.target.page_size)?;
        self.of(Attribute::Wb).check(self.want())
    }

    fn uncounted(&self) -> Option<&'static str> {
        Some("other threads read and write; only the main thread is counted")
    }

    fn seconds(&self) -> f64 {
        // The policy, the usual methods, and the peers.
        let samplers = 9 * self.target_count() as usize;
        (self.cases().len() * samplers * (self.candidates.runs + 1)) as f64 * self.time.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        run.expect_groups(self.cases().len());
        let wanted: Vec<TargetOptions> = match &self.attributes {
            Attributes::Own => vec![self.target.clone()],
            attributes => attributes.possible(run)?.into_iter().map(|attribute| self.of(attribute)).collect(),
        };
        let targets = wanted.iter().map(|target| target.open_for(run, self.want()));
        let mut targets: Vec<Opened> = targets.collect::<Result<_, _>>()?;
        let (clock, stop) = (latency::clock_ns(), run.observer.stop);
        run.note(latency::note(clock));
        for (direction, block, threads) in self.cases() {
            let config = |target: &Opened| Config {
                direction: Some(direction),
                mix: (direction == Direction::Mixed).then_some(self.mix),
                chunk: Some(block),
                threads: Some(threads),
                ..target.config.clone()
            };
            let configs: Vec<Config> = targets.iter().map(config).collect();
            let block = block as usize;
            let mut samplers = Vec::new();
            for (target, config) in targets.iter_mut().zip(&configs) {
                let range = target.memory.raw_range();
                for access in accesses(run, &self.candidates, (direction, block), range.length)? {
                    let candidate = access.write.0.candidate();
                    let (by, operation) =
                        if direction == Direction::Read { access.read } else { access.write };
                    // In a mix there are two choices, which may differ.
                    let chosen =
                        by.chosen(operation, block, None, 1).filter(|_| direction != Direction::Mixed);
                    let job = Job { access, direction, mix: self.mix, block, time: self.time, clock };
                    let mut team = Team::new(range, threads, block)?;
                    let sampler = sampler(candidate, config, false, move || team.sample(&job, stop));
                    samplers.push(Sampler { chosen, ..sampler });
                }
            }
            let verb = configs.first().and_then(|it| it.get(Dimension::Direction)).unwrap_or_default();
            let threads = units::plural(threads, "thread");
            let what = format!("{verb} of {}, {threads}", units::bytes(block as u64));
            run.interleave(&what, Metric::Iops, self.candidates.runs, &mut samplers)?;
            for config in &configs {
                let attribute = config.attribute.as_ref().filter(|_| configs.len() > 1);
                let attribute = attribute.map_or_else(String::new, |it| format!(", {it}"));
                conclude(run, &format!("{what}{attribute}"), config);
            }
        }
        Ok(())
    }

    /// Summarizes, for each number of threads and block, the speed of memcpy in memory of other attributes.
    fn conclude(&self, run: &mut Run<'_>) {
        let by_memcpy = |row: &&Row| row.candidate.name == method::c_library().name;
        let rows: Vec<Row> = run.rows().filter(by_memcpy).cloned().collect();
        for base in rows.iter().filter(|row| row.config.attribute.as_deref() == Some("wb")) {
            let published = PUBLISHED.iter().find(|it| Some(it.0) == base.config.direction);
            let Some((_, [wb, _, wc, uc])) = published else { continue };
            let verb = base.config.get(Dimension::Direction).unwrap_or_default();
            for row in rows.iter().filter(|row| row.config.attribute != base.config.attribute) {
                let attribute = row.config.attribute.as_deref().unwrap_or_default();
                if base.config != (Config { attribute: base.config.attribute.clone(), ..row.config.clone() })
                {
                    continue;
                }
                let block = units::bytes(row.config.chunk.unwrap_or_default());
                let threads = units::plural(row.config.threads.unwrap_or(1), "thread");
                let ratio = row.stats.median / base.stats.median;
                let mut text = format!(
                    "{verb}s of {block} by memcpy, {threads}: in {attribute} memory {ratio:.3} times as many as in wb memory"
                );
                let published = [("wc", wc), ("uc", uc)].into_iter().find(|(it, _)| *it == attribute);
                if let Some((_, there)) = published.filter(|_| row.config.chunk == Some(4096)) {
                    text += &format!("; published (Elliott 2015): {:.3}", there / wb);
                }
                run.add_finding(text + ".");
            }
        }
    }
}

/// Published thousands of operations a second (Elliott 2015) by memcpy and by MOVNTI in wb memory, and by memcpy in wc and
/// in uc memory.
const PUBLISHED: [(Direction, [f64; 4]); 2] =
    [(Direction::Read, [3600.0, 2400.0, 764.0, 37.0]), (Direction::Write, [2500.0, 2600.0, 3700.0, 21.0])];

/// Summarizes which candidate is the best, and compares MOVNTI and memcpy with the source's figures.
fn conclude(run: &mut Run<'_>, what: &str, config: &Config) {
    let competes =
        |row: &&Row| row.config == *config && matches!(row.candidate.kind, Kind::Method | Kind::Peer);
    let rows: Vec<&Row> = run.rows().filter(competes).collect();
    let of = |name: &str| rows.iter().find(|row| row.candidate.name == name).map(|row| row.stats.median);
    let Some(best) = rows.iter().max_by(|a, b| a.stats.median.total_cmp(&b.stats.median)) else { return };
    let memcpy = of(method::c_library().name);
    let against =
        memcpy.map_or_else(String::new, |it| format!(", {:.2} times memcpy", best.stats.median / it));
    let mut text = format!("{what}: {} is the best{against}.", best.candidate.name);
    let as_published = config.chunk == Some(4096) && config.attribute.as_deref() == Some("wb");
    let published = PUBLISHED.iter().find(|it| Some(it.0) == config.direction && as_published);
    if let (Some((_, [copied, streamed, ..])), Some(memcpy), Some(movnti)) = (published, memcpy, of("movnti"))
    {
        text += &format!(
            " movnti runs at {:.2} times memcpy; published (Elliott 2015, write-back): {:.2}.",
            movnti / memcpy,
            streamed / copied
        );
    }
    run.add_finding(text);
}

#[cfg(test)]
mod tests;
