//! `bulkmem bench pollution` and `corun`, whose rows are compared with a control.

use std::ffi::OsString;

use bulkmem::Operation;
use bulkmem::machine::CACHE_LINE;
use bulkmem_measure::engine::{CopySide, Dimension, MISSES, Measurement, Results, Row, control_of, distinct};
use bulkmem_measure::measurements::{
    CorunOptions, PollutionOptions, RAM, SAME_PROCESSOR_TIME, SAME_TIME, Victim, alone, beside, home_of,
};
use clap::{ArgAction, Args};

use super::common::{Common, PageSizeArg, TargetNames};
use super::pivot::Pivot;
use super::rows::{DOUBTFUL, also, beyond, by_target, deviation, remarks, short_name, tables_by_config};
use crate::failure::Outcome;
use crate::output::{Column, Table, count, digits, exact_size, faint, section, signed};
use crate::parsers::{given_or, one_of, operation, size, sizes};

/// Cache pollution: the cost of an operation for other data in the cache
///
/// Walks a list of cache lines, linked in random order so that prefetchers do not help, until it is in the cache. Then
/// runs the operation elsewhere in memory and walks the list again, which takes longer if lines were evicted.
///
/// Caches also lose data as time passes, above all on a shared machine. Each walk is therefore compared with a walk after
/// the same time without memory accesses. Two more rows show the quality of that comparison: the control, in which both
/// walks follow idle time, and a walk immediately after another. A difference that may be noise is shown as `not
/// distinguishable here`; --runs and --walks reduce the noise.
///
/// With --target, the operation writes to persistent memory, a file or a device, and a copy reads ordinary memory. A file
/// that does not exist is created, and removed afterwards. Several targets are in one table.
///
/// Copies have two more tables: for the source alone, in ordinary memory, and for the destination alone.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: `before – after` is a walk in a settled cache and the walk after the operation, as the source prints it; \
then the extra time compared with a walk after the same time without memory accesses, with its 95 % interval, and the same for \
each line of the list. * marks the candidates that pollute least.

Source: Mikulas Patocka, memcpy_flushcache: use cache flushing for larger lengths, dm-devel, April 2020 (there in \
cycles, on the first-level cache, and without a control). The question what the source of a copy evicts is Dan \
Williams's there.

JSON: `rows` as in all measurements; `metric` is `growth` (nanoseconds per walk more than the control); `config` has `list`, \
`size`, `target` and, for one side of a copy, `side`; `also` has `before_ns`, `after_ns`, `control_ns` and `between_ns` (the \
operation).")]
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
    /// Sides of a copy that are measured: together, or alone, with the same page on the other side of each call
    /// [default: all]
    #[arg(long, value_name = "SIDES", value_delimiter = ',', value_parser = one_of(SIDES))]
    side: Vec<Option<CopySide>>,
    /// Walks per sample, of which the median counts [default: as many as take a quarter of a second, at most 31]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    walks: Option<u32>,
    #[command(flatten)]
    targets: TargetNames,
    #[command(flatten)]
    pages: PageSizeArg,
    #[command(flatten)]
    common: Common,
}

const SIDES: &[(&str, &str, Option<CopySide>)] = &[
    ("both", "Source and destination together", None),
    ("source", "What is read, alone", Some(CopySide::Source)),
    ("destination", "What is written, alone", Some(CopySide::Destination)),
];

pub(super) fn pollution(args: &PollutionArgs) -> Outcome {
    let mut options = PollutionOptions::new(args.op);
    options.lists = given_or(args.list.concat(), options.lists);
    options.size = args.size;
    options.sides = given_or(args.side.clone(), options.sides);
    options.walks = args.walks;
    options.targets = args.targets.options(None);
    options.page_size = args.pages.page_size;
    options.candidates = args.common.candidates();
    args.common.outputs.run(&args.targets.target, &[&options], &view_pollution)
}

pub(super) fn view_pollution(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Pollution).collect();
    // The source alone is in ordinary memory whatever the targets.
    let written = rows.iter().filter(|row| row.config.side != Some(CopySide::Source));
    if distinct(written.map(|row| &row.config.target)).len() > 1 {
        let cell = |row: &Row| {
            let [before, after] = ["before_ns", "after_ns"].map(|name| also(row, name, 1.0));
            format!("{before} – {after}, {}", signed(row.stats.median))
        };
        let rows = by_target(rows);
        let table = Pivot { cell: Some(cell), control: Some(SAME_TIME), ..Pivot::across(Dimension::Target) };
        let table = table.text(&rows.iter().collect::<Vec<_>>(), width);
        // Intervals are in the findings.
        let key = "A walk before – after the operation, and how much longer than the control it takes.";
        return table + &faint(key, width) + &remarks(found, width);
    }
    let note = "* pollutes least, within the noise. Intervals are 95 %.";
    tables_by_config(rows.into_iter(), note, width, pollution_table) + &remarks(found, width)
}

fn pollution_table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let list = config.list.unwrap_or_default();
    let lines = list / CACHE_LINE as u64;
    let longest = rows.iter().filter_map(|row| row.also.get("after_ns")).copied().fold(0.0, f64::max);
    let (unit, ns) = match longest {
        1e7.. => ("ms", 1e6),
        1e4.. => ("µs", 1e3),
        _ => ("ns", 1.0),
    };
    let target = config.target.as_deref().filter(|target| *target != RAM);
    let heading = format!(
        "pollution: a walk of {lines} lines ({}, fits {}) and a {} of {}{}, {unit}",
        exact_size(list),
        home_of(list),
        config.operation.map_or("", Operation::name),
        exact_size(config.size.unwrap_or_default()),
        target.map(|target| format!(" in {target}")).unwrap_or_default() + alone(config.side),
    );
    let table = Table::of(rows)
        .column(Column::left(""), |row| short_name(row, rows))
        .column(Column::right("before – after"), |row| {
            format!("{} – {}", also(row, "before_ns", ns), also(row, "after_ns", ns))
        })
        .column(Column::right("longer than the control "), |row| {
            beyond(rows, SAME_TIME, row, |growth| signed(growth / ns))
        })
        .column(Column::right("ns/line").optional(1), |row| signed(row.stats.median / lines.max(1) as f64));
    section(&heading, &table.render(width), width)
}

/// Slow-down of a command of yours while memory is cleared in the background
///
/// Runs the command again and again while another thread clears memory (or copies or persists: --op) at a limited rate, with
/// each method in turn. With --clearing kernel, the kernel clears too: the thread maps pages and unmaps them again (this
/// needs a command, as it would interrupt --builtin). The run time is compared with a control: a thread that uses as much
/// processor time as clearing with the C library, and sleeps as often, without touching memory. The difference is the
/// effect on caches and memory bandwidth. The command alone shows the cost of the control itself.
///
/// The clearing thread runs on the last processor and the command on all others; with --same-cpu, or on a single
/// processor, they share it. Ctrl-C ends the command and everything in its process group.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  bulkmem bench corun -- make -j2
  bulkmem bench corun --rate 0.5,4 -f rep_stosb,movnti -- sort -o /dev/null big
  bulkmem bench corun --clearing kernel --rate 1,max -- make -j2
  bulkmem bench corun --op copy_persist --builtin

How to read it: seconds per run of the command, mean ± standard deviation; the extra time compared with the control, by medians and \
with its 95 % interval; the rate that the background achieved, and its share of a processor; with --counters, the cache misses of \
the command. * marks the candidates that slow the command least.

Source: Ankur Arora, huge page clearing optimizations, linux-kernel, June 2022: a kernel build next to background clearing \
took about 2 % less time if the clearing bypassed the cache.

JSON: `rows` as in all measurements; `metric` is `seconds`; `config` has `rate`; `also` has `user_s` and `system_s` (of the \
command), `written_gb`, `rate` (achieved, GB/s) and `busy_percent` (of the background); with --counters, `llc_load_misses` \
and `cache_misses` of the command, in user mode, if the processor counts them.")]
pub(crate) struct CorunArgs {
    /// Operation in the background
    #[arg(long, value_name = "OPERATION", value_parser = operation(), default_value = "clear")]
    op: Operation,
    /// Who clears in the background
    #[arg(long, value_name = "BY", value_parser = one_of(CLEARING), default_value = "user", action = ArgAction::Set)]
    clearing: bool,
    /// Rates of clearing, GB/s; max for no limit
    #[arg(long, value_name = "GB/S", value_delimiter = ',', value_parser = rate, default_value = "1")]
    rate: Vec<f64>,
    /// Memory that is written over and over [default: twice the last-level cache]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Bytes written between two sleeps
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2M")]
    chunk: u64,
    /// Bind clearing and command to the same processor
    #[arg(long)]
    same_cpu: bool,
    /// Show the output of the command on stderr
    #[arg(long, conflicts_with = "builtin")]
    show_output: bool,
    /// Instead of a command, walk a list of half the last-level cache, for about half a second
    #[arg(long, conflicts_with = "command")]
    builtin: bool,
    #[command(flatten)]
    pages: PageSizeArg,
    #[command(flatten)]
    common: Common,
    /// The command and its arguments; it must exit with 0 every time
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const CLEARING: &[(&str, &str, bool)] = &[
    ("user", "Methods, in this process", false),
    ("kernel", "Also the kernel, which clears pages of 4K and of 2M when it maps them", true),
];

/// Parses a rate; `max` is infinite.
fn rate(text: &str) -> Result<f64, &'static str> {
    let rate = if text == "max" { Some(f64::INFINITY) } else { text.parse().ok() };
    rate.ok_or("write a number of GB/s, or max")
}

pub(super) fn corun(args: &CorunArgs) -> Outcome {
    let (words, show_output) = (args.command.clone(), args.show_output);
    let victim = if args.builtin { Victim::Walk } else { Victim::Command { words, show_output } };
    let mut options = CorunOptions::new(victim);
    options.operation = args.op;
    options.kernel = args.clearing;
    options.rates.clone_from(&args.rate);
    options.size = args.size.or(options.size);
    options.chunk = args.chunk;
    options.same_cpu = args.same_cpu;
    options.page_size = args.pages.page_size;
    options.candidates = args.common.candidates();
    args.common.outputs.run(&[], &[&options], &view_corun)
}

pub(super) fn view_corun(found: &Results, width: usize) -> String {
    let note = format!("* slows it least, within the noise. Intervals are 95 %. {DOUBTFUL}");
    let rows: Vec<&Row> = found.of(Measurement::Corun).collect();
    // The kernel's rows are in the table of their control.
    let config =
        |row: &Row| control_of(&rows, row, SAME_PROCESSOR_TIME).map_or(&row.config, |it| &it.config).clone();
    let rows: Vec<Row> = rows.iter().map(|row| Row { config: config(row), ..(*row).clone() }).collect();
    tables_by_config(rows.iter(), &note, width, corun_table) + &remarks(found, width)
}

fn corun_table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let heading = format!(
        "corun: a run next to {}, {} at a time, seconds",
        beside(config.operation.unwrap_or(Operation::Clear), config.rate),
        exact_size(config.chunk.unwrap_or_default()),
    );
    let table = Table::of(rows)
        .column(Column::left("next to"), |row| short_name(row, rows))
        .column(Column::right("seconds "), |row| format!("{} {}", digits(row.stats.mean), deviation(row)))
        .column(Column::right("longer than the control "), |row| {
            beyond(rows, SAME_PROCESSOR_TIME, row, |percent| format!("{percent:+.1}%"))
        })
        .column(Column::right("GB/s").optional(2), |row| match row.also.get("rate") {
            Some(rate) if *rate > 0.0 => digits(*rate),
            _ => "–".to_owned(),
        })
        .column(Column::right("busy").optional(1), |row| {
            row.also.get("busy_percent").map_or("–".to_owned(), |busy| format!("{busy:.0}%"))
        });
    // The first that was counted.
    let table = match MISSES.into_iter().find(|name| rows.iter().any(|row| row.also.contains_key(*name))) {
        Some(name) => table.column(Column::right(name.replace('_', " ")), move |row| {
            row.also.get(name).map_or("–".to_owned(), |misses| count(*misses))
        }),
        None => table,
    };
    section(&heading, &table.render(width), width)
}

#[cfg(test)]
mod tests {
    use bulkmem_measure::Kind;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pages_that_the_kernel_cleared_are_in_the_table_of_the_control() {
        let row = |kind: Kind, name: &str, page_size: &str, samples: [f64; 5]| -> Value {
            json!({
                "measurement": "corun", "candidate": { "kind": kind, "name": name },
                "config": { "operation": "clear", "rate": 1.0, "page_size": page_size },
                "metric": "seconds", "samples": samples,
                "stats": bulkmem_measure::stats::Stats::of(&samples),
            })
        };
        let rows = [
            row(Kind::Control, SAME_PROCESSOR_TIME, "thp", [1.0; 5]),
            row(Kind::Method, "movnti", "thp", [1.1; 5]),
            row(Kind::Kernel, "4K pages", "4K", [1.5; 5]),
        ];
        let rows = rows.map(|row| serde_json::from_value::<Row>(row).expect("a row")).to_vec();
        let found = Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance: bulkmem_measure::Provenance::default(),
            command: Vec::new(),
            rows,
            findings: Vec::new(),
            notes: Vec::new(),
            complete: true,
        };
        let text = anstream::adapter::strip_str(&view_corun(&found, 80)).to_string();
        assert_eq!(text.matches("corun: a run next to").count(), 1, "{text}");
        assert!(text.lines().any(|line| line.contains("4K pages") && line.contains("+50.0%")), "{text}");
    }
}
