//! The choices that the opening of a report shows, from the profile and the rows of `bench choice`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bulkmem::method::{self, c_library};
use bulkmem::policy::{Choice, Situation};
use bulkmem::{Intent, Operation};
use bulkmem_measure::Kind;
use bulkmem_measure::calibration::{Profile, distance};
use bulkmem_measure::engine::{Alignment, CacheState, Config, LIBPMEM, Measurement, Metric, Row};

use super::input::Machine;
use crate::commands::lengths::{self, LENGTHS};
use crate::figures::rule_at;
use crate::output::digits;
use crate::results::{group, word};

/// Smaller gains are not worth a change of a program.
pub(super) const WORTH: f64 = 1.05;

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
    pub(super) by_calibration: bool,
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

    pub(super) fn state(&self) -> String {
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

/// Returns the choices of `bench choice`, and those of the profile for what that did not measure.
pub(super) fn answers(machine: &Machine<'_>) -> Vec<Answer> {
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
            let own = c_function(row.operation).zip(cell.times_c_library);
            let others = own.into_iter().chain(cell.times_libpmem.map(|times| (LIBPMEM, times)));
            Some(Answer {
                operation: row.operation,
                length: row.length,
                state,
                method: cell.choice.to_string(),
                measured_length: cell.measured_length?,
                gb_per_s,
                others: others.map(|(name, times)| (name, gb_per_s / times)).collect(),
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
            method: row.chosen.clone()?,
            measured_length: row.config.size?,
            gb_per_s: row.stats.median,
            others: own.into_iter().chain(speed(LIBPMEM).map(|speed| (LIBPMEM, speed))).collect(),
            by_calibration: false,
        })
    };
    group(choices, |row| row.config.cache).into_iter().filter_map(of_state).collect()
}
