//! What the figures come down to, in sentences for somebody who has read nothing of ours.

use bulkmem::{Intent, Operation};
use bulkmem_measure::Kind;
use bulkmem_measure::engine::{Dimension, Measurement, Metric, Row};

use super::input::Machine;
use super::lay;
use super::model::Verdict;
use super::names;
use crate::figures::name_with;
use crate::output::exact_size;

/// A verdict for each machine, and one across where there are several.
pub(super) fn all(machines: &[Machine<'_>]) -> Vec<Verdict> {
    let several = machines.len() > 1;
    let mut verdicts: Vec<Verdict> = machines
        .iter()
        .map(|machine| Verdict {
            heading: if several { machine.label.clone() } else { String::new() },
            sentences: of(machine),
        })
        .collect();
    if several {
        let sentences: Vec<String> = OPERATIONS.into_iter().filter_map(|it| across(it, machines)).collect();
        verdicts.push(Verdict { heading: "The machines compared".to_owned(), sentences });
    }
    verdicts.retain(|verdict| !verdict.sentences.is_empty());
    verdicts
}

const OPERATIONS: [Measurement; 3] = [Measurement::Clear, Measurement::Fill, Measurement::Copy];

fn of(machine: &Machine<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for measurement in OPERATIONS {
        let verb = measurement.name();
        let mut rows = machine.of(measurement);
        let all = rows.len();
        rows.retain(|row| row.samples.len() > 1);
        if rows.len() < all {
            sentences.push(format!(
                "{verb}: some figures are of a single run; nothing is concluded from these: measure with --runs 5 or more."
            ));
        }
        let largest = rows.iter().filter_map(|row| row.config.size).max();
        let Some(largest) = largest else { continue };
        let at: Vec<&Row> = rows.iter().copied().filter(|row| row.config.size == Some(largest)).collect();
        // With several page sizes and the like, the first that was measured.
        let keys: Vec<Dimension> =
            Dimension::ALL.into_iter().filter(|key| lay::distinct(&at, *key) > 1).collect();
        if let Some(first) = lay::parts(&at, &keys).first() {
            sentences.extend(at_place(verb, largest, first));
        }
        sentences.extend(range(&rows, verb));
    }
    // Of each other measurement the first finding; its section has them all.
    let others = Measurement::ALL.into_iter().filter(|it| !OPERATIONS.contains(it));
    let first = |it: Measurement| machine.findings.iter().find(|finding| finding.measurement == it);
    sentences.extend(others.filter_map(first).map(|finding| finding.text.clone()));
    if let (true, Some(profile)) = (sentences.is_empty(), machine.profile) {
        sentences.extend(of_profile(profile));
    }
    sentences
}

/// What is chosen at a size, and how that compares.
fn at_place(verb: &str, size: u64, rows: &[&Row]) -> Option<String> {
    let find = |found: &dyn Fn(&Row) -> bool| rows.iter().copied().find(|row| found(row));
    let choice = find(&|row| row.candidate.kind == Kind::Policy)?;
    let picks = choice.chosen.as_ref().map(|method| format!(" picks {method} and")).unwrap_or_default();
    let speed = |row: &Row| format!("{} {}", names::digits(row.stats.median), row.metric.unit());
    let mut text = format!("To {verb} {}, bulkmem{picks} reaches {}", exact_size(size), speed(choice));
    let c_library = find(&|row| names::is_c_library(&row.candidate));
    if let Some(other) = c_library {
        text += &format!(": {} the C library ({})", compared(choice, other), speed(other));
    }
    let libraries = rows
        .iter()
        .copied()
        .filter(|row| row.candidate.kind == Kind::Peer && !names::is_c_library(&row.candidate));
    if let Some(best) =
        libraries.reduce(|best, row| if row.stats.median > best.stats.median { row } else { best })
    {
        let joint = if c_library.is_some() { ", and" } else { ":" };
        let name = names::candidate(&best.candidate);
        text +=
            &format!("{joint} {} the best other library ({name}, {})", compared(choice, best), speed(best));
    }
    text.push('.');
    let methods = rows.iter().copied().filter(|row| row.candidate.kind == Kind::Method);
    let best = methods.reduce(|best, row| if row.stats.median > best.stats.median { row } else { best });
    if let Some(best) =
        best.filter(|best| apart(choice, best) && best.stats.median > choice.stats.median * 1.02)
    {
        let more = (best.stats.median / choice.stats.median - 1.0) * 100.0;
        let name = names::candidate(&best.candidate);
        text += &format!(" {name} was {more:.0} % faster still ({}).", speed(best));
    }
    Some(text)
}

/// Whether two medians differ by more than their intervals allow for.
fn apart(a: &Row, b: &Row) -> bool {
    let ([a_low, a_high], [b_low, b_high]) = (a.stats.interval, b.stats.interval);
    a_low > b_high || b_low > a_high
}

/// How the first compares with the second: `1.62 times the speed of`.
fn compared(row: &Row, other: &Row) -> String {
    if !apart(row, other) {
        return "as fast, within the noise, as".to_owned();
    }
    let times = row.metric.times_as_good(row.stats.median, other.stats.median);
    format!("{times:.2} times the speed of")
}

/// How the choice compares with the C library over all places.
fn range(rows: &[&Row], verb: &str) -> Option<String> {
    let choices = || rows.iter().copied().filter(|row| row.candidate.kind == Kind::Policy);
    let times: Vec<(f64, u64)> = choices()
        .filter_map(|choice| {
            let same = |row: &&&Row| {
                names::is_c_library(&row.candidate)
                    && row.config == choice.config
                    && row.metric == choice.metric
            };
            let other = rows.iter().find(same)?;
            Some((choice.metric.times_as_good(choice.stats.median, other.stats.median), choice.config.size?))
        })
        .collect();
    let least = times.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let most = times.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    if times.len() < 2 {
        return None;
    }
    let sizes = || times.iter().map(|(_, size)| *size);
    Some(format!(
        "From {} to {}, its {verb} runs at {:.2} (at {}) to {:.2} times (at {}) the speed of the C library.",
        exact_size(sizes().min()?),
        exact_size(sizes().max()?),
        least.0,
        exact_size(least.1),
        most.0,
        exact_size(most.1),
    ))
}

/// How the machines' choices compare at the largest size that all of them measured.
fn across(measurement: Measurement, machines: &[Machine<'_>]) -> Option<String> {
    let choices = |machine: &Machine<'_>| -> Vec<(u64, f64)> {
        let rows = machine.of(measurement);
        let chosen =
            rows.iter().filter(|row| row.candidate.kind == Kind::Policy && row.metric == Metric::Bandwidth);
        chosen.filter_map(|row| Some((row.config.size?, row.stats.median))).collect()
    };
    let all: Vec<(&str, Vec<(u64, f64)>)> = machines
        .iter()
        .map(|machine| (machine.label.as_str(), choices(machine)))
        .filter(|(_, it)| !it.is_empty())
        .collect();
    let (_, first) = all.first()?;
    let common = first
        .iter()
        .map(|(size, _)| *size)
        .filter(|size| all.iter().all(|(_, it)| it.iter().any(|(at, _)| at == size)));
    let size = common.max().filter(|_| all.len() > 1)?;
    let mut speeds: Vec<(&str, f64)> = all
        .iter()
        .filter_map(|(label, it)| Some((*label, it.iter().find(|(at, _)| *at == size)?.1)))
        .collect();
    speeds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told: Vec<String> =
        speeds.iter().map(|(label, speed)| format!("{} GB/s on {label}", names::digits(*speed))).collect();
    Some(format!("To {measurement} {}, bulkmem's choice reaches {}.", exact_size(size), names::list(&told)))
}

/// What a calibration says where nothing else was measured.
fn of_profile(profile: &bulkmem_measure::calibration::Profile) -> Vec<String> {
    let intents = |operation| {
        let rules = profile.rules.iter().filter(move |rule| {
            (rule.operation, rule.intent) == (operation, Intent::Throughput) && rule.from > 0
        });
        let told: Vec<String> = rules
            .map(|rule| {
                format!("{} from {}", name_with(&rule.method, &rule.parameters), exact_size(rule.from))
            })
            .collect();
        (!told.is_empty()).then(|| format!("To {operation}, bulkmem uses {}.", names::list(&told)))
    };
    let mut sentences: Vec<String> = Operation::ALL.into_iter().filter_map(intents).collect();
    let provenance = &profile.provenance;
    sentences.push(format!(
        "This rests on a calibration of {} that took {:.0} s and {} samples{}.",
        provenance.date.split('T').next().unwrap_or_default(),
        provenance.seconds,
        provenance.samples,
        if profile.coverage.complete { "" } else { "; not every operation was measured to the end" },
    ));
    sentences
}
