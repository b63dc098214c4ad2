//! `bulkmem bench persist`.

use bulkmem_measure::engine::{Measurement, Pattern, Results, Row};
use bulkmem_measure::measurements::{Attribute, PersistOptions};
use clap::{Args, ValueEnum};

use super::common::{Common, MethodArgs, remarks};
use super::groups::{Group, MARKS, deviation, groups, is_best};
use super::pivot::{digits, name};
use super::target::TargetArgs;
use crate::failure::Outcome;
use crate::output::{Column, FAINT, GOOD, HEADING, Table, exact_size, styled, wrapped};
use crate::parsers::sizes;

/// Sequential and random persistent writes, by the width of stores and the way to make them durable
///
/// Stores of 4 to 64 bytes past the cache (movnti, nontemporal), against stores into the cache, each line followed by
/// CLWB, CLFLUSHOPT or CLFLUSH. A source of 4 KiB that stays in the first-level cache is copied along the target, so
/// that only writing costs. Sequential writes go from end to end with one fence at the end; random ones write blocks of
/// 64 bytes, each line once before any comes again, with a fence behind each block. --block sets the bytes between two
/// fences for both.
///
/// "thr" is what was written and fenced, in GB/s; "lat" is the time for 8 bytes, as the source has it, and for random
/// writes there is the time for a block with its fence. A sample writes the whole target, or half a second long. Higher
/// thr is better; widths that differ by less than their spread do not differ.
///
/// What persisting means depends on the target, and a note says so: on DAX (MAP_SYNC) the bytes are durable; in a file
/// that is mapped through the page cache, and in ram, they have only left the processor's caches.
///
/// A target that exists is written over only with --overwrite. A file that is made for the measurement has no name, so
/// that nothing stays behind whatever happens.
///
/// Source: Mikulas Patocka, "memcpy_flushcache: use cache flushing for larger lengths", dm-devel, 2020.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: rows as all measurements have them; `metric` is `bandwidth`; `config` has `target`, `size`, `attribute`, `pattern` \
(`sequential` or `random`), `chunk` (bytes between two fences; none for a single fence) and, for methods, `width` (bytes a \
store); `also` has `per_8_bytes_ns` and, where there are several, `per_block_ns`.")]
pub(crate) struct PersistArgs {
    /// The order of writes [default: both]
    #[arg(long, value_name = "ORDERS", value_delimiter = ',', value_enum)]
    pub(crate) pattern: Vec<PatternArg>,
    /// Bytes between two fences, or ranges of them [default: sequential the whole target, random 64]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) block: Vec<Vec<u64>>,
    /// Bytes a store: 4, 8, 16, 32, 64 [default: all]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) width: Vec<u64>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The cache attribute that the target must have: wb, wc, uc, wt; of a device that does not tell, the one it has.
    /// Without --target, of memory that the kernel module gives
    #[arg(long, value_name = "ATTRIBUTE")]
    pub(crate) attr: Option<Attribute>,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The order of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PatternArg {
    /// From end to end
    Sequential,
    /// At random places
    Random,
}

pub(super) fn run(args: &PersistArgs) -> Outcome {
    let usual = PersistOptions::new();
    let pattern = |pattern: &PatternArg| match pattern {
        PatternArg::Sequential => Pattern::Sequential,
        PatternArg::Random => Pattern::Random,
    };
    let options = PersistOptions {
        target: args.target.options(args.attr),
        patterns: if args.pattern.is_empty() {
            usual.patterns
        } else {
            args.pattern.iter().map(pattern).collect()
        },
        blocks: args.block.concat(),
        widths: if args.width.is_empty() { usual.widths } else { args.width.clone() },
        methods: args.methods.wanted(),
        peers: args.common.peers(),
        runs: args.common.runs(),
    };
    args.common.run_on(args.target.path(), &[&options], view)
}

/// The rows of persistent writes, and what follows from them.
pub(crate) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Persist).collect();
    let tables: String = groups(&rows).iter().map(|group| table(group, width)).collect();
    let key =
        format!("thr: mean ± standard deviation; lat: for each 8 bytes; a block: with its fence. {MARKS}");
    format!("{tables}{}\n{}", styled(FAINT, wrapped(&key, "", width)), remarks(found, width))
}

fn table(group: &Group<'_>, width: usize) -> String {
    let config = &group[0].config;
    let order = if config.pattern == Some(Pattern::Random) { "random" } else { "sequential" };
    let fence = config
        .chunk
        .map_or("one fence at the end".into(), |chunk| format!("a fence for each {}", exact_size(chunk)));
    let heading = format!(
        "persist, {order} writes, {fence}: {} of {}",
        config.size.map(exact_size).unwrap_or_default(),
        config.target.as_deref().unwrap_or_default()
    );
    let blocks = group.iter().any(|row| row.also.contains_key("per_block_ns"));
    let mut columns = vec![
        Column::left("method"),
        Column::right("bytes"),
        Column::right("thr: GB/s"),
        Column::right("median"),
        Column::right("lat: nsec"),
    ];
    if blocks {
        columns.push(Column::right("a block").optional(1));
    }
    let mut table = Table::new(columns);
    for row in group {
        let ns = |key: &str| row.also.get(key).map_or("–".to_owned(), |ns| digits(*ns));
        let median = digits(row.stats.median);
        let best = is_best(group, row);
        let mut cells = vec![
            name(row),
            row.config.width.map_or(String::new(), |width| width.to_string()),
            format!("{} {}", digits(row.stats.mean), deviation(row)),
            if best { styled(GOOD, format!("{median}*")) } else { format!("{median} ") },
            ns("per_8_bytes_ns"),
        ];
        if blocks {
            cells.push(ns("per_block_ns"));
        }
        table.row(cells);
    }
    format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
}
