//! `bulkmem bench corun`.

use std::ffi::OsString;

use bulkmem_measure::engine::{Measurement, PageSize, Results, Row};
use bulkmem_measure::measurements::{CorunOptions, SAME_PROCESSOR_TIME, Victim};
use clap::Args;

use super::beyond::{Beyond, groups, short_name};
use super::common::{Common, MethodArgs, remarks};
use super::pivot::digits;
use crate::failure::{Failure, Outcome};
use crate::figures::deviation;
use crate::output::{Column, FAINT, HEADING, Table, exact_size, styled, wrapped};
use crate::parsers::size;

/// How much a command of yours slows while memory is cleared in the background
///
/// Runs the command again and again while another thread clears memory at a bounded rate, by each method in turns. What
/// the command takes longer is said against a control: a thread that is as busy as clearing by the C library keeps it,
/// and sleeps as often, without touching memory. What is left of the difference is caches and memory bandwidth. The
/// command alone shows what the control itself costs.
///
/// The clearing has the last processor for itself and the command all the others; with --same-cpu, or where there is only
/// one, both share it. Ctrl-C ends the command and all that it started in its process group.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  bulkmem bench corun -- make -j2
  bulkmem bench corun --rate 0.5,4 --method 'rep_stosb,movnti' -- sort -o /dev/null big.txt
  bulkmem bench corun --builtin

How to read it: the seconds of a run of the command, mean ± standard deviation; how much longer that is than beside the \
control, by medians and with its 95 % interval; what the background really cleared, and the share of a processor that \
it took. * marks those who slow the command least.

Source: Ankur Arora, huge page clearing optimizations, linux-kernel, June 2022: a kernel build beside background clearing \
took about 2 % less time where the clearing passed the cache by.

JSON: as all measurements; rows have the metric `seconds` and the config's `rate`; `also` has `user_s` and `system_s` (of the \
command), `cleared_gb`, `rate` (achieved, GB/s) and `busy_percent` (of the background).")]
pub(crate) struct CorunArgs {
    /// The rates that clearing is held to, GB/s
    #[arg(long, value_name = "GB/S", value_delimiter = ',', default_value = "1")]
    rate: Vec<f64>,
    /// The memory that is cleared, over and over [default: twice the last-level cache]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Bytes cleared at once; the background sleeps in between
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2M")]
    chunk: u64,
    /// Bind clearing and command to the same processor
    #[arg(long)]
    same_cpu: bool,
    /// Let what the command prints through, to stderr
    #[arg(long, conflicts_with = "builtin")]
    show_output: bool,
    /// In place of a command, a walk over a list of half the last-level cache, which takes about half a second
    #[arg(long, conflicts_with = "command")]
    builtin: bool,
    /// The pages behind the memory: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    page_size: PageSize,
    #[command(flatten)]
    methods: MethodArgs,
    #[command(flatten)]
    common: Common,
    /// The command and its arguments; it has to end with 0 every time
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: &CorunArgs) -> Outcome {
    if args.command.is_empty() && !args.builtin {
        let missing = Failure::usage("there is no command to measure");
        return Err(missing.help(
            "name one behind --: bulkmem bench corun -- make -j2; or have a walk of our own: bulkmem bench corun --builtin",
        ));
    }
    let victim = if args.builtin {
        Victim::Walk
    } else {
        Victim::Command { words: args.command.clone(), show_output: args.show_output }
    };
    let mut options = CorunOptions::new(victim);
    options.rates.clone_from(&args.rate);
    options.size = args.size.or(options.size);
    options.chunk = args.chunk;
    options.same_cpu = args.same_cpu;
    options.page_size = args.page_size;
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    args.common.run(&[&options], |found, width| tables(found, width) + &remarks(found, width))
}

/// A table for each rate.
pub(super) fn tables(found: &Results, width: usize) -> String {
    let groups = groups(found.of(Measurement::Corun));
    let mut text: String = groups.iter().map(|group| table(group, width)).collect();
    if !groups.is_empty() {
        let note = "* slows it least, as far as can be told. Intervals are of 95 %.";
        text += &format!("{}\n\n", styled(FAINT, wrapped(note, "", width)));
    }
    text
}

fn table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let heading = format!(
        "corun: a run beside {} GB/s of clearing, {} at once, seconds",
        config.rate.unwrap_or_default(),
        exact_size(config.chunk.unwrap_or_default()),
    );
    let beyond = Beyond::new(rows.to_vec(), SAME_PROCESSOR_TIME);
    let mut table = Table::new([
        Column::left("beside"),
        Column::right("seconds"),
        Column::right("longer than the control "),
        Column::right("GB/s").optional(2),
        Column::right("busy").optional(1),
    ]);
    for row in rows {
        let also = |name: &str| row.also.get(name).copied();
        table.row([
            short_name(row, rows),
            format!("{} ±{}", digits(row.stats.mean), deviation(row)),
            beyond.cell(row, |percent| format!("{percent:+.1}%")),
            also("rate").filter(|rate| *rate > 0.0).map_or("–".to_owned(), digits),
            also("busy_percent").map_or("–".to_owned(), |busy| format!("{busy:.0}%")),
        ]);
    }
    format!("{}\n{}\n", styled(HEADING, wrapped(&heading, "", width)), table.render(width))
}
