//! The opening of a report: the choice for every operation at four lengths, by cache state, with its speed and gain.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bulkmem::method::{self, c_library};
use bulkmem::policy::{Choice, Situation};
use bulkmem::{Intent, Operation};
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::{Alignment, CacheState, Config, Measurement, Metric, Row};

use super::advice::{self, WORTH};
use super::input::Machine;
use super::labels::list;
use super::model::{Gauge, Grid, Opening, Panel};
use crate::commands::lengths::{self, LENGTHS, distance};
use crate::figures::{name_with, rule_at};
use crate::output::{digits, exact_size, plural};
use crate::results::{group, word};

/// Gains beyond this one end at the edge of the chart.
const MOST_GAIN: f64 = 5.0;

/// The choice for a length and cache state, with its speed and that of others.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) operation: Operation,
    pub(super) length: u64,
    pub(super) state: CacheState,
    /// With its parameters.
    pub(super) method: String,
    pub(super) measured_length: u64,
    pub(super) gb_per_s: f64,
    /// The speed of libraries, first the one that the chart compares with.
    pub(super) others: Vec<(&'static str, f64)>,
    /// True if calibration measured it, without the time of a look.
    by_calibration: bool,
}

impl Answer {
    /// Returns how many times as fast as the C library the choice is.
    pub(super) fn times_c_library(&self) -> Option<f64> {
        let name = c_function(self.operation)?;
        let (_, speed) = self.others.iter().find(|(other, _)| *other == name)?;
        Some(self.gb_per_s / speed)
    }

    /// Returns the gains as text: `1.70 × memset`.
    pub(super) fn gains(&self) -> impl Iterator<Item = String> {
        self.others.iter().map(|(name, speed)| format!("{} × {name}", digits(self.gb_per_s / speed)))
    }

    /// Returns the method without its parameters.
    pub(super) fn short_method(&self) -> &str {
        self.method.split('[').next().unwrap_or_default()
    }

    fn state(&self) -> String {
        word(&self.state)
    }
}

/// Returns the function of the C library that does the same; `None` if there is none.
pub(super) fn c_function(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Clear | Operation::Fill => Some("memset"),
        Operation::Copy => Some("memcpy"),
        _ => None,
    }
}

/// Returns the opening for a machine.
pub(super) fn of(machine: &Machine<'_>) -> Opening {
    let answers = answers(machine);
    if answers.is_empty() {
        let advice = vec![NOTHING.to_owned()];
        return Opening { heading: machine.name(), machine: about(machine), advice, ..Opening::default() };
    }
    let gains = answers.iter().flat_map(|it| it.others.iter().map(|(_, other)| it.gb_per_s / other));
    let scale = gains.fold(2.0, f64::max).min(MOST_GAIN);
    let panels = group(answers.iter().filter(|it| !it.others.is_empty()), |it| it.operation);
    let panels = panels.into_iter().map(|(operation, answers)| Panel {
        operation: operation.name(),
        groups: group(answers, |it| it.length)
            .into_iter()
            .map(|(length, answers)| {
                (exact_size(length), answers.into_iter().map(|it| gauge(it, scale)).collect())
            })
            .collect(),
    });
    Opening {
        heading: machine.name(),
        machine: about(machine),
        panels: panels.collect(),
        has_libpmem: answers.iter().any(|it| it.others.iter().any(|(name, _)| *name == LIBPMEM)),
        notes: notes(machine, &answers),
        advice: advice::of(&answers, machine.profile).into(),
        table: table(&answers),
    }
}

const LIBPMEM: &str = "libpmem";
const NOTHING: &str = "The files have no figures that tell cold from warm memory, so there is no chart of the choices: run \
                       bulkmem calibrate on this machine, or bulkmem bench choice clear --cold --warm --size \
                       64K,1M,16M,1G --output choice.json, and give its file to bulkmem report.";

/// Returns what else distinguishes the machine, for people.
fn about(machine: &Machine<'_>) -> String {
    let provenance = machine.provenance;
    let date = provenance.date.split('T').next().unwrap_or_default();
    let mut parts = vec![plural(provenance.processors, "processor")];
    parts.extend(machine.libraries.iter().cloned());
    parts.push(format!("Linux {}", provenance.kernel));
    parts.push(format!("measured {date}"));
    parts.join(" · ")
}

/// Returns the choices of `bench choice`, and those of the profile for what that did not measure.
fn answers(machine: &Machine<'_>) -> Vec<Answer> {
    let calibrated = machine.profile.map(of_profile).unwrap_or_default();
    let mut answers: BTreeMap<(Operation, u64, CacheState), Answer> =
        calibrated.into_iter().map(|it| ((it.operation, it.length, it.state), it)).collect();
    for operation in Operation::ALL {
        for (_, length) in LENGTHS {
            for answer in of_rows(machine, operation, length) {
                answers.insert((operation, length, answer.state), answer);
            }
        }
    }
    answers.into_values().collect()
}

fn of_profile(profile: &Profile) -> Vec<Answer> {
    let rows = lengths::rows(profile, |operation, length, state| choice(profile, operation, length, state));
    let answers = rows.into_iter().flat_map(|row| {
        let answer = move |(state, cell): (CacheState, Option<lengths::Cell>)| {
            let cell = cell?;
            let gb_per_s = cell.gb_per_s?;
            let other = c_function(row.operation).zip(cell.times_c_library);
            Some(Answer {
                operation: row.operation,
                length: row.length,
                state,
                method: cell.choice.to_string(),
                measured_length: cell.measured_length?,
                gb_per_s,
                others: other.into_iter().map(|(name, times)| (name, gb_per_s / times)).collect(),
                by_calibration: true,
            })
        };
        row.states.into_iter().filter_map(answer)
    });
    answers.collect()
}

/// Returns the choice of a profile for cold or warm memory, which operations find out by a look.
pub(super) fn choice(
    profile: &Profile,
    operation: Operation,
    length: u64,
    state: CacheState,
) -> Option<Choice> {
    let looks = profile.looks.iter().any(|it| it.operation == operation && it.from <= length);
    let situation = match state {
        _ if !looks => Situation::Throughput,
        CacheState::Cold => Situation::Uncached,
        _ => Situation::Cached,
    };
    let rule = rule_at(profile, operation, situation, length)?;
    Some(Choice::new(method::by_name(&rule.method)?, rule.parameters))
}

/// Returns the method that a row of `bench choice` used. It names the one by length, of which a look may make another.
fn used(
    machine: &Machine<'_>,
    operation: Operation,
    length: u64,
    state: CacheState,
    row: &Row,
) -> Option<String> {
    let chosen = row.chosen.clone()?;
    let looked = machine.profile.and_then(|profile| {
        let by_length = rule_at(profile, operation, Situation::Throughput, length)?;
        let is_same = name_with(&by_length.method, &by_length.parameters) == chosen;
        choice(profile, operation, length, state).filter(|_| is_same)
    });
    Some(looked.map_or(chosen, |choice| choice.to_string()))
}

/// Returns the choices for a length in the rows of `bench choice`, one for each cache state.
fn of_rows(machine: &Machine<'_>, operation: Operation, length: u64) -> Vec<Answer> {
    let plain = |config: &Config| {
        config.operation == Some(operation)
            && config.intent.is_none_or(|it| it == Intent::Throughput)
            && config.threads.is_none_or(|it| it == 1)
            && config.alignment.is_none_or(|it| it == Alignment::Aligned)
    };
    let mut rows = machine.of(Measurement::Choice);
    rows.retain(|row| row.metric == Metric::Bandwidth && plain(&row.config));
    let choices = rows.iter().copied().filter(|row| row.candidate.kind == Kind::Policy);
    let near = |row: &&Row| distance(row.config.size?, length);
    let choices = choices.filter(|row| near(row).is_some());
    let of_state = |(state, choices): (Option<CacheState>, Vec<&Row>)| {
        let row =
            choices.into_iter().min_by(|a, b| near(a).partial_cmp(&near(b)).unwrap_or(Ordering::Equal))?;
        let speed = |name: &str| {
            let other = rows.iter().find(|it| it.config == row.config && it.candidate.name == name)?;
            Some(other.stats.median)
        };
        let own = c_function(operation).and_then(|name| Some((name, speed(c_library().name)?)));
        Some(Answer {
            operation,
            length,
            state: state?,
            method: used(machine, operation, row.config.size?, state?, row)?,
            measured_length: row.config.size?,
            gb_per_s: row.stats.median,
            others: own.into_iter().chain(speed(LIBPMEM).map(|speed| (LIBPMEM, speed))).collect(),
            by_calibration: false,
        })
    };
    group(choices, |row| row.config.cache).into_iter().filter_map(of_state).collect()
}

fn gauge(answer: &Answer, scale: f64) -> Gauge {
    let share = |times: f64| (times / scale).min(1.0) * 100.0;
    let reference = answer.others.first().map_or(answer.gb_per_s, |(_, speed)| *speed);
    let mark = answer.others.iter().skip(1).map(|(_, speed)| share(speed / reference)).next();
    let Answer { operation, length, state: _, method, gb_per_s, .. } = answer;
    let (state, size) = (answer.state(), exact_size(*length));
    let others = answer.others.iter().map(|(name, speed)| format!(", {name} {} GB/s", digits(*speed)));
    Gauge {
        description: format!(
            "{operation} of {size}, {state}: {method}, {} GB/s{}",
            digits(*gb_per_s),
            others.collect::<String>()
        ),
        state,
        method: answer.short_method().to_owned(),
        speed: format!("{} GB/s", digits(*gb_per_s)),
        gains: answer.gains().collect(),
        bar: share(gb_per_s / reference),
        one: share(1.0),
        mark,
        more: gb_per_s / reference >= WORTH,
        beyond: gb_per_s / reference > scale,
    }
}

/// Returns what must be known of the figures: their source, and how they were measured.
fn notes(machine: &Machine<'_>, answers: &[Answer]) -> Vec<String> {
    let calibrated = answers.iter().filter(|it| it.by_calibration).count();
    let looks = machine.profile.is_some_and(|profile| !profile.looks.is_empty());
    let looks = if looks { ", without the time of looks" } else { "" };
    let mut notes =
        vec!["One thread, aligned, intent throughput. Cold: not in the cache; warm: in it.".to_owned()];
    notes.push(match answers.len() - calibrated {
        0 => format!("Measured by the calibration{looks}."),
        _ if calibrated == 0 => "Measured by bench choice.".to_owned(),
        chosen => format!(
            "{} measured by bench choice, the others by the calibration{looks}: the table has the source of each.",
            plural(chosen, "figure")
        ),
    });
    if answers.iter().any(|it| it.measured_length != it.length) {
        notes.push("Some were measured at a length up to a factor of 2 away: see the table.".to_owned());
    }
    let missing = Operation::ALL.into_iter().filter(|it| c_function(*it).is_some()).filter_map(|operation| {
        let lengths = LENGTHS.into_iter().map(|(_, length)| length);
        let missing = lengths
            .filter(|length| !answers.iter().any(|it| (it.operation, it.length) == (operation, *length)));
        let missing: Vec<String> = missing.map(exact_size).collect();
        match missing.len() {
            0 => None,
            many if many == LENGTHS.len() => Some(operation.to_string()),
            _ => Some(format!("{operation} of {}", list(&missing))),
        }
    });
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        notes
            .push(format!("Not measured: {}; bulkmem bench choice OPERATION --cold --warm --size SIZES measures any length.", missing.join(", ")));
    }
    notes
}

fn table(answers: &[Answer]) -> Grid {
    let rows = answers.iter().map(|it| {
        let of = |name: Option<&str>| it.others.iter().find(|(other, _)| Some(*other) == name);
        let times = |name| of(name).map_or_else(|| "–".to_owned(), |(_, speed)| digits(it.gb_per_s / speed));
        let [own, libpmem] = [times(c_function(it.operation)), times(Some(LIBPMEM))];
        let head = [it.operation.to_string(), exact_size(it.length), it.state(), it.method.clone()];
        let source = if it.by_calibration { "calibration" } else { "bench choice" };
        let tail = [digits(it.gb_per_s), own, libpmem, exact_size(it.measured_length), source.to_owned()];
        head.into_iter().chain(tail).collect()
    });
    let titles = "operation|length:|cache|method|GB/s:|× C library:|× libpmem:|measured at:|measured by";
    Grid { title: "All operations".to_owned(), ..Grid::new(titles, rows) }
}
