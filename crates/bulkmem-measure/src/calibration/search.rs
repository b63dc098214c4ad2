//! Searches for fast methods at one length: every method once, the better half again, then one tunable at a time around
//! the best.

use std::time::Duration;

use crate::calibration::{Condition, Cost};
use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect, Parameters};
use bulkmem::policy::Choice;

use crate::calibration::plan::LONG;
use crate::calibration::session::{Meter, Session};
use crate::engine::workload::Cell;

/// A candidate slower than the best by this factor after one sample gets no second sample.
const PRUNE_RATIO: f64 = 1.5;
/// Most candidates that get a second sample.
const SURVIVORS: usize = 12;
/// Further candidates that do not fill the cache, for the intent `Stream`.
const CACHE_SPARING_CANDIDATES: usize = 4;
/// Most methods whose tunables are searched.
const TUNED: usize = 3;
/// Least gain, as a logarithm, for a new value of a tunable.
const LEAST_GAIN: f64 = 0.015;
/// Samples of each value of a tunable in each condition.
const TUNING_SAMPLES: usize = 2;

/// The operation, length and conditions of a search.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) operation: Operation,
    pub(crate) length: u64,
    pub(crate) conditions: Vec<Condition>,
}

/// A candidate with the best time seen in each of the field's conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) choice: Choice,
    times: Vec<f64>,
}

impl Ranked {
    fn new(choice: Choice, conditions: usize) -> Ranked {
        Ranked { choice, times: vec![f64::INFINITY; conditions] }
    }

    /// The mean logarithm of the times; infinite if one is missing.
    pub(crate) fn score(&self) -> f64 {
        self.times.iter().map(|ns| ns.ln()).sum::<f64>() / self.times.len().max(1) as f64
    }
}

/// Returns every method that supports the operation here, with its default parameters; the C library first.
pub(crate) fn every_method(operation: Operation) -> Vec<Choice> {
    method::all()
        .filter(|method| method.does(operation) && method.available())
        .map(|method| Choice { method, parameters: method.default_parameters(operation) })
        .collect()
}

/// True if a method does not fill the cache.
pub(crate) fn spares_cache(choice: &Choice) -> bool {
    matches!(choice.method.effect, CacheEffect::Bypasses | CacheEffect::Evicts)
}

/// Searches one field, starting with `candidates` in their order, until the deadline. Returns the measured candidates,
/// best first.
pub(crate) fn explore<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    field: &Field,
    candidates: &[Choice],
    deadline: Duration,
) -> Vec<Ranked> {
    let mut ranked = Vec::new();
    // The last quarter is for tunables.
    let now = session.elapsed();
    let screened = now + deadline.saturating_sub(now).mul_f64(0.75);
    for &choice in candidates {
        if ranked.len() > 1 && session.over(screened) {
            break;
        }
        let mut entry = Ranked::new(choice, field.conditions.len());
        measure(session, field, &mut entry);
        ranked.push(entry);
    }
    for keep in [SURVIVORS, SURVIVORS / 2] {
        let survivors = survivors(&mut ranked, keep);
        for &index in &survivors {
            if session.over(screened) {
                break;
            }
            measure(session, field, &mut ranked[index]);
        }
    }
    sort(&mut ranked);
    for choice in to_tune(&ranked, field.operation) {
        tune(session, field, &mut ranked, choice, deadline);
    }
    sort(&mut ranked);
    ranked.retain(|entry| entry.score().is_finite());
    ranked
}

/// Takes a sample in each condition and keeps the best times.
fn measure<M: Meter<Choice>>(session: &mut Session<'_, M>, field: &Field, entry: &mut Ranked) {
    for (condition, best) in field.conditions.iter().zip(&mut entry.times) {
        let cell = Cell {
            operation: field.operation,
            cost: Cost::Throughput,
            length: field.length,
            condition: *condition,
        };
        if let Some(sample) = session.sample(&cell, &entry.choice) {
            *best = best.min(sample.ns);
        }
    }
}

fn sort(ranked: &mut [Ranked]) {
    ranked.sort_by(|a, b| a.score().total_cmp(&b.score()));
}

/// Sorts, and returns the indices of the candidates that get another sample.
fn survivors(ranked: &mut [Ranked], keep: usize) -> Vec<usize> {
    sort(ranked);
    let Some(best) = ranked.first().map(Ranked::score) else { return Vec::new() };
    let near = |entry: &Ranked| entry.score() <= best + PRUNE_RATIO.ln();
    let sparing: Vec<usize> = (0..ranked.len())
        .filter(|&index| spares_cache(&ranked[index].choice))
        .take(CACHE_SPARING_CANDIDATES)
        .collect();
    (0..ranked.len())
        .filter(|index| (*index < keep && near(&ranked[*index])) || sparing.contains(index))
        .collect()
}

/// Returns the best few methods that have tunables, and the best one of them that does not fill the cache.
fn to_tune(ranked: &[Ranked], operation: Operation) -> Vec<Choice> {
    let Some(best) = ranked.first().map(Ranked::score) else { return Vec::new() };
    let tunable = |entry: &&Ranked| {
        entry.choice.method.tunables(operation).is_some_and(|tunables| !tunables.is_empty())
    };
    let mut chosen: Vec<Choice> = Vec::new();
    for entry in ranked.iter().filter(tunable).filter(|entry| entry.score() <= best + PRUNE_RATIO.ln()) {
        if chosen.len() < TUNED && chosen.iter().all(|choice| choice.method != entry.choice.method) {
            chosen.push(entry.choice);
        }
    }
    let sparing = ranked.iter().filter(tunable).find(|entry| spares_cache(&entry.choice));
    chosen.extend(sparing.map(|entry| entry.choice).filter(|choice| !chosen.contains(choice)));
    chosen
}

/// Searches one tunable after the other around a choice, keeps values that gain, and adds all to the ranking.
fn tune<M: Meter<Choice>>(
    session: &mut Session<'_, M>,
    field: &Field,
    ranked: &mut Vec<Ranked>,
    start: Choice,
    deadline: Duration,
) {
    let mut current = start;
    for tunable in start.method.tunables(field.operation).unwrap_or_default() {
        let mut values: Vec<Ranked> = tunable
            .search
            .iter()
            .map(|&value| with(current, tunable.name, value))
            .chain([current])
            .map(|choice| Ranked::new(choice, field.conditions.len()))
            .collect();
        values.dedup_by_key(|entry| entry.choice.parameters);
        for _ in 0..TUNING_SAMPLES {
            for entry in &mut values {
                if session.over(deadline) {
                    return;
                }
                measure(session, field, entry);
            }
        }
        let Some(stays) = values.iter().find(|entry| entry.choice == current).map(Ranked::score) else {
            return;
        };
        sort(&mut values);
        if values[0].score() < stays - LEAST_GAIN {
            current = values[0].choice;
        }
        for entry in values {
            match ranked.iter_mut().find(|known| known.choice == entry.choice) {
                Some(known) => {
                    known
                        .times
                        .iter_mut()
                        .zip(&entry.times)
                        .for_each(|(known, new)| *known = known.min(*new));
                }
                None => ranked.push(entry),
            }
        }
    }
}

fn with(mut choice: Choice, tunable: &str, value: u32) -> Choice {
    choice.parameters.set(tunable, value);
    choice
}

/// Returns the candidates to start the next length with: the best of each method in the order of this length's ranking,
/// then all other methods, since a method that is slow within the cache may be the best beyond it. If samples take long,
/// only candidates that are not far behind go on.
pub(crate) fn seeds(ranked: &[Ranked], next_length: u64, operation: Operation) -> Vec<Choice> {
    let Some(best) = ranked.first().map(Ranked::score) else { return Vec::new() };
    let few = next_length >= LONG;
    let mut seeds: Vec<Choice> = Vec::new();
    let mut sparing = 0;
    for entry in ranked {
        if seeds.iter().any(|seed| seed.method == entry.choice.method) {
            continue;
        }
        let spares = spares_cache(&entry.choice) && sparing < CACHE_SPARING_CANDIDATES;
        let near = entry.score() <= best + PRUNE_RATIO.ln();
        if !few || near || spares || entry.choice.method == method::c_library() {
            sparing += usize::from(spares);
            seeds.push(entry.choice);
        }
    }
    if !few {
        for choice in every_method(operation) {
            if seeds.iter().all(|seed| seed.method != choice.method) {
                seeds.push(choice);
            }
        }
    }
    seeds
}

/// Returns the choices to measure precisely: the best few, the best in each condition, the best that is in no condition
/// slower than the C library, and those in `also`. At most `most`, but always those in `also` and the C library.
pub(crate) fn finalists(
    ranked: &[Ranked],
    also: &[Choice],
    operation: Operation,
    most: usize,
) -> Vec<Choice> {
    let mut finalists: Vec<Choice> = Vec::new();
    let plain = method::c_library();
    if plain.does(operation) {
        finalists.push(Choice { method: plain, parameters: Parameters::default() });
    }
    for choice in also {
        if !finalists.contains(choice) {
            finalists.push(*choice);
        }
    }
    let plain = ranked.iter().find(|entry| entry.choice.method == plain);
    let never_slower = ranked.iter().find(|entry| {
        entry.choice.method != method::c_library()
            && plain.is_none_or(|plain| entry.times.iter().zip(&plain.times).all(|(ns, plain)| ns <= plain))
    });
    let conditions = ranked.first().map_or(0, |entry| entry.times.len());
    let best_in_each = (0..conditions)
        .filter_map(|index| ranked.iter().min_by(|a, b| a.times[index].total_cmp(&b.times[index])));
    let order = ranked.iter().take(1).chain(never_slower).chain(best_in_each).chain(ranked.iter().skip(1));
    for entry in order {
        // Two settings of one method are enough.
        let same = finalists.iter().filter(|choice| choice.method == entry.choice.method).count();
        if finalists.len() < most && same < 2 && !finalists.contains(&entry.choice) {
            finalists.push(entry.choice);
        }
    }
    finalists
}

#[cfg(test)]
mod tests;
