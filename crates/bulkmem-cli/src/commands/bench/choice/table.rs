//! The tables of a bench: contestants down, lengths across; and what came of the policy's choice.

use std::fmt::Write as _;

use bulkmem::Intent;
use bulkmem_measure::calibration::Condition;
use bulkmem_measure::{BenchReport, BenchRow, Kind, Overall};

use crate::figures::{describe_condition, describe_cost, describe_parameters};
use crate::output::{Column, FAINT, GOOD, HEADING, Table, exact_size, rate, ratio, styled, wrapped};
use crate::plain::plain;

/// Columns that a length takes, with the gap before it.
const LENGTH: usize = 9;

/// The report for people, in lines of at most `width` columns.
pub(super) fn text(report: &BenchReport, width: usize) -> String {
    let mut text = String::new();
    for (intent, condition) in configs(report) {
        let rows: Vec<&BenchRow> =
            report.rows.iter().filter(|row| (row.intent, row.condition) == (intent, condition)).collect();
        let heading =
            format!("{}, intent {intent}, {}: GB/s", report.operation, describe_condition(condition));
        _ = writeln!(text, "{}", styled(HEADING, heading));
        let cost = format!("The time is that of {}.", describe_cost(rows[0].cost));
        _ = writeln!(text, "{}\n", styled(FAINT, wrapped(&cost, "", width)));
        let lengths = lengths(&rows);
        let names = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or_default();
        for lengths in lengths.chunks((width.saturating_sub(names) / LENGTH).max(1)) {
            text += &speeds(&rows, lengths).render(width);
            text.push('\n');
        }
        text += &verdicts(&rows).render(width);
        text.push('\n');
    }
    let overall = report.overall();
    if overall.iter().any(|config| config.conditions > 1) {
        let why = "A choice knows neither where its ranges start nor whether they are in the cache. So it is judged over \
                   all the conditions above, by the geometric mean of the times.";
        _ = writeln!(
            text,
            "{}\n{}\n",
            styled(HEADING, "Taken together"),
            styled(FAINT, wrapped(why, "", width))
        );
        text += &together(&overall).render(width);
        text.push('\n');
    }
    if report.rows.iter().any(|row| row.contestant.baseline) {
        text += "* is a peer: the ratios are to the best of these.\n";
    }
    if let Some(regret) = report.regret {
        _ = writeln!(
            text,
            "Regret over {} places: {} in the geometric mean, at worst {} at {}.",
            regret.rows,
            percent(regret.geometric_mean),
            percent(regret.worst),
            exact_size(regret.worst_length),
        );
    }
    if let Some(choosing) = report.choosing {
        _ = writeln!(
            text,
            "Choosing costs {:.1} ns at {}; Policy::choose alone takes {:.1} ns.",
            choosing.overhead_ns(),
            exact_size(choosing.length),
            choosing.choose_ns,
        );
    }
    _ = writeln!(text, "{}", wrapped(&format!("Policy: {}", plain(&report.policy)), "", width));
    for note in &report.notes {
        _ = writeln!(text, "{}", wrapped(&format!("Note: {}", plain(note)), "", width));
    }
    if !report.complete {
        text += "Not every place was measured: the time was up.\n";
    }
    text
}

fn configs(report: &BenchReport) -> Vec<(Intent, Condition)> {
    let mut configs: Vec<_> = report.rows.iter().map(|row| (row.intent, row.condition)).collect();
    configs.sort_unstable();
    configs.dedup();
    configs
}

fn lengths(rows: &[&BenchRow]) -> Vec<u64> {
    let mut lengths: Vec<u64> = rows.iter().map(|row| row.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// What a contestant is called.
fn name(row: &BenchRow) -> String {
    match row.contestant.kind {
        Kind::Policy => "the policy's choice".to_owned(),
        Kind::Read => "(reading the same memory)".to_owned(),
        Kind::Method | Kind::Peer if row.contestant.baseline => format!("{} *", row.contestant.name),
        _ => row.contestant.name.clone(),
    }
}

/// A line for each contestant, the one that is fastest over all lengths first.
fn speeds(rows: &[&BenchRow], lengths: &[u64]) -> Table {
    let fastest = |of: &str, length: u64| {
        let of_name = rows.iter().filter(|row| row.length == length && name(row) == of);
        of_name.map(|row| row.median_ns).min_by(f64::total_cmp)
    };
    let mut contestants: Vec<(Kind, String)> =
        rows.iter().map(|row| (row.contestant.kind, name(row))).collect();
    contestants.sort();
    contestants.dedup_by(|a, b| a.1 == b.1);
    // Geometric mean over the lengths that it was measured at.
    let speed = |of: &str| {
        let logs: Vec<f64> =
            lengths.iter().filter_map(|&at| Some((at as f64 / fastest(of, at)?).ln())).collect();
        logs.iter().sum::<f64>() / logs.len().max(1) as f64
    };
    contestants.sort_by(|a, b| {
        (a.0 != Kind::Policy).cmp(&(b.0 != Kind::Policy)).then(speed(&b.1).total_cmp(&speed(&a.1)))
    });
    let best: Vec<f64> = lengths
        .iter()
        .map(|&at| {
            let rivals = rows.iter().filter(|row| row.length == at && row.contestant.kind != Kind::Read);
            rivals.map(|row| row.median_ns).fold(f64::INFINITY, f64::min)
        })
        .collect();
    let titles = lengths.iter().map(|&length| Column::right(exact_size(length)));
    let mut table = Table::new([Column::left("contestant")].into_iter().chain(titles));
    for (_, contestant) in &contestants {
        let cells = lengths.iter().zip(&best).map(|(&length, &best)| match fastest(contestant, length) {
            Some(time) if time <= best => styled(GOOD, rate(length, time)),
            Some(time) => rate(length, time),
            None => "–".to_owned(),
        });
        table.row([contestant.clone()].into_iter().chain(cells));
    }
    table
}

/// A line for each length: what the policy chose and how that did.
fn verdicts(rows: &[&BenchRow]) -> Table {
    let mut table = Table::new([
        Column::right("length"),
        Column::left("the policy's choice"),
        Column::left("parameters").prose().optional(1),
        Column::right("GB/s"),
        Column::right("× best peer"),
        Column::right("regret"),
    ]);
    for row in rows.iter().filter(|row| row.contestant.kind == Kind::Policy) {
        table.row([
            exact_size(row.length),
            row.contestant.name.clone(),
            describe_parameters(&row.contestant.parameters),
            rate(row.length, row.median_ns),
            ratio(row.ratio_to_best_peer.unwrap_or(f64::NAN)),
            row.regret.map_or("–".to_owned(), percent),
        ]);
    }
    table
}

/// A line for each length: how the choice did over all conditions.
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
    for config in overall {
        table.row([
            exact_size(config.length),
            config.intent.to_string(),
            config.threads.to_string(),
            config.conditions.to_string(),
            ratio(config.ratio_to_best_peer.unwrap_or(f64::NAN)),
            config.best_peer.clone().unwrap_or_default(),
            config.regret.map_or("–".to_owned(), percent),
            config.best_method.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
