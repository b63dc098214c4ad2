//! `bulkmem bench fork`.

use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Results, Row};
use bulkmem_measure::measurements::{CHILD_WRITES, ForkOptions};
use clap::Args;

use super::common::Common;
use super::pivot::Pivot;
use super::rows::{DOUBTFUL, deviation, group_by, remarks, value};
use crate::failure::{Outcome, measure_failure};
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
/// "pages ..." clear 3 pages and copy 8 and those of the buffer within the process, and use some bytes of each, as the source's
/// kernel did: with string instructions, through the cache, past it, and with only copies or only clears past it.
///
/// With --huge, the buffer is a private mapping of reserved huge pages (hugetlbfs), which the kernel copies whole. If the
/// bulkmem module is loaded, its counters show which method copied.
///
/// Source: Denis Vlasenko, "copy_page(): non-temporal stores look useful?", linux-kernel, 2004, who counted inside the
/// kernel 3 pages cleared and 8 copied per fork, besides those of the buffer.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `nanoseconds`; `config` has `operation` (`copy`: forks, and copying within the \
process; `clear`: first touch of fresh pages, and clearing within the process; absent for `pages ...`), `size` and `page_size`; `also` has, for forks, \
`buffer_pages_copied`, `pages_copied` (including those of the buffer), `pages_cleared`, `page_table_pages` and `minor_faults` \
(of the child); with the module, `module_pages` (huge pages that it copied) and `module_stock_bytes`, \
`module_rep_movsb_bytes` and `module_movnti_bytes`.")]
pub(crate) struct ForkArgs {
    /// Buffer sizes in whole pages, or ranges of them [default: 4K,20K,28K,32K,64K,128K,256K; with --huge: 1, 4 and 16
    /// pages]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// Use private huge pages of hugetlbfs; reserves missing ones until the end, as root
    #[arg(long)]
    huge: bool,
    /// Forks per sample [default: as many as accurate timing needs]
    #[arg(long, short = 'l', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    loops: Option<u32>,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &ForkArgs) -> Outcome {
    let like = if args.huge { ForkOptions::huge().map_err(measure_failure)? } else { ForkOptions::default() };
    let sizes = given_or(args.size.concat(), like.sizes);
    let options =
        ForkOptions { sizes, pages: like.pages, loops: args.loops, candidates: args.common.candidates() };
    args.common.outputs.run(&[], &[&options], &view)
}

/// Shows the time per fork, the pages counted, and copying and clearing within the process.
pub(super) fn view(found: &Results, width: usize) -> String {
    let is_fork = |row: &&Row| row.candidate.name.starts_with("fork");
    let (forks, mut others): (Vec<&Row>, Vec<&Row>) = found.of(Measurement::Fork).partition(is_fork);
    let mut text = times(&forks, &others, width) + &pages(&forks, width);
    others.retain(|row| row.candidate.kind != Kind::Read);
    text += &Pivot::across(Dimension::Size).text(&others, width);
    text + &remarks(found, width)
}

fn times(forks: &[&Row], others: &[&Row], width: usize) -> String {
    if forks.is_empty() {
        return String::new();
    }
    let row = |like: &Row, name: &str| {
        let config = |row: &Row| (row.config.size, row.config.operation);
        let mut rows = forks.iter().chain(others);
        rows.find(|row| row.candidate.name == name && config(row) == config(like))
    };
    let time = |like: &Row, name: &str| {
        let text = |row: &&Row| format!("{} {}", digits(row.stats.mean / 1e3), deviation(row));
        row(like, name).map_or("–".to_owned(), text)
    };
    let per_page = |like: &Row, name: &str, without: Option<&str>| {
        let median = |name| row(like, name).map(|row| row.stats.median / 1e3);
        let pages = || Some(like.config.size? as f64 / like.config.page_size?.bytes() as f64);
        let time = || Some((median(name)? - without.map_or(Some(0.0), median)?) / pages()?);
        time().map_or("–".to_owned(), digits)
    };
    let by_size = group_by(forks.iter().copied(), |row| row.config.size);
    let table = Table::of(by_size.iter().map(|rows| rows[0]))
        .column(Column::right("buffer"), |row| value(row, Dimension::Size))
        .column(Column::right("alone"), |row| time(row, "fork alone"))
        .column(Column::right("child reads"), |row| time(row, "fork, child reads"))
        .column(Column::right("child writes"), |row| time(row, CHILD_WRITES))
        .column(Column::right("parent writes"), |row| time(row, "fork, parent writes"))
        .column(Column::right("per page"), |row| per_page(row, CHILD_WRITES, Some("fork alone")))
        .column(Column::right("copy").optional(1), |row| per_page(row, "c_library", None));
    let note = format!("Mean ± standard deviation; per page and copy: from medians. {DOUBTFUL}");
    section("fork: microseconds", &(table.render(width) + &faint(&note, width)), width)
}

/// Shows the pages that the kernel copied and cleared: for each buffer if the child writes, and for the largest buffer in
/// the other forks, whose counts do not depend on the buffer.
fn pages(forks: &[&Row], width: usize) -> String {
    let largest = forks.iter().filter_map(|row| row.config.size).max();
    let mut shown = forks.to_vec();
    shown.retain(|row| row.also.contains_key("pages_copied"));
    shown.retain(|row| row.candidate.name == CHILD_WRITES || row.config.size == largest);
    if shown.is_empty() {
        return String::new();
    }
    let count = |row: &Row, name: &str| row.also.get(name).map_or("–".to_owned(), |it| format!("{it:.0}"));
    let by_module = shown.iter().any(|row| row.also.get("module_pages").is_some_and(|pages| *pages > 0.0));
    let mut table = Table::of(shown)
        .column(Column::right("buffer"), |row| value(row, Dimension::Size))
        .column(Column::left(""), |row| row.candidate.name.clone())
        .column(Column::right("copied"), |row| count(row, "pages_copied"))
        .column(Column::right("of buffer"), |row| count(row, "buffer_pages_copied"))
        .column(Column::right("cleared"), |row| count(row, "pages_cleared"))
        .column(Column::right("tables"), |row| count(row, "page_table_pages"))
        .column(Column::right("faults"), |row| count(row, "minor_faults"));
    if by_module {
        table = table.column(Column::left("module's method").optional(1), |row| module_method(row));
    }
    section("fork: pages per fork", &table.render(width), width)
}

/// Returns the method by which the module copied most bytes of a row's counted fork.
fn module_method(row: &Row) -> String {
    let methods = ["stock", "rep_movsb", "movnti"];
    let bytes = methods.map(|name| row.also.get(&format!("module_{name}_bytes")).copied().unwrap_or(0.0));
    let most = methods.into_iter().zip(bytes).max_by(|a, b| a.1.total_cmp(&b.1));
    most.filter(|(_, bytes)| *bytes > 0.0).map_or("–".to_owned(), |(name, _)| name.to_owned())
}
