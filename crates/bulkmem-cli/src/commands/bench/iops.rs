//! `bulkmem bench iops`.

use std::num::NonZeroUsize;
use std::time::Duration;

use bulkmem_measure::engine::{Direction, Measurement, Results, Row};
use bulkmem_measure::measurements::{Attributes, IopsOptions};
use clap::{Args, ValueEnum};

use super::by_attribute;
use super::common::{Common, MethodArgs, remarks};
use super::groups::{Group, MARKS, deviation, groups, is_best};
use super::pivot::{digits, name};
use super::target::{AttributeArg, TargetArgs, attributes};
use crate::failure::{Failure, Outcome};
use crate::output::{Column, FAINT, GOOD, HEADING, Table, exact_size, styled, wrapped};
use crate::parsers::sizes;

/// Random reads and writes of blocks, from ram, a file or a device, by method: operations a second, and latencies
///
/// Each thread has a part of the working set and a buffer of one block. A read copies a block from a random place to the
/// buffer, a write copies the buffer to a random place, with its fence; each block comes once before any comes again.
/// Methods that load past the cache (movntdqa_store_…), that store past it (movnti, nontemporal_…) and that store and
/// write back (store_…_clwb) stand beside memcpy (c_library) and rep_movsb. movnti reads as the source's change did: it
/// stores the buffer past the cache. Who can only write (write-backs, libpmem) has memcpy read in mixed input and output.
///
/// IOPS are of all threads together; more is better. Latencies are of single operations: half of the threads' operations
/// took at most p50, all but one in ten thousand at most p99.99. A sample counts operations in its first half and times
/// each of them in its second, so that reading the clock costs no operations; what that costs is taken off the latencies.
///
/// The working set must be far larger than the last-level cache, or the cache is measured.
///
/// A target that exists is written over only with --overwrite; --direction read needs none. A file that is made for the
/// measurement has no name, so that nothing stays behind whatever happens. Nobody else should write to the target
/// meanwhile.
///
/// With --attr and no target, blocks lie in memory of the kernel module's device (docs/kernel/README.md), and all attributes
/// stand in one table, as the source has them. Loads from wc and uc memory pass the caches by and are slow, one by one,
/// but for MOVNTDQA, which fetches whole lines from wc memory; stores to uc memory go out one by one: REP and every kind of
/// store are legal there, and all are slow. There a sample holds few operations, and its percentiles say little.
///
/// Source: Robert Elliott, "RE: another pmem variant V2", linux-nvdimm, 2015.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: rows as all measurements have them; `metric` is `iops`; `config` has `target`, `size` (the working set), `attribute`, \
`chunk` (a block), `direction` (`read`, `write` or `mixed`), `mix` (percent of reads, where mixed) and `threads`; `also` has \
`p50_ns`, `p99_ns`, `p999_ns` and `p9999_ns`, medians of the samples' percentiles.")]
pub(crate) struct IopsArgs {
    /// Bytes of a block, or ranges of them [default: 4K]
    #[arg(long, visible_alias = "bs", value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) block: Vec<Vec<u64>>,
    /// What is done [default: all three]
    #[arg(long, value_name = "DIRECTIONS", value_delimiter = ',', value_enum)]
    pub(crate) direction: Vec<DirectionArg>,
    /// The share of reads in mixed input and output, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) mix: u8,
    /// Numbers of threads [default: 1, and as many as there are processors]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// How long a sample takes, at most 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Cache attributes of memory that the kernel module gives, or `all`: wb, wc, uc, wt; several are measured in turns.
    /// With --target the one that it must have, or of a device that does not tell, that it has
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    pub(crate) attr: Vec<AttributeArg>,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    /// Random reads
    Read,
    /// Random writes
    Write,
    /// Both, as --mix says
    Mixed,
}

pub(super) fn run(args: &IopsArgs) -> Outcome {
    let usual = IopsOptions::new();
    let direction = |direction: &DirectionArg| match direction {
        DirectionArg::Read => Direction::Read,
        DirectionArg::Write => Direction::Write,
        DirectionArg::Mixed => Direction::Mixed,
    };
    let or = |given: Vec<_>, usual| if given.is_empty() { usual } else { given };
    let (own, attributes) = match args.attr.as_slice() {
        [AttributeArg::One(attribute)] if args.target.names_another() => (Some(*attribute), Attributes::Own),
        [_, ..] if args.target.names_another() => {
            let text = "--attr: a target has one attribute, or none that is known; leave --target out to have memory of \
                        each from the kernel module";
            return Err(Failure::usage(text));
        }
        asked => (None, attributes(asked)),
    };
    let options = IopsOptions {
        target: args.target.options(own),
        attributes,
        blocks: if args.block.is_empty() { usual.blocks } else { args.block.concat() },
        directions: or(args.direction.iter().map(direction).collect(), usual.directions),
        mix: args.mix,
        threads: match args.threads.as_slice() {
            [] => usual.threads,
            some => some.iter().map(|threads| threads.get()).collect(),
        },
        time: args.time,
        methods: args.methods.wanted(),
        peers: args.common.peers(),
        runs: args.common.runs(),
    };
    args.common.run_on(args.target.path(), &[&options], view)
}

/// The rows of input and output, and what follows from them.
pub(crate) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Iops).collect();
    let (beside, rows) = by_attribute::split(&rows);
    let beside: String = beside.iter().map(|part| by_attribute::table(part, width)).collect();
    let tables = beside + &groups(&rows).iter().map(|group| table(group, width)).collect::<String>();
    let key = format!("IOPS: mean ± standard deviation; latencies in µs. {MARKS}");
    format!("{tables}{}\n{}", styled(FAINT, wrapped(&key, "", width)), remarks(found, width))
}

fn table(group: &Group<'_>, width: usize) -> String {
    let config = &group[0].config;
    let what = match (config.direction, config.mix) {
        (Some(Direction::Read), _) => "random reads".to_owned(),
        (Some(Direction::Write), _) => "random writes".to_owned(),
        (_, mix) => format!("random, {} % reads", mix.unwrap_or_default()),
    };
    let threads = config.threads.unwrap_or(1);
    let heading = format!(
        "iops, {what} of {}, {threads} thread{}: {} of {}{}",
        config.chunk.map(exact_size).unwrap_or_default(),
        if threads == 1 { "" } else { "s" },
        config.size.map(exact_size).unwrap_or_default(),
        config.target.as_deref().unwrap_or_default(),
        config.attribute.as_deref().map_or(String::new(), |attribute| format!(" ({attribute})"))
    );
    let latencies = [("p50", "p50_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns"), ("p99.99", "p9999_ns")];
    let mut table = Table::new(
        [Column::left("method"), Column::right("IOPS"), Column::right("GB/s").optional(1)]
            .into_iter()
            .chain(latencies.map(|(title, _)| Column::right(title))),
    );
    for row in group {
        let iops = format!("{} {}", count(row.stats.mean), deviation(row));
        let gb_per_s = row.stats.median * config.chunk.unwrap_or_default() as f64 / 1e9;
        let latency = |key: &str| row.also.get(key).map_or("–".to_owned(), |ns| digits(ns / 1e3));
        let cells = [
            name(row),
            if is_best(group, row) { styled(GOOD, format!("{iops}*")) } else { format!("{iops} ") },
            digits(gb_per_s),
        ];
        table.row(cells.into_iter().chain(latencies.map(|(_, key)| latency(key))));
    }
    format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
}

/// A number of operations: `3.62 M`, `764 k`.
pub(super) fn count(operations: f64) -> String {
    match operations {
        1e6.. => format!("{} M", digits(operations / 1e6)),
        1e3.. => format!("{} k", digits(operations / 1e3)),
        _ => digits(operations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_unit_that_suits_them() {
        for (operations, text) in
            [(3.62e6, "3.62 M"), (764_000.0, "764 k"), (21_000.0, "21.0 k"), (12.0, "12.0")]
        {
            assert_eq!(count(operations), text);
        }
    }
}
