//! Searches for fast methods at one length: every method once, the better half again, then one tunable at a time around
//! the best.

use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect};
use bulkmem::policy::Choice;

use crate::calibration::session::{Meter, Session};
use crate::engine::cell::Cell;
use crate::engine::distinct;
use crate::engine::implementation::FOR_COMPARISON;

/// Candidates that do not fill the cache and get further samples although they are slow, for the intent `Stream`.
const CACHE_SPARING_CANDIDATES: usize = 4;

/// A candidate with the best time seen in each configuration.
#[derive(Clone)]
pub(crate) struct Ranked {
    pub(crate) choice: Choice,
    times: Vec<f64>,
}

impl Ranked {
    fn new(choice: Choice, cells: &[Cell]) -> Ranked {
        Ranked { choice, times: vec![f64::INFINITY; cells.len()] }
    }

    /// The mean logarithm of the times; infinite if one is missing.
    pub(crate) fn score(&self) -> f64 {
        self.times.iter().map(|ns| ns.ln()).sum::<f64>() / self.times.len().max(1) as f64
    }

    /// Takes a sample in each configuration and keeps the best times.
    fn measure(&mut self, session: &mut Session<'_, impl Meter>, cells: &[Cell]) {
        for (cell, best) in cells.iter().zip(&mut self.times) {
            if let Some(sample) = session.sample(cell, Some(&self.choice)) {
                *best = best.min(sample.ns);
            }
        }
    }
}

/// Returns every method that supports the operation here and is not only compared with, with its default parameters; the C
/// library first. Copies that bypass the cache also with a prefetch of the source: without it, others may be faster, so that
/// nothing would search its distance.
pub(crate) fn every_method(operation: Operation) -> Vec<Choice> {
    let possible = method::all().filter(|method| method.does(operation) && method.available());
    let possible = possible.filter(|method| !FOR_COMPARISON.contains(&method.name));
    let settings = |method| {
        let plain = Choice::of(method, operation);
        [Some(plain), prefetching(plain, operation)]
    };
    possible.flat_map(settings).flatten().collect()
}

/// Returns a copy that bypasses the cache with a prefetch of the source, if its method has an optional one.
fn prefetching(plain: Choice, operation: Operation) -> Option<Choice> {
    const DISTANCE: u32 = 4096;
    let tunables = plain.method.tunables(operation).unwrap_or_default();
    let optional = tunables.iter().any(|it| it.name == "read_distance" && it.default == 0);
    let mut choice = plain;
    choice.parameters.set("read_distance", DISTANCE);
    (optional && plain.method.effect == CacheEffect::Bypasses).then_some(choice)
}

/// True if a method does not fill the cache.
pub(crate) fn spares_cache(choice: &Choice) -> bool {
    matches!(choice.method.effect, CacheEffect::Bypasses | CacheEffect::Evicts)
}

/// True if a method stores through the cache. Copies and fills that persist write the lines back, too; a write-back alone
/// stores nothing.
pub(crate) fn stores_through_cache(operation: Operation, choice: &Choice) -> bool {
    let writes_back = matches!(operation, Operation::CopyPersist | Operation::FillPersist);
    !spares_cache(choice) || (writes_back && choice.method.effect == CacheEffect::Evicts)
}

/// Searches the configurations of one length, starting with `candidates` in their order, until the deadline. Returns the
/// measured candidates, best first.
pub(crate) fn explore(
    session: &mut Session<'_, impl Meter>,
    cells: &[Cell],
    candidates: &[Choice],
    deadline: Duration,
) -> Vec<Ranked> {
    let mut ranked = Vec::new();
    // The last quarter is for tunables.
    let screened = session.after_share(0.75, deadline);
    for &choice in candidates {
        if ranked.len() > 1 && session.over(screened) {
            break;
        }
        let mut entry = Ranked::new(choice, cells);
        entry.measure(session, cells);
        ranked.push(entry);
    }
    // Second and third samples for fewer and fewer.
    for keep in [12, 6] {
        sort(&mut ranked);
        let limit = limit(&ranked);
        let mut sparing = 0..CACHE_SPARING_CANDIDATES;
        for (index, entry) in ranked.iter_mut().enumerate() {
            if session.over(screened) {
                break;
            }
            let spares = spares_cache(&entry.choice) && sparing.next().is_some();
            if spares || (index < keep && entry.score() <= limit) {
                entry.measure(session, cells);
            }
        }
    }
    sort(&mut ranked);
    for choice in to_tune(&ranked, cells[0].operation) {
        tune(session, cells, &mut ranked, choice, deadline);
    }
    sort(&mut ranked);
    ranked.retain(|entry| entry.score().is_finite());
    ranked
}

fn sort(ranked: &mut [Ranked]) {
    ranked.sort_by(|a, b| a.score().total_cmp(&b.score()));
}

/// Returns the score up to which candidates are not given up: 1.5 times the time of the best.
fn limit(ranked: &[Ranked]) -> f64 {
    ranked.first().map_or(f64::INFINITY, |best| best.score() + 1.5_f64.ln())
}

/// Returns the best three methods that have tunables, the best one of them that does not fill the cache, and the best one that keeps the
/// source out of it, which few programs want.
fn to_tune(ranked: &[Ranked], operation: Operation) -> Vec<Choice> {
    let tunables = |entry: &Ranked| entry.choice.method.tunables(operation).unwrap_or_default();
    let with_tunables = || ranked.iter().filter(|entry| !tunables(entry).is_empty());
    let tunable = || with_tunables().filter(|entry| !entry.choice.method.spares_source());
    let near = tunable().filter(|entry| entry.score() <= limit(ranked));
    let mut chosen = first_of_each_method(near.map(|entry| entry.choice));
    chosen.truncate(3);
    let sparing = tunable().map(|entry| entry.choice).find(spares_cache);
    chosen.extend(sparing.filter(|choice| !chosen.contains(choice)));
    let of_source = with_tunables().map(|entry| entry.choice).find(|choice| choice.method.spares_source());
    chosen.extend(of_source);
    chosen
}

/// Searches one tunable after the other around a choice, with two samples of each value in each condition. Keeps values
/// that gain at least 1.5 %, and adds all to the ranking.
fn tune(
    session: &mut Session<'_, impl Meter>,
    cells: &[Cell],
    ranked: &mut Vec<Ranked>,
    mut current: Choice,
    deadline: Duration,
) {
    for tunable in current.method.tunables(cells[0].operation).unwrap_or_default() {
        if tunable.name == "read_hint" && current.parameters.read_distance == 0 {
            // Nothing is prefetched.
            continue;
        }
        let with = |&value| {
            let mut choice = current;
            choice.parameters.set(tunable.name, value);
            choice
        };
        let choices = tunable.search.iter().map(with).chain([current]);
        let mut values: Vec<Ranked> = choices.map(|choice| Ranked::new(choice, cells)).collect();
        values.dedup_by_key(|entry| entry.choice.parameters);
        for _ in 0..2 {
            for entry in &mut values {
                if session.over(deadline) {
                    return;
                }
                entry.measure(session, cells);
            }
        }
        let before = values.iter().find(|entry| entry.choice == current).map_or(f64::INFINITY, Ranked::score);
        sort(&mut values);
        if values[0].score() < before - 0.015 {
            current = values[0].choice;
        }
        for entry in values {
            match ranked.iter_mut().find(|known| known.choice == entry.choice) {
                Some(known) => {
                    known.times = known.times.iter().zip(&entry.times).map(|(a, b)| a.min(*b)).collect();
                }
                None => ranked.push(entry),
            }
        }
    }
}

/// Returns the candidates to start the next length with: the best of each method in the order of this length's ranking,
/// then all other methods, since a method that is slow within the cache may be the best beyond it. A copy with a prefetch of the
/// source counts as another method.
pub(crate) fn seeds(ranked: &[Ranked], operation: Operation) -> Vec<Choice> {
    let choices = ranked.iter().map(|entry| entry.choice).chain(every_method(operation));
    first_of_each(choices, |choice| (choice.method.name, choice.parameters.read_distance > 0))
}

/// Returns the first choice of each method.
pub(crate) fn first_of_each_method(choices: impl IntoIterator<Item = Choice>) -> Vec<Choice> {
    first_of_each(choices, |choice| choice.method.name)
}

fn first_of_each<K: PartialEq>(
    choices: impl IntoIterator<Item = Choice>,
    key: impl Fn(&Choice) -> K,
) -> Vec<Choice> {
    let mut first: Vec<Choice> = Vec::new();
    for choice in choices {
        if first.iter().all(|known| key(known) != key(&choice)) {
            first.push(choice);
        }
    }
    first
}

/// Returns the choices to measure precisely: those in `also`, the C library, the best that does not fill the cache, the best in
/// each condition that is not the C library, the best few, and the best that is in no condition slower than the C library. At most
/// `most`, but always those before the best few: for uncached or for cached memory, one of them may be the best even if a few
/// samples say otherwise, and longer lengths only try again what was precisely measured.
pub(crate) fn finalists(
    ranked: &[Ranked],
    also: &[Choice],
    operation: Operation,
    most: usize,
) -> Vec<Choice> {
    let c_library = method::c_library();
    let mut finalists: Vec<Choice> = Vec::new();
    finalists.extend(c_library.does(operation).then(|| Choice::of(c_library, operation)));
    finalists.extend(also.iter().filter(|choice| choice.method != c_library));
    let others = || ranked.iter().filter(|entry| entry.choice.method != c_library);
    let sparing = others().find(|entry| spares_cache(&entry.choice));
    let conditions = ranked.first().map_or(0, |entry| entry.times.len());
    let best_in_each =
        (0..conditions).filter_map(|index| others().min_by(|a, b| a.times[index].total_cmp(&b.times[index])));
    for entry in sparing.into_iter().chain(best_in_each) {
        if !finalists.contains(&entry.choice) {
            finalists.push(entry.choice);
        }
    }
    let plain = ranked.iter().find(|entry| entry.choice.method == c_library);
    let never_slower = others().find(|entry| {
        plain.is_none_or(|plain| entry.times.iter().zip(&plain.times).all(|(ns, plain)| ns <= plain))
    });
    for entry in ranked.iter().take(1).chain(never_slower).chain(ranked.iter().skip(1)) {
        // Two settings of one method are enough.
        let same = finalists.iter().filter(|choice| choice.method == entry.choice.method).count();
        if finalists.len() < most && same < 2 && !finalists.contains(&entry.choice) {
            finalists.push(entry.choice);
        }
    }
    finalists
}

/// Returns the choices to measure precisely where a sample takes long, at most `most` or two: the C library, those in `also`, and the
/// best few.
pub(crate) fn long_finalists(
    ranked: &[Ranked],
    also: &[Choice],
    operation: Operation,
    most: usize,
) -> Vec<Choice> {
    let c_library = method::c_library();
    let c_library = c_library.does(operation).then(|| Choice::of(c_library, operation));
    let all =
        c_library.into_iter().chain(also.iter().copied()).chain(ranked.iter().map(|entry| entry.choice));
    let mut finalists = distinct(all);
    finalists.truncate(most.max(2));
    finalists
}

#[cfg(test)]
mod tests;
