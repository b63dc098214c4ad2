use super::*;
use crate::engine::{Metric, testing};
use crate::measurements::choice::judge::LOOK;

fn row_of(operation: Operation, length: u64, kind: Kind, name: &str, median_ns: f64) -> Row {
    let config = Config {
        operation: Some(operation),
        size: Some(length),
        threads: Some(1),
        alignment: Some(Alignment::Aligned),
        cache: Some(CacheState::Cold),
        intent: Some(Intent::Throughput),
        ..Config::default()
    };
    let samples = [length as f64 / median_ns; 9];
    testing::row(Measurement::Targets, (kind, name), config, (Metric::Bandwidth, &samples), &[])
}

fn row(length: u64, kind: Kind, name: &str, median_ns: f64) -> Row {
    row_of(Operation::Clear, length, kind, name, median_ns)
}

fn checks(judge: fn(&[&Row]) -> Vec<Check>, rows: &[Row]) -> Vec<Check> {
    judge(&rows.iter().collect::<Vec<_>>())
}

fn near(measured: Option<f64>, expected: f64) -> bool {
    measured.is_some_and(|measured| (measured - expected).abs() < 1e-9)
}

#[test]
fn the_best_rival_at_the_worst_length_counts() {
    let rows = [
        row(1, Kind::Policy, "policy", 10.0),
        row(1, Kind::Peer, "c_library", 40.0),
        row(1, Kind::Peer, "libpmem", 20.0),
        row(1, Kind::Method, "clzero", 9.0),
        row(1, Kind::Read, "read", 11.0),
        row(2, Kind::Policy, "policy", 10.0),
        row(2, Kind::Peer, "c_library", 8.0),
    ];
    let [target] = checks(threads, &rows).try_into().unwrap();
    assert!(near(target.measured, 0.8), "{target:?}");
    assert_eq!(target.met, Some(false));
    assert!(target.note.contains("2 B"), "{}", target.note);
}

#[test]
fn calls_on_the_same_memory_are_compared_with_the_c_library() {
    let rows = [
        row(1, Kind::Policy, "policy", 10.0),
        row(1, Kind::Method, "c_library", 8.0),
        row(2, Kind::Policy, "policy", 10.0),
        row(2, Kind::Method, "c_library", 9.5),
        row(2, Kind::Method, "clzero", 1.0),
    ];
    let [target] = checks(the_same_memory, &rows).try_into().unwrap();
    assert!(near(target.measured, 0.8) && target.met == Some(false), "{target:?}");
    let [target] = checks(the_same_memory, &rows[2..]).try_into().unwrap();
    assert!(near(target.measured, 0.95) && target.met == Some(true), "{target:?}");
}

#[test]
fn chance_misses_no_target() {
    let noisy = |own: [f64; 9]| {
        let mut policy = row(1, Kind::Policy, "policy", 1.0);
        policy = testing::row(
            Measurement::Targets,
            (Kind::Policy, "policy"),
            policy.config,
            (Metric::Bandwidth, &own),
            &[],
        );
        let [target] = checks(threads, &[policy, row(1, Kind::Peer, "c_library", 1.0)]).try_into().unwrap();
        (target.met, target.note)
    };
    let (met, note) = noisy([0.90, 0.91, 0.92, 0.93, 0.95, 0.97, 0.98, 0.99, 1.00]);
    assert_eq!(met, Some(true), "{note}");
    // Slow outliers make the interval wide, but not where the target is.
    let (met, note) = noisy([0.50, 0.60, 0.70, 0.90, 0.90, 0.90, 0.91, 0.91, 0.91]);
    assert_eq!(met, Some(false), "{note}");
    let (met, note) = noisy([0.80, 0.81, 0.82, 0.83, 0.85, 0.97, 0.99, 1.00, 1.01]);
    assert_eq!(met, None, "{note}");
}

#[test]
fn persist_is_judged_by_length_against_libpmem() {
    let lengths = [(64, 1.4), (128, 1.2), (256, 1.11), (4096, 1.0), (1 << 20, 0.2)];
    let of = |length, kind, name, ns| row_of(Operation::CopyPersist, length, kind, name, ns);
    let rows = lengths.iter().flat_map(|&(length, ratio)| {
        [of(length, Kind::Policy, "policy", 10.0), of(length, Kind::Peer, "libpmem", 10.0 * ratio)]
    });
    let targets = checks(persist, &rows.collect::<Vec<_>>());
    let met: Vec<_> = targets.iter().map(|target| target.met).collect();
    assert_eq!(met, [Some(false), Some(true)]);
}

#[test]
fn without_a_rival_nothing_is_claimed() {
    let alone = [row_of(Operation::CopyPersist, 64, Kind::Policy, "policy", 1.0)];
    let all = [checks(persist, &alone), checks(threads, &[]), checks(every_state, &[])].concat();
    for target in all {
        assert_eq!((target.measured, target.met), (None, None));
        assert!(target.note.contains("not measured"));
    }
}

#[test]
fn each_cache_state_is_judged_by_length() {
    let with = |length, cache, kind, name, ns| {
        let mut row = row(length, kind, name, ns);
        row.config.cache = Some(cache);
        row
    };
    let mut rows = Vec::new();
    // Lengths with the times of the policy in cold, warm and fresh memory; both others always take 100.
    let between = between_lengths();
    let from = |least| *between.iter().find(|length| **length >= least).unwrap();
    for (length, cold, warm, fresh) in [
        (200, 98.0, 98.0, 98.0),
        (from(64 * KIB), 50.0, 125.0, 100.0),
        (from(256 * KIB), 50.0, 105.0, 80.0),
        (from(512 * KIB), 50.0, 104.0, 110.0),
        // Calibration measures it.
        (64 * MIB, 100.0, 100.0, 100.0),
    ] {
        let states = [(CacheState::Cold, cold), (CacheState::Warm, warm), (CacheState::Fresh, fresh)];
        for (cache, ns) in states {
            rows.push(with(length, cache, Kind::Policy, "policy", ns));
            if ns == 125.0 {
                rows.last_mut().unwrap().also.insert(LOOK.to_owned(), 15.0);
            }
            rows.push(with(length, cache, Kind::Peer, "c_library", 100.0));
            rows.push(with(length, cache, Kind::Method, "store_avx", 100.0));
        }
        // Of all targets, only the last one judges it.
        rows.push(with(length, CacheState::Fresh, Kind::Control, POPULATING, 60.0));
    }
    let checks = checks(every_state, &rows);
    let measured: Vec<f64> = checks.iter().map(|check| check.measured.unwrap()).collect();
    let expected = [100.0 / 104.0, 100.0 / 105.0, 0.8, 100.0 / 110.0, 1.25, 1.0, 100.0 / 98.0];
    assert!(measured.iter().zip(expected).all(|(a, b)| near(Some(*a), b)), "{checks:?}");
    let met: Vec<_> = checks.iter().map(|check| check.met == Some(true)).collect();
    assert_eq!(met, [false, true, true, false, true, true, true, false, false, false, true], "{checks:?}");
    assert!(near(checks[10].measured, 80.0 / 60.0), "{checks:?}");
    assert!(checks[0].note.contains("warm") && checks[3].note.contains("fresh"), "{checks:?}");
    // 100 divided by the geometric mean of all times from 64 KiB, fresh ones included.
    let times = [50.0f64, 125.0, 100.0, 50.0, 105.0, 80.0, 50.0, 104.0, 110.0];
    let mean = times.iter().map(|time| (100.0 / time).ln()).sum::<f64>() / 12.0;
    assert!(near(checks[7].measured, mean.exp()), "{checks:?}");
    // The best others take 100 everywhere.
    let best = mean + times.iter().map(|time| (time / 100.0).ln()).sum::<f64>() / 12.0;
    assert!(checks[7].note.ends_with(&format!("; {:.2} by the best in hindsight", best.exp())), "{checks:?}");
    // 125 without a look of 15.
    let regret = [1.1f64, 1.05, 1.04, 1.1].iter().map(|it| it.ln()).sum::<f64>() / 9.0;
    assert!(near(checks[8].measured, regret.exp_m1()), "{checks:?}");
    assert!(near(checks[9].measured, 0.1), "{checks:?}");
    assert!(checks[9].note.contains("of 9 configurations miss it"), "{checks:?}");
}

#[test]
fn too_few_samples_are_no_regret_but_are_reported() {
    let between = between_lengths();
    let mut rows: Vec<Row> = [(between[0], 102.0), (between[20], 150.0)]
        .into_iter()
        .flat_map(|(length, ns)| {
            [row(length, Kind::Policy, "policy", ns), row(length, Kind::Method, "store_avx", 100.0)]
        })
        .collect();
    rows[2..].iter_mut().for_each(|row| row.samples.truncate(ENOUGH as usize - 1));
    let [regret, each] = &checks(every_state, &rows)[8..10] else { panic!("neither is judged") };
    assert!(near(regret.measured, 0.02) && near(each.measured, 0.02), "{regret:?} {each:?}");
    let expected = "1 configuration with 5 samples or more; 23.7 % over all 2";
    assert_eq!(regret.note, expected);
}

#[test]
fn stream_looks_at_the_operation_and_at_the_neighbour() {
    let Some(bypassing) = method::all().find(|it| it.effect == CacheEffect::Bypasses) else { return };
    let mut rows = [
        row(1, Kind::Policy, "policy", 110.0),
        row(1, Kind::Method, bypassing.name, 101.0),
        row(1, Kind::Method, "c_library", 50.0),
    ];
    for (row, disturbance) in rows.iter_mut().zip([10.0, 1.0]) {
        row.also.insert("disturbance_ns".to_owned(), disturbance);
        row.also.insert(OPERATION_NS.to_owned(), 100.0);
    }
    let [speed, disturbance] = checks(stream, &rows).try_into().unwrap();
    assert!(near(speed.measured, 1.0) && speed.met == Some(true), "{speed:?}");
    assert!(near(disturbance.measured, 0.09) && disturbance.met == Some(false), "{disturbance:?}");
}

#[test]
fn the_cost_of_choosing_is_in_nanoseconds() {
    let of = |kind, name, ns: f64| {
        let config = row(4096, kind, name, 1.0).config;
        testing::row(Measurement::Targets, (kind, name), config, (Metric::Nanoseconds, &[ns; 9]), &[])
    };
    let rows = [of(Kind::Method, "clzero", 50.0), of(Kind::Policy, "policy", 52.5)];
    let [target] = checks(cost_of_choosing, &rows).try_into().unwrap();
    assert!(near(target.measured, 2.5) && target.met == Some(true), "{target:?}");
    assert_eq!((target.unit, target.note.as_str()), (Unit::Nanoseconds, "4 KiB"));
}

/// No target is forgotten, however small the lengths are.
#[test]
fn every_target_is_judged() {
    for max_length in [256, MIB, 4 * GIB] {
        let parts = parts(max_length);
        let targets: usize = parts.iter().map(|part| (part.judge)(&[]).len()).sum();
        assert_eq!((parts.len(), targets), (6, 19));
        let comparisons = || parts.iter().flat_map(|part| &part.comparisons);
        assert!(comparisons().all(|it| it.sizes.iter().all(|size| *size <= max_length)));
        for comparison in comparisons() {
            comparison.validate().unwrap();
        }
    }
}

#[test]
fn bad_options_are_refused() {
    let refused = |options: TargetsOptions| options.validate().unwrap_err().to_string();
    let small = TargetsOptions { max_length: 100, budget: Duration::from_secs(300) };
    assert!(refused(small).starts_with("--max-size: less than 256 bytes"));
    let short = TargetsOptions { budget: Duration::ZERO, max_length: GIB };
    assert!(refused(short).starts_with("--budget: "));
}
