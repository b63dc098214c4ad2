//! `bulkmem bench writecache` and `log`.

use std::time::Duration;

use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::ApplicationOptions;
use clap::Args;

use super::common::{Common, TargetArgs};
use super::iops::{KEY, latency_table};
use super::rows::{MARKS, group_by, remarks, value};
use crate::failure::Outcome;
use crate::output::{faint, section};
use crate::parsers::{given_or, sizes, time};

/// A block write cache in ram, a file or persistent memory: blocks per second and latencies, by method of persisting
///
/// A model of dm-writecache in user space. A random write copies a block to a free slot by the method, and its numbers to
/// the slot's entry. A commit fences, raises the number in the superblock, which makes the entries valid, and fences again.
/// When more than half of the slots are in use, commits also copy the oldest blocks back to the origin, which is ordinary
/// memory. Random reads are copies by memcpy from slots or the origin.
///
/// All metadata is stored by MOVNTI, as in dm-writecache. IOPS are reads and writes; latencies are those of single reads and
/// writes, with the commits that they cause. docs/bench/writecache.md has the details.
///
/// An existing target is written to only with --overwrite.
///
/// Source: Mikulas Patocka, "memcpy_flushcache: use cache flushing for larger lengths", dm-devel, 2020.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `iops`; `config` has `target`, `size`, `attribute`, `chunk` (a block), `mix` \
(percent of reads) and `group` (writes per commit); `also` has `p50_ns`, `p99_ns`, `p999_ns` and `p9999_ns`, medians of the \
samples' percentiles.")]
pub(crate) struct WriteCacheArgs {
    /// Bytes per block, or ranges of them [default: 4K]
    #[arg(long, visible_alias = "bs", value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    block: Vec<Vec<u64>>,
    /// Share of reads, percent
    #[arg(long, visible_alias = "read-share", value_name = "PERCENT", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=100))]
    mix: u8,
    /// Writes per commit [default: 1, and 64 as dm-writecache commits on its own]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    group: Vec<u64>,
    #[command(flatten)]
    shared: Shared,
}

/// A log in ram, a file or persistent memory: records per second and latencies, by method of persisting
///
/// Appends records to a log by the method. A commit fences, stores the number of records in the header by MOVNTI, and
/// fences again. The newest records overwrite the oldest.
///
/// IOPS are records; latencies are those of a group: its records appended and committed. docs/bench/log.md has the details.
///
/// An existing target is written to only with --overwrite.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `iops`; `config` has `target`, `size`, `attribute`, `chunk` (a record) and \
`group` (records per commit); `also` has `p50_ns`, `p99_ns`, `p999_ns` and `p9999_ns`, medians of the samples' percentiles.")]
pub(crate) struct LogArgs {
    /// Bytes per record, or ranges of them [default: 256]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    record: Vec<Vec<u64>>,
    /// Records per commit [default: 1, 8, 64]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    group: Vec<u64>,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args, Debug)]
struct Shared {
    /// Duration of a sample, at most 2s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = time)]
    time: Duration,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    common: Common,
}

impl Shared {
    fn run(
        &self,
        default: ApplicationOptions,
        lengths: Vec<u64>,
        groups: &[u64],
        view: fn(&Results, usize) -> String,
    ) -> Outcome {
        self.target.only(if default.mix.is_some() { "writecache" } else { "log" })?;
        let options = ApplicationOptions {
            target: self.target.options(None).swap_remove(0),
            lengths: given_or(lengths, default.lengths),
            groups: given_or(groups.to_vec(), default.groups),
            time: self.time,
            candidates: self.common.candidates(),
            ..default
        };
        self.common.outputs.run(self.target.paths(), &[&options], &view)
    }
}

pub(super) fn write_cache(args: &WriteCacheArgs) -> Outcome {
    let default = ApplicationOptions { mix: Some(args.mix), ..ApplicationOptions::write_cache() };
    args.shared.run(default, args.block.concat(), &args.group, view_write_cache)
}

pub(super) fn log(args: &LogArgs) -> Outcome {
    args.shared.run(ApplicationOptions::log(), args.record.concat(), &args.group, view_log)
}

pub(super) fn view_write_cache(found: &Results, width: usize) -> String {
    view(found, Measurement::WriteCache, width, |row| {
        format!("blocks of {}, {} % reads", value(row, Dimension::Chunk), value(row, Dimension::Mix))
    })
}

pub(super) fn view_log(found: &Results, width: usize) -> String {
    view(found, Measurement::Log, width, |row| format!("records of {}", value(row, Dimension::Chunk)))
}

fn view(found: &Results, measurement: Measurement, width: usize, what: fn(&Row) -> String) -> String {
    let groups = group_by(found.of(measurement), |row| row.config.clone());
    let tables = groups.iter().map(|group| {
        let [commit, size, target] =
            [Dimension::Group, Dimension::Size, Dimension::Target].map(|it| value(group[0], it));
        let heading =
            format!("{measurement}, {}, a commit for each {commit}: {size} of {target}", what(group[0]));
        section(&heading, &latency_table(group, width), width)
    });
    tables.collect::<String>() + &faint(&format!("{KEY} {MARKS}"), width) + &remarks(found, width)
}
