//! `bulkmem bench threshold`.

use bulkmem::Operation;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::{ThresholdOptions, UNCACHED, WALK, c_function};
use clap::Args;

use super::common::Outputs;
use super::rows::{DOUBTFUL, deviation, group_by, remarks, value};
use crate::failure::Outcome;
use crate::output::{Column, Table, digits, faint, section};
use crate::parsers::{one_of, size};

/// The lengths from which the C library's memset and memcpy bypass the cache
///
/// Calls memset and memcpy with lengths that double, and with lengths around the step. Shows the speed; how much of what
/// was written last is not in the cache afterwards, by the time of reading it; and the time of a walk in the second-level
/// cache after the call. The threshold lies between the last length whose result is in the cache and the next one.
///
/// Compare it with the tunables x86_non_temporal_threshold and x86_memset_non_temporal_threshold (`bulkmem info` shows
/// them), which glibc derives from the caches that the processor reports; `bulkmem tunables` finds better values. Below
/// these, the processor itself may bypass the cache in long string instructions.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: `not in cache` is about 0 % below the threshold and about 100 % above. `walk after` is the time of the walk after the \
call, in percent of one before it: copies read their source through the cache on both sides of the threshold.

Sources: Ankur Arora, huge page clearing optimizations, linux-kernel, June 2022, and Mikulas Patocka (quoting Robert Elliott), \
memcpy_flushcache, dm-devel, April 2020: glibc uses non-temporal stores above three quarters of a thread's share of the cache.

JSON: `rows` as in all measurements; `metric` is `bandwidth`; `config` has `operation` and `size`; `also` has `uncached_percent` \
(absent if that cannot be told) and `walk_percent`.")]
pub(crate) struct ThresholdArgs {
    /// The functions
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = one_of(FUNCTIONS), default_value = "clear,copy")]
    op: Vec<Operation>,
    /// Longest length
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512M")]
    longest: u64,
    /// Samples of each length
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    #[command(flatten)]
    outputs: Outputs,
}

const FUNCTIONS: &[(&str, &str, Operation)] =
    &[("clear", "memset", Operation::Clear), ("copy", "memcpy", Operation::Copy)];

pub(super) fn run(args: &ThresholdArgs) -> Outcome {
    let options =
        ThresholdOptions { operations: args.op.clone(), longest: args.longest, runs: args.runs as usize };
    args.outputs.run(&[], &[&options], &view)
}

pub(super) fn view(found: &Results, width: usize) -> String {
    let groups = group_by(found.of(Measurement::Threshold), |row| row.config.operation);
    let tables = groups.into_iter().map(|mut rows: Vec<&Row>| {
        rows.sort_by_key(|row| row.config.size);
        let function = c_function(rows[0].config.operation.unwrap_or(Operation::Copy));
        let percent =
            |row: &Row, name: &str| row.also.get(name).map_or("–".to_owned(), |it| format!("{it:.0} %"));
        let table = Table::of(&rows)
            .column(Column::right("length"), |row| value(row, Dimension::Size))
            .column(Column::right("GB/s "), |row| format!("{} {}", digits(row.stats.mean), deviation(row)))
            .column(Column::right("not in cache"), |row| percent(row, UNCACHED))
            .column(Column::right("walk after"), |row| percent(row, WALK));
        let text = table.render(width) + &faint(&format!("Mean ± standard deviation. {DOUBTFUL}"), width);
        section(&format!("threshold: {function} by length"), &text, width)
    });
    tables.collect::<String>() + &remarks(found, width)
}
