//! The most important conclusions, in sentences that need no knowledge of bulkmem.

use std::collections::BTreeMap;

use bulkmem::Operation;
use bulkmem::method::c_library;
use bulkmem::policy::Situation;
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Measurement, Metric, Row};

use super::input::Machine;
use super::labels::list;
use super::layout::{best, values, varying};
use super::model::{Card, Facts};
use super::sections::about;
use crate::figures::{candidate, name_with};
use crate::output::{digits, exact_size};
use crate::results::group;

const OPERATIONS: [Measurement; 3] = [Measurement::Clear, Measurement::Fill, Measurement::Copy];

/// Returns a summary for each machine, and one that compares them if there are several.
pub(super) fn all(machines: &[Machine<'_>]) -> Vec<Card> {
    let heading = |label: &str| if machines.len() > 1 { label.to_owned() } else { String::new() };
    let each = machines.iter().map(|machine| (heading(&machine.label), of(machine)));
    let compared = OPERATIONS.into_iter().filter_map(|it| across(it, machines)).collect();
    let all = each.chain([("The machines compared".to_owned(), compared)]);
    let cards = all.filter(|(_, facts)| !facts.is_empty());
    cards.map(|(heading, facts)| Card { heading, facts, sentences: Vec::new() }).collect()
}

fn of(machine: &Machine<'_>) -> Facts {
    let mut facts = Facts::new();
    for measurement in OPERATIONS {
        let mut sentences = Vec::new();
        let mut rows = machine.of(measurement);
        let all = rows.len();
        rows.retain(|row| row.samples.len() > 1);
        if rows.len() < all {
            sentences.push(
                "Some figures are of a single run, and no conclusions are drawn from these: measure with --runs 5 or more."
                    .to_owned(),
            );
        }
        if let Some(largest) = rows.iter().filter_map(|row| row.config.size).max() {
            let at: Vec<&Row> = rows.iter().copied().filter(|row| row.config.size == Some(largest)).collect();
            // The first configuration that was measured, for example of several page sizes.
            let keys = varying(&at);
            if let Some((_, first)) = group(at, |row| values(row, &keys)).first() {
                sentences.extend(at_size(measurement, largest, first));
            }
            sentences.extend(range(measurement, &rows));
        }
        facts.extend((!sentences.is_empty()).then(|| (about(measurement).title, sentences.join(" "))));
    }
    // The first finding of each other measurement; its section has them all.
    let others = Measurement::ALL.into_iter().filter(|it| !OPERATIONS.contains(it));
    let first = |it: Measurement| machine.findings.iter().find(|finding| finding.measurement == it);
    facts.extend(
        others.filter_map(first).map(|finding| (about(finding.measurement).title, finding.text.clone())),
    );
    match machine.profile {
        Some(profile) if facts.is_empty() => of_profile(profile),
        _ => facts,
    }
}

fn is_c_library(row: &Row) -> bool {
    row.candidate.name == c_library().name
}

/// Returns the policy's choice at a size, and how it compares.
fn at_size(measurement: Measurement, size: u64, rows: &[&Row]) -> Option<String> {
    let rows = || rows.iter().copied();
    let choice = rows().find(|row| row.candidate.kind == Kind::Policy)?;
    let picks = choice.chosen.as_ref().map(|method| format!(" picks {method} and")).unwrap_or_default();
    let speed = |row: &Row| format!("{} {}", digits(row.stats.median), row.metric.unit());
    let mut text = format!("To {measurement} {}, bulkmem{picks} reaches {}", exact_size(size), speed(choice));
    let own = rows().find(|row| is_c_library(row)).map(|row| (row, "C library (".to_owned()));
    let peers = rows().filter(|row| row.candidate.kind == Kind::Peer && !is_c_library(row));
    let peer = best(peers).map(|row| (row, format!("best other library ({}, ", candidate(&row.candidate))));
    for ((row, who), before) in own.into_iter().chain(peer).zip([": ", ", and "]) {
        text += &format!("{before}{} the {who}{})", compared(choice, row), speed(row));
    }
    text.push('.');
    let method = best(rows().filter(|row| row.candidate.kind == Kind::Method));
    let faster = |row: &&Row| apart(choice, row) && row.stats.median > choice.stats.median * 1.02;
    if let Some(row) = method.filter(faster) {
        let more = (row.stats.median / choice.stats.median - 1.0) * 100.0;
        text += &format!(" {} was {more:.0} % faster ({}).", candidate(&row.candidate), speed(row));
    }
    Some(text)
}

fn apart(a: &Row, b: &Row) -> bool {
    let ([a_low, a_high], [b_low, b_high]) = (a.stats.interval, b.stats.interval);
    a_low > b_high || b_low > a_high
}

/// Returns how the first compares with the second: `1.62 times the speed of`.
fn compared(row: &Row, other: &Row) -> String {
    if !apart(row, other) {
        return "as fast, within the noise, as".to_owned();
    }
    format!("{:.2} times the speed of", row.metric.times_as_good(row.stats.median, other.stats.median))
}

/// Returns how the policy's choice compares with the C library over all configurations.
fn range(measurement: Measurement, rows: &[&Row]) -> Option<String> {
    let choices = rows.iter().filter(|row| row.candidate.kind == Kind::Policy);
    let mut times: Vec<(f64, u64)> = choices
        .filter_map(|choice| {
            let same =
                |row: &Row| is_c_library(row) && (&row.config, row.metric) == (&choice.config, choice.metric);
            let other = rows.iter().find(|row| same(row))?;
            Some((choice.metric.times_as_good(choice.stats.median, other.stats.median), choice.config.size?))
        })
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(least, least_at), .., (most, most_at)] = times[..] else { return None };
    let sizes = || times.iter().map(|(_, size)| *size);
    let [from, to, least_at, most_at] = [sizes().min()?, sizes().max()?, least_at, most_at].map(exact_size);
    Some(format!(
        "From {from} to {to}, bulkmem's {measurement} has {least:.2} times (at {least_at}) to {most:.2} times (at {most_at}) \
         the speed of the C library."
    ))
}

/// Returns how the machines' choices compare at the largest size that all of them measured; `None` if fewer than two did.
fn across(measurement: Measurement, machines: &[Machine<'_>]) -> Option<(&'static str, String)> {
    let speeds = machines.iter().map(|machine| {
        let rows = machine.of(measurement).into_iter().rev();
        let chosen = rows.filter(|it| it.candidate.kind == Kind::Policy && it.metric == Metric::Bandwidth);
        // Of several configurations of a size, the first counts.
        let speeds = chosen.filter_map(|row| Some((row.config.size?, row.stats.median)));
        (&machine.label, speeds.collect::<BTreeMap<u64, f64>>())
    });
    let all: Vec<_> = speeds.filter(|(_, speeds)| !speeds.is_empty()).collect();
    let (_, first) = all.first().filter(|_| all.len() > 1)?;
    let size = first.keys().rfind(|size| all.iter().all(|(_, speeds)| speeds.contains_key(size)))?;
    let mut speeds: Vec<(f64, &String)> = all.iter().map(|(label, speeds)| (speeds[size], *label)).collect();
    speeds.sort_by(|a, b| b.0.total_cmp(&a.0));
    let speeds: Vec<String> =
        speeds.iter().map(|(speed, label)| format!("{} GB/s on {label}", digits(*speed))).collect();
    let sentence =
        format!("To {measurement} {}, the policy's choice reaches {}.", exact_size(*size), list(&speeds));
    Some((about(measurement).title, sentence))
}

/// Returns the rules of a profile, for a report without other measurements.
fn of_profile(profile: &Profile) -> Facts {
    let rules = |operation| {
        let rules = profile.rules_of(operation, Situation::Throughput).filter(|rule| rule.from > 0);
        let rules: Vec<String> = rules
            .map(|it| format!("{} from {}", name_with(&it.method, &it.parameters), exact_size(it.from)))
            .collect();
        (!rules.is_empty()).then(|| (operation.name(), format!("bulkmem uses {}.", list(&rules))))
    };
    let provenance = &profile.provenance;
    let origin = format!(
        "These rules come from a calibration on {} that took {:.0} s and {} samples{}.",
        provenance.date.split('T').next().unwrap_or_default(),
        provenance.seconds,
        provenance.samples,
        if profile.coverage.complete { "" } else { "; not every operation was measured to the end" },
    );
    Operation::ALL.into_iter().filter_map(rules).chain([("calibration", origin)]).collect()
}
