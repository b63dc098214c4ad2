//! `bulkmem bench fork`.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::ForkOptions;
use clap::Args;

use super::common::Common;
use super::pivot::Pivot;
use super::rows::{distinct, remarks, value};
use crate::failure::Outcome;
use crate::figures::deviation;
use crate::output::{Column, Table, digits, faint, section};
use crate::parsers::{given_or, sizes};

/// Fork and copy-on-write: time per fork, and pages that the kernel copies and clears
///
/// A process writes to every page of a buffer and forks. Then the child, the parent, or neither writes to every page, so
/// that the kernel copies each, and the child exits. The time is from the fork until the parent has seen that.
///
/// "per page" is the cost of a page that is copied on write: (child writes - alone) / pages. "copy" is the cost of copying
/// a page in the cache by the C library; the difference is the page fault, and allocating and releasing a page. Pages are
/// counted separately, from /proc/self/pagemap; docs/bench/fork.md explains how.
///
/// Source: Denis Vlasenko, "copy_page(): non-temporal stores look useful?", linux-kernel, 2004, who counted inside the
/// kernel 3 pages cleared and 8 copied per fork, besides those of the buffer.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `nanoseconds`; `config` has `operation` (`copy`: forks, and copying within the \
process; `clear`: first touch of fresh pages, and clearing within the process), `size` and `page_size`; `also` has, for forks, \
`buffer_pages_copied`, `pages_copied` (including those of the buffer), `pages_cleared`, `page_table_pages` and `minor_faults` \
(of the child).")]
pub(crate) struct ForkArgs {
    /// Buffer sizes in whole pages, or ranges of them [default: 4K,20K,28K,32K,64K,128K,256K]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// Forks per sample [default: as many as accurate timing needs]
    #[arg(long, short = 'l', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    loops: Option<u32>,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &ForkArgs) -> Outcome {
    let (methods, peers, runs) = args.common.candidates();
    let sizes = given_or(args.size.concat(), ForkOptions::default().sizes);
    let options = ForkOptions { sizes, loops: args.loops, methods, peers, runs };
    args.common.outputs.run(None, &options, view)
}

const ALONE: &str = "fork alone";
const CHILD_WRITES: &str = "fork, child writes";
/// Candidates that fork, with the titles of their columns.
const FORKS: [(&str, &str); 4] = [
    (ALONE, "alone"),
    ("fork, child reads", "child reads"),
    (CHILD_WRITES, "child writes"),
    ("fork, parent writes", "parent writes"),
];

/// Shows the time per fork, the pages counted, and copying and clearing within the process.
pub(super) fn view(found: &Results, width: usize) -> String {
    let is_fork = |row: &&Row| FORKS.iter().any(|(name, _)| *name == row.candidate.name);
    let (forks, mut others): (Vec<&Row>, Vec<&Row>) = found.of(Measurement::Fork).partition(is_fork);
    let mut text = times(&forks, &others, width) + &pages(&forks, width);
    others.retain(|row| row.candidate.kind != Kind::Read);
    text += &Pivot::across(Dimension::Size).text(&others, width);
    text + &remarks(found, width)
}

fn times(forks: &[&Row], others: &[&Row], width: usize) -> String {
    let Some(first) = forks.first() else { return String::new() };
    let titles = FORKS.iter().map(|(_, title)| Column::right(*title));
    let columns = [Column::right("buffer")].into_iter().chain(titles);
    let mut table = Table::new(columns.chain([Column::right("per page"), Column::right("copy").optional(1)]));
    for size in distinct(forks.iter().map(|row| row.config.size)) {
        let of = |rows: &[&'_ Row], name: &str| -> Option<(f64, String)> {
            let row = rows.iter().find(|row| {
                (row.candidate.name.as_str(), row.config.size, row.config.operation)
                    == (name, size, first.config.operation)
            })?;
            let pages = row.config.size? as f64 / row.config.page_size?.bytes() as f64;
            let text = format!("{} ±{}", digits(row.stats.mean / 1e3), deviation(row));
            Some((row.stats.median / 1e3 / pages, text))
        };
        let per_page = |time: Option<f64>| time.map_or("–".to_owned(), digits);
        let cells = FORKS.iter().map(|(name, _)| of(forks, name).map_or("–".to_owned(), |(_, text)| text));
        let copied = of(forks, CHILD_WRITES).zip(of(forks, ALONE));
        let buffer = forks.iter().find(|row| row.config.size == size).map(|row| value(row, Dimension::Size));
        table.row(buffer.into_iter().chain(cells).chain([
            per_page(copied.map(|((writes, _), (alone, _))| writes - alone)),
            per_page(of(others, "c_library").map(|(copy, _)| copy)),
        ]));
    }
    let note = "Mean ± standard deviation; per page and copy: from medians.";
    section("fork: microseconds", &(table.render(width) + &faint(note, width)), width)
}

/// Shows the pages that the kernel copied and cleared: for each buffer if the child writes, and for the largest buffer in
/// the other forks, whose counts do not depend on the buffer.
fn pages(forks: &[&Row], width: usize) -> String {
    let largest = forks.iter().filter_map(|row| row.config.size).max();
    let mut table = Table::new([
        Column::right("buffer"),
        Column::left(""),
        Column::right("copied"),
        Column::right("of buffer"),
        Column::right("cleared"),
        Column::right("tables"),
        Column::right("faults"),
    ]);
    let mut empty = true;
    for row in forks.iter().filter(|row| row.also.contains_key("pages_copied")) {
        if row.candidate.name != CHILD_WRITES && row.config.size != largest {
            continue;
        }
        let count = |name| row.also.get(name).map_or("–".to_owned(), |count| format!("{count:.0}"));
        let counts =
            ["pages_copied", "buffer_pages_copied", "pages_cleared", "page_table_pages", "minor_faults"];
        table.row(
            [value(row, Dimension::Size), row.candidate.name.clone()].into_iter().chain(counts.map(count)),
        );
        empty = false;
    }
    if empty { String::new() } else { section("fork: pages per fork", &table.render(width), width) }
}
