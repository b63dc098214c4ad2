//! `bulkmem bench choice` and `targets`.

use std::time::Duration;

use bulkmem::{Intent, Operation};
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::Cost;
use bulkmem_measure::engine::{
    Alignment, CacheState, Check, Config, Dimension, Measurement, MethodSet, Metric, PageSize, Peers,
    Results, Row, distinct,
};
use bulkmem_measure::measurements::{ChoiceOptions, TargetsOptions, is_baseline, overall};
use bulkmem_measure::stats::geometric_mean;
use clap::Args;

use super::common::Outputs;
use super::pivot::Pivot;
use super::rows::{also, group_by, name, remarks, value};
use crate::failure::Outcome;
use crate::figures::{config_value, describe_cost};
use crate::output::{BAD, Column, FAINT, GOOD, Table, digits, faint, plural, section, styled, wrapped};
use crate::parsers::{intent, names, one_of, operation, size, sizes, threads, time};

const SOURCES: &[(&str, &str, CacheState)] = &[
    ("cold", "Not in the cache", CacheState::Cold),
    ("warm", "In the cache, as far as it fits", CacheState::Warm),
];

/// Compare the policy's choice with every method and with other libraries
///
/// Samples are interleaved, so that a change of the machine's speed affects all candidates alike. Compare ratios within one
/// run rather than figures of two runs. First every candidate gets three samples; the policy, the peers and the fastest
/// methods are then sampled until the best two are separated, or time runs out.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How to read it: GB/s by median. The time is that of the operation alone; for the intent reuse also that of reading the result \
back, for stream also the slow-down of a neighbour in the cache. Peers are the C library, libpmem, and the plain methods that the \
sources compare with. Regret is how much longer the choice takes than the best method in hindsight.

JSON: as all measurements; rows have the metric `bandwidth` and the config's `operation`, `size`, `threads`, `alignment`, `cache` \
(`cold`, `warm` or `fresh`; of copies that of the destination, and `source` that of the source), `page_size` (of the destination) \
and `intent`. The policy's rows name the method (`chosen`), and `also` has `times_best_peer`, `regret`, and the same over all \
conditions that the operation does not know (`overall_times_best_peer`, `overall_regret`), up to 512 KiB what the look took \
(`look_ns`), for stream `disturbance_ns` and the time without it (`operation_ns`). The cost of choosing is in rows of the metric `nanoseconds`.")]
pub(crate) struct ChoiceArgs {
    /// Operation to compare
    #[arg(value_parser = operation())]
    operation: Operation,
    /// Lengths, or ranges of them
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    #[arg(default_value = "4K,64K,1M,16M,256M")]
    size: Vec<Vec<u64>>,
    /// Lengths that calibration does not measure, between the smallest and the largest size
    #[arg(long)]
    unmeasured: bool,
    /// Use of the bytes afterwards
    #[arg(long, value_name = "INTENT", value_delimiter = ',', value_parser = intent(), default_value = "throughput")]
    intent: Vec<Intent>,
    /// Numbers of threads that share the work; all but one are kept ready between calls
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = threads)]
    threads: Vec<usize>,
    /// Start ranges 1 to 63 bytes past a cache line
    #[arg(long)]
    unaligned: bool,
    /// Ranges that are not in the cache [default: cold, warm and fresh]
    #[arg(long)]
    cold: bool,
    /// Ranges that are in the cache, as far as they fit
    #[arg(long)]
    warm: bool,
    /// Destinations whose pages are not mapped yet, from 64K on: the kernel clears each page at the first touch.
    /// Of operations that persist: pages of a file in memory, always of 4K
    #[arg(long)]
    fresh: bool,
    /// States of the source of a copy [default: that of the destination, cold for fresh ones; warm for
    /// copy_persist]
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = one_of(SOURCES))]
    source: Vec<CacheState>,
    /// Page size of the memory: 4K or thp (transparent huge pages) [default: thp; 4K for fresh destinations]
    #[arg(long, value_name = "SIZE")]
    page_size: Option<PageSize>,
    /// Methods besides the choice, or `all`
    #[arg(long, short = 'f', value_name = "METHODS", value_parser = names, default_value = "all")]
    method: Vec<Vec<String>>,
    /// Leave out libpmem and reading
    #[arg(long)]
    no_peers: bool,
    /// Time it may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    budget: Duration,
    #[command(flatten)]
    outputs: Outputs,
}

/// Check every performance target of the project on this machine
///
/// A target that is not met is a finding, not a failure: the exit code is 0.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: as all measurements; rows are those of `bench choice`. Each finding has a `check`: `what`, `bound`, `unit`, `measured`, \
`met` (null if not measured), `note`.")]
pub(crate) struct TargetsArgs {
    /// The largest length
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G")]
    max_size: u64,
    /// Time it may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5m")]
    budget: Duration,
    #[command(flatten)]
    outputs: Outputs,
}

pub(super) fn run(args: &ChoiceArgs) -> Outcome {
    let caches =
        [(CacheState::Cold, args.cold), (CacheState::Warm, args.warm), (CacheState::Fresh, args.fresh)];
    let given = caches.iter().any(|(_, given)| *given);
    let methods = args.method.concat();
    let every = methods.iter().any(|name| name == "all");
    let options = ChoiceOptions {
        operation: args.operation,
        sizes: args.size.concat(),
        unmeasured: args.unmeasured,
        intents: args.intent.clone(),
        threads: args.threads.clone(),
        alignments: vec![if args.unaligned { Alignment::Unaligned } else { Alignment::Aligned }],
        caches: caches
            .into_iter()
            .filter_map(|(cache, wanted)| (wanted || !given).then_some(cache))
            .collect(),
        sources: args.source.clone(),
        page_size: args.page_size,
        methods: if every { MethodSet::All } else { MethodSet::Named(methods) },
        peers: if args.no_peers { Peers::None } else { Peers::All },
        budget: args.budget,
    };
    args.outputs.run(&[], &[&options], &view)
}

impl TargetsArgs {
    pub(super) fn run(&self) -> Outcome {
        let options = TargetsOptions { budget: self.budget, max_length: self.max_size };
        self.outputs.run(&[], &[&options], &view_targets)
    }
}

/// Shows, for each intent and condition, the candidates by length and the choice with its ratios; then the choice over all
/// conditions.
pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Choice).collect();
    let compared = rows.iter().copied().filter(|row| row.metric == Metric::Bandwidth);
    let configs = group_by(compared, |row| Config { size: None, ..row.config.clone() });
    let mut text: String = configs.iter().map(|group| tables(group, width)).collect();
    let overall = overall(&rows);
    if overall.iter().any(|whole| whole.conditions > 1) {
        let why = "An operation does not know where its ranges start, whether the source is in the cache, nor below 64 KiB \
                   whether the destination is. So it is judged over all of these conditions, by the geometric mean of the \
                   times.";
        let table = Table::of(&overall)
            .column(Column::right("length"), |it| config_value(&it.config, Dimension::Size))
            .column(Column::left("cache"), |it| config_value(&it.config, Dimension::Cache))
            .column(Column::left("pages").optional(4), |it| config_value(&it.config, Dimension::PageSize))
            .column(Column::left("intent"), |it| config_value(&it.config, Dimension::Intent))
            .column(Column::right("threads"), |it| config_value(&it.config, Dimension::Threads))
            .column(Column::right("conditions").optional(1), |it| it.conditions.to_string())
            .column(Column::right("× best peer"), |it| it.times_best_peer.map_or("–".to_owned(), digits))
            .column(Column::left("which is").optional(2), |it| it.best_peer.clone().unwrap_or_default())
            .column(Column::right("regret"), |it| percent(it.regret))
            .column(Column::left("where best was").optional(3), |it| {
                it.best_method.clone().unwrap_or_default()
            })
            .render(width);
        text += &section("Taken together", &format!("{}\n{table}", faint(why, width)), width);
    }
    let baseline =
        |row: &&&Row| row.config.operation.is_some_and(|operation| is_baseline(&row.candidate, operation));
    let peers = distinct(rows.iter().filter(baseline).map(|row| name(row)));
    let line = |line: String| wrapped(&line, "", width) + "\n";
    if !peers.is_empty() {
        text += &line(format!("Peers: {}.", peers.join(", ")));
    }
    text += &(remarks(found, width) + &line(format!("Policy: {}", found.provenance.policy)));
    if !found.complete {
        text += "Not everything was measured: the time was up.\n";
    }
    text
}

/// The candidates of one intent and condition by length, and the choice.
fn tables(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let [alignment, pages] = [Dimension::Alignment, Dimension::PageSize].map(|key| config_value(config, key));
    let (operation, intent) =
        (config.operation.map_or("", Operation::name), config.intent.unwrap_or_default());
    let threads = plural(config.threads.unwrap_or(1), "thread");
    let heading =
        format!("{operation}, intent {intent}, {alignment}, {}, {pages} pages, {threads}", config.states());
    let cost = describe_cost(Cost::of(intent));
    let cost = faint(&format!("The time is that of {cost}."), width);
    let cell = |row: &Row| digits(row.stats.median);
    let speeds = Pivot { cell: Some(cell), ..Pivot::across(Dimension::Size) }.text(&by_speed(rows), width);
    let choices = Table::of(rows.iter().filter(|row| row.candidate.kind == Kind::Policy))
        .column(Column::right("length"), |row| value(row, Dimension::Size))
        .column(Column::left("the policy's choice").prose(), |row| row.chosen.clone().unwrap_or_default())
        .column(Column::right("GB/s"), |row| digits(row.stats.median))
        .column(Column::right("× best peer"), |row| also(row, "times_best_peer", 1.0))
        .column(Column::right("regret"), |row| percent(row.also.get("regret").copied()))
        .render(width);
    section(&heading, &format!("{cost}\n{speeds}\n{choices}"), width)
}

/// The rows of the policy, then those of the other candidates, the fastest over all lengths first.
fn by_speed<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    let mut candidates = group_by(rows.iter().copied(), |row| row.candidate.clone());
    let speed =
        |group: &Vec<&Row>| geometric_mean(group.iter().map(|row| row.stats.median)).unwrap_or_default();
    candidates.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    candidates.sort_by_key(|group| group[0].candidate.kind != Kind::Policy);
    candidates.concat()
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

pub(super) fn view_targets(found: &Results, width: usize) -> String {
    let findings = found.findings.iter().filter(|finding| finding.measurement == Measurement::Targets);
    let checks: Vec<&Check> = findings.filter_map(|finding| finding.check.as_ref()).collect();
    let table = Table::of(&checks)
        .column(Column::left("target").prose(), |check| check.what.clone())
        .column(Column::right("bound"), |check| check.bound.text(check.unit))
        .column(Column::right("measured"), |check| {
            check.measured.map_or("–".to_owned(), |measured| check.unit.text(measured))
        })
        .column(Column::left("met"), |check| match check.met {
            Some(true) => styled(GOOD, "yes"),
            Some(false) => styled(BAD, "no"),
            None => styled(FAINT, "?"),
        })
        .column(Column::left("worst at").prose().optional(1), |check| check.note.clone());
    let count = |met: Option<bool>| checks.iter().filter(|check| check.met == met).count();
    let (met, not_met, unknown) = (count(Some(true)), count(Some(false)), count(None));
    let policy = wrapped(&format!("Policy: {}", found.provenance.policy), "", width);
    // The table has the findings.
    let notes = remarks(&Results { findings: Vec::new(), ..found.clone() }, width);
    let counts = format!("{met} met, {not_met} not met, {unknown} not decided.");
    format!("{}\n{counts}\n{policy}\n{notes}", table.render(width))
}
