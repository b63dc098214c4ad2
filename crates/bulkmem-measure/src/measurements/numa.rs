//! The memory of each NUMA node from the processors of each: local and remote.

use std::collections::BTreeMap;

use bulkmem::Operation;
use bulkmem::machine::Machine;
use rustix::thread::CpuSet;

use crate::engine::numa::{NumberList, Topology, left_on};
use crate::engine::placement::{Pinned, on_node};
use crate::engine::run::ONE_THREAD;
use crate::engine::units::range;
use crate::engine::{
    Buffer, Config, Content, FILL_BYTE, Finding, Implementation, Measure, Measurement, Metric, PageSize,
    Passes, RawRange, Result, Row, Run, Sampler, Share, distinct, memory_left, units, with_causes, workload,
};
use crate::measurements::checks::{self, require};
use crate::measurements::participants::Candidates;

/// Options for measuring local and remote memory.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields whose types and names say it all")]
pub struct NumaOptions {
    /// Clear, fill and copy.
    pub operations: Vec<Operation>,
    pub size: u64,
    pub page_size: PageSize,
    /// Threads that share the work, all on the processors of one node.
    pub threads: usize,
    pub candidates: Candidates,
    /// If the kernel refuses to bind memory to nodes, adds a note instead of an error: other measurements follow.
    pub optional: bool,
}

impl Default for NumaOptions {
    /// All operations on 128 MiB, or on more if the last-level cache is large, or on less if memory does not suffice; one
    /// thread, 5 samples.
    fn default() -> NumaOptions {
        const USUAL: u64 = 128 << 20;
        let large = (4 * workload::last_level(Machine::current())).max(USUAL);
        let nodes = Topology::current().memory().0;
        // A source and a destination on each node.
        let least = nodes.iter().filter_map(|node| left_on(*node)).min().unwrap_or(u64::MAX);
        let room = (memory_left().most() / nodes.len().max(1) as u64).min(least / 4 * 3) / 2;
        let fitting = [large, USUAL].into_iter().find(|size| *size <= room);
        NumaOptions {
            operations: vec![Operation::Clear, Operation::Fill, Operation::Copy],
            size: fitting.unwrap_or(USUAL / 8),
            page_size: PageSize::TRANSPARENT,
            threads: 1,
            candidates: Candidates::default(),
            optional: false,
        }
    }
}

/// Returns true if no memory that this process may use is remote to one of its processors.
pub(super) fn all_is_local() -> bool {
    let topology = Topology::current();
    let (nodes, mut processors) = (topology.memory(), topology.processors.keys());
    processors.all(|node| nodes == NumberList([*node].into()))
}

/// Returns the nodes of the destination and of the source for the processors of a node. The other side of a copy is local;
/// a node without memory uses that of the first node.
fn sides(operation: Operation, node: usize, memory: &NumberList) -> Vec<[usize; 2]> {
    let local = if memory.0.contains(&node) { Some(node) } else { memory.0.first().copied() };
    let nodes = || memory.0.iter().copied().zip(local.into_iter().cycle());
    let writes = nodes().map(|(node, local)| [node, local]);
    let reads = nodes().map(|(node, local)| [local, node]);
    distinct(writes.chain(reads.filter(|_| operation == Operation::Copy)))
}

impl NumaOptions {
    /// Distance from the destination to the source of a copy on the same node.
    fn distance(&self) -> u64 {
        self.size.next_multiple_of(Machine::current().page_size as u64)
    }

    /// Bytes on each node, in whole pages.
    fn bytes_per_node(&self) -> u64 {
        let sides = if self.operations.contains(&Operation::Copy) { 2 } else { 1 };
        (sides * self.distance()).next_multiple_of(self.page_size.bytes())
    }

    fn selection(&self, operation: Operation) -> Result<Vec<Implementation<'static>>> {
        self.candidates.selection(operation, None, &[])
    }

    /// Allocates memory on each node.
    fn memory(&self, run: &mut Run<'_>, topology: &Topology) -> Result<BTreeMap<usize, Buffer>> {
        let mut all = BTreeMap::new();
        for &node in &topology.memory().0 {
            let mut allocate = || Buffer::of_run(run, self.bytes_per_node(), self.page_size, Content::Mixed);
            let several = topology.online.0.len() > 1;
            all.insert(node, if several { on_node(node, allocate)? } else { allocate()? });
        }
        Ok(all)
    }

    /// Returns the samplers of all sides for the processors of a node.
    fn samplers<'c>(
        &self,
        run: &mut Run<'c>,
        operation: Operation,
        (node, processors): (usize, CpuSet),
        memory: &BTreeMap<usize, RawRange>,
    ) -> Result<Vec<Sampler<'c>>> {
        let mut all = Vec::new();
        for [destination, source] in sides(operation, node, &NumberList(memory.keys().copied().collect())) {
            let config = Config {
                threads: (self.threads != 1).then_some(self.threads),
                processor_node: Some(node),
                memory_node: Some(destination),
                source_node: operation.has_source().then_some(source),
                ..Config::of(operation, self.size, self.page_size)
            };
            let length = self.size as usize;
            let passes = Passes {
                operation,
                byte: FILL_BYTE,
                dst: memory[&destination].start,
                src: memory[&source].start.wrapping_add(self.distance() as usize),
                length,
                chunk: length,
                threads: self.threads,
                loops: None,
                rewritten_by: Some(self.threads),
            };
            // SAFETY: each node has memory for a destination and, `distance` bytes after its start, for a source if anything is
            // copied. `measure` keeps it while the samplers live, and no other code uses it.
            let samplers =
                unsafe { self.candidates.pass_samplers(run, self.selection(operation)?, passes, &config) };
            all.extend(samplers.into_iter().map(|sampler| {
                let mut sample = sampler.sample;
                let pinned = move |say: &mut dyn FnMut(&str)| {
                    let _pinned = Pinned::to(&processors)?;
                    sample(say)
                };
                Sampler { sample: Box::new(pinned), ..sampler }
            }));
        }
        Ok(all)
    }
}

impl Measure for NumaOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Numa
    }

    fn validate(&self) -> Result<()> {
        checks::threads(&[self.threads])?;
        for &operation in &self.operations {
            let reason = format!("{operation} is not measured here; name clear, fill or copy");
            let measured = matches!(operation, Operation::Clear | Operation::Fill | Operation::Copy);
            require(measured, "--op", reason)?;
            self.candidates.check(operation)?;
        }
        let nodes = Topology::current().memory().0.len() as u64;
        checks::memory(self.bytes_per_node().saturating_mul(nodes), &[self.page_size])
    }

    fn uncounted(&self) -> Option<&'static str> {
        (self.threads != 1).then_some(ONE_THREAD)
    }

    fn seconds(&self) -> f64 {
        let topology = Topology::current();
        let nodes = topology.memory();
        let samples = self.operations.iter().map(|&operation| {
            let sides: usize =
                topology.processors.keys().map(|node| sides(operation, *node, &nodes).len()).sum();
            let candidates = self.selection(operation).map_or(8, |selection| selection.len() + 2);
            // The memory is written to before each clear.
            let passes = if operation == Operation::Clear { 2 } else { 1 };
            sides * candidates * passes * (self.candidates.runs + 1)
        });
        let size = self.size as f64;
        samples.sum::<usize>() as f64 * size / 8e9 + nodes.0.len() as f64 * 2.0 * size / 4e9
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let topology = Topology::current();
        let mut memory = match self.memory(run, &topology) {
            Err(error) if self.optional && !run.stopped() => {
                run.note(format!("numa is left out: {}", with_causes(&error)));
                return Ok(());
            }
            memory => memory?,
        };
        let memory = memory.iter_mut().map(|(node, buffer)| (*node, buffer.raw_range())).collect();
        run.expect_groups(self.operations.len() * topology.processors.len());
        for &operation in &self.operations {
            for (&node, processors) in &topology.processors {
                let mut samplers = self.samplers(run, operation, (node, processors.cpu_set()), &memory)?;
                let what = format!("{operation} of {} by node {node}", units::bytes(self.size));
                run.interleave(&what, Metric::Bandwidth, self.candidates.runs, &mut samplers)?;
            }
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run<'_>) {
        let rows: Vec<&Row> = run.rows().collect();
        match rows.first() {
            Some(first) if rows.iter().all(|row| is_local(row)) => {
                let why = match Topology::current().online.0.len() {
                    1 => "this machine has one NUMA node".to_owned(),
                    _ => format!("only NUMA node {} is used", first.config.memory_node.unwrap_or_default()),
                };
                let text = format!("There is no remote memory: {why}.");
                // True of single samples, too.
                run.results.findings.push(Finding { measurement: Measurement::Numa, text, check: None });
            }
            _ => {
                let texts: Vec<String> = self.operations.iter().flat_map(|it| compare(&rows, *it)).collect();
                texts.into_iter().for_each(|text| run.add_finding(text));
            }
        }
    }
}

fn is_local(row: &Row) -> bool {
    let Config { processor_node, memory_node, source_node, .. } = row.config;
    memory_node == processor_node && source_node.is_none_or(|node| Some(node) == processor_node)
}

/// Returns the row of the same candidate and processors with local memory, of a row with remote memory.
pub fn local_of<'r>(rows: &[&'r Row], row: &Row) -> Option<&'r Row> {
    let node = row.config.processor_node;
    let source_node = row.config.source_node.and(node);
    let config = Config { memory_node: node, source_node, ..row.config.clone() };
    let same = |other: &&&Row| other.candidate == row.candidate && other.config == config;
    rows.iter().find(same).filter(|_| !is_local(row)).copied()
}

/// Compares remote with local memory, by the policy's choice and by the C library.
fn compare(rows: &[&Row], operation: Operation) -> Vec<String> {
    type Remote = fn(&Config) -> bool;
    let directions: [(&str, Remote); 2] = [
        ("to", |config| config.memory_node != config.processor_node),
        ("from", |config| config.source_node.is_some_and(|node| Some(node) != config.processor_node)),
    ];
    let texts = directions.into_iter().filter_map(|(direction, remote)| {
        let ratios = |name: &str| {
            let rows_of = rows.iter().filter(|row| {
                row.config.operation == Some(operation) && row.candidate.name == name && remote(&row.config)
            });
            range(rows_of.filter_map(|row| Some(row.stats.median / local_of(rows, row)?.stats.median)))
        };
        let policy = ratios("policy")?;
        let c_library = ratios("c_library").map(|it| format!(", {it} by the C library")).unwrap_or_default();
        Some(format!(
            "{operation} {direction} remote memory: {policy} times the speed of local memory by the policy's choice{c_library}."
        ))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Kind, testing};
    use crate::measurements::participants::tests::named;

    fn list(text: &str) -> NumberList {
        text.parse().unwrap()
    }

    #[test]
    fn destinations_are_on_every_node_and_sources_too() {
        let two = list("0-1");
        assert_eq!(sides(Operation::Clear, 1, &two), [[0, 1], [1, 1]]);
        assert_eq!(sides(Operation::Copy, 1, &two), [[0, 1], [1, 1], [1, 0]]);
        assert_eq!(sides(Operation::Copy, 0, &list("0")), [[0, 0]]);
        // A node without memory, such as the processors of a node whose memory failed.
        assert_eq!(sides(Operation::Copy, 3, &list("1-2")), [[1, 1], [2, 1], [1, 2]]);
    }

    /// Processors of node 0, with the destination and the source of a copy on these nodes.
    fn planted(name: &str, [memory, source]: [usize; 2], speed: f64) -> Row {
        let config = Config {
            processor_node: Some(0),
            memory_node: Some(memory),
            source_node: Some(source),
            ..Config::of(Operation::Copy, 1 << 20, PageSize::TRANSPARENT)
        };
        let kind = if name == "policy" { Kind::Policy } else { Kind::Peer };
        let samples = (Metric::Bandwidth, &[speed; 5][..]);
        testing::row(Measurement::Numa, (kind, name), config, samples, &[])
    }

    #[test]
    fn remote_memory_is_compared_with_local_memory_in_both_directions() {
        let rows = [
            planted("policy", [0, 0], 10.0),
            planted("policy", [1, 0], 6.0),
            planted("policy", [2, 0], 5.0),
            planted("policy", [0, 1], 7.0),
            planted("c_library", [0, 0], 8.0),
            planted("c_library", [0, 1], 4.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(local_of(&rows, rows[1]), Some(rows[0]));
        assert_eq!(local_of(&rows, rows[5]), Some(rows[4]));
        assert_eq!(local_of(&rows, rows[0]), None);
        assert_eq!(
            compare(&rows, Operation::Copy),
            [
                "copy to remote memory: 0.50 to 0.60 times the speed of local memory by the policy's choice.",
                "copy from remote memory: 0.70 times the speed of local memory by the policy's choice, 0.50 by the C library.",
            ]
        );
        assert!(compare(&rows, Operation::Clear).is_empty());
    }

    #[test]
    fn every_side_has_a_row_of_everybody() {
        let options = NumaOptions {
            size: 1 << 20,
            page_size: "4K".parse().unwrap(),
            candidates: named(&["c_library"], crate::engine::Peers::None, 2),
            ..NumaOptions::default()
        };
        let found = testing::run(&options, false).0.unwrap();
        let topology = Topology::current();
        for operation in options.operations {
            for &node in topology.processors.keys() {
                for [memory, source] in sides(operation, node, &topology.memory()) {
                    let of = |row: &&Row| {
                        let config = &row.config;
                        config.operation == Some(operation)
                            && (config.processor_node, config.memory_node) == (Some(node), Some(memory))
                            && config.source_node == operation.has_source().then_some(source)
                    };
                    let names: Vec<&str> =
                        found.rows.iter().filter(of).map(|row| row.candidate.name.as_str()).collect();
                    assert_eq!(names, ["policy", "c_library"], "{operation} {node} {memory} {source}");
                }
            }
        }
        let only = found.findings.iter().filter(|it| it.text.contains("no remote memory")).count();
        assert_eq!(only, usize::from(all_is_local()), "{:?}", found.findings);
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        for (options, said) in [
            (NumaOptions { operations: vec![Operation::Persist], ..NumaOptions::default() }, "--op: persist"),
            (NumaOptions { threads: 0, ..NumaOptions::default() }, "--threads: "),
            (NumaOptions { size: 1 << 46, ..NumaOptions::default() }, "this needs"),
        ] {
            let error = testing::run(&options, false).0.unwrap_err().to_string();
            assert!(error.starts_with(said), "{said}: {error}");
        }
    }
}
