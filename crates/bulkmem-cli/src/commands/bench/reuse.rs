//! `bulkmem bench reuse`.

use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect};
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::{Pays, ReuseOptions, payoffs};
use clap::Args;

use super::common::{Common, PageSizeArg};
use super::pivot::Pivot;
use super::rows::{group_by, remarks};
use crate::failure::Outcome;
use crate::output::{Column, FAINT, Table, digits, exact_size, faint, marked, section, styled};
use crate::parsers::{given_or, operation, size, sizes};

/// When caching pays off: an operation, and reading a share of its result back
///
/// Stores that bypass the cache are often fast because the next reader pays: it finds the result in memory. Therefore the
/// time includes reading back a share of the result, and methods that leave it in the cache are compared with those that
/// bypass it. Caching pays off from the share at which the best of both sides are equal.
///
/// Operations move through more memory than the caches hold, like an allocator that returns fresh pages; a --footprint
/// equal to the size uses the same memory again and again. The lines that are read back are spread evenly. (For a program
/// that reads only the last part, see `bulkmem::Options::clear_hot`.)
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: GB/s are bytes of the operation over the time of operation and reading, by median. For each share, the best \
method of each side represents its side; the C library and the policy choose a side on their own. * marks the best of a column. The \
last table shows from which share on caching pays off, with a 95 % interval: `always` if it does even if nothing is read \
back, `never` if not even reading everything makes up for it.

Source: Denis Vlasenko, copy_page(): non-temporal stores look useful?, linux-kernel, August 2004, which ends with the \
question whether any workload is faster with copies that are not non-temporal.

JSON: `rows` as in all measurements; `metric` is `bandwidth`; `config` has `operation`, `size` and `read_back` (percent).")]
pub(crate) struct ReuseArgs {
    /// Operations: clear, fill, copy
    #[arg(long, value_name = "OPERATIONS", value_delimiter = ',', value_parser = operation(), default_value = "clear,copy")]
    op: Vec<Operation>,
    /// Sizes, or ranges of them [default: 32K,256K,1M,4M,16M,64M]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// Shares that are read back, percent, rising [default: 0,6.25,12.5,25,50,75,100]
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',')]
    share: Vec<f64>,
    /// Memory that operations move through [default: twice the last-level cache, at least twice the size]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    footprint: Option<u64>,
    /// Also show every method, not only the best of each side
    #[arg(long)]
    by_method: bool,
    #[command(flatten)]
    pages: PageSizeArg,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &ReuseArgs) -> Outcome {
    let mut options = ReuseOptions { operations: args.op.clone(), ..ReuseOptions::default() };
    options.sizes = given_or(args.size.concat(), options.sizes);
    options.shares = given_or(args.share.clone(), options.shares);
    options.footprint = args.footprint.or(options.footprint);
    options.page_size = args.pages.page_size;
    (options.methods, options.peers, options.runs) = args.common.candidates();
    args.common.outputs.run(None, &options, |found, width| {
        let rows: Vec<&Row> = found.of(Measurement::Reuse).filter(|_| args.by_method).collect();
        let cell = |row: &Row| digits(row.stats.median);
        Pivot::across(Dimension::ReadBack).cell(&cell).text(&rows, width) + &view(found, width)
    })
}

/// Shows a table for each operation and size, and from which share on caching pays off.
pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Reuse).collect();
    let mut text = String::new();
    for here in group_by(rows.iter().copied(), |row| (row.config.operation, row.config.size)) {
        let config = &here[0].config;
        let heading = format!(
            "reuse: {} of {} and reading by share of the result, GB/s",
            config.operation.map_or("", Operation::name),
            exact_size(config.size.unwrap_or_default()),
        );
        text += &section(&heading, &sides(&here, width), width);
    }
    text + &payoff_table(&rows, width) + &remarks(found, width)
}

/// A line of a table: its name, and the rows that it shows the best of.
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

/// Shows the best of each side by share, in as many tables as the width requires.
fn sides(rows: &[&Row], width: usize) -> String {
    let mut shares: Vec<f64> = rows.iter().filter_map(|row| row.config.read_back).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let best = |of: fn(&Row) -> bool, share: f64| {
        let here = rows.iter().filter(|row| row.config.read_back == Some(share) && of(row));
        here.map(|row| row.stats.median).reduce(f64::max)
    };
    let title = |share: &f64| format!("{share}% ");
    // The longest name takes 18 columns; a figure takes five digits, a mark and a gap.
    let column = shares.iter().map(|share| title(share).len()).max().unwrap_or_default().max(6) + 2;
    let fit = (width.saturating_sub(18) / column).max(1);
    let tables = shares.chunks(fit).map(|shares| {
        let titles = shares.iter().map(|share| Column::right(title(share)));
        let mut table = Table::new([Column::left("read back")].into_iter().chain(titles));
        for (name, of) in SIDES {
            if !shares.iter().any(|share| best(of, *share).is_some()) {
                continue;
            }
            let cells = shares.iter().map(|share| {
                let top = SIDES.iter().filter_map(|(_, of)| best(*of, *share)).reduce(f64::max);
                let rate = best(of, *share);
                rate.map_or("– ".to_owned(), |figure| marked(&digits(figure), rate == top))
            });
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        table.render(width)
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Shows from which share on caching pays off.
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
    let heading = "reuse: share read back from which stores into the cache pay off";
    let note = "gain: speed of the best method into the cache over the best past it, at the largest share.";
    section(heading, &(table.render(width) + &faint(note, width)), width)
}
