//! The search on planted times.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::calibration::fake::{COLD, Planted};
use crate::calibration::{Condition, Cost};

/// Clear, cold and warm.
fn cells(length: u64) -> [Cell; 2] {
    let conditions = [COLD, Condition { warm: true, ..COLD }];
    conditions.map(|condition| Cell::new(Operation::Clear, Cost::Throughput, length, condition))
}

/// Explores with planted times and returns the ranking and how many samples each method got.
fn explored(
    answer: impl Fn(&Cell, &Choice) -> f64,
    deadline: Duration,
) -> (Vec<Ranked>, std::collections::HashMap<&'static str, u32>) {
    let mut counts = std::collections::HashMap::new();
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &crate::Progress| {};
    let ranked = {
        let counted = |cell: &Cell, choice: &Choice| {
            *counts.entry(choice.method.name).or_insert(0) += 1;
            answer(cell, choice)
        };
        let mut session = Session::new(Planted::new(0.005, counted), &stop, &mut quiet, deadline);
        explore(&mut session, &cells(4096), &every_method(Operation::Clear), deadline)
    };
    (ranked, counts)
}

const AMPLE: Duration = Duration::from_secs(10);

#[test]
fn it_finds_the_planted_best_method() {
    let best = every_method(Operation::Clear).last().unwrap().method.name;
    let (ranked, _) = explored(|_, choice| if choice.method.name == best { 100.0 } else { 130.0 }, AMPLE);
    assert_eq!(ranked[0].choice.method.name, best);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn it_finds_the_planted_parameter() {
    // Two thirds of the time at the right distance, and only there.
    let answer = |_: &Cell, choice: &Choice| {
        let right = choice.method.name == "write_prefetch_sse2" && choice.parameters.write_distance == 8192;
        let near = choice.method.name == "write_prefetch_sse2";
        if right {
            66.0
        } else if near {
            98.0
        } else {
            100.0
        }
    };
    let (ranked, _) = explored(answer, AMPLE);
    assert_eq!(ranked[0].choice.method.name, "write_prefetch_sse2");
    assert_eq!(ranked[0].choice.parameters.write_distance, 8192);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn planted_losers_get_one_sample_in_each_condition_and_no_more() {
    let (_, counts) =
        explored(|_, choice| if choice.method.name == "rep_stosq" { 1000.0 } else { 100.0 }, AMPLE);
    assert_eq!(counts["rep_stosq"], 2);
    assert!(counts.values().any(|count| *count > 2), "{counts:?}");
}

#[test]
fn the_deadline_is_honoured() {
    // 10 ms a sample, 100 ms in all: a sample in each condition may run over.
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &crate::Progress| {};
    let planted = Planted::new(0.0, |_: &Cell, _: &Choice| 1e7);
    let deadline = Duration::from_millis(100);
    let mut session = Session::new(planted, &stop, &mut quiet, deadline);
    let ranked = explore(&mut session, &cells(4096), &every_method(Operation::Clear), deadline);
    assert!(!ranked.is_empty());
    let elapsed = session.elapsed(); // on the planted clock
    assert!(elapsed <= deadline + Duration::from_millis(20), "{elapsed:?}");
}

#[test]
fn the_c_library_and_the_best_by_condition_reach_the_finals() {
    let methods = every_method(Operation::Clear);
    let (cold_best, warm_best) = (methods[methods.len() - 1].method.name, methods[1].method.name);
    let answer = |cell: &Cell, choice: &Choice| match (choice.method.name, cell.condition.warm) {
        (name, false) if name == cold_best => 50.0,
        (name, true) if name == warm_best => 60.0,
        ("c_library", _) => 140.0,
        _ => 100.0,
    };
    let (ranked, _) = explored(answer, AMPLE);
    // Even if those that won at shorter lengths leave no room.
    for (also, most) in [(&methods[..0], 4), (&methods[2..6], 3)] {
        let finalists = finalists(&ranked, also, Operation::Clear, most);
        let names: Vec<_> = finalists.iter().map(|choice| choice.method.name).collect();
        for name in ["c_library", cold_best, warm_best] {
            assert!(names.contains(&name), "{name} not in {names:?}");
        }
        assert!(finalists.len() <= most.max(also.len() + 4), "{names:?}");
    }
}

/// It is measured anyway, and would hide what comes close to it there.
#[test]
fn the_best_in_a_condition_besides_the_c_library_reaches_the_finals() {
    let methods = every_method(Operation::Clear);
    let second = methods.iter().rfind(|choice| !spares_cache(choice)).unwrap().method.name;
    let answer = |cell: &Cell, choice: &Choice| match (choice.method.name, cell.condition.warm) {
        ("c_library", true) => 50.0,
        (name, true) if name == second => 55.0,
        (name, false) if name == second => 149.0,
        _ => 100.0,
    };
    let (ranked, _) = explored(answer, AMPLE);
    let finalists = finalists(&ranked, &[], Operation::Clear, 3);
    assert!(finalists.iter().any(|choice| choice.method.name == second), "{finalists:?}");
}

/// If it seems slower at one length than it is, the next ones decide.
#[test]
fn the_best_that_does_not_fill_the_cache_is_always_measured_precisely() {
    let best = method::by_name("nontemporal_sse2").unwrap();
    let answer = |_: &Cell, choice: &Choice| match choice {
        choice if choice.method == best => 110.0,
        choice if spares_cache(choice) => 120.0,
        _ => 100.0,
    };
    let (ranked, _) = explored(answer, AMPLE);
    for also in [vec![], vec![Choice::of(best, Operation::Clear)]] {
        let finalists = finalists(&ranked, &also, Operation::Clear, 3);
        let times = finalists.iter().filter(|choice| choice.method == best).count();
        assert_eq!(times, 1, "{finalists:?}");
        // With the C library and the best in each of two conditions.
        assert!(finalists.len() <= 4, "{finalists:?}");
    }
}

#[test]
fn what_leaves_the_cache_alone_is_kept_for_stream() {
    let slow = |choice: &Choice| spares_cache(choice);
    let (_, counts) = explored(|_, choice| if slow(choice) { 1000.0 } else { 100.0 }, AMPLE);
    let sparing: Vec<Choice> = every_method(Operation::Clear).into_iter().filter(slow).collect();
    let sampled_again = sparing.iter().filter(|choice| counts[choice.method.name] > 2).count();
    assert!(sampled_again >= sparing.len().min(CACHE_SPARING_CANDIDATES), "{counts:?}");
}

#[test]
fn what_is_hopeless_at_one_length_is_tried_again_at_the_next() {
    let answer = |_: &Cell, choice: &Choice| if choice.method == method::c_library() { 1.0 } else { 100.0 };
    let (ranked, _) = explored(answer, AMPLE);
    assert_eq!(seeds(&ranked, Operation::Clear).len(), every_method(Operation::Clear).len());
}

#[test]
fn few_compete_where_a_sample_takes_long() {
    let (ranked, _) = explored(|_, _| 100.0, AMPLE);
    let also: Vec<Choice> =
        ranked.iter().rev().map(|it| it.choice).filter(|it| *it.method != *method::c_library()).collect();
    let c_library = Choice::of(method::c_library(), Operation::Clear);
    for most in [0, 2, 3] {
        let finalists = long_finalists(&ranked, &also[..1], Operation::Clear, most);
        assert_eq!(finalists.len(), most.max(2));
        assert_eq!(finalists[..2], [c_library, also[0]], "those that won before come first");
    }
    // Operations that persist have no C library.
    let persists = long_finalists(&[], &[], Operation::Persist, 6);
    assert!(persists.is_empty(), "{persists:?}");
}
