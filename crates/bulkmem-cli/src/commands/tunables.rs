//! `bulkmem tunables`.

use std::env;
use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use bulkmem::Intent;
use bulkmem_measure::engine::{CacheState, Config, Dimension, Results, Row};
use bulkmem_measure::measurements::{Advice, Gain, PROCESS, Tunable, TunablesOptions, answer_requests};
use clap::Args;
use serde_json::json;

use super::bench::remarks;
use super::placement::PlacementArgs;
use super::runner::{self, Files};
use crate::failure::{Exit, Outcome, measure_failure, show};
use crate::figures::config_value;
use crate::output::{Column, Table, section, signed};
use crate::parsers;
use crate::plain::{self, plain};
use crate::results::group;

/// Find values of the C library's tunables that make memcpy and memset faster here
///
/// For programs that you can neither change nor start with another library. From certain lengths on, the C library uses
/// string instructions (REP MOVSB, REP STOSB) and non-temporal stores; GLIBC_TUNABLES sets these lengths. This command
/// measures in processes of its own, and measures the values that it finds again in new processes. If nothing helps, it says
/// so.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A value is recommended if it gains 3 % or more, beyond the noise, at some length in two runs, and loses 3 % nowhere: with cold \
memory, with warm memory (in the cache, as far as it fits), and if the result is read afterwards; ranges start on a cache line, or 1 \
to 63 bytes after one. Copies whose destination begins 8 bytes after the source modulo 4096 are measured as well, because page \
aliasing makes REP MOVSB many times slower there on some processors; if no value that avoids it can be recommended, the conclusion \
names one. The tunables are x86_rep_movsb_threshold and x86_non_temporal_threshold for memcpy, x86_rep_stosb_threshold \
and x86_memset_non_temporal_threshold (glibc 2.40 or later) for memset; values are lengths in bytes. If GLIBC_TUNABLES is set, its \
values are the baseline. Needs glibc 2.33 or later on x86-64. See docs/tunables.md.

JSON: `glibc_tunables` (the value of the variable; null to leave it alone), `tunables` (each with `name`, `operation`, `current`, \
`limits`, `recommended`: bytes, or null), `gains` (each with `operation`, `size`, `alignment`, `cache`, `intent`, `page_size`, \
`percent`, and its 95 % `interval`), `page_aliasing` (null if no copies are slow; `lengths`, `times`, `threshold`, `loss`), `text` (null if interrupted), `notes`, `complete`, `provenance`.")]
pub(crate) struct TunablesArgs {
    /// Time it may take; one sample of everything, which is always taken, takes some seconds, and more on a busy machine
    #[arg(long, value_name = "TIME", value_parser = parsers::time, default_value = "60s")]
    budget: Duration,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Save the results to this file after each step, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The columns of the table: the state of the memory, and the use of the bytes.
const STATES: [(&str, CacheState, Intent); 3] = [
    ("cold", CacheState::Cold, Intent::Throughput),
    ("warm", CacheState::Warm, Intent::Throughput),
    ("warm, then read", CacheState::Warm, Intent::Reuse),
];

pub(super) fn run(args: &TunablesArgs) -> Outcome {
    if env::var_os(PROCESS).is_some() {
        answer_requests(stdin().lock(), stdout().lock()).map_err(measure_failure)?;
        return Ok(Exit::Done);
    }
    args.placement.apply()?;
    let command = ["/proc/self/exe", "tunables"].map(Into::into).into();
    let options = TunablesOptions::new(command, args.budget).map_err(measure_failure)?;
    let files = Files { json: args.output.as_deref(), ..Files::default() };
    runner::run("tunables", &[&options], false, files, |found| {
        let rows: Vec<&Row> = found.rows.iter().filter(|_| found.complete).collect();
        let advice = options.advice(&rows);
        let Results { notes, complete, provenance, .. } = found;
        let mut document = json!(advice);
        document["notes"] = json!(notes);
        document["complete"] = json!(complete);
        document["text"] = json!(complete.then_some(&advice.text));
        document["provenance"] = json!(provenance);
        show(args.json, &document, |width| text(&advice, &plain::results(found.clone()), width)).map(drop)
    })
}

fn text(advice: &Advice, found: &Results, width: usize) -> String {
    let mut text = String::new();
    if let Some(line) = &advice.glibc_tunables {
        text += &format!("GLIBC_TUNABLES={}\n\n", plain(line));
    }
    let none = if found.complete { "no change" } else { "?" };
    let recommended = |it: &&Tunable| it.recommended.map_or(none.to_owned(), Tunable::text);
    let table = Table::of(&advice.tunables)
        .column(Column::left("used from this length on"), |it| it.name.to_owned())
        .column(Column::right("now"), |it| Tunable::text(it.current))
        .column(Column::right("recommended"), recommended);
    text += &(table.render(width) + "\n");
    let lines = group(&advice.gains, |gain| Config { cache: None, intent: None, ..gain.config.clone() });
    if !lines.is_empty() {
        let mut table = Table::of(&lines);
        for (title, key) in
            [("", Dimension::Operation), ("length", Dimension::Size), ("", Dimension::Alignment)]
        {
            table = table.column(Column::right(title), move |(config, _)| config_value(config, key));
        }
        for (title, cache, intent) in STATES {
            let wanted =
                move |gain: &Gain| (gain.config.cache, gain.config.intent) == (Some(cache), Some(intent));
            table = table.column(Column::right(title), move |(_, gains)| {
                let Some(gain) = gains.iter().find(|gain| wanted(gain)) else { return "–".to_owned() };
                let [low, high] = gain.interval.map(signed);
                format!("{} ({low} to {high})", signed(gain.percent))
            });
        }
        text +=
            &section("Gain in percent, and its 95 % interval, in the last run", &table.render(width), width);
    }
    text + &remarks(found, width)
}

#[cfg(test)]
mod tests {
    use bulkmem::Operation;
    use bulkmem_measure::engine::Alignment;

    use super::*;
    use crate::results::testing::results;

    fn tunable(name: &'static str, operation: Operation, recommended: Option<u64>) -> Tunable {
        Tunable { name, operation, current: 192 << 20, limits: [0x4040, u64::MAX >> 4], recommended }
    }

    fn gain(cache: CacheState, intent: Intent, percent: f64) -> Gain {
        let config = Config {
            operation: Some(Operation::Copy),
            size: Some(16 << 20),
            alignment: Some(Alignment::Aligned),
            cache: Some(cache),
            intent: Some(intent),
            ..Config::default()
        };
        Gain { config, percent, interval: [percent - 1.0, percent + 2.5], enough: true }
    }

    fn advice(recommended: Option<u64>) -> Advice {
        let line = |value| format!("glibc.cpu.x86_non_temporal_threshold={value}");
        Advice {
            glibc_tunables: recommended.map(line),
            tunables: vec![
                tunable("x86_non_temporal_threshold", Operation::Copy, recommended),
                tunable("x86_rep_stosb_threshold", Operation::Clear, None),
            ],
            gains: Vec::new(),
            page_aliasing: None,
            text: String::new(),
        }
    }

    #[test]
    fn a_recommended_value_is_shown_with_its_gain_in_each_state() {
        let gains = vec![
            gain(CacheState::Cold, Intent::Throughput, 21.04),
            gain(CacheState::Warm, Intent::Reuse, -1.96),
        ];
        let found = Advice { gains, ..advice(Some(12 << 20)) };
        let text = anstream::adapter::strip_str(&text(&found, &results(Vec::new()), 80)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=12582912", ""],
            "{text}"
        );
        let line = |start: &str| {
            let line = lines.iter().find(|line| line.trim_start().starts_with(start));
            line.unwrap_or_else(|| panic!("{start}\n{text}")).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("x86_non"), "x86_non_temporal_threshold 192 MiB 12 MiB");
        assert_eq!(line("x86_rep"), "x86_rep_stosb_threshold 192 MiB no change");
        // Cold, warm, and warm and read afterwards: the second was not measured.
        assert_eq!(line("copy"), "copy 16 MiB aligned +21.0 (+20.0 to +23.5) – -1.96 (-2.96 to +0.54)");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn without_a_recommendation_there_is_no_line_to_copy() {
        let text = text(&advice(None), &results(Vec::new()), 80);
        assert!(!text.contains("GLIBC_TUNABLES") && !text.contains("Gain"), "{text}");
        assert_eq!(text.matches("no change").count(), 2, "{text}");
    }

    #[test]
    fn an_interrupted_run_does_not_say_that_nothing_helps() {
        let found = Results { complete: false, ..results(Vec::new()) };
        let text = text(&advice(None), &found, 80);
        assert!(!text.contains("no change"), "{text}");
        assert_eq!(text.matches('?').count(), 2, "{text}");
    }
}
