use super::*;
use crate::calibration::derive::table::{Figures, Timing};
use crate::engine::CacheState;
use crate::engine::stats::Summary;
use bulkmem::method::Parameters;

const KIB: u64 = 1024;

fn key(method: &str) -> Key {
    Key { method: method.to_owned(), parameters: Parameters::default() }
}

/// Rows in which the C library takes the first times per KiB in cached and uncached memory, and CLZERO the others.
fn rows(c_library: [f64; 2], clzero: [f64; 2]) -> BTreeMap<u64, Row> {
    let figures = |length: u64, times: [f64; 2]| {
        let timing = |per_kib: f64| {
            let median = per_kib * (length / KIB) as f64;
            let summary = Summary { median, quartiles: [median; 2], samples: 9 };
            Timing { summary, disturbance_ns: 0.0, spread: 0.0 }
        };
        let condition = |warm| Condition::new(true, warm, 1);
        Figures(
            [true, false].into_iter().zip(times).map(|(warm, ns)| (condition(warm), timing(ns))).collect(),
        )
    };
    let row = |length| {
        Row::from([(key("c_library"), figures(length, c_library)), (key("clzero"), figures(length, clzero))])
    };
    [16, 64, 256, 1024, 4096].map(|kib| (kib * KIB, row(kib * KIB))).into()
}

fn looked(length: u64, state: MemoryState, reaching: u64, storing: &[u64]) -> Looked {
    let times = storing.iter().map(|&storing| LookTimes { reaching, storing: Some(storing) }).collect();
    Looked { operation: Operation::Clear, length, state, times }
}

/// Times of storing to cached lines at every length, to uncached ones, and of reaching unmapped pages.
fn all_times(cached: &[u64], uncached: &[u64], unmapped: &[u64]) -> Samples {
    let lengths = [64, 256, 1024, 4096].into_iter();
    let cached = lengths.map(|kib| looked(kib * KIB, MemoryState::Cached, 50, cached));
    let reached = |&reaching| looked(64 * KIB, MemoryState::Unmapped, reaching, &[300]);
    let others = [looked(64 * KIB, MemoryState::Uncached, 600, uncached)];
    let looks = cached.chain(others).chain(unmapped.iter().map(reached)).collect();
    Samples { looks, ns_per_tick: 0.5, second_level: 2 << 20, ..Samples::default() }
}

fn derived(rows: &BTreeMap<u64, Row>, samples: &Samples) -> Option<LookRule> {
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods = |_| Some(Methods { cached: &c_library, uncached: &clzero, by_length: &c_library });
    derive(Operation::Clear, rows, samples, methods)
}

/// Times of a method in unmapped memory, in two configurations.
fn in_unmapped(key: &Key, ticks: [u64; 2]) -> [UnmappedTimes; 1] {
    let ticks = ticks.map(|ticks| vec![ticks; 9]).to_vec();
    [UnmappedTimes { operation: Operation::Clear, key: key.clone(), ticks }]
}

#[test]
fn the_thresholds_lie_between_the_states() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let samples = Samples {
        unmapped: [in_unmapped(&c_library, [900, 900]), in_unmapped(&clzero, [950, 950])].concat(),
        ..all_times(&[100, 110, 120], &[380, 400, 500], &[9000, 20_000])
    };
    let look = derived(&rows, &samples).unwrap();
    assert_eq!(look.from, 64 * KIB);
    assert!((121..=380).contains(&look.cached_below), "{look:?}");
    assert_eq!(look.unmapped.as_ref().unwrap().from, 3046, "between 600 and 9000, nearer to these: {look:?}");
    assert!(look.reason.contains("110 ticks cached, 400 uncached"), "{look:?}");
}

/// The C library was also measured with a cached source, where everything is fast: that says nothing about CLZERO.
#[test]
fn methods_are_compared_where_all_were_measured() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let samples = all_times(&[100, 110, 120], &[380, 400, 500], &[9000, 20_000]);
    let look = derived(&rows, &samples);
    let mut with_source = rows;
    for (length, row) in &mut with_source {
        let figures = row.get_mut(&key("c_library")).unwrap();
        let timing = figures.0[&Condition::new(true, false, 1)];
        let summary = Summary { median: 0.01 * *length as f64, ..timing.summary };
        let condition = Condition { source: Some(CacheState::Warm), ..Condition::new(true, false, 1) };
        figures.0.insert(condition, Timing { summary, ..timing });
    }
    assert!(look.is_some());
    assert_eq!(derived(&with_source, &samples), look);
}

#[test]
fn a_few_times_on_the_wrong_side_do_not_move_it() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let cached = [100, 100, 100, 100, 100, 100, 100, 900];
    let look = derived(&rows, &all_times(&cached, &[400, 410, 420, 90], &[9000])).unwrap();
    assert!((101..=400).contains(&look.cached_below), "{look:?}");
}

#[test]
fn a_single_odd_time_hides_no_state() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let found = |state: MemoryState, odd: u64, count: usize| {
        let mut samples = all_times(&[100; 5], &[400; 5], &[9000; 5]);
        let of_state = samples.looks.iter_mut().filter(|it| it.state == state);
        of_state.flat_map(|it| &mut it.times).take(count).for_each(|time| time.reaching = odd);
        samples.unmapped = [in_unmapped(&c_library, [9000; 2]), in_unmapped(&clzero, [7200; 2])].concat();
        derived(&rows, &samples).unwrap().unmapped.is_some()
    };
    assert!(found(MemoryState::Uncached, 600, 5), "none is odd");
    for (state, odd) in [(MemoryState::Uncached, 40_000), (MemoryState::Unmapped, 500)] {
        assert!(found(state, odd, 1), "{state:?}");
        assert!(!found(state, odd, 2), "{state:?}: two of five");
    }
}

/// Of a clear, a host took 271,478 ticks to give back pages that were mapped already, and of a copy, 161,704 where others took 35,202.
#[test]
fn what_disturbs_one_operation_moves_no_threshold_of_pages() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let mut samples = all_times(&[100; 5], &[400; 5], &[9000; 5]);
    samples.unmapped = [in_unmapped(&c_library, [9000; 2]), in_unmapped(&clzero, [7200; 2])].concat();
    let undisturbed = derived(&rows, &samples).unwrap();
    let fill = |it: &Looked| Looked { operation: Operation::Fill, ..it.clone() };
    let others: Vec<Looked> = samples.looks.iter().map(fill).collect();
    // Operations that persist reach pages in another way.
    let mut with_persisting = samples.clone();
    let persisting = |it: &Looked| Looked {
        operation: Operation::FillPersist,
        times: it.times.iter().map(|time| LookTimes { reaching: time.reaching / 4, ..*time }).collect(),
        ..it.clone()
    };
    with_persisting.looks.extend(samples.looks.iter().map(persisting));
    assert_eq!(derived(&rows, &with_persisting).unwrap(), undisturbed);
    for (state, reaching) in [(MemoryState::Uncached, 271_478), (MemoryState::Unmapped, 161_704)] {
        let mut disturbed = samples.clone();
        let of_state = disturbed.looks.iter_mut().filter(|it| it.state == state);
        of_state.flat_map(|it| &mut it.times).for_each(|time| time.reaching = reaching);
        assert_ne!(derived(&rows, &disturbed).unwrap().unmapped, undisturbed.unmapped);
        disturbed.looks.extend(others.clone());
        assert_eq!(derived(&rows, &disturbed).unwrap(), undisturbed);
        // A shorter median with slow times is no better.
        let mut mostly_fast = others.clone();
        let of_state = mostly_fast.iter_mut().filter(|it| it.state == state);
        for times in of_state.map(|it| &mut it.times) {
            let slow = times.len().min(2);
            times.iter_mut().for_each(|time| time.reaching = 500);
            times[..slow].iter_mut().for_each(|time| time.reaching = reaching);
        }
        let other = |it: Looked| Looked { operation: Operation::Copy, ..it };
        disturbed.looks.extend(mostly_fast.into_iter().map(other));
        assert_eq!(derived(&rows, &disturbed).unwrap(), undisturbed);
    }
}

#[test]
fn a_twentieth_of_the_times_is_left_out_at_each_end() {
    let of = |count: u64| usual(&(1..=count).collect::<Vec<_>>());
    assert_eq!(of(0), None);
    for (count, expected) in
        [(1, [1, 1]), (4, [1, 4]), (5, [2, 4]), (39, [2, 38]), (40, [3, 38]), (51, [3, 49])]
    {
        assert_eq!(of(count), Some(expected), "{count}");
    }
}

#[test]
fn states_that_cannot_be_told_apart_or_make_no_difference_need_no_look() {
    let differs = rows([10.0, 40.0], [30.0, 39.0]);
    let alike = [100, 200, 300, 400];
    assert_eq!(derived(&differs, &all_times(&alike, &alike, &[9000])), None);
    let same = rows([10.0, 40.0], [10.0, 40.0]);
    assert_eq!(derived(&same, &all_times(&[100], &[400], &[9000])), None);
    assert_eq!(derived(&differs, &Samples::default()), None, "nothing was timed");
}

/// What it costs short calls must not exceed what is allowed, whatever it gains in fresh memory.
#[test]
fn a_look_that_costs_short_calls_too_much_is_for_longer_ones() {
    let rows = rows([10.0, 40.0], [10.0, 40.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods = |_| Some(Methods { cached: &c_library, uncached: &c_library, by_length: &c_library });
    let unmapped = [in_unmapped(&c_library, [9000; 2]), in_unmapped(&clzero, [7200; 2])].concat();
    // 25 ns cached and 400 uncached, of 640 and 2560 at 64 KiB.
    let samples = Samples { unmapped, ..all_times(&[100], &[400], &[9000]) };
    let look = derive(Operation::Clear, &rows, &samples, methods).unwrap();
    assert_eq!(look.from, 256 * KIB, "{look:?}");
}

#[test]
fn the_method_for_unmapped_memory_loses_little_in_any_configuration() {
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let chosen = |of_clzero: [u64; 2]| {
        let times = [in_unmapped(&c_library, [9000; 2]), in_unmapped(&clzero, of_clzero)].concat();
        let times = unmapped_times(Operation::Clear, &times);
        fastest(&times).map(|(key, _)| key.method.clone()).unwrap()
    };
    assert_eq!(chosen([7000, 9200]), "clzero", "within the noise");
    assert_eq!(chosen([7000, 9900]), "c_library", "a tenth in huge pages");
    assert_eq!(chosen([3000, 9900]), "clzero", "an eighth of the gain");
    assert_eq!(chosen([8900, 8900]), "c_library", "within the noise");
}

#[test]
fn times_that_vary_do_not_bar_a_method_for_unmapped_memory() {
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let varying = |base: u64, huge: u64| {
        let ticks = |middle: u64| (0..15).map(|at| middle / 100 * (86 + 2 * at)).collect();
        UnmappedTimes {
            operation: Operation::Clear,
            key: clzero.clone(),
            ticks: vec![ticks(base), ticks(huge)],
        }
    };
    let chosen = |of_clzero: UnmappedTimes| {
        let times = [in_unmapped(&c_library, [9000; 2]), [of_clzero]].concat();
        let times = unmapped_times(Operation::Clear, &times);
        fastest(&times).map(|(key, _)| key.method.clone()).unwrap()
    };
    assert_eq!(chosen(varying(7000, 9400)), "clzero", "4 %, of samples that vary by 14 % to both sides");
    assert_eq!(chosen(varying(7000, 10_500)), "c_library", "more than they vary");
}

#[test]
fn new_huge_pages_are_bypassed_from_the_length_on_from_which_that_gains() {
    let key = key("c_library");
    let rule = |gains: &[(u64, u64)], base: &[u64], huge: &[u64]| {
        let times = |&(mib, bypassing): &(u64, u64)| NewHugeTimes {
            operation: Operation::Clear,
            length: mib << 20,
            ticks: [vec![1000; 5], vec![bypassing; 5]],
            bypassing: key.clone(),
        };
        let times: Vec<NewHugeTimes> = gains.iter().map(times).collect();
        let new_huge: Vec<&NewHugeTimes> = times.iter().collect();
        ForUnmapped { key: &key, new_huge: &new_huge }.in_new_huge_pages(base, huge)
    };
    let (base, huge) = ([10_000, 20_000], [500_000, 20_000_000]);
    let gains = [(4, 1100), (16, 950), (64, 800), (256, 700)];
    let found = rule(&gains, &base, &huge);
    assert_eq!(found, Some(NewHugeRule { from: 137_972, length: 16 << 20 }));
    let gains = [(4, 800), (16, 980), (64, 800)];
    assert_eq!(
        rule(&gains, &base, &huge).map(|it| it.length),
        Some(64 << 20),
        "a gain within the noise is none"
    );
    assert_eq!(rule(&[(4, 800), (16, 1000)], &base, &huge), None, "not at the longest");
    assert_eq!(rule(&gains, &base, &[79_999, 500_000]), None, "not told from base pages");
    assert_eq!(rule(&gains, &base, &[]), None, "there are none");
    assert_eq!(rule(&[], &base, &huge), None, "nothing was compared");
}

#[test]
fn a_look_may_pay_in_fresh_memory_alone() {
    let mut same = rows([10.0, 40.0], [10.0, 40.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods = |_| Some(Methods { cached: &c_library, uncached: &c_library, by_length: &c_library });
    let derived = |rows: &BTreeMap<u64, Row>, reaching: &[u64], of_clzero: [u64; 2]| {
        let unmapped = [in_unmapped(&c_library, [9000; 2]), in_unmapped(&clzero, of_clzero)].concat();
        let samples = Samples { unmapped, ns_per_tick: 1e-3, ..all_times(&[100], &[400], reaching) };
        derive(Operation::Clear, rows, &samples, methods)
    };
    let look = derived(&same, &[9000], [7500; 2]).unwrap();
    assert_eq!(look.unmapped.map(|it| it.method), Some("clzero".to_owned()));
    assert_eq!(derived(&same, &[9000], [8900; 2]), None, "within the noise");
    assert_eq!(derived(&same, &[9000], [7500, 10_800]), None, "only at even addresses");
    assert_eq!(derived(&same, &[610], [7500; 2]), None, "it cannot be told");
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
    assert_eq!(derived(&same, &[9000], [8560; 2]), None);
}

#[test]
fn fresh_memory_that_is_not_slow_is_not_recognized() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    for reaching in [&[620][..], &[]] {
        let look = derived(&rows, &all_times(&[100], &[400], reaching)).unwrap();
        assert_eq!(look.unmapped, None);
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

/// A sample of each state by chance does not pull the threshold to where a fifth more time passes it.
#[test]
fn the_threshold_is_away_from_both_if_there_is_room() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let cached = [vec![100; 20], vec![115; 10], vec![150]].concat();
    let uncached = [vec![160], vec![400; 30]].concat();
    let look = derived(&rows, &all_times(&cached, &uncached, &[9000])).unwrap();
    assert!((200..330).contains(&look.cached_below), "{look:?}");
}

/// Times of a virtual Emerald Rapids. Later the third-level cache took up to 230 ticks, and memory never less than here.
#[test]
fn the_threshold_leaves_more_room_to_the_cache_than_to_memory() {
    let rows = rows([10.0, 40.0], [30.0, 20.0]);
    let cached = [84, 86, 90, 98, 104, 108, 112, 126, 140, 150, 166, 172, 176, 180];
    let uncached = [276, 284, 286, 294, 304, 310, 346, 380, 412, 526, 638];
    let look = derived(&rows, &all_times(&cached, &uncached, &[9000])).unwrap();
    assert!((230..=255).contains(&look.cached_below), "{look:?}");
}

#[test]
fn short_calls_look_only_if_that_pays() {
    // The look costs 4 µs of 1.3 of the call.
    let rows = rows([10.0, 160.0], [11.0, 20.0]);
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let methods = |_| Some(Methods { cached: &c_library, uncached: &clzero, by_length: &clzero });
    let look = derive(Operation::Clear, &rows, &all_times(&[100], &[4000], &[9000]), methods);
    assert!(look.is_none_or(|look| look.from > 64 * KIB));
}

/// Even if the method for uncached memory is faster in the third-level cache.
#[test]
fn the_threshold_tells_the_states_apart_whatever_that_gains() {
    let (c_library, clzero) = (key("c_library"), key("clzero"));
    let third_level = |length: u64, state| looked(length * KIB, state, 300, &[130, 140, 150]);
    for times in [rows([20.0, 20.0], [20.0, 20.0]), rows([20.0, 40.0], [10.0, 20.0])] {
        let methods = |_| Some(Methods { cached: &c_library, uncached: &clzero, by_length: &c_library });
        let unmapped = [in_unmapped(&c_library, [2000; 2]), in_unmapped(&clzero, [1000; 2])].concat();
        let mut samples = all_times(&[70, 75], &[380, 400, 500], &[9000, 20_000]);
        samples.looks[2] = third_level(1024, MemoryState::Cached);
        samples.looks[3] = third_level(4096, MemoryState::Cached);
        let samples = Samples { unmapped, ns_per_tick: 1e-3, ..samples };
        let look = derive(Operation::Clear, &times, &samples, methods).unwrap();
        assert!((180..=316).contains(&look.cached_below), "{look:?}");
    }
}

#[test]
fn what_a_look_finds_uncached_may_be_cached_as_often_as_looks_missed_it() {
    let cached = |kib: u64, storing: &[u64]| looked(kib * KIB, MemoryState::Cached, 300, storing);
    let looks = vec![
        cached(64, &[70, 75]),
        cached(4096, &[130, 400]),
        cached(16384, &[130, 400]),
        looked(64 * KIB, MemoryState::Uncached, 1200, &[300, 330]),
    ];
    let shares =
        wrong_verdicts(Operation::Clear, &Samples { looks, second_level: 2 << 20, ..Samples::default() });
    let expected = [(64, 0.0), (4096, 1.0 / 3.0), (16384, 1.0 / 15.0)];
    assert_eq!(shares.len(), expected.len());
    for (kib, share) in expected {
        assert!((shares[&(kib * KIB)] - share).abs() < 1e-9, "{kib} KiB: {shares:?}");
    }
    assert!(super::wrong_verdicts(Operation::Fill, &Samples::default()).is_empty());
}
