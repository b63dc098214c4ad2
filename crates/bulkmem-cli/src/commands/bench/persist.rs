//! `bulkmem bench persist`.

use bulkmem_measure::engine::{
    Config, Dimension, Measure, Measurement, MethodSet, Pattern, Results, Row, distinct,
};
use bulkmem_measure::measurements::{Attribute, BlocksOptions, PersistOptions};
use clap::Args;

use super::common::{Common, TargetArgs};
use super::pivot::Pivot;
use super::rows::{MARKS, also, by_target, deviation, group_by, is_best, name, remarks, value};
use crate::failure::Outcome;
use crate::output::{Column, Table, digits, faint, marked, section};
use crate::parsers::{given_or, one_of, sizes};

/// Sequential and random persistent writes, by width of stores and method of persisting
///
/// Compares stores of 4 to 64 bytes that bypass the cache (movnti, nontemporal) with stores into the cache, each line
/// followed by CLWB, CLFLUSHOPT or CLFLUSH. Sequential writes end with one fence; random writes are blocks of 64 bytes,
/// each followed by a fence. --block sets the bytes between two fences for both.
///
/// "thr" is the throughput in GB/s, fences included; "lat" is the time per 8 bytes, as in the source, and for random
/// writes also per block. A note says what persisting means for the target: on DAX (MAP_SYNC) the bytes are durable; in
/// other files and in ram they have only left the processor's caches.
///
/// Ends with blocks of 64 bytes to 4 KiB (or --block) and a fence after each: from which length on stores that are
/// written back are faster than non-temporal ones or the other way round, and what lines cost that leave the processor
/// half-written. Not with --method.
///
/// Several targets are measured together and shown in one table, for example --target ram,/mnt/dax/file,/dev/dax0.0.
///
/// An existing target is written to only with --overwrite. A file that is created for the measurement has no name and
/// vanishes with the process. docs/bench/persist.md has the details.
///
/// Source: Mikulas Patocka, "memcpy_flushcache: use cache flushing for larger lengths", dm-devel, 2020.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `bandwidth`; `config` has `target`, `size`, `attribute`, `pattern` \
(`sequential` or `random`), `durable` (true if persisted bytes survive a power failure), `chunk` (bytes between two fences; \
absent for a single fence) and, for methods, `width` (bytes per store); `measurement` is `persist`, or `blocks` for the \
comparison by block; `also` has `per_8_bytes_ns` and, if there are several blocks, `per_block_ns`.")]
pub(crate) struct PersistArgs {
    /// Order of writes [default: both]
    #[arg(long, value_name = "ORDERS", value_delimiter = ',', value_parser = one_of(PATTERNS))]
    pattern: Vec<Pattern>,
    /// Bytes between two fences, or ranges of them [default: sequential the whole target, random 64]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    block: Vec<Vec<u64>>,
    /// Bytes per store: 4, 8, 16, 32, 64 [default: all]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    width: Vec<u64>,
    #[command(flatten)]
    target: TargetArgs,
    /// Required cache attribute of the target: wb, wc, uc or wt; for a device that does not report it, its attribute.
    /// Without --target, memory of the kernel module with that attribute
    #[arg(long, value_name = "ATTRIBUTE")]
    attr: Option<Attribute>,
    #[command(flatten)]
    common: Common,
}

const PATTERNS: &[(&str, &str, Pattern)] = &[
    ("sequential", "From start to end", Pattern::Sequential),
    ("random", "At random positions", Pattern::Random),
];

pub(super) fn run(args: &PersistArgs) -> Outcome {
    let default = PersistOptions::default();
    let options = PersistOptions {
        targets: args.target.options(args.attr),
        patterns: given_or(args.pattern.clone(), default.patterns),
        blocks: args.block.concat(),
        widths: given_or(args.width.clone(), default.widths),
        candidates: args.common.candidates(),
    };
    let blocks = BlocksOptions::after(&options);
    let mut measurements: Vec<&dyn Measure> = vec![&options];
    // Otherwise the named methods are compared, and no others.
    if options.candidates.methods == MethodSet::Representative {
        measurements.push(&blocks);
    }
    args.common.outputs.run(args.target.paths(), &measurements, &view)
}

/// Shows persistent writes by width and by block, of those that were measured.
pub(super) fn view(found: &Results, width: usize) -> String {
    let blocks = by_target(found.of(Measurement::Blocks));
    let blocks = Pivot::down(Dimension::Chunk).text(&blocks.iter().collect::<Vec<_>>(), width);
    widths(found, width) + &blocks + &remarks(found, width)
}

fn widths(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Persist).collect();
    // All widths of stores stand in one table.
    let config = |row: &Row| Config { width: None, ..row.config.clone() };
    if distinct(rows.iter().map(|row| &row.config.target)).len() > 1 {
        let rows = by_target(rows).into_iter().map(|row| Row { config: config(&row), ..row });
        let pivot = Pivot { cell: Some(with_latency), ..Pivot::across(Dimension::Target) };
        let table = pivot.text(&rows.collect::<Vec<_>>().iter().collect::<Vec<_>>(), width);
        let key = "GB/s: mean ± standard deviation; then the time per block with its fence, or per 8 bytes if there is one \
                   fence at the end. ~ doubtful: the notes say why.";
        return table + &faint(key, width);
    }
    let groups = group_by(rows, config);
    if groups.is_empty() {
        return String::new();
    }
    let tables: String = groups.iter().map(|group| table(group, width)).collect();
    let key = format!("thr: mean ± standard deviation; lat: per 8 bytes; per block: with its fence. {MARKS}");
    tables + &faint(&key, width)
}

/// Returns the throughput, and the time per block or, with a single fence, per 8 bytes.
fn with_latency(row: &Row) -> String {
    let time = ["per_block_ns", "per_8_bytes_ns"].into_iter().find(|name| row.also.contains_key(*name));
    let time = time.map_or("–".to_owned(), |name| also(row, name, 1.0));
    format!("{} {}, {time} ns", digits(row.stats.mean), deviation(row).trim_end())
}

fn table(group: &[&Row], width: usize) -> String {
    let first = group[0];
    let fence = match value(first, Dimension::Chunk) {
        none if none.is_empty() => "one fence at the end".to_owned(),
        chunk => format!("a fence for each {chunk}"),
    };
    let heading = format!(
        "persist, {} writes, {fence}: {} of {}",
        value(first, Dimension::Pattern),
        value(first, Dimension::Size),
        value(first, Dimension::Target),
    );
    let mut table = Table::of(group)
        .column(Column::left("method"), |row| name(row))
        .column(Column::right("bytes"), |row| row.config.get(Dimension::Width).unwrap_or_default())
        .column(Column::right("thr: GB/s"), |row| format!("{} {}", digits(row.stats.mean), deviation(row)))
        .column(Column::right("median"), |row| marked(&digits(row.stats.median), is_best(group, row)))
        .column(Column::right("lat: nsec"), |row| also(row, "per_8_bytes_ns", 1.0));
    if group.iter().any(|row| row.also.contains_key("per_block_ns")) {
        table = table.column(Column::right("per block").optional(1), |row| also(row, "per_block_ns", 1.0));
    }
    section(&heading, &table.render(width), width)
}
