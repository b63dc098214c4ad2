//! The published tables as figures, and what must hold of any figures.

use std::collections::BTreeMap;

use crate::calibration::Condition;
use bulkmem::Intent;
use bulkmem::method::Parameters;
use proptest::prelude::*;

use super::*;
use crate::engine::memory_state::MemoryState;
use crate::engine::{CacheState, Threshold};

mod c_library;
mod reuse;
mod spread;

const COLD: Condition = Condition::new(true, false, 1);
const MIB: u64 = 1 << 20;

/// A figure of clear, from a bandwidth in GB/s.
fn at(method: &str, length: u64, gb_per_s: f64, spread: f64) -> Figure {
    let median_ns = length as f64 / gb_per_s;
    Figure {
        operation: Operation::Clear,
        cost: Cost::Throughput,
        method: method.to_owned(),
        parameters: Parameters::default(),
        length,
        condition: COLD,
        median_ns,
        quartiles_ns: [median_ns * (1.0 - spread), median_ns * (1.0 + spread)],
        samples: 5,
        disturbance_ns: None,
    }
}

#[test]
fn one_or_two_samples_decide_nothing() {
    let by = |samples: u32| {
        let figure = |method, length, gb_per_s| Figure { samples: 9, ..at(method, length, gb_per_s, 0.01) };
        let few = |method, gb_per_s| Figure { samples, ..figure(method, 256 * MIB, gb_per_s) };
        let figures = [
            figure("c_library", 64 * MIB, 10.0),
            figure("clzero", 64 * MIB, 20.0),
            few("c_library", 30.0),
            few("clzero", 20.0),
        ];
        let choices = choices(&figures, Operation::Clear, Situation::Throughput);
        choices.last().map(|(length, key)| (*length, key.method.clone())).unwrap()
    };
    for samples in [1, 2] {
        assert_eq!(by(samples), (64 * MIB, "clzero".to_owned()), "{samples}");
    }
    assert_eq!(by(3), (256 * MIB, "c_library".to_owned()));
}

#[test]
fn figures_of_few_samples_decide_if_there_are_no_others() {
    let few = |method, gb_per_s| Figure { samples: 1, ..at(method, MIB, gb_per_s, 0.0) };
    let figures = [few("c_library", 10.0), few("clzero", 20.0)];
    assert_eq!(choices(&figures, Operation::Clear, Situation::Throughput)[0].1.method, "clzero");
}

/// The noise of a mean over conditions is less than that of each, and many samples are trusted more.
#[test]
fn two_percent_count_if_they_are_measured_often() {
    let by = |samples: u32, spread: f64| {
        let figure = |method, gb_per_s| {
            let conditions = [COLD, Condition { aligned: false, ..COLD }];
            conditions.map(|condition| Figure { samples, condition, ..at(method, MIB, gb_per_s, spread) })
        };
        let figures = [figure("c_library", 10.0), figure("clzero", 10.25)].concat();
        choices(&figures, Operation::Clear, Situation::Throughput)[0].1.method.clone()
    };
    assert_eq!(by(31, 0.02), "clzero");
    assert_eq!(by(31, 0.2), "c_library", "within the noise");
    assert_eq!(by(5, 0.0), "c_library", "five samples do not show how much they vary");
}

fn published() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/published.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn machine<'a>(table: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    table["machines"].as_array().unwrap().iter().find(|machine| machine["uarch"] == name).unwrap()
}

fn numbers(value: &serde_json::Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The figures of a machine of the first table: size by method, GB/s with a deviation.
fn by_size(name: &str) -> Vec<Figure> {
    let published = published();
    let table = &published["memset_by_size"];
    let sizes = numbers(&table["sizes_mib"]);
    let mut figures = Vec::new();
    let machine = machine(table, name);
    for (method, row) in machine["methods"].as_object().unwrap() {
        let (mean, deviation) = (numbers(row), numbers(&machine["pstdev_pct"][method]));
        for ((size, mean), deviation) in sizes.iter().zip(mean).zip(deviation) {
            figures.push(at(method, *size as u64 * MIB, mean, 0.6745 * deviation / 100.0));
        }
    }
    figures
}

/// The figures of a machine of the second table: chunk by method, MB/s.
fn by_chunk(name: &str, without: &str) -> Vec<Figure> {
    let published = published();
    let table = &published["clear_by_chunk"];
    let chunks: Vec<u64> =
        table["chunks"].as_array().unwrap().iter().map(|chunk| chunk.as_u64().unwrap()).collect();
    let mut figures = Vec::new();
    for (method, row) in machine(table, name)["methods"].as_object().unwrap() {
        if method != without {
            figures.extend(
                chunks.iter().zip(numbers(row)).map(|(chunk, mb)| at(method, *chunk, mb / 1000.0, 0.0)),
            );
        }
    }
    figures
}

/// Returns the choices of the derived rules for clear.
fn chosen(figures: &[Figure], length: u64, intent: Intent) -> String {
    let Derived { rules, .. } = derive_policy(figures);
    let of = |rule: &&Rule| {
        rule.operation == Operation::Clear && rule.situation == intent.into() && rule.from <= length
    };
    rules.iter().rfind(of).unwrap_or_else(|| panic!("nothing for {length}")).method.clone()
}

fn throughput(figures: &[Figure], length: u64) -> String {
    chosen(figures, length, Intent::Throughput)
}

#[test]
fn broadwell_and_rome_change_between_16_and_128_mib() {
    for (name, cached) in [("Broadwell-X", "rep_stosb"), ("Rome", "rep_stosq")] {
        let figures = by_size(name);
        for length in [1, 4096, 16 * MIB] {
            assert_eq!(throughput(&figures, length), cached, "{name} {length}");
        }
        for length in [128 * MIB, 200 * MIB, 1024 * MIB, 4096 * MIB, u64::MAX] {
            assert_eq!(throughput(&figures, length), "movnti", "{name} {length}");
        }
    }
}

#[test]
fn skylake_never_takes_movnti_for_throughput_but_does_for_stream() {
    let figures = by_size("Skylake-X");
    for length in [1, 4096, 16 * MIB, 64 * MIB, 128 * MIB, 1024 * MIB, 4096 * MIB, u64::MAX] {
        assert_eq!(throughput(&figures, length), "rep_stosb", "{length}");
        assert_eq!(chosen(&figures, length, Intent::Stream), "movnti", "{length}");
    }
}

#[test]
fn ice_lake_takes_movnti_throughout() {
    let figures = by_chunk("Ice Lake-X", "");
    for length in [1, 4096, 65536, 2 * MIB, 100 * MIB, 1 << 40] {
        assert_eq!(throughput(&figures, length), "movnti", "{length}");
    }
}

#[test]
fn milan_takes_clzero_and_without_it_movnti_then_rep_stosb() {
    let figures = by_chunk("Milan", "");
    for length in [1, 4096, 65536, 2 * MIB, 100 * MIB, 1 << 40] {
        assert_eq!(throughput(&figures, length), "clzero", "{length}");
    }
    let figures = by_chunk("Milan", "clzero");
    for length in [4096, 65536, 2 * MIB, 8 * MIB] {
        assert_eq!(throughput(&figures, length), "movnti", "{length}");
    }
    for length in [32 * MIB, 128 * MIB, 1 << 30] {
        assert_eq!(throughput(&figures, length), "rep_stosb", "{length}");
    }
}

#[test]
fn the_step_lies_where_the_interpolated_times_cross() {
    // Equal at 1 MiB, half way in logarithms between the two.
    let figures = [
        at("rep_stosb", MIB / 4, 20.0, 0.0),
        at("movnti", MIB / 4, 10.0, 0.0),
        at("rep_stosb", 4 * MIB, 10.0, 0.0),
        at("movnti", 4 * MIB, 20.0, 0.0),
    ];
    let Derived { rules, .. } = derive_policy(&figures);
    let rule =
        rules.iter().find(|rule| rule.method == "movnti" && rule.situation == Situation::Throughput).unwrap();
    assert!((MIB..MIB * 5 / 4).contains(&rule.from), "{}", rule.from);
}

#[test]
fn slower_than_the_c_library_in_one_condition_is_out() {
    let warm = Condition { warm: true, ..COLD };
    let with = |method: &str, cold: f64, hot: f64| {
        [at(method, 16384, cold, 0.0), Figure { condition: warm, ..at(method, 16384, hot, 0.0) }]
    };
    let mut figures = [with("c_library", 10.0, 40.0), with("movnti", 40.0, 20.0)].concat();
    assert_eq!(throughput(&figures, 16384), "c_library", "faster on the whole, but half as fast when warm");
    figures.extend(with("rep_stosb", 12.0, 39.5));
    assert_eq!(throughput(&figures, 16384), "rep_stosb", "nowhere slower beyond the noise");
    let short: Vec<Figure> = figures.into_iter().map(|it| Figure { length: 8192, ..it }).collect();
    assert_eq!(throughput(&short, 8192), "c_library", "a short call");
}

#[test]
fn nothing_is_decided_where_one_candidate_was_measured() {
    let mut figures = vec![
        at("c_library", MIB, 10.0, 0.0),
        at("movnti", MIB, 20.0, 0.0),
        at("c_library", 256 * MIB, 10.0, 0.0),
        at("rep_stosb", 1024 * MIB, 30.0, 0.0),
    ];
    assert_eq!(throughput(&figures, 256 * MIB), "movnti");
    assert_eq!(throughput(&figures, 1024 * MIB), "movnti");
    figures.push(at("movnti", 256 * MIB, 5.0, 0.0));
    assert_eq!(throughput(&figures, 256 * MIB), "c_library");
    figures.retain(|figure| figure.method == "c_library");
    let Derived { rules, .. } = derive_policy(&figures);
    assert!(
        rules.iter().all(|rule| rule.method == "c_library" && rule.reason.contains("nothing else")),
        "{rules:?}"
    );
}

#[test]
fn stream_weighs_the_neighbour() {
    let with = |method: &str, operation_ns: f64, disturbance_ns: f64| Figure {
        cost: Cost::Stream,
        median_ns: operation_ns + disturbance_ns,
        quartiles_ns: [operation_ns + disturbance_ns; 2],
        disturbance_ns: Some(disturbance_ns),
        ..at(method, MIB, 10.0, 0.0)
    };
    let plain = at("c_library", MIB, 30.0, 0.0);
    let stream = |figures: &[Figure]| chosen(figures, MIB, Intent::Stream);
    let slower_but_gentle =
        [plain.clone(), with("movnti", 100_000.0, 9_000.0), with("nontemporal_avx", 102_000.0, 1_000.0)];
    assert_eq!(stream(&slower_but_gentle), "nontemporal_avx");
    let much_slower =
        [plain.clone(), with("movnti", 100_000.0, 9_000.0), with("nontemporal_avx", 104_000.0, 0.0)];
    assert_eq!(stream(&much_slower), "movnti", "not slower than the fastest by more than 3 %");
    let caching = [plain, with("movnti", 100_000.0, 9_000.0), with("store_avx", 50_000.0, 10_000.0)];
    assert_eq!(stream(&caching), "movnti", "what fills the cache is no choice, however fast");
    let Derived { rules, .. } = derive_policy(&caching);
    let first = rules.iter().find(|rule| rule.situation == Situation::Stream).unwrap();
    assert_eq!((first.from, first.method.as_str()), (0, "c_library"), "below what was measured");
}

#[test]
fn threads_pay_from_where_they_overtake() {
    let with = |threads: usize, length: u64, us: f64| Figure {
        condition: Condition { threads, ..COLD },
        median_ns: us * 1000.0,
        ..at("movnti", length, 10.0, 0.0)
    };
    let figures = [
        with(1, MIB, 50.0),
        with(2, MIB, 80.0),
        with(4, MIB, 120.0),
        with(1, 16 * MIB, 800.0),
        with(2, 16 * MIB, 500.0),
        with(4, 16 * MIB, 490.0),
    ];
    let Derived { threads, .. } = derive_policy(&figures);
    let [saturation] = threads.as_slice() else { panic!("{threads:?}") };
    assert_eq!(saturation.threads, 2, "four are inside the noise of two");
    assert!((2 * MIB..10 * MIB).contains(&saturation.from), "{}", saturation.from);
    assert!(derive_policy(&figures[..1]).threads.is_empty(), "nothing known, nothing said");
    // Copies from a cached source are compared on one thread alone.
    let hot_source = Figure {
        condition: Condition { source: Some(CacheState::Warm), ..COLD },
        ..with(1, 16 * MIB, 100.0)
    };
    let with_source = figures.iter().cloned().chain([hot_source]).collect::<Vec<_>>();
    assert_eq!(derive_policy(&with_source).threads, threads);
    let [one, _, all] = [0, 1, 2].map(|at| figures[3 + at].clone());
    assert!(derive_policy(&[one, all]).threads.is_empty(), "fewer than all were not measured");
}

#[test]
fn figures_that_are_no_times_are_left_out() {
    let bad = [f64::NAN, f64::INFINITY, 0.0, -1.0]
        .map(|median_ns| Figure { median_ns, ..at("movnti", 4096, 10.0, 0.0) });
    assert_eq!(derive_policy(&bad), Derived::default());
    let mut figures = bad.to_vec();
    figures.push(at("rep_stosb", 4096, 1.0, 0.0));
    assert_eq!(throughput(&figures, 4096), "rep_stosb");
}

const METHODS: [&str; 6] = ["c_library", "rep_stosb", "movnti", "nontemporal_avx", "store_avx", "clzero"];

prop_compose! {
    /// A table of clear: lengths by methods by conditions, all filled.
    fn any_table(most_lengths: usize)(
        lengths in prop::collection::btree_set(1u64..1 << 34, 1..=most_lengths),
        methods in prop::sample::subsequence(METHODS.to_vec(), 1..=METHODS.len()),
        conditions in prop::sample::subsequence(vec![(true, false, 1), (true, true, 1), (false, false, 1), (true, false, 2)], 1..=4),
        seed in any::<u64>(),
    ) -> Vec<Figure> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut figures = Vec::new();
        for &length in &lengths {
            for method in &methods {
                for &(aligned, warm, threads) in &conditions {
                    let condition = Condition::new(aligned, warm, threads);
                    figures.push(Figure { condition, ..at(method, length, 1.0 + 40.0 * random.f64(), 0.005 * random.f64()) });
                }
            }
        }
        figures
    }
}

/// Times of a method at a length, by condition.
fn times(figures: &[Figure], method: &str, length: u64) -> BTreeMap<(bool, bool, usize), f64> {
    figures
        .iter()
        .filter(|figure| figure.method == method && figure.length == length)
        .map(|figure| {
            ((figure.condition.aligned, figure.condition.warm, figure.condition.threads), figure.median_ns)
        })
        .collect()
}

/// Memory far longer than the caches is not cached.
#[test]
fn beyond_the_caches_the_rule_for_cached_memory_is_that_for_uncached_memory() {
    let figures: Vec<Figure> = [(MIB, true), (MIB, false), (64 * MIB, false), (256 * MIB, false)]
        .into_iter()
        .flat_map(|(length, warm)| {
            let speeds = if warm { [50.0, 10.0] } else { [10.0, 20.0] };
            ["c_library", "movnti"].into_iter().zip(speeds).map(move |(method, gb_per_s)| Figure {
                condition: Condition { warm, ..COLD },
                ..at(method, length, gb_per_s, 0.01)
            })
        })
        .collect();
    let of = |situation| -> Vec<(u64, String)> {
        let choices = choices(&figures, Operation::Clear, situation).into_iter();
        choices.map(|(length, key)| (length / MIB, key.method)).collect()
    };
    let (c_library, movnti) = ("c_library".to_owned(), "movnti".to_owned());
    let expected = [(1, c_library), (64, movnti.clone()), (256, movnti.clone())];
    assert_eq!(of(Situation::Cached), expected);
    assert_eq!(of(Situation::Uncached), [(1, movnti.clone()), (64, movnti.clone()), (256, movnti)]);
}

/// Where several methods were measured on several threads, those figures decide for several threads.
#[test]
fn several_threads_have_a_choice_of_their_own_where_methods_were_compared_on_them() {
    let on = |threads: usize, length: u64, speeds: [f64; 2]| {
        ["c_library", "movnti"].into_iter().zip(speeds).map(move |(method, gb_per_s)| Figure {
            condition: Condition { threads, ..COLD },
            ..at(method, length, gb_per_s, 0.01)
        })
    };
    let figures: Vec<Figure> = on(1, MIB, [10.0, 20.0])
        .chain(on(2, MIB, [30.0, 15.0]).take(1))
        .chain(on(1, 64 * MIB, [10.0, 20.0]))
        .chain(on(2, 64 * MIB, [30.0, 25.0]).take(1))
        .chain(on(4, 64 * MIB, [40.0, 25.0]))
        .chain(on(1, 256 * MIB, [10.0, 20.0]))
        .chain(on(4, 256 * MIB, [40.0, 25.0]))
        .collect();
    let of = |situation| -> Vec<String> {
        choices(&figures, Operation::Clear, situation).into_iter().map(|(_, key)| key.method).collect()
    };
    assert_eq!(of(Situation::Uncached), ["movnti"; 3]);
    assert_eq!(of(Situation::SeveralThreads), ["movnti", "c_library", "c_library"]);
}

/// In the first-level cache stores that bypass the cache may be fast, and longer cached memory is not there.
#[test]
fn short_cached_memory_is_not_bypassed() {
    let warm = |method: &str, length: u64, gb_per_s: f64| Figure {
        condition: Condition { warm: true, ..COLD },
        ..at(method, length, gb_per_s, 0.01)
    };
    let figures = [
        warm("c_library", 4096, 60.0),
        warm("movnti", 4096, 200.0),
        warm("store_sse2", 4096, 50.0),
        warm("c_library", 16 << 10, 60.0),
        warm("movnti", 16 << 10, 20.0),
        warm("store_sse2", 16 << 10, 90.0),
    ];
    let found = choices(&figures, Operation::Clear, Situation::Cached);
    let found: Vec<(u64, &str)> = found.iter().map(|(length, key)| (*length, key.method.as_str())).collect();
    assert_eq!(found, [(4096, "c_library"), (16 << 10, "store_sse2")]);
}

proptest! {
    #[test]
    fn rules_rise_from_zero_and_name_what_was_measured(figures in any_table(5)) {
        let Derived { rules, threads, .. } = derive_policy(&figures);
        for intent in Intent::ALL {
            let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.situation == intent.into()).collect();
            prop_assert_eq!(rules.first().map(|rule| rule.from), Some(0));
            prop_assert!(rules.windows(2).all(|pair| pair[0].from < pair[1].from));
            prop_assert!(rules.windows(2).all(|pair| pair[0].method != pair[1].method));
            for rule in rules {
                prop_assert!(figures.iter().any(|figure| figure.method == rule.method));
                prop_assert!(!rule.reason.is_empty());
            }
        }
        prop_assert!(threads.windows(2).all(|pair| pair[0].from < pair[1].from && pair[0].threads < pair[1].threads));
    }

    #[test]
    fn no_choice_is_dominated_and_none_loses_much_to_the_c_library(figures in any_table(4)) {
        let lengths: std::collections::BTreeSet<u64> = figures.iter().map(|figure| figure.length).collect();
        for length in lengths {
            let choice = throughput(&figures, length);
            let own = times(&figures, &choice, length);
            for other in METHODS {
                let other_times = times(&figures, other, length);
                let better = !other_times.is_empty() && other_times.iter().all(|(place, ns)| ns * 1.26 < own[place]);
                prop_assert!(!better, "{} everywhere faster than {} at {}", other, choice, length);
            }
            // By no more than the noise, or an eighth of the largest gain.
            let plain = times(&figures, "c_library", length);
            let most = plain.iter().map(|(place, ns)| (ns / own[place]).ln()).fold(0.0, f64::max);
            for (place, ns) in plain {
                let allowed = 1.030_001_f64.max((most / 8.0).exp() * 1.000_001);
                prop_assert!(own[&place] <= ns * allowed, "{} slower than c_library at {}", choice, length);
            }
        }
    }

    #[test]
    fn methods_change_at_most_four_times(figures in any_table(24)) {
        let Derived { rules, .. } = derive_policy(&figures);
        for situation in Situation::ALL {
            let changes = rules.iter().filter(|rule| rule.situation == situation && rule.from > 0).count();
            prop_assert!(changes <= segments::MOST_CHANGES, "{:?}", rules);
        }
    }

    #[test]
    fn differences_inside_the_noise_keep_the_c_library(seed in any::<u64>(), lengths in 1usize..8) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut figures = Vec::new();
        for step in 0..lengths {
            for method in METHODS {
                figures.push(at(method, 64 << (2 * step), 10.0 * (1.0 + 0.028 * random.f64()), 0.01));
            }
        }
        let Derived { rules, .. } = derive_policy(&figures);
        let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.situation == Situation::Throughput).collect();
        prop_assert_eq!(rules.len(), 1);
        prop_assert_eq!(rules[0].method.as_str(), "c_library");
    }
}

/// Returns the last rule for a situation.
fn last(figures: &[Figure], situation: Situation) -> Rule {
    derive_policy(figures).rules.into_iter().rfind(|rule| rule.situation == situation).unwrap()
}

#[test]
fn the_reason_says_why_a_faster_method_is_not_the_choice() {
    let figure = |(method, cold, warm): (&str, f64, f64)| {
        [(false, cold), (true, warm)].map(|(warm, gb_per_s)| Figure {
            condition: Condition { warm, ..COLD },
            ..at(method, 64 * MIB, gb_per_s, 0.01)
        })
    };
    let figures = [("c_library", 10.0, 100.0), ("movnti", 20.0, 95.0), ("nontemporal_sse2", 33.0, 60.0)];
    let rule = last(&figures.map(figure).concat(), Situation::Throughput);
    let but = "next best nontemporal_sse2 takes 0.98 × its time, but loses to c_library in a condition";
    assert!(rule.method == "movnti" && rule.reason.ends_with(but), "{rule:?}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_reason_for_streams_names_the_rule() {
    let mut figures = vec![at("c_library", 64 * MIB, 10.0, 0.01)];
    for (method, gb_per_s) in [("c_library", 10.0), ("movnti", 20.0)] {
        let disturbance_ns = Some(-500.0);
        let figure = at(method, 64 * MIB, gb_per_s, 0.01);
        figures.push(Figure { cost: Cost::Stream, disturbance_ns, ..figure });
    }
    let rule = last(&figures, Situation::Stream);
    for part in ["at most 3 % slower than the fastest of them", "in the cache (0.0 µs), over all lengths; "]
    {
        assert!(rule.method == "movnti" && rule.reason.contains(part), "{rule:?}");
    }
}

/// If the look may be wrong, uncached memory gets a method that is nearly as fast there and much faster in cached memory.
#[test]
fn the_choice_for_uncached_memory_bears_a_wrong_verdict() {
    let figure = |method: &str, length: u64, warm: bool, gb_per_s: f64| Figure {
        condition: Condition::new(true, warm, 1),
        ..at(method, length, gb_per_s, 0.0)
    };
    let lengths = [MIB / 16, MIB / 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB];
    let speeds = [("c_library", 10.0, 25.0), ("movnti", 20.0, 9.0), ("store_sse2", 18.0, 25.0)];
    let figures: Vec<Figure> = lengths
        .into_iter()
        .flat_map(|length| {
            speeds.into_iter().flat_map(move |(method, cold, warm)| {
                [(method, false, cold), (method, true, warm)].map(|it| (length, it))
            })
        })
        .filter(|(length, (_, warm, _))| !warm || *length <= 4 * MIB)
        .map(|(length, (method, warm, speed))| figure(method, length, warm, speed))
        .collect();
    let looks = |missed: usize| {
        let times = |length, state, missed: usize| look::Looked {
            operation: Operation::Clear,
            length,
            state,
            times: (0..9)
                .map(|at| bulkmem::probe::Times {
                    reaching: 600,
                    storing: Some(if at < missed { 300 } else { 70 }),
                })
                .collect(),
        };
        let cached = lengths[..4]
            .iter()
            .map(|&length| times(length, MemoryState::Cached, if length > 2 * MIB { missed } else { 0 }));
        let looks = cached.chain([times(lengths[0], MemoryState::Uncached, 9)]).collect();
        Samples { looks, ns_per_tick: 0.5, second_level: 2 * MIB, ..Samples::default() }
    };
    let rule = |samples: &Samples, length: u64| -> Rule {
        let Derived { rules, .. } = derive(&figures, samples);
        let of = |rule: &&Rule| rule.situation == Situation::Uncached && rule.from <= length;
        rules.iter().rfind(of).expect("it looks").clone()
    };
    let uncached = |samples: &Samples, length: u64| rule(samples, length).method;
    for length in lengths {
        assert_eq!(uncached(&looks(0), length), "movnti", "{length}");
    }
    assert_eq!(
        lengths.map(|length| uncached(&looks(2), length) == "store_sse2"),
        [false, false, false, true, false, false]
    );
    assert!(
        rule(&looks(2), 4 * MIB).reason.contains("up to 18 % of what a look finds uncached may be cached")
    );
    assert!(!rule(&looks(2), MIB).reason.contains("may be cached"));
}
