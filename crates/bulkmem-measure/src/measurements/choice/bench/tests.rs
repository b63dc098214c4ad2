//! Places and contestants; the bench for real, in little time.

use std::collections::BTreeSet;

use super::*;
use crate::OptionName;

fn small(operation: Operation) -> BenchOptions {
    BenchOptions {
        lengths: vec![4096, 65_536],
        budget: Duration::from_secs(2),
        temperature: Temperature::Warm,
        ..BenchOptions::new(operation)
    }
}

fn defaults() -> Policy {
    Policy::defaults(Machine::current())
}

#[test]
fn places_are_all_combinations_that_make_sense() {
    let options = BenchOptions {
        lengths: vec![1 << 20, 4096, 4096, 64 << 20, 1 << 40],
        alignment: Alignment::Both,
        temperature: Temperature::Both,
        threads: vec![1, 2],
        intents: vec![Intent::Throughput, Intent::Stream],
        ..BenchOptions::new(Operation::Clear)
    };
    let mut notes = Vec::new();
    let configs = configs(&options, 32 << 20, 1 << 30, &mut notes);
    // Warm and cold below twice the last level, cold above.
    assert_eq!(configs.len(), (2 * 2 + 1) * 2 * 2 * 2);
    assert!(configs.windows(2).all(|pair| pair[0].0.length <= pair[1].0.length));
    assert_eq!(notes, ["1024 GiB: left out, memory allows 1 GiB at most"]);
}

#[test]
fn the_policy_every_method_and_the_baselines_take_part() {
    let policy = defaults();
    let options = BenchOptions::new(Operation::Clear);
    let trials = contestants(&options, &policy, Intent::Throughput, 1 << 20);
    let names: Vec<Contestant> =
        trials.iter().map(|(trial, baseline)| contestant(trial, *baseline)).collect();
    assert_eq!(names.iter().filter(|it| it.kind == Kind::Policy).count(), 1);
    assert_eq!(names.iter().filter(|it| it.kind == Kind::Read).count(), 1);
    for method in method::all().filter(|method| method.does(Operation::Clear) && method.available()) {
        assert!(names.iter().any(|it| it.name == method.name && it.kind != Kind::Policy), "{}", method.name);
    }
    let baselines: BTreeSet<&str> =
        names.iter().filter(|it| it.baseline && it.kind == Kind::Method).map(|it| it.name.as_str()).collect();
    #[cfg(target_arch = "x86_64")]
    assert_eq!(baselines, BTreeSet::from(["movnti", "rep_stosb"]));
    assert!(names.iter().any(|it| it.baseline && it.name == "c_library" && it.kind == Kind::Peer));
    let direct: Vec<_> = names.iter().filter(|it| matches!(it.kind, Kind::Method | Kind::Peer)).collect();
    let distinct: BTreeSet<_> = direct.iter().map(|it| format!("{}{:?}", it.name, it.parameters)).collect();
    assert_eq!(direct.len(), distinct.len(), "nobody twice");
}

#[test]
fn named_methods_and_no_peers_leave_the_others_out() {
    let policy = defaults();
    let named = Methods::Named(vec!["portable".to_owned()]);
    let options = BenchOptions { methods: named, peers: false, ..BenchOptions::new(Operation::Copy) };
    let trials = contestants(&options, &policy, Intent::Throughput, 1 << 20);
    let chosen = policy.choose(Operation::Copy, 1 << 20, Intent::Throughput).unwrap().method.name;
    for (trial, baseline) in &trials {
        let contestant = contestant(trial, *baseline);
        assert!(!contestant.baseline);
        assert!(["portable", chosen].contains(&contestant.name.as_str()), "{contestant:?}");
    }
    assert!(
        trials
            .iter()
            .any(|(trial, _)| matches!(trial, Trial::Direct(choice) if choice.method.name == "portable"))
    );
}

#[test]
fn every_operation_is_benched_for_real() {
    for operation in Operation::ALL {
        let mut steps = 0;
        let policy = defaults();
        let report = bench(&small(operation), &policy, &mut |_| steps += 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(report.operation, operation);
        assert!(steps >= 3, "memory, places, done");
        assert!(report.rows.iter().all(|row| row.median_ns > 0.0 && row.samples > 0 && row.gb_per_s > 0.0));
        let able = method::all().any(|method| method.does(operation) && method.available());
        let policy_rows = report.rows.iter().filter(|row| row.contestant.kind == Kind::Policy);
        if able {
            assert!(policy_rows.clone().count() >= 1);
            assert!(policy_rows.clone().all(|row| row.regret.is_some_and(|regret| regret >= 0.0)));
            assert!(report.regret.is_some());
        }
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<BenchReport>(&json).unwrap().rows.len(), report.rows.len());
    }
}

#[test]
fn several_threads_and_every_intent_are_benched() {
    let options = BenchOptions {
        threads: vec![1, 2],
        intents: Intent::ALL.to_vec(),
        methods: Methods::Named(vec!["portable".to_owned()]),
        ..small(Operation::Copy)
    };
    let report = bench(&options, &defaults(), &mut |_| {}, &AtomicBool::new(false)).unwrap();
    for intent in Intent::ALL {
        for threads in [1, 2] {
            let found =
                report.rows.iter().any(|row| row.intent == intent && row.condition.threads == threads);
            assert!(found || !report.complete, "{intent} {threads}");
        }
    }
    let streams = report.rows.iter().filter(|row| row.intent == Intent::Stream);
    assert!(streams.clone().count() > 0 && streams.clone().all(|row| row.disturbance_ns.is_some()));
}

#[test]
fn a_stop_and_regret() {
    let stopped = bench(&small(Operation::Clear), &defaults(), &mut |_| {}, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(MeasureError::Interrupted)));

    let options = BenchOptions { lengths: vec![64, 20_000], ..small(Operation::Clear) };
    let report = regret(&options, &defaults(), &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert!(report.rows.iter().all(|row| !row.length.is_power_of_two()));
    let nothing = BenchOptions { lengths: vec![64], ..small(Operation::Clear) };
    let refused = regret(&nothing, &defaults(), &mut |_| {}, &AtomicBool::new(false));
    assert!(matches!(refused, Err(MeasureError::Option { option: OptionName::Sizes, .. })));
}
