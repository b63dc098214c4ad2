//! Cells and candidates; comparisons for real, in little time.

use std::collections::BTreeSet;

use bulkmem::method;

use super::*;
use crate::engine::{Candidate, Results, Row, testing};

fn small(operation: Operation) -> ChoiceOptions {
    ChoiceOptions {
        sizes: vec![4096, 65_536],
        budget: Duration::from_secs(4),
        caches: vec![CacheState::Warm],
        ..ChoiceOptions::new(operation)
    }
}

fn run(options: &ChoiceOptions) -> Results {
    testing::run(options, false).0.unwrap()
}

/// The rows of the comparison, without those of the cost of choosing.
fn compared(found: &Results) -> Vec<&Row> {
    found.of(Measurement::Choice).filter(|row| row.metric == Metric::Bandwidth).collect()
}

fn candidates(options: &ChoiceOptions) -> Vec<Candidate> {
    let policy = Policy::defaults(Machine::current());
    let cell = Cell::new(options.operation, Cost::Throughput, 1 << 20, Condition::new(true, false, 1));
    let all = options.candidates(&policy, &cell, CacheState::Cold, Intent::Throughput, false);
    all.iter().map(Implementation::candidate).collect()
}

#[test]
fn cells_are_all_combinations_that_make_sense() {
    let options = ChoiceOptions {
        sizes: vec![1 << 20, 4096, 4096, 64 << 20, 1 << 40],
        alignments: vec![Alignment::Aligned, Alignment::Unaligned],
        caches: vec![CacheState::Warm, CacheState::Cold, CacheState::Fresh],
        threads: vec![1, 2],
        intents: vec![Intent::Throughput, Intent::Stream],
        ..ChoiceOptions::new(Operation::Clear)
    };
    let (cells, left_out) = options.cells(32 << 20, 1 << 30);
    // Warm below twice the last level, fresh from 64 KiB on.
    assert_eq!(cells.len(), (2 + 3 + 2) * 2 * 2 * 2);
    assert!(cells.windows(2).all(|pair| pair[0].0.length <= pair[1].0.length));
    let of = |length| {
        let states = cells.iter().map(|(cell, _)| cell).filter(move |cell| cell.length == length);
        distinct(states.map(|cell| (cell.condition.warm, cell.fresh)))
    };
    let fresh = (false, Some(Pages::Base));
    assert_eq!(of(4096), [(true, None), (false, None)]);
    assert_eq!(of(1 << 20), [(true, None), (false, None), fresh]);
    assert_eq!(of(64 << 20), [(false, None), fresh]);
    assert_eq!(left_out, ["1 TiB: left out, memory allows 1 GiB at most"]);
}

#[test]
fn the_policy_every_method_and_the_baselines_take_part_once() {
    let all = candidates(&ChoiceOptions::new(Operation::Clear));
    for kind in [Kind::Policy, Kind::Read] {
        assert_eq!(all.iter().filter(|it| it.kind == kind).count(), 1);
    }
    assert_eq!(all[0].kind, Kind::Policy, "first what must be measured");
    for method in method::all().filter(|method| method.does(Operation::Clear) && method.available()) {
        assert!(all.iter().any(|it| it.name == method.name && it.kind != Kind::Policy), "{}", method.name);
    }
    let baselines: BTreeSet<&str> = all
        .iter()
        .filter(|it| it.kind == Kind::Method && is_baseline(it, Operation::Clear))
        .map(|it| it.name.as_str())
        .collect();
    #[cfg(target_arch = "x86_64")]
    assert_eq!(baselines, BTreeSet::from(["movnti", "rep_stosb"]));
    assert!(all.iter().any(|it| it.name == "c_library" && it.kind == Kind::Peer));
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(all.len(), distinct.len());
}

#[test]
fn named_methods_and_no_peers_leave_the_others_out() {
    let methods = MethodSet::Named(vec!["portable".to_owned()]);
    let options = ChoiceOptions { methods, peers: Peers::None, ..ChoiceOptions::new(Operation::Copy) };
    let policy = Policy::defaults(Machine::current());
    let chosen = policy.choose(Operation::Copy, 1 << 20, Intent::Throughput).unwrap().method.name;
    let all = candidates(&options);
    for candidate in &all {
        assert!(["policy", "portable", chosen].contains(&candidate.name.as_str()), "{candidate:?}");
    }
    assert!(all.iter().any(|candidate| candidate.name == "portable"));
}

#[test]
fn the_front_is_the_policy_the_peers_and_the_fastest_methods() {
    let alone = [false, true, true, true, true, true, true, false];
    let medians = [Some(1.0), Some(2.0), Some(9.0), None, Some(3.0), Some(8.0), Some(7.0), None];
    let chosen: BTreeSet<usize> = front(&alone, &medians).into_iter().collect();
    assert_eq!(chosen, BTreeSet::from([0, 2, 4, 5, 6]), "not the slowest, nor who was not measured");
}

#[test]
fn every_operation_is_compared_for_real() {
    for operation in Operation::ALL {
        let found = run(&small(operation));
        let rows = compared(&found);
        assert!(rows.iter().all(|row| row.stats.median > 0.0 && row.config.operation == Some(operation)));
        assert!(rows.iter().all(|row| row.config.alignment == Some(Alignment::Aligned)));
        if method::all().any(|method| method.does(operation) && method.available()) {
            let chosen: Vec<_> = rows.iter().filter(|row| row.candidate.kind == Kind::Policy).collect();
            assert!(!chosen.is_empty() && chosen.iter().all(|row| row.chosen.is_some()), "{operation}");
            for row in chosen {
                // A processor that is taken away makes a few samples any number of times as long.
                assert!(row.also["regret"].is_finite() && row.also["overall_regret"].is_finite(), "{row:?}");
            }
            let text = format!("{operation}: regret over ");
            assert!(found.findings.iter().any(|it| it.text.starts_with(&text)), "{:?}", found.findings);
        }
        let costs: Vec<_> = found.rows.iter().filter(|row| row.metric == Metric::Nanoseconds).collect();
        if matches!(operation, Operation::Clear | Operation::Copy) {
            let medians: Vec<f64> = costs.iter().map(|row| row.stats.median).collect();
            assert!(medians.len() == 3 && medians.iter().all(|ns| *ns > 0.0), "{costs:?}");
            assert!(found.findings.iter().any(|it| it.text.starts_with("Choosing costs ")));
        } else {
            assert!(costs.is_empty());
        }
        assert!(found.provenance.policy.starts_with("defaults for "), "{}", found.provenance.policy);
        let json = serde_json::to_vec(&found).unwrap();
        assert_eq!(Results::parse(&json).unwrap().rows.len(), found.rows.len());
    }
}

#[test]
fn several_threads_and_every_intent_are_compared() {
    let options = ChoiceOptions {
        threads: vec![1, 2],
        intents: Intent::ALL.to_vec(),
        methods: MethodSet::Named(vec!["portable".to_owned()]),
        ..small(Operation::Copy)
    };
    let found = run(&options);
    let rows = compared(&found);
    for intent in Intent::ALL {
        for threads in [1, 2] {
            let measured = rows
                .iter()
                .any(|row| (row.config.intent, row.config.threads) == (Some(intent), Some(threads)));
            assert!(measured || !found.complete, "{intent} {threads}");
        }
    }
    let streams: Vec<_> = rows.iter().filter(|row| row.config.intent == Some(Intent::Stream)).collect();
    assert!(!streams.is_empty() && streams.iter().all(|row| row.also.contains_key("disturbance_ns")));
}

#[test]
fn a_stop_ends_it_and_unmeasured_lengths_replace_those_given() {
    let (stopped, _) = testing::run(&small(Operation::Clear), true);
    assert!(matches!(stopped, Err(MeasureError::Interrupted)));

    let options = ChoiceOptions { sizes: vec![64, 20_000], unmeasured: true, ..small(Operation::Clear) };
    let found = run(&options);
    let rows = compared(&found);
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row.config.size.is_some_and(|size| !size.is_power_of_two())));
}

#[test]
fn rows_name_the_states_of_destination_and_source_and_the_pages() {
    let options = ChoiceOptions {
        sizes: vec![64 << 10],
        caches: vec![CacheState::Cold, CacheState::Fresh],
        sources: vec![CacheState::Cold, CacheState::Warm],
        methods: MethodSet::Named(vec!["portable".to_owned()]),
        ..ChoiceOptions::new(Operation::Copy)
    };
    for (pages, of_fresh) in [(None, "4K"), (Some("4K"), "4K"), (Some("thp"), "thp")] {
        let page_size = pages.map(|name| name.parse::<PageSize>().unwrap());
        if page_size.is_some_and(|pages| pages.check().is_err()) {
            eprintln!("skipped: this machine has no such pages: {pages:?}");
            continue;
        }
        // On a busy machine the time may end before each state has been measured.
        let seconds = [5, 20, 60];
        let complete = |found: &Results| {
            found.rows.iter().filter(|row| row.also.contains_key("overall_regret")).count() >= 4
        };
        let mut runs = seconds
            .map(Duration::from_secs)
            .into_iter()
            .map(|budget| run(&ChoiceOptions { page_size, budget, ..options.clone() }));
        let found = runs.find(complete).expect("each state is measured within a minute");
        let rows = compared(&found);
        for cache in [CacheState::Cold, CacheState::Fresh] {
            let pages = if cache == CacheState::Fresh { of_fresh } else { pages.unwrap_or("thp") };
            let of_state: Vec<&Row> =
                rows.iter().copied().filter(|row| row.config.cache == Some(cache)).collect();
            for source in [CacheState::Cold, CacheState::Warm] {
                let chosen = of_state
                    .iter()
                    .find(|row| row.config.source == Some(source) && row.candidate.kind == Kind::Policy);
                assert!(chosen.is_some_and(|row| row.also.contains_key("overall_regret")), "{of_state:?}");
            }
            assert!(of_state.iter().all(|row| row.config.page_size.unwrap().to_string() == pages));
            let read = of_state.iter().any(|row| row.candidate.kind == Kind::Read);
            assert_eq!(read, cache == CacheState::Cold, "pages that are only read stay unmapped");
        }
        let pooled: Vec<_> = overall(&rows).into_iter().map(|it| (it.config.cache, it.conditions)).collect();
        assert_eq!(pooled, [(Some(CacheState::Cold), 2), (Some(CacheState::Fresh), 2)]);
    }
}

#[test]
fn bad_options_are_refused_by_flag() {
    for operation in Operation::ALL {
        ChoiceOptions::new(operation).validate().unwrap();
    }
    let refused = |change: fn(&mut ChoiceOptions)| {
        let mut options = ChoiceOptions::new(Operation::Clear);
        change(&mut options);
        options.validate().unwrap_err().to_string()
    };
    assert!(refused(|o| o.sizes.clear()).starts_with("--size: "));
    assert!(refused(|o| o.sizes.push(u64::MAX)).starts_with("--size: "));
    assert!(refused(|o| o.intents.clear()).starts_with("--intent: "));
    assert!(refused(|o| o.threads = vec![0]).starts_with("--threads: "));
    assert!(refused(|o| o.budget = Duration::ZERO).starts_with("--budget: "));
    let unmeasured = refused(|o| (o.sizes, o.unmeasured) = (vec![64], true));
    assert!(unmeasured.starts_with("--size: calibration measures every length"), "{unmeasured}");
    assert!(refused(|o| o.methods = MethodSet::Named(vec!["nosuch".into()])).contains("nosuch"));
    assert!(refused(|o| o.sources.push(CacheState::Cold)).starts_with("--source: clear has no source"));
    let fresh = refused(|o| (o.operation, o.sources) = (Operation::Copy, vec![CacheState::Fresh]));
    assert_eq!(fresh, "--source: a source is cold or warm");
    let huge = refused(|o| o.page_size = Some(PageSize(Pages::Explicit(2 << 20))));
    assert!(huge.starts_with("--page-size: 2M pages are not compared here"), "{huge}");
    let mut persist = ChoiceOptions::new(Operation::Persist);
    persist.methods = MethodSet::Named(vec!["c_library".into()]);
    assert!(persist.validate().unwrap_err().to_string().contains("c_library"));
}

#[test]
fn a_method_that_took_fifty_times_as_long_is_left_out_at_longer_lengths_in_the_same_state() {
    let config = |size, cache| Config {
        operation: Some(Operation::Clear),
        size: Some(size),
        threads: Some(1),
        cache: Some(cache),
        intent: Some(Intent::Throughput),
        ..Config::default()
    };
    let row = |kind, name, size, cache, speed: f64| {
        let config = config(size, cache);
        testing::row(Measurement::Choice, (kind, name), config, (Metric::Bandwidth, &[speed; 3]), &[])
    };
    let rows = [
        // A fence takes that much here.
        row(Kind::Method, "movnti", 4096, CacheState::Cold, 1.0),
        row(Kind::Method, "store_8", 4096, CacheState::Cold, 90.0),
        row(Kind::Method, "store_8_clflush", 65_536, CacheState::Cold, 1.0),
        row(Kind::Peer, "libpmem", 65_536, CacheState::Cold, 1.0),
        row(Kind::Method, "movnti", 65_536, CacheState::Cold, 1.2),
        row(Kind::Method, "store_8", 65_536, CacheState::Cold, 55.0),
    ];
    let left_out = |size, cache| {
        let found = hopeless(&rows, &config(size, cache));
        found.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(left_out(1 << 20, CacheState::Cold), ["store_8_clflush"]);
    assert!(left_out(1 << 20, CacheState::Warm).is_empty());
    assert!(left_out(65_536, CacheState::Cold).is_empty(), "only at longer lengths");
}
