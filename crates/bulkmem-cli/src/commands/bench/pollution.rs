//! `bulkmem bench pollution`.

use bulkmem::Operation;
use bulkmem_measure::engine::{Measurement, PageSize, Results, Row};
use bulkmem_measure::measurements::{PollutionOptions, SAME_TIME, home_of};
use clap::Args;

use super::beyond::{Beyond, groups, short_name, signed};
use super::common::{Common, MethodArgs, remarks};
use super::pivot::digits;
use crate::failure::Outcome;
use crate::output::{Column, FAINT, HEADING, Table, exact_size, styled, wrapped};
use crate::parsers::operation;
use crate::parsers::{size, sizes};

const LINE: u64 = 64;

/// What an operation leaves of a neighbour's cache: a pointer walk before and after it
///
/// A list of cache lines, linked in random order so that no prefetcher helps, is walked until it sits in the cache. Then
/// the operation runs elsewhere in memory, and the list is walked again: what that takes longer, the operation has cost
/// the neighbour.
///
/// A cache also empties by itself, above all on a machine that others use. So each walk is compared with one after the
/// same time without touching memory, and two more rows show what the comparison itself is worth: the control, in which
/// both walks follow mere waiting, and a walk after nothing at all. Whose difference to the control may be noise is
/// called not distinguishable here; --runs and --walks sharpen that.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: `before – after` is a walk in a settled cache and the walk after the operation, as the source prints it; \
then how much longer the walk takes than after the same time without touching memory, with its 95 % interval, and \
the same for each line of the list. * marks those who cost the neighbour least.

Source: Mikulas Patocka, memcpy_flushcache: use cache flushing for larger lengths, dm-devel, April 2020 (there in \
cycles, on the first-level cache, and without a control).

JSON: as all measurements; rows have the metric `growth` (nanoseconds a walk beyond the control), the config's `list` and \
`size`, and `also` has `before_ns`, `after_ns`, `control_ns`, `between_ns` (the operation).")]
pub(crate) struct PollutionArgs {
    /// What happens between the walks: clear, fill, copy or persist
    #[arg(long, value_name = "OPERATION", value_parser = operation(), default_value = "clear")]
    op: Operation,
    /// Sizes of the list, or ranges of them [default: half of each cache, so that the list stays in it]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    list: Vec<Vec<u64>>,
    /// Bytes of the operation [default: twice the list, which is what the cache holds; at least 1M]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// How often a sample repeats walks and operation, of which it takes the median [default: what takes a quarter of a
    /// second, at most 31]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    walks: Option<u32>,
    /// The pages behind the memory: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    page_size: PageSize,
    #[command(flatten)]
    methods: MethodArgs,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &PollutionArgs) -> Outcome {
    let mut options = PollutionOptions::new(args.op);
    if !args.list.is_empty() {
        options.lists = args.list.concat();
    }
    options.size = args.size;
    options.walks = args.walks;
    options.page_size = args.page_size;
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    args.common.run(&[&options], |found, width| tables(found, width) + &remarks(found, width))
}

/// A table for each list.
pub(super) fn tables(found: &Results, width: usize) -> String {
    let groups = groups(found.of(Measurement::Pollution));
    let mut text: String = groups.iter().map(|group| table(group, width)).collect();
    if !groups.is_empty() {
        let note = "* costs the neighbour least, as far as can be told. Intervals are of 95 %.";
        text += &format!("{}\n\n", styled(FAINT, wrapped(note, "", width)));
    }
    text
}

fn table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let (list, size) = (config.list.unwrap_or_default(), config.size.unwrap_or_default());
    let largest = rows.iter().filter_map(|row| row.also.get("after_ns")).copied().fold(0.0, f64::max);
    let (unit, ns) = match largest {
        1e7.. => ("ms", 1e6),
        1e4.. => ("µs", 1e3),
        _ => ("ns", 1.0),
    };
    let heading = format!(
        "pollution: a walk of {} lines ({}, fits {}) and a {} of {}, {unit}",
        list / LINE,
        exact_size(list),
        match home_of(list) {
            "memory" => "no cache",
            cache => cache,
        },
        config.operation.map_or("", Operation::name),
        exact_size(size),
    );
    let beyond = Beyond::new(rows.to_vec(), SAME_TIME);
    let mut table = Table::new([
        Column::left(""),
        Column::right("before – after"),
        Column::right("longer than the control "),
        Column::right("ns/line").optional(1),
    ]);
    for row in rows {
        let also = |name: &str| row.also.get(name).copied().unwrap_or(f64::NAN) / ns;
        table.row([
            short_name(row, rows),
            format!("{} – {}", digits(also("before_ns")), digits(also("after_ns"))),
            beyond.cell(row, |growth| signed(growth / ns)),
            signed(row.stats.median / (list / LINE).max(1) as f64),
        ]);
    }
    format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
}
