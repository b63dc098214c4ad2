//! `bulkmem bench fork`.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::ForkOptions;
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::{Pivot, digits, value};
use crate::failure::Outcome;
use crate::figures::deviation;
use crate::output::{Column, FAINT, HEADING, Table, styled, wrapped};
use crate::parsers::sizes;

/// Fork and copy-on-write: time per fork, and the pages that the kernel copies and clears for it
///
/// A process writes to every page of a buffer and forks. "child writes": the child writes to every page, so that the
/// kernel copies each, and ends. "parent writes": the parent does, while the child waits. "child reads" and "alone": nobody
/// writes, so that nothing of the buffer is copied; what remains is the fork itself. The time is from the fork until the
/// child's end is known.
///
/// "a page" is what a page copied on write costs: child writes less fork alone, a page. "copy" is what copying a page
/// within the process costs, by the C library and in the cache: the rest is the fault, finding a page and giving it back.
///
/// Pages are counted once, apart from the timed forks, from /proc/self/pagemap of parent and child: a page that both have
/// for themselves after the fork was copied once; one that only the child has was cleared for it. Page tables are the
/// child's own, cleared for it too. What the kernel takes for itself (the child's kernel stack, say) is in no count.
///
/// Source: Denis Vlasenko, "copy_page(): non-temporal stores look useful?", linux-kernel, 2004, who counted 3 pages cleared
/// and 8 copied a fork, besides those of the buffer, inside the kernel.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: rows as all measurements have them; `metric` is `nanoseconds`; `config` has `operation` (`copy`: forks, and copying within \
the process; `clear`: fresh pages touched first, and clearing within the process), `size` and `page_size`; `also` has, for \
forks, `buffer_pages_copied`, `pages_copied` (those of the buffer among them), `pages_cleared`, `page_table_pages` and \
`minor_faults` (of the child).")]
pub(crate) struct ForkArgs {
    /// The buffer's sizes, or ranges of them, in whole pages [default: 4K,20K,28K,32K,64K,128K,256K]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) size: Vec<Vec<u64>>,
    /// Forks a sample [default: enough to be timed well]
    #[arg(long, short = 'l', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) loops: Option<u32>,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(super) fn run(args: &ForkArgs) -> Outcome {
    let usual = ForkOptions::default();
    let options = ForkOptions {
        sizes: if args.size.is_empty() { usual.sizes } else { args.size.concat() },
        loops: args.loops,
        methods: args.methods.wanted(),
        peers: args.common.peers(),
        runs: args.common.runs(),
    };
    args.common.run(&[&options], text)
}

/// What the columns of forks show.
const FORKS: [(&str, &str); 4] = [
    ("fork alone", "alone"),
    ("fork, child reads", "child reads"),
    ("fork, child writes", "child writes"),
    ("fork, parent writes", "parent writes"),
];

/// The tables: time per fork, pages counted, and as much work within the process.
pub(super) fn text(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Fork).collect();
    let is_fork = |row: &&Row| FORKS.iter().any(|(name, _)| *name == row.candidate.name);
    let (forks, others): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(is_fork);
    let mut text = times(&forks, &others, width);
    text += &pages(&forks, width);
    let others: Vec<&Row> = others.into_iter().filter(|row| row.candidate.kind != Kind::Read).collect();
    text += &Pivot::across(Dimension::Size).text(&others, width);
    text + &remarks(found, width)
}

/// Sizes in the order in which they were measured.
fn lengths(rows: &[&Row]) -> Vec<u64> {
    let mut lengths: Vec<u64> = rows.iter().filter_map(|row| row.config.size).collect();
    lengths.dedup();
    lengths
}

fn of<'r>(rows: &[&'r Row], name: &str, size: u64) -> Option<&'r Row> {
    rows.iter().copied().find(|row| row.candidate.name == name && row.config.size == Some(size))
}

fn times(forks: &[&Row], others: &[&Row], width: usize) -> String {
    let Some(first) = forks.first() else { return String::new() };
    let copies: Vec<&Row> =
        others.iter().copied().filter(|row| row.config.operation == first.config.operation).collect();
    let titles = FORKS.iter().map(|(_, title)| Column::right(*title));
    let columns = [Column::right("buffer")].into_iter().chain(titles);
    let mut table = Table::new(columns.chain([Column::right("a page"), Column::right("copy").optional(1)]));
    for size in lengths(forks) {
        let row = |name| of(forks, name, size);
        let Some(any) = forks.iter().find(|row| row.config.size == Some(size)) else { continue };
        let cells = FORKS.iter().map(|(name, _)| {
            row(name).map_or("–".to_owned(), |row| {
                format!("{} ±{}", digits(row.stats.mean / 1e3), deviation(row))
            })
        });
        let count = any.config.page_size.map_or(f64::NAN, |page| size as f64 / page.bytes() as f64);
        let a_page = row("fork, child writes")
            .zip(row("fork alone"))
            .map(|(writes, alone)| (writes.stats.median - alone.stats.median) / count / 1e3);
        let copy = of(&copies, "c_library", size).map(|row| row.stats.median / count / 1e3);
        let number = |number: Option<f64>| number.map_or("–".to_owned(), digits);
        table.row(
            [value(any, Dimension::Size)].into_iter().chain(cells).chain([number(a_page), number(copy)]),
        );
    }
    let note = "Mean ± standard deviation; a page and a page's copy by medians.";
    format!(
        "{}\n{}{}\n\n",
        styled(HEADING, "fork: microseconds"),
        table.render(width),
        styled(FAINT, wrapped(note, "", width))
    )
}

/// What the kernel copied and cleared: for each buffer where the child writes, and for the largest in the other forks
/// too, whose own pages are the same whatever the buffer.
fn pages(forks: &[&Row], width: usize) -> String {
    let largest = forks.iter().filter_map(|row| row.config.size).max();
    let counted: Vec<&Row> = forks
        .iter()
        .copied()
        .filter(|row| row.also.contains_key("pages_copied"))
        .filter(|row| row.candidate.name == "fork, child writes" || row.config.size == largest)
        .collect();
    if counted.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        Column::right("buffer"),
        Column::left(""),
        Column::right("copied"),
        Column::right("of buffer"),
        Column::right("cleared"),
        Column::right("tables"),
        Column::right("faults"),
    ]);
    for row in counted {
        let also = |name: &str| row.also.get(name).map_or("–".to_owned(), |count| format!("{count:.0}"));
        table.row([
            value(row, Dimension::Size),
            row.candidate.name.clone(),
            also("pages_copied"),
            also("buffer_pages_copied"),
            also("pages_cleared"),
            also("page_table_pages"),
            also("minor_faults"),
        ]);
    }
    format!("{}\n{}\n", styled(HEADING, "fork: pages, a fork"), table.render(width))
}
