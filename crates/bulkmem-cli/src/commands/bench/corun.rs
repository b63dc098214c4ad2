//! `bulkmem bench corun`.

use std::ffi::OsString;

use bulkmem_measure::engine::{Measurement, Results, Row};
use bulkmem_measure::measurements::{CorunOptions, SAME_PROCESSOR_TIME, Victim};
use clap::Args;

use super::beyond::{Beyond, short_name};
use super::common::{Common, PageSizeArg};
use super::rows::{also, remarks, tables_by_config};
use crate::failure::{Failure, Outcome};
use crate::figures::deviation;
use crate::output::{Column, Table, digits, exact_size, section};
use crate::parsers::size;

/// Slow-down of a command of yours while memory is cleared in the background
///
/// Runs the command again and again while another thread clears memory at a limited rate, with each method in turn. The
/// run time is compared with a control: a thread that uses as much processor time as clearing with the C library, and
/// sleeps as often, without touching memory. The difference is the effect on caches and memory bandwidth. The command
/// alone shows the cost of the control itself.
///
/// The clearing thread runs on the last processor and the command on all others; with --same-cpu, or on a single
/// processor, they share it. Ctrl-C ends the command and everything in its process group.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  bulkmem bench corun -- make -j2
  bulkmem bench corun --rate 0.5,4 -f rep_stosb,movnti -- sort -o /dev/null big
  bulkmem bench corun --builtin

How to read it: seconds per run of the command, mean ± standard deviation; the extra time compared with the control, by medians and \
with its 95 % interval; the rate that clearing achieved, and its share of a processor. * marks the candidates that slow the command \
least.

Source: Ankur Arora, huge page clearing optimizations, linux-kernel, June 2022: a kernel build next to background clearing \
took about 2 % less time if the clearing bypassed the cache.

JSON: `rows` as in all measurements; `metric` is `seconds`; `config` has `rate`; `also` has `user_s` and `system_s` (of the \
command), `cleared_gb`, `rate` (achieved, GB/s) and `busy_percent` (of the background).")]
pub(crate) struct CorunArgs {
    /// Rates of clearing, GB/s
    #[arg(long, value_name = "GB/S", value_delimiter = ',', default_value = "1")]
    rate: Vec<f64>,
    /// Memory that is cleared over and over [default: twice the last-level cache]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Bytes cleared between two sleeps
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

pub(super) fn run(args: &CorunArgs) -> Outcome {
    let victim = match (args.builtin, args.command.clone()) {
        (true, _) => Victim::Walk,
        (false, words) if words.is_empty() => {
            return Err(Failure::usage("there is no command to measure").help(
                "name one after --: bulkmem bench corun -- make -j2; or use the built-in one: bulkmem bench corun --builtin",
            ));
        }
        (false, words) => Victim::Command { words, show_output: args.show_output },
    };
    let mut options = CorunOptions::new(victim);
    options.rates.clone_from(&args.rate);
    options.size = args.size.or(options.size);
    options.chunk = args.chunk;
    options.same_cpu = args.same_cpu;
    options.page_size = args.pages.page_size;
    (options.methods, options.peers, options.runs) = args.common.candidates();
    args.common.outputs.run(None, &options, view)
}

pub(super) fn view(found: &Results, width: usize) -> String {
    let note = "* slows it least, within the noise. Intervals are 95 %.";
    tables_by_config(found.of(Measurement::Corun), note, width, table) + &remarks(found, width)
}

fn table(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let heading = format!(
        "corun: a run next to {} GB/s of clearing, {} at a time, seconds",
        config.rate.unwrap_or_default(),
        exact_size(config.chunk.unwrap_or_default()),
    );
    let beyond = Beyond::new(rows.to_vec(), SAME_PROCESSOR_TIME);
    let mut table = Table::new([
        Column::left("next to"),
        Column::right("seconds"),
        Column::right("longer than the control "),
        Column::right("GB/s").optional(2),
        Column::right("busy").optional(1),
    ]);
    for row in rows {
        let cleared = row.also.get("rate").is_some_and(|rate| *rate > 0.0);
        table.row([
            short_name(row, rows),
            format!("{} ±{}", digits(row.stats.mean), deviation(row)),
            beyond.cell(row, |percent| format!("{percent:+.1}%")),
            if cleared { also(row, "rate", 1.0) } else { "–".to_owned() },
            row.also.get("busy_percent").map_or("–".to_owned(), |busy| format!("{busy:.0}%")),
        ]);
    }
    section(&heading, &table.render(width), width)
}
