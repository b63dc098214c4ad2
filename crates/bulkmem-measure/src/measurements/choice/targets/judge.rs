//! Judges each target by its rows: the worst configuration counts.

use bulkmem::method::{self, CacheEffect, Parameters};

use crate::engine::stats::geometric_mean;
use crate::engine::units::bytes;
use crate::engine::{Alignment, Bound, CacheState, Check, Kind, Row, Unit};
use crate::measurements::choice::choosing::overhead_ns;
use crate::measurements::choice::judge::{is_peer, median_ns, overall};

/// A measured value, and its configuration.
type Value = (f64, String);

pub(super) fn clear_one_thread(rows: &[&Row]) -> Vec<Check> {
    vec![
        at_least(
            1.6,
            "clear, one thread, from 256 MiB: × the best of memset, REP STOSB, MOVNTI, libpmem",
            versus(rows, is_peer),
        ),
        at_least(
            1.0,
            "clear, one thread, from 256 MiB: × reading the same memory",
            versus(rows, |row| row.candidate.kind == Kind::Read),
        ),
    ]
}

pub(super) fn clear_two_threads(rows: &[&Row]) -> Vec<Check> {
    let what = "clear, two threads, from 256 MiB: × the best of memset, REP STOSB, MOVNTI, libpmem";
    vec![at_least(1.6, what, versus(rows, is_peer))]
}

pub(super) fn copy(rows: &[&Row]) -> Vec<Check> {
    let what = "copy, one thread, from 256 MiB: × the best of memcpy, REP MOVSB, plain non-temporal stores";
    // The baselines, and the plain kernels of other widths: no prefetch, no streams.
    let plain =
        |row: &Row| is_peer(row) || (row.candidate.parameters == Parameters::default() && bypasses(row));
    vec![at_least(1.15, what, versus(rows, plain))]
}

pub(super) fn persist(rows: &[&Row]) -> Vec<Check> {
    let places = |from: u64, to: u64| {
        let libpmem = |row: &Row| row.candidate.kind == Kind::Peer && row.candidate.name == "libpmem";
        let within = |row: &Row| row.config.size.is_some_and(|size| (from..=to).contains(&size));
        versus(rows, |row| libpmem(row) && within(row))
    };
    vec![
        at_least(1.3, "persist, random places, 64 and 128 B: × libpmem", places(64, 128)),
        at_least(1.1, "persist, random places, 256 B: × libpmem", places(256, 256)),
        at_least(1.0, "persist, random places, 512 B to 64 KiB: × libpmem", places(512, 64 << 10)),
        at_least(1.15, "persist, random places, from 1 MiB: × libpmem", places(1 << 20, u64::MAX)),
    ]
}

pub(super) fn never_below(rows: &[&Row]) -> Vec<Check> {
    // A choice does not know whether its ranges are in the cache, and what is best warm may be worst cold.
    let together = overall(rows).into_iter().filter_map(|whole| {
        let note = format!("{} of {}, against {}", whole.operation, bytes(whole.length), whole.best_peer?);
        Some((whole.times_best_peer?, note))
    });
    vec![
        at_least(0.97, "any operation, length and alignment: × the best peer", versus(rows, is_peer)),
        at_least(0.97, "the same, warm and cold, aligned and not taken together", together.collect()),
    ]
}

pub(super) fn regret(rows: &[&Row]) -> Vec<Check> {
    let each: Vec<Value> = overall(rows)
        .into_iter()
        .filter_map(|whole| {
            let (length, best) = (bytes(whole.length), whole.best_method?);
            Some((whole.regret?, format!("{} of {length}, where {best} was best", whole.operation)))
        })
        .collect();
    let mean = geometric_mean(each.iter().map(|(regret, _)| 1.0 + regret)).map(|mean| mean - 1.0);
    let mean = mean.map(|mean| (mean, format!("{} configurations", each.len())));
    vec![
        at_most(0.05, "regret at lengths that calibration did not measure, each", Unit::Share, each),
        at_most(0.02, "regret at those lengths, geometric mean", Unit::Share, mean.into_iter().collect()),
    ]
}

pub(super) fn stream(rows: &[&Row]) -> Vec<Check> {
    let disturbance = |row: &Row| row.also.get("disturbance_ns").copied();
    // The time without the disturbance is the operation's own.
    let own = |row: &Row| median_ns(row).map_or(f64::NAN, |ns| ns - disturbance(row).unwrap_or(0.0).max(0.0));
    let (mut speeds, mut disturbances) = (Vec::new(), Vec::new());
    for row in chosen(rows) {
        let rivals = rows.iter().filter(|rival| bypasses(rival) && rival.config == row.config);
        let Some(best) = rivals.min_by(|a, b| own(a).total_cmp(&own(b))) else { continue };
        speeds.push((own(best) / own(row), describe(row)));
        if let (Some(ours), Some(theirs)) = (disturbance(row), disturbance(best)) {
            // As a share of the operation's time, so that noise on a long operation does not count as much.
            disturbances.push(((ours - theirs) / own(best), describe(row)));
        }
    }
    vec![
        at_least(0.97, "intent stream: × the fastest non-caching method", speeds),
        at_most(
            0.03,
            "intent stream: disturbance of a neighbour beyond that method's, as a share of its time",
            Unit::Share,
            disturbances,
        ),
    ]
}

pub(super) fn choosing(rows: &[&Row]) -> Vec<Check> {
    let values = overhead_ns(rows).map(|(overhead, length)| (overhead, bytes(length)));
    let what = "cost of choosing over the chosen method called directly, at 4 KiB";
    vec![at_most(3.0, what, Unit::Nanoseconds, values.into_iter().collect())]
}

/// True for a row of a method that bypasses the cache.
fn bypasses(row: &Row) -> bool {
    let method = || method::by_name(&row.candidate.name);
    row.candidate.kind == Kind::Method && method().is_some_and(|it| it.effect == CacheEffect::Bypasses)
}

/// The rows of the policy's choice.
fn chosen<'r>(rows: &[&'r Row]) -> impl Iterator<Item = &'r Row> {
    rows.iter().copied().filter(|row| row.candidate.kind == Kind::Policy && median_ns(row).is_some())
}

/// How many times as fast as the best of some rivals the choice is, by configuration.
fn versus(rows: &[&Row], rival: impl Fn(&Row) -> bool) -> Vec<Value> {
    let values = chosen(rows).filter_map(|row| {
        let rivals = rows.iter().filter(|other| other.config == row.config && rival(other));
        let best = rivals.filter_map(|row| median_ns(row)).min_by(f64::total_cmp)?;
        Some((best / median_ns(row)?, describe(row)))
    });
    values.collect()
}

fn describe(row: &Row) -> String {
    let config = &row.config;
    format!(
        "{} of {}, {}{}",
        config.operation.map_or("", |operation| operation.name()),
        bytes(config.size.unwrap_or_default()),
        if config.alignment == Some(Alignment::Unaligned) { "unaligned" } else { "aligned" },
        if config.cache == Some(CacheState::Warm) { ", warm" } else { "" },
    )
}

fn at_least(bound: f64, what: &str, values: Vec<Value>) -> Check {
    let worst = values.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    check(what, Bound::AtLeast(bound), Unit::Ratio, worst)
}

fn at_most(bound: f64, what: &str, unit: Unit, values: Vec<Value>) -> Check {
    let worst = values.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    check(what, Bound::AtMost(bound), unit, worst)
}

fn check(what: &str, bound: Bound, unit: Unit, worst: Option<Value>) -> Check {
    let (measured, note) = match worst {
        Some((measured, config)) => (Some(measured), config),
        None => (None, "not measured: no such length, peer or processor in this run".to_owned()),
    };
    let met = measured.map(|measured| match bound {
        Bound::AtLeast(bound) => measured >= bound,
        Bound::AtMost(bound) => measured <= bound,
    });
    Check { what: what.to_owned(), bound, unit, measured, met, note }
}

#[cfg(test)]
mod tests {
    use bulkmem::{Intent, Operation};

    use super::*;
    use crate::engine::{Config, Measurement, Metric, testing};

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
            row(2, Kind::Peer, "c_library", 15.0),
        ];
        let targets = checks(clear_one_thread, &rows);
        assert!(near(targets[0].measured, 1.5), "{targets:?}");
        assert_eq!(targets[0].met, Some(false));
        assert!(targets[0].note.contains("2 B"), "{}", targets[0].note);
        assert!(near(targets[1].measured, 1.1) && targets[1].met == Some(true), "{targets:?}");
    }

    #[test]
    fn persist_is_judged_by_length_against_libpmem() {
        let lengths = [(64, 1.4), (128, 1.2), (256, 1.11), (4096, 0.9), (1 << 20, 1.2)];
        let of = |length, kind, name, ns| row_of(Operation::CopyPersist, length, kind, name, ns);
        let rows = lengths.iter().flat_map(|&(length, ratio)| {
            [of(length, Kind::Policy, "policy", 10.0), of(length, Kind::Peer, "libpmem", 10.0 * ratio)]
        });
        let targets = checks(persist, &rows.collect::<Vec<_>>());
        let met: Vec<_> = targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(false), Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn without_a_rival_nothing_is_claimed() {
        let alone = [row_of(Operation::CopyPersist, 64, Kind::Policy, "policy", 1.0)];
        let all = [checks(persist, &alone), checks(clear_two_threads, &[]), checks(regret, &[])].concat();
        for target in all {
            assert_eq!((target.measured, target.met), (None, None));
            assert!(target.note.contains("not measured"));
        }
    }

    #[test]
    fn regret_is_judged_by_configuration_and_on_the_whole() {
        let rows = [
            row(1, Kind::Policy, "policy", 1.06),
            row(1, Kind::Method, "b", 1.0),
            row(2, Kind::Policy, "policy", 1.0),
            row(2, Kind::Method, "b", 1.1),
        ];
        let [each, mean] = checks(regret, &rows).try_into().unwrap();
        assert!(near(each.measured, 0.06) && each.met == Some(false), "{each:?}");
        assert!(near(mean.measured, 1.06f64.sqrt() - 1.0) && mean.met == Some(false), "{mean:?}");
    }

    #[test]
    fn stream_looks_at_the_operation_and_at_the_neighbour() {
        let Some(bypassing) = method::all().find(|it| it.effect == CacheEffect::Bypasses) else { return };
        let mut rows = [
            row(1, Kind::Policy, "policy", 110.0),
            row(1, Kind::Method, bypassing.name, 101.0),
            row(1, Kind::Method, "c_library", 50.0),
        ];
        rows[0].also.insert("disturbance_ns".to_owned(), 10.0);
        rows[1].also.insert("disturbance_ns".to_owned(), 1.0);
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
        let [target] = checks(choosing, &rows).try_into().unwrap();
        assert!(near(target.measured, 2.5) && target.met == Some(true), "{target:?}");
        assert_eq!((target.unit, target.note.as_str()), (Unit::Nanoseconds, "4 KiB"));
    }
}
