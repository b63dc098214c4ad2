//! `bulkmem bench reuse`.

use bulkmem::Operation;
use bulkmem::method::CacheEffect;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::{ReuseOptions, cache_effect, payoffs, pays_text};
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
    options.candidates = args.common.candidates();
    args.common.outputs.run(&[], &[&options], &|found, width| {
        let rows: Vec<&Row> = found.of(Measurement::Reuse).filter(|_| args.by_method).collect();
        let cell: fn(&Row) -> String = |row| digits(row.stats.median);
        let by_method = Pivot { cell: Some(cell), ..Pivot::across(Dimension::ReadBack) };
        by_method.text(&rows, width) + &view(found, width)
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

/// The name of a line, and the rows that it shows the best of.
type Side = (&'static str, fn(&Row) -> bool);

const SIDES: [Side; 6] = [
    ("into the cache", |row| cache_effect(row) == Some(CacheEffect::Allocates)),
    ("past the cache", |row| cache_effect(row) == Some(CacheEffect::Bypasses)),
    ("c_library", |row| row.candidate.name == "c_library"),
    ("policy, throughput", |row| row.candidate.name == "policy"),
    ("policy, reuse", |row| row.candidate.name == "policy, reuse"),
    ("policy, stream", |row| row.candidate.name == "policy, stream"),
];

/// Shows the best of each side by share, in as many tables as the width requires.
fn sides(rows: &[&Row], width: usize) -> String {
    let mut shares: Vec<f64> = rows.iter().filter_map(|row| row.config.read_back).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let best = |share: f64, (_, of): &Side| {
        let here = rows.iter().filter(|row| row.config.read_back == Some(share) && of(row));
        here.map(|row| row.stats.median).reduce(f64::max)
    };
    let measured = |side: &&Side| shares.iter().any(|share| best(*share, side).is_some());
    let sides: Vec<&Side> = SIDES.iter().filter(measured).collect();
    let mut table = Table::default();
    table.column(Column::left("read back"), sides.iter().map(|(name, _)| (*name).to_owned()));
    for &share in &shares {
        let figures = || sides.iter().map(|side| best(share, side));
        let top = figures().flatten().reduce(f64::max);
        let cell = |figure: f64| marked(&digits(figure), Some(figure) == top);
        let cells = figures().map(|figure| figure.map_or_else(|| "– ".to_owned(), cell));
        table.column(Column::right(format!("{share}% ")), cells);
    }
    table.continued(width)
}

/// Shows from which share on caching pays off.
fn payoff_table(rows: &[&Row], width: usize) -> String {
    let payoffs = payoffs(rows);
    if payoffs.is_empty() {
        return String::new();
    }
    let pays = |share: f64| match share {
        ..=100.0 => pays_text(share),
        _ => styled(FAINT, pays_text(share)),
    };
    let interval = |[low, high]: [String; 2]| if low == high { low } else { format!("{low} to {high}") };
    let table = Table::of(payoffs)
        .column(Column::left("operation"), |it| it.operation.to_string())
        .column(Column::right("size"), |it| exact_size(it.size))
        .column(Column::right("pays from"), |it| pays(it.pays))
        .column(Column::left("95 % interval"), |it| interval(it.interval.map(pays_text)))
        .column(Column::right("gain"), |it| format!("{:.2}×", it.at_most))
        .column(Column::left("into the cache").optional(2), |it| it.best[0].clone())
        .column(Column::left("past the cache").optional(1), |it| it.best[1].clone());
    let heading = "reuse: share read back from which stores into the cache pay off";
    let note = "gain: speed of the best method into the cache over the best past it, at the largest share.";
    section(heading, &(table.render(width) + &faint(note, width)), width)
}
