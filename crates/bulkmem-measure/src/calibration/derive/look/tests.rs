use super::*;
use crate::calibration::derive::table::{Figures, Timing};
use crate::engine::stats::Summary;
use bulkmem::method::Parameters;

const KIB: u64 = 1024;
const PART: u64 = 16 * KIB;

fn key(method: &str) -> Key {
    Key { method: method.to_owned(), parameters: Parameters::default() }
}

/// Rows in which the C library takes the first times per KiB in cached and uncached memory, and CLZERO the others.
fn rows(c_library: [f64; 2], clzero: [f64; 2]) -> BTreeMap<u64, Row> {
    let figures = |length: u64, times: [f64; 2]| {
        let timing = |per_kib: f64| {
            let median = per_kib * (length / KIB) as f64;
            Timing { summary: Summary { median, quartiles: [median; 2], samples: 9 }, disturbance_ns: 0.0 }
        };
        let condition = |warm| Condition { aligned: true, warm, threads: 1 };
        Figures(
            [true, false].into_iter().zip(times).map(|(warm, ns)| (condition(warm), timing(ns))).collect(),
        )
    };
    let row = |length| {
        Row::from([(key("c_library"), figures(length, c_library)), (key("clzero"), figures(length, clzero))])
    };
    [16, 64, 256, 1024, 4096].map(|kib| (kib * KIB, row(kib * KIB))).into()
}

fn times(length: u64, state: MemoryState, ticks: &[u64]) -> PartTimes {
    PartTimes { operation: Operation::Clear, length, part: PART, state, ticks: ticks.to_vec() }
}

/// Times of cached parts at every length, of uncached ones, and of fresh ones.
fn all_times(cached: &[u64], uncached: &[u64], fresh: &[u64]) -> Vec<PartTimes> {
    let lengths = [64, 256, 1024, 4096].into_iter();
    let cached = lengths.map(|kib| times(kib * KIB, MemoryState::Cached, cached));
    let others =
        [times(64 * KIB, MemoryState::Uncached, uncached), times(64 * KIB, MemoryState::Unmapped, fresh)];
    cached.chain(others).collect()
}

fn derived(rows: &BTreeMap<u64, Row>, times: &[PartTimes]) -> Option<LookRule> {
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods =
        |_| Some(Methods { part: &c_library, cached: &c_library, uncached: &clzero, by_length: &c_library });
    derive(Operation::Clear, rows, (times, &[]), methods)
}

#[test]
fn the_threshold_lies_between_the_states() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let look = derived(&rows, &all_times(&[100, 110, 120], &[380, 400, 500], &[9000, 20_000])).unwrap();
    assert_eq!((look.from, look.part), (64 * KIB, PART));
    assert!((121..=380).contains(&look.cached_below), "{look:?}");
    assert!((501..=9000).contains(&look.unmapped_from.unwrap()), "{look:?}");
    assert!(look.reason.contains("ticks cached"), "{look:?}");
}

#[test]
fn a_few_times_on_the_wrong_side_do_not_move_it() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let cached = [100, 100, 100, 100, 100, 100, 100, 900];
    let look = derived(&rows, &all_times(&cached, &[400, 410, 420, 90], &[9000])).unwrap();
    assert!((101..=400).contains(&look.cached_below), "{look:?}");
}

#[test]
fn states_that_cannot_be_told_apart_or_make_no_difference_need_no_look() {
    let differs = rows([10.0, 40.0], [30.0, 39.0]);
    let alike = [100, 200, 300, 400];
    assert_eq!(derived(&differs, &all_times(&alike, &alike, &[9000])), None);
    let same = rows([10.0, 40.0], [10.0, 40.0]);
    assert_eq!(derived(&same, &all_times(&[100], &[400], &[9000])), None);
    assert_eq!(derived(&differs, &[]), None, "nothing was timed");
}

#[test]
fn a_look_may_pay_in_fresh_memory_alone() {
    let mut same = rows([10.0, 40.0], [10.0, 40.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods = |_| {
        Some(Methods { part: &c_library, cached: &c_library, uncached: &c_library, by_length: &c_library })
    };
    let unmapped = |key: &Key, ticks| UnmappedTimes {
        operation: Operation::Clear,
        key: key.clone(),
        ticks: vec![ticks; 9],
    };
    let derived = |rows: &BTreeMap<u64, Row>, fresh: &[u64], of_clzero| {
        let unmapped = [unmapped(&c_library, 9000), unmapped(&clzero, of_clzero)];
        derive(Operation::Clear, rows, (&all_times(&[100], &[400], fresh), &unmapped), methods)
    };
    let look = derived(&same, &[9000], 7500).unwrap();
    assert_eq!(look.unmapped.map(|it| it.method), Some("clzero".to_owned()));
    assert_eq!(derived(&same, &[9000], 8900), None, "within the noise");
    assert_eq!(derived(&same, &[410], 7500), None, "it cannot be told");
    // A third of 5 % is too little, at however many lengths that cannot be cached.
    let longest = same[&(4096 * KIB)].clone();
    for length in (1..30).map(|times| times * 8192 * KIB) {
        let figures = longest.iter().map(|(key, figures)| {
            let uncached =
                figures.0.iter().filter(|(condition, _)| !condition.warm).map(|(key, it)| (*key, *it));
            (key.clone(), Figures(uncached.collect()))
        });
        same.insert(length, figures.collect());
    }
    assert_eq!(derived(&same, &[9000], 8560), None);
}

#[test]
fn fresh_memory_that_is_not_slow_is_not_recognized() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    for fresh in [&[420][..], &[]] {
        let look = derived(&rows, &all_times(&[100], &[400], fresh)).unwrap();
        assert_eq!(look.unmapped_from, None);
    }
}

#[test]
fn the_threshold_keeps_away_from_the_times_of_both_states() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    // One sample of ten in the gap says less than a wide gap.
    for uncached in [&[120, 400, 400, 400, 400, 400, 400, 400, 400, 400][..], &[400]] {
        let look = derived(&rows, &all_times(&[100, 110], uncached, &[9000])).unwrap();
        assert!((140..350).contains(&look.cached_below), "{uncached:?}: {look:?}");
    }
}

#[test]
fn short_calls_look_only_if_that_pays() {
    // The part costs eight times what it would by the other method: too much for a quarter of a call.
    let rows = rows([10.0, 160.0], [11.0, 20.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods =
        |_| Some(Methods { part: &c_library, cached: &c_library, uncached: &clzero, by_length: &clzero });
    let all = all_times(&[100], &[1600], &[9000]);
    let look = derive(Operation::Clear, &rows, (&all, &[]), methods);
    assert!(look.is_none_or(|look| look.from > 64 * KIB));
}

/// A look that gains in unmapped memory alone tells the other states apart, too: its thresholds gain all the same.
#[test]
fn of_thresholds_that_gain_the_same_the_one_that_judges_right_is_chosen() {
    let rows = rows([20.0, 20.0], [20.0, 20.0]);
    let times = all_times(&[100, 110, 120], &[380, 400, 500], &[9000, 20_000]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods =
        |_| Some(Methods { part: &c_library, cached: &c_library, uncached: &c_library, by_length: &clzero });
    let of = |key: &Key, ticks| UnmappedTimes {
        operation: Operation::Clear,
        key: key.clone(),
        ticks: vec![ticks],
    };
    let unmapped = [of(&c_library, 1000), of(&clzero, 2000)];
    let look = derive(Operation::Clear, &rows, (&times, &unmapped), methods).unwrap();
    assert!((121..=380).contains(&look.cached_below), "{look:?}");
}
