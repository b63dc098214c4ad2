//! Searches how copies that bypass the cache prefetch their source, in uncached memory: every distance with every hint. One tunable
//! after the other, a search ends at another of many near-equal values in each calibration, at most by a few methods, and at
//! long lengths there is no time for any. What is best at 1 MiB is within 2 % of the best at 64 MiB (`docs/calibrate.md`).

use std::time::Duration;

use bulkmem::Operation;
use bulkmem::method::{self, CacheEffect, Method};
use bulkmem::policy::Choice;

use crate::calibration::search;
use crate::calibration::session::{Meter, Session, Trial};
use crate::engine::implementation::FOR_COMPARISON;
use crate::engine::interleave::StopRule;
use crate::engine::stats::median;
use crate::engine::workload::Cell;

/// Length at which it is searched: beyond what hides misses, and still short.
pub(super) const LENGTH: u64 = 1 << 20;
const ROUNDS: usize = 5;

/// Returns the best prefetch of each method that bypasses the cache, the fastest first. Of no method, if the time is over before
/// each has a sample.
pub(super) fn search(session: &mut Session<'_, impl Meter>, cell: Cell, deadline: Duration) -> Vec<Choice> {
    let choices = choices(cell.operation);
    let trials: Vec<Trial> = choices.iter().map(|choice| (cell, Some(*choice))).collect();
    let stop = StopRule {
        warm_up: false,
        most: ROUNDS,
        until_separated: None,
        deadline: Some(deadline),
        first_round: false,
    };
    let samples = session.interleave(&trials, stop);
    if samples.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let times = samples.iter().map(|taken| median(&taken.iter().map(|it| it.ns).collect::<Vec<_>>()));
    let mut ranked: Vec<(f64, Choice)> = times.zip(choices).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    search::first_of_each_method(ranked.into_iter().map(|(_, choice)| choice))
}

/// Returns the methods that bypass the cache, with every prefetch of the source.
fn choices(operation: Operation) -> Vec<Choice> {
    let bypasses = |it: &&Method| {
        let comparable = it.does(operation) && it.available() && !FOR_COMPARISON.contains(&it.name);
        comparable && it.effect == CacheEffect::Bypasses
    };
    method::all().filter(bypasses).flat_map(|method| prefetches(method, operation)).collect()
}

fn prefetches(method: &'static Method, operation: Operation) -> Vec<Choice> {
    let tunables = method.tunables(operation).unwrap_or_default();
    let values = |name| tunables.iter().find(|it| it.name == name).map(|it| it.search);
    let Some(distances) = values("read_distance") else { return Vec::new() };
    let hints = values("read_hint").unwrap_or(&[0]);
    let with = |distance: u32, hint: u32| {
        let mut choice = Choice::of(method, operation);
        choice.parameters.set("read_distance", distance);
        choice.parameters.set("read_hint", hint);
        choice
    };
    let prefetching = distances.iter().filter(|distance| **distance > 0);
    prefetching.flat_map(|distance| hints.iter().map(|hint| with(*distance, *hint))).collect()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::calibration::Cost;
    use crate::calibration::fake::{COLD, Planted};

    fn searched(operation: Operation, deadline: Duration) -> Vec<Choice> {
        let stop = AtomicBool::new(false);
        let mut quiet = |_: &crate::Progress| {};
        // The hint pays only at one distance of one method; alone, each of them is no better than others.
        let answer = |_: &Cell, choice: &Choice| {
            let it = choice.parameters;
            match (choice.method.name, it.read_distance, it.read_hint) {
                ("movnti", 1024, 1) => 80_000.0,
                ("movnti", 1024, _) | ("movnti", _, 1) => 104_000.0,
                ("nontemporal_sse2", 512, 2) => 90_000.0,
                _ => 100_000.0,
            }
        };
        let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut quiet, deadline);
        let cell = Cell::new(operation, Cost::Throughput, LENGTH, COLD);
        search(&mut session, cell, deadline)
    }

    #[test]
    fn it_finds_a_distance_and_a_hint_that_pay_only_together() {
        for operation in [Operation::Copy, Operation::CopyPersist] {
            let best = searched(operation, Duration::from_secs(10));
            let brief = |choice: &Choice| {
                (choice.method.name, choice.parameters.read_distance, choice.parameters.read_hint)
            };
            assert_eq!(brief(&best[0]), ("movnti", 1024, 1), "{operation}");
            assert_eq!(brief(&best[1]), ("nontemporal_sse2", 512, 2), "{operation}");
            assert!(best.iter().all(|choice| choice.method.effect == CacheEffect::Bypasses));
            assert_eq!(search::first_of_each_method(best.iter().copied()), best, "one of each method");
        }
    }

    #[test]
    fn without_a_source_or_without_time_it_finds_nothing() {
        assert!(searched(Operation::Fill, Duration::from_secs(10)).is_empty());
        assert!(searched(Operation::Copy, Duration::from_millis(1)).is_empty());
    }
}
