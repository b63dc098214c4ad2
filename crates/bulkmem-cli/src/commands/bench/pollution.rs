//! `bulkmem bench pollution`.

use bulkmem::Operation;
use bulkmem::machine::CACHE_LINE;
use bulkmem_measure::engine::{Measurement, Results, Row};
use bulkmem_measure::measurements::{PollutionOptions, SAME_TIME, home_of};
use clap::Args;

use super::beyond::{Beyond, short_name};
use super::common::{Common, PageSizeArg};
use super::rows::{also, remarks, tables_by_config};
use crate::failure::Outcome;
use crate::output::{Column, Table, exact_size, section, signed};
use crate::parsers::{given_or, operation, size, sizes};

/// Cache pollution: the cost of an operation for other data in the cache
///
/// Walks a list of cache lines, linked in random order so that prefetchers do not help, until it is in the cache. Then
/// runs the operation elsewhere in memory and walks the list again, which takes longer if lines were evicted.
///
/// Caches also lose data as time passes, above all on a shared machine. Each walk is therefore compared with a walk after
/// the same time without memory accesses. Two more rows show the quality of that comparison: the control, in which both
/// walks follow idle time, and a walk immediately after another. A difference that may be noise is shown as `not
/// distinguishable here`; --runs and --walks reduce the noise.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: `before – after` is a walk in a settled cache and the walk after the operation, as the source prints it; \
then the extra time compared with a walk after the same time without memory accesses, with its 95 % interval, and the same for \
each line of the list. * marks the candidates that pollute least.

Source: Mikulas Patocka, memcpy_flushcache: use cache flushing for larger lengths, dm-devel, April 2020 (there in \
cycles, on the first-level cache, and without a control).

JSON: `rows` as in all measurements; `metric` is `growth` (nanoseconds per walk more than the control); `config` has `list` and \
`size`; `also` has `before_ns`, `after_ns`, `control_ns` and `between_ns` (the operation).")]
pub(crate) struct PollutionArgs {
    /// Operation between the walks
    #[arg(long, value_name = "OPERATION", value_parser = operation(), default_value = "clear")]
    op: Operation,
    /// Sizes of the list, or ranges of them [default: half of each cache]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    list: Vec<Vec<u64>>,
    /// Length of the operation [default: twice the list, which is the size of the cache; at least 1M]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Walks per sample, of which the median counts [default: as many as take a quarter of a second, at most 31]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    walks: Option<u32>,
    #[command(flatten)]
    pages: PageSizeArg,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &PollutionArgs) -> Outcome {
    let mut options = PollutionOptions::new(args.op);
    options.lists = given_or(args.list.concat(), options.lists);
    options.size = args.size;
    options.walks = args.walks;
    options.page_size = args.pages.page_size;
    (options.methods, options.peers, options.runs) = args.common.candidates();
    args.common.outputs.run(None, &options, view)
}

pub(super) fn view(found: &Results, width: usize) -> String {
    let note = "* pollutes least, within the noise. Intervals are 95 %.";
    tables_by_config(found.of(Measurement::Pollution), note, width, table) + &remarks(found, width)
}

fn table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let list = config.list.unwrap_or_default();
    let longest = rows.iter().filter_map(|row| row.also.get("after_ns")).copied().fold(0.0, f64::max);
    let (unit, ns) = match longest {
        1e7.. => ("ms", 1e6),
        1e4.. => ("µs", 1e3),
        _ => ("ns", 1.0),
    };
    let heading = format!(
        "pollution: a walk of {} lines ({}, fits {}) and a {} of {}, {unit}",
        list / CACHE_LINE as u64,
        exact_size(list),
        match home_of(list) {
            "memory" => "no cache",
            cache => cache,
        },
        config.operation.map_or("", Operation::name),
        exact_size(config.size.unwrap_or_default()),
    );
    let beyond = Beyond::new(rows.to_vec(), SAME_TIME);
    let mut table = Table::new([
        Column::left(""),
        Column::right("before – after"),
        Column::right("longer than the control "),
        Column::right("ns/line").optional(1),
    ]);
    for row in rows {
        table.row([
            short_name(row, rows),
            format!("{} – {}", also(row, "before_ns", ns), also(row, "after_ns", ns)),
            beyond.cell(row, |growth| signed(growth / ns)),
            signed(row.stats.median / (list / CACHE_LINE as u64).max(1) as f64),
        ]);
    }
    section(&heading, &table.render(width), width)
}
