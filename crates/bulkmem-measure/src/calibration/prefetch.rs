//! Searches how copies that bypass the cache prefetch their source: every distance with every hint, of every method. If each
//! tunable is searched alone, a search ends at another of many near-equal values in each calibration, only a few methods are searched, and
//! at long lengths there is no time for any. What is best at 1 MiB is within 2 % of the best at 64 MiB (`docs/learned.md`).

use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method::CacheEffect;
use bulkmem::policy::Choice;

use crate::calibration::search;
use crate::calibration::session::{Meter, Session, Trial};
use crate::engine::cell::{Cell, Timing};
use crate::engine::distinct;
use crate::engine::interleave::StopRule;
use crate::engine::stats::median;

const ROUNDS: usize = 5;

/// The best prefetch of each method that bypasses the cache, the fastest first. Empty if the time is over before each has a sample.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
    /// By the geometric mean over all cells.
    pub(super) by_all: Vec<Choice>,
    /// By the first cell.
    pub(super) by_first: Vec<Choice>,
}

/// Searches the best prefetch in some cells of one operation. The other tunables of a method are those of its first candidate.
pub(super) fn search(
    session: &mut Session<'_, impl Meter>,
    cells: &[Cell],
    candidates: &[Choice],
    deadline: Duration,
) -> Prefetches {
    let Some(first) = cells.first() else { return Prefetches::default() };
    let bypassing = candidates.iter().filter(|it| it.method.effect == CacheEffect::Bypasses).copied();
    let choices: Vec<Choice> = search::first_of_each_method(bypassing)
        .into_iter()
        .flat_map(|choice| prefetches(choice, first.operation))
        .collect();
    let with_each = |choice: &Choice| cells.iter().map(|cell| (*cell, Some(*choice))).collect::<Vec<_>>();
    let trials: Vec<Trial> = choices.iter().flat_map(with_each).collect();
    let deadline = Some(deadline);
    let stop = StopRule { warm_up: false, most: ROUNDS, until_separated: None, deadline, least: 0 };
    let samples = session.interleave(&trials, stop);
    if samples.iter().any(Vec::is_empty) {
        return Prefetches::default();
    }
    let median_ln = |taken: &Vec<Timing>| median(&taken.iter().map(|it| it.ns).collect::<Vec<_>>()).ln();
    let best = |score: &dyn Fn(&[Vec<Timing>]) -> f64| {
        let scores = samples.chunks(cells.len()).map(score);
        let mut ranked: Vec<(f64, Choice)> = scores.zip(choices.iter().copied()).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        search::first_of_each_method(ranked.into_iter().map(|(_, choice)| choice))
    };
    Prefetches {
        by_all: best(&|in_each| in_each.iter().map(median_ln).sum()),
        by_first: best(&|in_each| median_ln(&in_each[0])),
    }
}

/// Returns a choice with every prefetch of the source that its method has.
fn prefetches(choice: Choice, operation: Operation) -> Vec<Choice> {
    let tunables = choice.method.tunables(operation).unwrap_or_default();
    let values = |name| tunables.iter().find(|it| it.name == name).map(|it| it.search);
    let Some(distances) = values("read_distance") else { return Vec::new() };
    let hints = values("read_hint").unwrap_or(&[0]);
    let with = |distance: u32, hint: u32| {
        let mut choice = choice;
        choice.parameters.set("read_distance", distance);
        choice.parameters.set("read_hint", hint);
        choice
    };
    let prefetching = distances.iter().filter(|distance| **distance > 0);
    prefetching.flat_map(|distance| hints.iter().map(|hint| with(*distance, *hint))).collect()
}

/// Returns the candidates with these prefetches in place of theirs.
pub(super) fn with_prefetches(candidates: Vec<Choice>, found: &[Choice]) -> Vec<Choice> {
    let replaced = candidates.into_iter().map(|candidate| {
        let better = found.iter().find(|it| it.method == candidate.method);
        better.filter(|_| candidate.parameters.read_distance > 0).copied().unwrap_or(candidate)
    });
    distinct(replaced.chain(found.iter().copied()))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::calibration::fake::{COLD, Planted};
    use crate::calibration::plan::PREFETCH_LENGTH;
    use crate::calibration::{Condition, Cost};
    use crate::engine::CacheState;

    fn searched(operation: Operation, sources: &[Option<CacheState>], deadline: Duration) -> Prefetches {
        let stop = AtomicBool::new(false);
        let mut quiet = |_: &crate::Progress| {};
        // The hint pays only at one distance of one method, alone each of them is no better than others, and it costs more if the source
        // is cached.
        let answer = |cell: &Cell, choice: &Choice| {
            let it = choice.parameters;
            match (choice.method.name, it.read_distance, it.read_hint) {
                ("movnti", 1024, 1) if cell.condition.source.is_some() => 150_000.0,
                ("movnti", 1024, 1) => 80_000.0,
                ("movnti", 1024, _) | ("movnti", _, 1) => 104_000.0,
                ("nontemporal_sse2", 512, 2) => 90_000.0,
                _ => 100_000.0,
            }
        };
        let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut quiet, deadline);
        let cell = |source: &Option<CacheState>| {
            Cell::new(operation, Cost::Throughput, PREFETCH_LENGTH, Condition { source: *source, ..COLD })
        };
        let cells: Vec<Cell> = sources.iter().map(cell).collect();
        search(&mut session, &cells, &search::every_method(operation), deadline)
    }

    const AMPLE: Duration = Duration::from_secs(10);

    fn brief(choice: &Choice) -> (&str, u32, u32) {
        (choice.method.name, choice.parameters.read_distance, choice.parameters.read_hint)
    }

    #[test]
    fn it_finds_a_distance_and_a_hint_that_pay_only_together() {
        for operation in [Operation::Copy, Operation::CopyPersist] {
            let best = searched(operation, &[None], AMPLE).by_all;
            assert_eq!(brief(&best[0]), ("movnti", 1024, 1), "{operation}");
            assert_eq!(brief(&best[1]), ("nontemporal_sse2", 512, 2), "{operation}");
            assert!(best.iter().all(|choice| choice.method.effect == CacheEffect::Bypasses));
            assert_eq!(search::first_of_each_method(best.iter().copied()), best, "one of each method");
        }
    }

    #[test]
    fn it_counts_what_a_prefetch_costs_if_the_source_is_cached() {
        let best = searched(Operation::Copy, &[None, Some(CacheState::Warm)], AMPLE);
        assert_eq!(brief(&best.by_all[0]), ("nontemporal_sse2", 512, 2));
        let movnti = best.by_all.iter().find(|choice| choice.method.name == "movnti").unwrap();
        assert_ne!((movnti.parameters.read_distance, movnti.parameters.read_hint), (1024, 1));
        assert_eq!(brief(&best.by_first[0]), ("movnti", 1024, 1), "for sources that are never cached");
    }

    #[test]
    fn without_a_source_or_without_time_it_finds_nothing() {
        for nothing in [
            searched(Operation::Fill, &[None], AMPLE),
            searched(Operation::Copy, &[], AMPLE),
            searched(Operation::Copy, &[None], Duration::from_millis(1)),
        ] {
            assert!(nothing.by_all.is_empty() && nothing.by_first.is_empty());
        }
    }

    #[test]
    fn it_keeps_other_tunables_and_the_order_of_the_candidates() {
        let method = |name: &str, parameters: &[(&str, u32)]| {
            let mut choice = Choice::of(bulkmem::method::by_name(name).unwrap(), Operation::Copy);
            for (name, value) in parameters {
                choice.parameters.set(name, *value);
            }
            choice
        };
        let streams = method("nontemporal_streams_sse2", &[("streams", 8)]);
        let all = prefetches(streams, Operation::Copy);
        assert!(!all.is_empty() && all.iter().all(|choice| choice.parameters.streams == 8));
        let candidates = [
            method("c_library", &[]),
            method("movnti", &[]),
            method("movnti", &[("read_distance", 4096)]),
            method("nontemporal_sse2", &[("read_distance", 4096)]),
        ];
        let found = [method("movnti", &[("read_distance", 1024)]), streams];
        assert_eq!(
            with_prefetches(candidates.to_vec(), &found),
            [candidates[0], candidates[1], found[0], candidates[3], streams]
        );
    }
}
