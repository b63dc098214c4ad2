//! `bulkmem bench choice`.

use std::num::NonZeroUsize;
use std::time::Duration;

use bulkmem::{Intent, Operation};
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Condition, Cost};
use bulkmem_measure::engine::{
    Alignment, CacheState, Dimension, Measurement, MethodSet, Metric, Peers, Results, Row,
};
use bulkmem_measure::measurements::{ChoiceOptions, Overall, is_baseline, overall};
use bulkmem_measure::stats::geometric_mean;
use clap::Args;

use super::common::Outputs;
use super::pivot::Pivot;
use super::rows::{distinct, group_by, name, remarks};
use crate::failure::Outcome;
use crate::figures::{describe_condition, describe_cost};
use crate::names::names;
use crate::output::{Column, Table, digits, exact_size, faint, section, wrapped};
use crate::parsers::{given_or, intent, operation, sizes};

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
and `intent`. The policy's rows name the method (`chosen`), and `also` has `times_best_peer`, `regret`, and the same over all \
alignments and cache states (`overall_times_best_peer`, `overall_regret`), for stream `disturbance_ns`. The cost of choosing is in \
rows of the metric `nanoseconds`.")]
pub(crate) struct ChoiceArgs {
    /// Operation to compare
    #[arg(value_parser = operation())]
    operation: Operation,
    /// Lengths, or ranges of them [default: 4K,64K,1M,16M,256M]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// Lengths that calibration does not measure, between the smallest and the largest size, warm and cold
    #[arg(long)]
    unmeasured: bool,
    /// What happens to the bytes next [default: throughput]
    #[arg(long, value_name = "INTENT", value_delimiter = ',', value_parser = intent())]
    intent: Vec<Intent>,
    /// Numbers of threads that share the work [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<NonZeroUsize>,
    /// Start ranges 1 to 63 bytes past a cache line
    #[arg(long)]
    unaligned: bool,
    /// Ranges that are not in the cache [default]
    #[arg(long)]
    cold: bool,
    /// Ranges that are in the cache, as far as they fit; with --cold both are measured
    #[arg(long)]
    warm: bool,
    /// Methods besides the choice, or `all` [default: all]
    #[arg(long, short = 'f', value_name = "METHODS", value_parser = names)]
    method: Vec<Vec<String>>,
    /// Leave out libpmem and reading
    #[arg(long)]
    no_peers: bool,
    /// Time it may take [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    budget: Option<Duration>,
    #[command(flatten)]
    outputs: Outputs,
}

pub(super) fn run(args: &ChoiceArgs) -> Outcome {
    let defaults = ChoiceOptions::new(args.operation);
    let threads = args.threads.iter().map(|threads| threads.get()).collect();
    let caches = [(CacheState::Cold, args.cold || !args.warm), (CacheState::Warm, args.warm)];
    let methods = args.method.concat();
    let options = ChoiceOptions {
        sizes: given_or(args.size.concat(), defaults.sizes),
        unmeasured: args.unmeasured,
        intents: given_or(args.intent.clone(), defaults.intents),
        threads: given_or(threads, defaults.threads),
        alignments: vec![if args.unaligned { Alignment::Unaligned } else { Alignment::Aligned }],
        caches: caches.into_iter().filter_map(|(cache, wanted)| wanted.then_some(cache)).collect(),
        methods: if methods.is_empty() || methods.iter().any(|name| name == "all") {
            MethodSet::All
        } else {
            MethodSet::Named(methods)
        },
        peers: if args.no_peers { Peers::None } else { Peers::All },
        budget: args.budget.unwrap_or(defaults.budget),
        operation: args.operation,
    };
    args.outputs.run(None, &options, view)
}

/// Shows, for each intent and condition, the candidates by length and the choice with its ratios; then the choice over all
/// conditions.
pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<&Row> = found.of(Measurement::Choice).collect();
    let compared = rows.iter().copied().filter(|row| row.metric == Metric::Bandwidth);
    let configs = group_by(compared, |row| {
        let config = &row.config;
        (config.operation, config.intent, config.threads, config.alignment, config.cache)
    });
    let mut text: String = configs.iter().map(|group| tables(group, width)).collect();
    let overall = overall(&rows);
    if overall.iter().any(|whole| whole.conditions > 1) {
        let why = "A choice knows neither where its ranges start nor whether they are in the cache. So it is judged over \
                   all the conditions above, by the geometric mean of the times.";
        let table = together(&overall).render(width);
        text += &section("Taken together", &format!("{}\n{table}", faint(why, width)), width);
    }
    let baseline =
        |row: &&&Row| row.config.operation.is_some_and(|operation| is_baseline(&row.candidate, operation));
    let peers = distinct(rows.iter().filter(baseline).map(|row| name(row)));
    if !peers.is_empty() {
        text += &format!("{}\n", wrapped(&format!("Peers: {}.", peers.join(", ")), "", width));
    }
    text += &remarks(found, width);
    text += &format!("{}\n", wrapped(&format!("Policy: {}", found.provenance.policy), "", width));
    if !found.complete {
        text += "Not everything was measured: the time was up.\n";
    }
    text
}

/// The candidates of one intent and condition by length, and the choice.
fn tables(rows: &[&Row], width: usize) -> String {
    let config = &rows[0].config;
    let condition = Condition {
        aligned: config.alignment == Some(Alignment::Aligned),
        warm: config.cache == Some(CacheState::Warm),
        threads: config.threads.unwrap_or(1),
    };
    let intent = config.intent.unwrap_or(Intent::Throughput);
    let operation = config.operation.map_or("", Operation::name);
    let heading = format!("{operation}, intent {intent}, {}", describe_condition(condition));
    let cost = format!("The time is that of {}.", describe_cost(Cost::of(intent)));
    let cell = |row: &Row| digits(row.stats.median);
    let speeds = Pivot::across(Dimension::Size).cell(&cell).text(&by_speed(rows), width);
    let text = format!("{}\n{speeds}\n{}", faint(&cost, width), choices(rows).render(width));
    section(&heading, &text, width)
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

/// A line for each length: the policy's choice, and how it compares.
fn choices(rows: &[&Row]) -> Table {
    let mut table = Table::new([
        Column::right("length"),
        Column::left("the policy's choice").prose(),
        Column::right("GB/s"),
        Column::right("× best peer"),
        Column::right("regret"),
    ]);
    for row in rows.iter().filter(|row| row.candidate.kind == Kind::Policy) {
        table.row([
            exact_size(row.config.size.unwrap_or_default()),
            row.chosen.clone().unwrap_or_default(),
            digits(row.stats.median),
            row.also.get("times_best_peer").map_or("–".to_owned(), |times| digits(*times)),
            percent(row.also.get("regret").copied()),
        ]);
    }
    table
}

/// A line for each length: how the choice compares over all conditions.
fn together(overall: &[Overall]) -> Table {
    let mut table = Table::new([
        Column::right("length"),
        Column::left("intent"),
        Column::right("threads"),
        Column::right("conditions").optional(1),
        Column::right("× best peer"),
        Column::left("which is").optional(2),
        Column::right("regret"),
        Column::left("where best was").optional(3),
    ]);
    for whole in overall {
        table.row([
            exact_size(whole.length),
            whole.intent.to_string(),
            whole.threads.to_string(),
            whole.conditions.to_string(),
            whole.times_best_peer.map_or("–".to_owned(), digits),
            whole.best_peer.clone().unwrap_or_default(),
            percent(whole.regret),
            whole.best_method.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}
