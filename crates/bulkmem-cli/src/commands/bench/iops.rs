//! `bulkmem bench iops`.

use std::time::Duration;

use bulkmem_measure::engine::{Dimension, Direction, Measurement, Results, Row};
use bulkmem_measure::measurements::{Attributes, IopsOptions};
use clap::Args;

use super::by_attribute;
use super::common::Common;
use super::rows::{MARKS, also, deviation, group_by, is_best, name, remarks, value};
use super::target::{AttributeArg, TargetArgs, attributes};
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Table, count, digits, faint, marked, plural, section};
use crate::parsers::{given_or, one_of, sizes, threads};

/// Random reads and writes of blocks in ram, a file or a device: operations per second and latencies, by method
///
/// Each thread has a part of the working set and a buffer of one block. A read copies a block from a random position to
/// the buffer; a write copies the buffer to a random position and fences. The working set must be far larger than the
/// last-level cache, or the cache is measured. IOPS are the sum over all threads; latencies are those of single
/// operations: all but one in ten thousand take at most p99.99.
///
/// An existing target is written to only with --overwrite, and --direction read needs no permission. A file that is
/// created for the measurement has no name and vanishes with the process. No other process should write to the target.
///
/// With --attr and without --target, blocks are in memory of the kernel module's device, and all attributes are in one
/// table, as in the source. Accesses to wc and uc memory are slow, so that samples hold few operations, and their
/// percentiles mean little. docs/bench/iops.md explains how each method reads and writes.
///
/// Source: Robert Elliott, "RE: another pmem variant V2", linux-nvdimm, 2015.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `iops`; `config` has `target`, `size` (the working set), `attribute`, \
`chunk` (a block), `direction` (`read`, `write` or `mixed`), `mix` (percent of reads, if mixed) and `threads`; `also` has \
`p50_ns`, `p99_ns`, `p999_ns` and `p9999_ns`, medians of the samples' percentiles.")]
pub(crate) struct IopsArgs {
    /// Bytes per block, or ranges of them [default: 4K]
    #[arg(long, visible_alias = "bs", value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    block: Vec<Vec<u64>>,
    /// Directions to measure [default: all three]
    #[arg(long, value_name = "DIRECTIONS", value_delimiter = ',', value_parser = one_of(DIRECTIONS))]
    direction: Vec<Direction>,
    /// Share of reads in mixed runs, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(..=100))]
    mix: u8,
    /// Numbers of threads [default: 1, and the number of processors]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Duration of a sample, at most 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    time: Duration,
    #[command(flatten)]
    target: TargetArgs,
    /// Cache attributes of memory from the kernel module: wb, wc, uc, wt, or `all`; several are interleaved. With
    /// --target, the attribute that it must have, or, for a device that does not report it, has
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    attr: Vec<AttributeArg>,
    #[command(flatten)]
    common: Common,
}

const DIRECTIONS: &[(&str, &str, Direction)] = &[
    ("read", "Random reads", Direction::Read),
    ("write", "Random writes", Direction::Write),
    ("mixed", "Both, in the proportion of --mix", Direction::Mixed),
];

pub(super) fn run(args: &IopsArgs) -> Outcome {
    let default = IopsOptions::new();
    let (own, attributes) = match args.attr.as_slice() {
        [AttributeArg::One(attribute)] if args.target.names_another() => (Some(*attribute), Attributes::Own),
        [_, ..] if args.target.names_another() => {
            return Err(Failure::usage("--attr: a target has at most one known attribute")
                .help("leave --target out to measure memory of each attribute from the kernel module"));
        }
        given => (None, attributes(given)),
    };
    let (methods, peers, runs) = args.common.candidates();
    let options = IopsOptions {
        target: args.target.options(own),
        attributes,
        blocks: given_or(args.block.concat(), default.blocks),
        directions: given_or(args.direction.clone(), default.directions),
        mix: args.mix,
        threads: given_or(args.threads.clone(), default.threads),
        time: args.time,
        methods,
        peers,
        runs,
    };
    args.common.outputs.run(args.target.path(), &options, view)
}

/// Shows a table for each configuration; configurations of several cache attributes share one.
pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Iops).collect();
    let (parts, others) = by_attribute::split(&rows);
    let by_attribute = parts.iter().map(|part| by_attribute::table(part, width));
    let groups = group_by(others, |row| row.config.clone());
    let tables: String = by_attribute.chain(groups.iter().map(|group| table(group, width))).collect();
    let key = format!("IOPS: mean ± standard deviation; latencies in µs. {MARKS}");
    tables + &faint(&key, width) + &remarks(found, width)
}

fn table(group: &[&Row], width: usize) -> String {
    let first = group[0];
    let config = &first.config;
    let what = match config.direction {
        Some(Direction::Read) => "random reads".to_owned(),
        Some(Direction::Write) => "random writes".to_owned(),
        _ => format!("random, {} % reads", value(first, Dimension::Mix)),
    };
    let heading = format!(
        "iops, {what} of {}, {}: {} of {}{}",
        value(first, Dimension::Chunk),
        plural(config.threads.unwrap_or(1), "thread"),
        value(first, Dimension::Size),
        value(first, Dimension::Target),
        config.attribute.as_deref().map_or(String::new(), |attribute| format!(" ({attribute})"))
    );
    let latencies = [("p50", "p50_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns"), ("p99.99", "p9999_ns")];
    let columns = [Column::left("method"), Column::right("IOPS"), Column::right("GB/s").optional(1)];
    let mut table = Table::new(columns.into_iter().chain(latencies.map(|(title, _)| Column::right(title))));
    for row in group {
        let iops = format!("{} {}", count(row.stats.mean), deviation(row));
        let cells = [
            name(row),
            marked(&iops, is_best(group, row)),
            digits(row.stats.median * config.chunk.unwrap_or_default() as f64 / 1e9),
        ];
        table.row(cells.into_iter().chain(latencies.map(|(_, key)| also(row, key, 1e3))));
    }
    section(&heading, &table.render(width), width)
}
