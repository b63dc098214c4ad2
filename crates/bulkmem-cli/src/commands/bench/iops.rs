//! `bulkmem bench iops`.

use std::time::Duration;

use bulkmem_measure::engine::{Config, Dimension, Direction, Measurement, Results, Row, distinct};
use bulkmem_measure::measurements::{Attribute, Attributes, IopsOptions};
use clap::Args;

use super::common::{Common, TargetArgs, attribute_or_all, attributes};
use super::rows::{MARKS, also, deviation, group_by, is_best, name, remarks, value};
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Table, count, digits, faint, marked, plural, section};
use crate::parsers::{given_or, one_of, sizes, threads, time};

/// Random reads and writes of blocks in ram, a file or a device: operations per second and latencies, by method
///
/// Each thread has a part of the working set and a buffer of one block. A read copies a block from a random position to
/// the buffer; a write copies the buffer to a random position and fences. The working set must be far larger than the
/// last-level cache, or the cache is measured. IOPS are the sum over all threads; latencies are those of single
/// operations: all but one in ten thousand take at most p99.99.
///
/// An existing target is written to only with --overwrite, and --direction read needs no permission. A file that is
/// created for the measurement has no name and vanishes with the process. No other process should write to the target.
///
/// With --attr and without --target, blocks are in memory of the kernel module's device, and all attributes are in one
/// table, as in the source. Accesses to wc and uc memory are slow, so that samples hold few operations, and their
/// percentiles mean little. docs/bench/iops.md explains how each method reads and writes.
///
/// Source: Robert Elliott, "RE: another pmem variant V2", linux-nvdimm, 2015.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `rows` as in all measurements; `metric` is `iops`; `config` has `target`, `size` (the working set), `attribute`, \
`chunk` (a block), `direction` (`read`, `write` or `mixed`), `mix` (percent of reads, if mixed) and `threads`; `also` has \
`p50_ns`, `p99_ns`, `p999_ns` and `p9999_ns`, medians of the samples' percentiles.")]
pub(crate) struct IopsArgs {
    /// Bytes per block, or ranges of them [default: 4K]
    #[arg(long, visible_alias = "bs", value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    block: Vec<Vec<u64>>,
    /// Directions to measure [default: all three]
    #[arg(long, value_name = "DIRECTIONS", value_delimiter = ',', value_parser = one_of(DIRECTIONS))]
    direction: Vec<Direction>,
    /// Share of reads in mixed runs, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(..=100))]
    mix: u8,
    /// Numbers of threads [default: 1, and the number of processors]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Duration of a sample, at most 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
    time: Duration,
    #[command(flatten)]
    target: TargetArgs,
    /// Cache attributes of memory from the kernel module: wb, wc, uc, wt, or `all`; several are interleaved. With
    /// --target, the attribute that it must have, or, for a device that does not report it, has
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',', value_parser = attribute_or_all)]
    attr: Vec<Option<Attribute>>,
    #[command(flatten)]
    common: Common,
}

pub(super) const KEY: &str =
    "IOPS: median ± standard deviation in % of the mean; GB/s: of that median; latencies in µs.";

const DIRECTIONS: &[(&str, &str, Direction)] = &[
    ("read", "Random reads", Direction::Read),
    ("write", "Random writes", Direction::Write),
    ("mixed", "Both, in the proportion of --mix", Direction::Mixed),
];

pub(super) fn run(args: &IopsArgs) -> Outcome {
    let default = IopsOptions::default();
    let names = args.target.paths();
    let target = args.target.only("iops")?;
    let is_other = target.is_some_and(|path| path.as_os_str() != bulkmem_kmod::MEMORY_PATH);
    let (own, attributes) = match args.attr.as_slice() {
        [Some(attribute)] if is_other => (Some(*attribute), Attributes::Own),
        [_, ..] if is_other => {
            return Err(Failure::usage("--attr: a target has at most one known attribute")
                .help("leave --target out to measure memory of each attribute from the kernel module"));
        }
        given => (None, attributes(given)),
    };
    let options = IopsOptions {
        target: args.target.options(own).swap_remove(0),
        attributes,
        blocks: given_or(args.block.concat(), default.blocks),
        directions: given_or(args.direction.clone(), default.directions),
        mix: args.mix,
        threads: given_or(args.threads.clone(), default.threads),
        time: args.time,
        candidates: args.common.candidates(),
    };
    args.common.outputs.run(names, &[&options], &view)
}

/// Shows a table for each configuration; configurations of several cache attributes share one.
pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Iops).collect();
    let (parts, others) = by_attribute(&rows);
    let groups = group_by(others, |row| row.config.clone());
    let by_attribute = parts.iter().map(|part| attributes_table(part, width));
    let tables: String = by_attribute.chain(groups.iter().map(|group| table(group, width))).collect();
    tables + &faint(&format!("{KEY} {MARKS}"), width) + &remarks(found, width)
}

/// Returns the threads, the working set and the target.
fn place(row: &Row) -> String {
    let threads = plural(row.config.threads.unwrap_or(1), "thread");
    format!("{threads}: {} of {}", value(row, Dimension::Size), value(row, Dimension::Target))
}

fn table(group: &[&Row], width: usize) -> String {
    let first = group[0];
    let config = &first.config;
    let what = match config.direction {
        Some(Direction::Read) => "random reads".to_owned(),
        Some(Direction::Write) => "random writes".to_owned(),
        _ => format!("random, {} % reads", value(first, Dimension::Mix)),
    };
    let attribute = config.attribute.as_ref().map_or(String::new(), |attribute| format!(" ({attribute})"));
    let heading = format!("iops, {what} of {}, {}{attribute}", value(first, Dimension::Chunk), place(first));
    section(&heading, &latency_table(group, width), width)
}

/// Returns operations per second and latencies.
pub(super) fn latency_table(group: &[&Row], width: usize) -> String {
    let gb_per_s = |row: &Row| row.stats.median * row.config.chunk.unwrap_or_default() as f64 / 1e9;
    let mut table = Table::of(group)
        .column(Column::left("method"), |row| name(row))
        .column(Column::right("IOPS"), |row| iops(group, row))
        .column(Column::right("GB/s").optional(1), |row| digits(gb_per_s(row)));
    for (title, key) in [("p50", "p50_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns"), ("p99.99", "p9999_ns")] {
        table = table.column(Column::right(title), |row| also(row, key, 1e3));
    }
    table.render(width)
}

/// Returns the figure of a row among its rivals.
fn iops(rivals: &[&Row], row: &Row) -> String {
    marked(&format!("{} {}", count(row.stats.median), deviation(row)), is_best(rivals, row))
}

/// Splits rows into groups that differ only in attribute, direction and candidate, and have several attributes; and all
/// other rows.
fn by_attribute<'r>(rows: &[&'r Row]) -> (Vec<Vec<&'r Row>>, Vec<&'r Row>) {
    let others = |row: &Row| Config { attribute: None, direction: None, mix: None, ..row.config.clone() };
    let several = |part: &Vec<&Row>| part.iter().any(|row| row.config.attribute != part[0].config.attribute);
    let (parts, others): (Vec<_>, Vec<_>) =
        group_by(rows.iter().copied(), others).into_iter().partition(several);
    (parts, others.concat())
}

/// Shows a group as the source's table: a line for each attribute and candidate, a column for each direction.
fn attributes_table(part: &[&Row], width: usize) -> String {
    let chunk = value(part[0], Dimension::Chunk);
    let heading = format!("iops by cache attribute, {chunk}, {} each", place(part[0]));
    let mut directions = distinct(part.iter().filter_map(|row| row.config.direction));
    directions.sort();
    let mix = part.iter().find_map(|row| row.config.mix).unwrap_or_default();
    let by_attribute = group_by(part.iter().copied(), |row| value(row, Dimension::Attribute));
    let lines = by_attribute.iter().flat_map(|here| {
        distinct(here.iter().map(|row| name(row))).into_iter().map(move |candidate| (here, candidate))
    });
    let mut table = Table::of(lines)
        .column(Column::left("attr"), |(here, _)| value(here[0], Dimension::Attribute))
        .column(Column::left("method"), |(_, candidate)| candidate.clone());
    for direction in directions {
        let title = match direction {
            Direction::Read => "reads/s".to_owned(),
            Direction::Write => "writes/s".to_owned(),
            Direction::Mixed => format!("{mix} % reads/s"),
        };
        table = table.column(Column::right(title), |(here, candidate)| {
            let mut rivals = here.to_vec();
            rivals.retain(|row| row.config.direction == Some(direction));
            let row = rivals.iter().find(|row| name(row) == *candidate);
            row.map_or("–  ".to_owned(), |row| iops(&rivals, row))
        });
    }
    section(&heading, &table.render(width), width)
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;
    use bulkmem_measure::stats::Stats;

    use super::*;

    fn row(attribute: &str, direction: &str, method: &str, iops: f64) -> Row {
        let samples = [iops, iops, iops];
        serde_json::from_value(serde_json::json!({
            "measurement": "iops",
            "candidate": { "kind": Kind::Method, "name": method },
            "config": {
                "target": bulkmem_kmod::MEMORY_PATH, "attribute": attribute, "direction": direction, "chunk": 4096,
                "size": 1 << 30, "threads": 1,
            },
            "metric": "iops",
            "samples": samples,
            "stats": Stats::of(&samples),
        }))
        .expect("a row")
    }

    #[test]
    fn operations_and_bytes_a_second_are_of_the_same_median() {
        let samples = [0.5e6, 4.0e6, 4.5e6];
        let stats = Stats::of(&samples).unwrap();
        let row = Row { samples: samples.to_vec(), stats, ..row("wb", "read", "movnti", 1.0) };
        let text = anstream::adapter::strip_str(&latency_table(&[&row], 80)).to_string();
        assert!(text.contains("4.00M ±") && text.contains(" 16.4 "), "{text}");
    }

    #[test]
    fn attributes_stand_in_one_table_in_which_each_has_its_best() {
        let rows = [
            row("wb", "read", "movnti", 2.4e6),
            row("wb", "read", "memcpy", 3.6e6),
            row("uc", "read", "memcpy", 37e3),
            row("wb", "write", "movnti", 2.6e6),
            row("uc", "write", "memcpy", 21e3),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        let (parts, others) = by_attribute(&all);
        assert_eq!((parts.len(), parts[0].len(), others.len()), (1, 5, 0));
        let text = anstream::adapter::strip_str(&attributes_table(&parts[0], 80)).to_string();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines[1..5],
            [
                "attr method reads/s writes/s",
                "wb movnti 2.40M ±0.0% 2.60M ±0.0% *",
                "wb memcpy 3.60M ±0.0% * –",
                "uc memcpy 37.0k ±0.0% * 21.0k ±0.0% *",
            ],
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn one_attribute_alone_stands_in_the_usual_tables() {
        let rows = [row("wb", "read", "movnti", 1.0), row("wb", "write", "movnti", 1.0)];
        let (parts, others) = by_attribute(&rows.iter().collect::<Vec<_>>());
        assert_eq!((parts.len(), others.len()), (0, 2));
    }
}
