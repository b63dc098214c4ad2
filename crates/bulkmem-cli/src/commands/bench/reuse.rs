//! `bulkmem bench reuse`.

use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect};
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, PageSize, Results, Row};
use bulkmem_measure::measurements::{Pays, ReuseOptions, payoffs};
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::{Pivot, digits};
use crate::failure::Outcome;
use crate::output::{Column, FAINT, GOOD, HEADING, Table, exact_size, styled, wrapped};
use crate::parsers::operation;
use crate::parsers::{size, sizes};

/// When caching pays for who reads the result: an operation, and a share of its result read back
///
/// Stores past the cache are often fast because somebody else pays: whoever reads the result next finds it in memory. So
/// the reading is timed together with the operation, for every share of the result, and the methods whose lines end up
/// in the cache stand against those that pass it by. Where the best of both sides cross, caching starts to pay.
///
/// Operations permutation over more memory than the caches hold, as an allocator's fresh pages do; --footprint of the size
/// itself has the same memory again and again, as an allocator that hands out what was just freed. What is read is spread
/// evenly, line by line: who is given a page touches some of it here and there. (The last part alone would still be in the
/// cache however large the whole; then clear it last: `bulkmem::Options::clear_hot`.)
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: GB/s of the operation's bytes, over the time of the operation and the reading together, by median. Of the \
methods the best on each side stand for their side, share by share; the C library and the policy choose a side by \
themselves. * marks the best of a column. The last table says from which share on caching pays, with a 95 % interval: \
`always` where it does even if nothing is read back, `never` where not even reading everything makes up for it.

Source: Denis Vlasenko, copy_page(): non-temporal stores look useful?, linux-kernel, August 2004, which ends with the \
question whether any workload is faster with copies that are not non-temporal.

JSON: as all measurements; rows have the metric `bandwidth` and the config's `operation`, `size` and `read_back` (percent).")]
pub(crate) struct ReuseArgs {
    /// Clear, fill, copy
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = operation(), default_value = "clear,copy")]
    op: Vec<Operation>,
    /// Sizes, or ranges of them [default: 32K,256K,1M,4M,16M,64M]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// The shares that are read back, percent, rising [default: 0,6.25,12.5,25,50,75,100]
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',')]
    share: Vec<f64>,
    /// The memory that operations permutation over [default: twice the last-level cache, at least twice the size]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    footprint: Option<u64>,
    /// Show every method, and not only the best of each side
    #[arg(long)]
    by_method: bool,
    /// The pages behind the memory: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    page_size: PageSize,
    #[command(flatten)]
    methods: MethodArgs,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &ReuseArgs) -> Outcome {
    let mut options = ReuseOptions { operations: args.op.clone(), ..ReuseOptions::default() };
    if !args.size.is_empty() {
        options.sizes = args.size.concat();
    }
    if !args.share.is_empty() {
        options.shares.clone_from(&args.share);
    }
    options.footprint = args.footprint.or(options.footprint);
    options.page_size = args.page_size;
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    args.common.run(&[&options], |found, width| {
        let every = if args.by_method { by_method(found, width) } else { String::new() };
        every + &tables(found, width) + &remarks(found, width)
    })
}

/// Every method.
fn by_method(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Reuse).collect();
    let cell = |row: &Row| digits(row.stats.median);
    Pivot::across(Dimension::ReadBack).cell(&cell).text(&rows, width)
}

/// A table for each operation and size, and one of where caching pays.
pub(super) fn tables(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Reuse).collect();
    let mut configs: Vec<(Option<Operation>, Option<u64>)> = Vec::new();
    for row in &rows {
        let config = (row.config.operation, row.config.size);
        if !configs.contains(&config) {
            configs.push(config);
        }
    }
    let mut text = String::new();
    for (operation, size) in configs {
        let here =
            rows.iter().copied().filter(|row| (row.config.operation, row.config.size) == (operation, size));
        let heading = format!(
            "reuse: {} of {} and reading by share of the result, GB/s",
            operation.map_or("", Operation::name),
            exact_size(size.unwrap_or_default()),
        );
        text += &format!("{}\n{}\n", styled(HEADING, heading), sides(&here.collect::<Vec<_>>(), width));
    }
    text + &payoff_table(&rows, width)
}

/// Whom a line of the table stands for: its name, and the rows that it takes the best of.
type Side = (&'static str, fn(&Row) -> bool);

const SIDES: [Side; 6] = [
    ("into the cache", |row| has_effect(row, CacheEffect::Allocates)),
    ("past the cache", |row| has_effect(row, CacheEffect::Bypasses)),
    ("c_library", |row| row.candidate.name == "c_library"),
    ("policy, throughput", |row| row.candidate.name == "policy"),
    ("policy, reuse", |row| row.candidate.name == "policy, reuse"),
    ("policy, stream", |row| row.candidate.name == "policy, stream"),
];

fn has_effect(row: &Row, effect: CacheEffect) -> bool {
    let method = || method::by_name(&row.candidate.name);
    row.candidate.kind == Kind::Method && method().is_some_and(|method| method.effect == effect)
}

/// The best of each side by share.
fn sides(rows: &[&Row], width: usize) -> String {
    let mut shares: Vec<f64> = rows.iter().filter_map(|row| row.config.read_back).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let best = |of: fn(&Row) -> bool, share: f64| {
        let here = rows.iter().filter(|row| row.config.read_back == Some(share) && of(row));
        here.map(|row| row.stats.median).reduce(f64::max)
    };
    let mut text = String::new();
    let title = |share: &f64| format!("{share}% ");
    // The longest name, and a column with its gap: five digits and a mark at most.
    let column = shares.iter().map(|share| title(share).len()).max().unwrap_or_default().max(6) + 2;
    let fit = (width.saturating_sub(18) / column).max(1);
    for shares in shares.chunks(fit) {
        let titles = shares.iter().map(|share| Column::right(title(share)));
        let mut table = Table::new([Column::left("read back")].into_iter().chain(titles));
        for (name, of) in SIDES {
            if !shares.iter().any(|share| best(of, *share).is_some()) {
                continue;
            }
            let cells = shares.iter().map(|share| {
                let top = SIDES.iter().filter_map(|(_, of)| best(*of, *share)).reduce(f64::max);
                match best(of, *share) {
                    None => "– ".to_owned(),
                    Some(rate) if Some(rate) == top => styled(GOOD, format!("{}*", digits(rate))),
                    Some(rate) => format!("{} ", digits(rate)),
                }
            });
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        text += &format!("{}\n", table.render(width));
    }
    text.pop();
    text
}

/// From which share on caching pays.
fn payoff_table(rows: &[&Row], width: usize) -> String {
    let payoffs = payoffs(rows);
    if payoffs.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        Column::left("operation"),
        Column::right("size"),
        Column::right("pays from"),
        Column::left("95 % interval"),
        Column::right("gain"),
        Column::left("into the cache").optional(2),
        Column::left("past the cache").optional(1),
    ]);
    for payoff in payoffs {
        let [low, high] = payoff.interval;
        let [caching, bypassing] = payoff.best;
        table.row([
            payoff.operation.to_string(),
            exact_size(payoff.size),
            match payoff.pays {
                Pays::Never => styled(FAINT, payoff.pays),
                pays => pays.to_string(),
            },
            if low == high { low.to_string() } else { format!("{low} to {high}") },
            format!("{:.2}×", payoff.at_most),
            caching,
            bypassing,
        ]);
    }
    let heading = "reuse: the share read back from which on stores into the cache pay";
    let note =
        "gain: how many times as fast the best into the cache is as the best past it, at the largest share.";
    format!(
        "{}\n{}{}\n\n",
        styled(HEADING, heading),
        table.render(width),
        styled(FAINT, wrapped(note, "", width))
    )
}
