//! What the rows of benches say of each promise: the worst place counts.

use bulkmem::method::{self, CacheEffect, Parameters};

use crate::calibration::bytes;
use crate::engine::stats::geometric_mean;
use crate::measurements::targets::{Bound, Target, Unit};
use crate::{BenchReport, BenchRow, Kind, Overall};

/// A measured value, and where it was measured.
type Config = (f64, String);

pub(super) fn clear_one_thread(reports: &[BenchReport]) -> Vec<Target> {
    vec![
        at_least(
            1.6,
            "clear, one thread, from 256 MiB: × the best of memset, REP STOSB, MOVNTI, libpmem",
            versus(reports, |row| row.contestant.baseline),
        ),
        at_least(
            1.0,
            "clear, one thread, from 256 MiB: × reading the same memory",
            versus(reports, |row| row.contestant.kind == Kind::Read),
        ),
    ]
}

pub(super) fn clear_two_threads(reports: &[BenchReport]) -> Vec<Target> {
    let what = "clear, two threads, from 256 MiB: × the best of memset, REP STOSB, MOVNTI, libpmem";
    vec![at_least(1.6, what, versus(reports, |row| row.contestant.baseline))]
}

pub(super) fn copy(reports: &[BenchReport]) -> Vec<Target> {
    let what = "copy, one thread, from 256 MiB: × the best of memcpy, REP MOVSB, plain non-temporal stores";
    // The baselines, and the plain kernels of other widths: no prefetch, no streams.
    let plain = |row: &BenchRow| {
        row.contestant.baseline
            || (row.contestant.kind == Kind::Method
                && row.contestant.parameters == Parameters::default()
                && method::by_name(&row.contestant.name).is_some_and(|it| it.effect == CacheEffect::Bypasses))
    };
    vec![at_least(1.15, what, versus(reports, plain))]
}

pub(super) fn persist(reports: &[BenchReport]) -> Vec<Target> {
    let places = |from: u64, to: u64| {
        let within = move |length: &u64| (from..=to).contains(length);
        versus(reports, |row| is_libpmem(row) && within(&row.length))
    };
    vec![
        at_least(1.3, "persist, random places, 64 and 128 B: × libpmem", places(64, 128)),
        at_least(1.1, "persist, random places, 256 B: × libpmem", places(256, 256)),
        at_least(1.0, "persist, random places, 512 B to 64 KiB: × libpmem", places(512, 64 << 10)),
        at_least(1.15, "persist, random places, from 1 MiB: × libpmem", places(1 << 20, u64::MAX)),
    ]
}

pub(super) fn never_below(reports: &[BenchReport]) -> Vec<Target> {
    let configs =
        chosen(reports).filter_map(|(report, row)| Some((row.ratio_to_best_peer?, config(report, row))));
    // No choice knows whether its ranges are in the cache, and what is best warm may be worst cold.
    let together = overall(reports).filter_map(|(report, whole)| {
        let peer = whole.best_peer?;
        let note = format!("{} of {}, against {peer}", report.operation, bytes(whole.length));
        Some((whole.ratio_to_best_peer?, note))
    });
    vec![
        at_least(0.97, "any operation, length and alignment: × the best peer", configs.collect()),
        at_least(0.97, "the same, warm and cold, aligned and not taken together", together.collect()),
    ]
}

pub(super) fn regret(reports: &[BenchReport]) -> Vec<Target> {
    let configs: Vec<Config> = overall(reports)
        .filter_map(|(report, whole)| {
            let best = whole.best_method?;
            let note = format!("{} of {}, where {best} was best", report.operation, bytes(whole.length));
            Some((whole.regret?, note))
        })
        .collect();
    let mean = geometric_mean(configs.iter().map(|(regret, _)| 1.0 + regret)).map(|mean| mean - 1.0);
    let count = format!("{} places", configs.len());
    vec![
        at_most(0.05, "regret at lengths that calibration did not measure, each", Unit::Share, configs),
        at_most(
            0.02,
            "regret at those lengths, geometric mean",
            Unit::Share,
            mean.map(|it| (it, count)).into_iter().collect(),
        ),
    ]
}

pub(super) fn stream(reports: &[BenchReport]) -> Vec<Target> {
    let mut speeds = Vec::new();
    let mut disturbances = Vec::new();
    for (report, row) in chosen(reports) {
        let bypasses = |rival: &&BenchRow| {
            rival.contestant.kind == Kind::Method
                && same_place(rival, row)
                && method::by_name(&rival.contestant.name)
                    .is_some_and(|it| it.effect == CacheEffect::Bypasses)
        };
        // The time without the disturbance is the operation's own.
        let own = |row: &BenchRow| row.median_ns - row.disturbance_ns.unwrap_or(0.0).max(0.0);
        let rivals = report.rows.iter().filter(bypasses);
        let Some(best) = rivals.min_by(|a, b| own(a).total_cmp(&own(b))) else { continue };
        speeds.push((own(best) / own(row), config(report, row)));
        if let (Some(ours), Some(theirs)) = (row.disturbance_ns, best.disturbance_ns) {
            // As a share of the operation's time, so that noise on a long operation does not count as much.
            disturbances.push(((ours - theirs) / own(best), config(report, row)));
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

pub(super) fn choosing(reports: &[BenchReport]) -> Vec<Target> {
    let costs = reports.iter().filter_map(|report| report.choosing);
    let configs = costs.map(|cost| (cost.overhead_ns(), bytes(cost.length))).collect();
    vec![at_most(
        3.0,
        "cost of choosing over the chosen method called directly, at 4 KiB",
        Unit::Nanoseconds,
        configs,
    )]
}

/// The lengths of each report, over their conditions.
fn overall(reports: &[BenchReport]) -> impl Iterator<Item = (&BenchReport, Overall)> {
    reports.iter().flat_map(|report| report.overall().into_iter().map(move |whole| (report, whole)))
}

/// The rows of the policy's choice.
fn chosen(reports: &[BenchReport]) -> impl Iterator<Item = (&BenchReport, &BenchRow)> {
    let rows = reports.iter().flat_map(|report| report.rows.iter().map(move |row| (report, row)));
    rows.filter(|(_, row)| row.contestant.kind == Kind::Policy)
}

/// How many times as fast as the best of some rivals the choice is, place by place.
fn versus(reports: &[BenchReport], rival: impl Fn(&BenchRow) -> bool) -> Vec<Config> {
    let configs = chosen(reports).filter_map(|(report, row)| {
        let rivals = report.rows.iter().filter(|other| same_place(other, row) && rival(other));
        let best = rivals.map(|row| row.median_ns).min_by(f64::total_cmp)?;
        Some((best / row.median_ns, config(report, row)))
    });
    configs.collect()
}

/// libpmem as it comes, without hints on which stores to use.
fn is_libpmem(row: &BenchRow) -> bool {
    row.contestant.kind == Kind::Peer && row.contestant.name == "libpmem"
}

fn same_place(a: &BenchRow, b: &BenchRow) -> bool {
    (a.length, a.intent, a.condition) == (b.length, b.intent, b.condition)
}

fn config(report: &BenchReport, row: &BenchRow) -> String {
    let condition = row.condition;
    format!(
        "{} of {}, {}{}",
        report.operation,
        bytes(row.length),
        if condition.aligned { "aligned" } else { "unaligned" },
        if condition.warm { ", warm" } else { "" },
    )
}

fn at_least(bound: f64, what: &str, configs: Vec<Config>) -> Target {
    let worst = configs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    target(what, Bound::AtLeast(bound), Unit::Ratio, worst)
}

fn at_most(bound: f64, what: &str, unit: Unit, configs: Vec<Config>) -> Target {
    let worst = configs.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    target(what, Bound::AtMost(bound), unit, worst)
}

fn target(what: &str, bound: Bound, unit: Unit, worst: Option<Config>) -> Target {
    let (measured, note) = match worst {
        Some((measured, config)) => (Some(measured), config),
        None => (None, "not measured: no such length, peer or processor in this run".to_owned()),
    };
    let met = measured.map(|measured| match bound {
        Bound::AtLeast(bound) => measured >= bound,
        Bound::AtMost(bound) => measured <= bound,
    });
    Target { what: what.to_owned(), bound, unit, measured, met, note }
}

#[cfg(test)]
mod tests {
    use crate::calibration::{Condition, Cost};
    use bulkmem::{Intent, Operation};

    use super::*;
    use crate::{ChoosingCost, Contestant, Provenance};

    fn row(length: u64, kind: Kind, name: &str, median_ns: f64) -> BenchRow {
        BenchRow {
            length,
            intent: Intent::Throughput,
            cost: Cost::Throughput,
            condition: Condition { aligned: true, warm: false, threads: 1 },
            contestant: Contestant {
                kind,
                name: name.into(),
                parameters: Parameters::default(),
                baseline: kind == Kind::Peer,
            },
            median_ns,
            quartiles_ns: [median_ns; 2],
            samples: 9,
            gb_per_s: length as f64 / median_ns,
            disturbance_ns: None,
            ratio_to_best_peer: None,
            regret: None,
            counters: None,
        }
    }

    fn report(operation: Operation, rows: Vec<BenchRow>) -> BenchReport {
        let cpu = bulkmem::machine::Machine::current().cpu.clone();
        BenchReport {
            provenance: Provenance { cpu, seconds: 1.0, samples: 9, ..Provenance::default() },
            operation,
            policy: String::new(),
            rows,
            regret: None,
            choosing: None,
            notes: Vec::new(),
            complete: true,
        }
    }

    #[test]
    fn the_best_rival_at_the_worst_length_counts() {
        let rows = vec![
            row(1, Kind::Policy, "a", 10.0),
            row(1, Kind::Peer, "c_library", 40.0),
            row(1, Kind::Peer, "libpmem", 20.0),
            row(1, Kind::Method, "clzero", 9.0),
            row(1, Kind::Read, "read", 11.0),
            row(2, Kind::Policy, "a", 10.0),
            row(2, Kind::Peer, "c_library", 15.0),
        ];
        let targets = clear_one_thread(&[report(Operation::Clear, rows)]);
        assert_eq!(targets[0].measured, Some(1.5));
        assert_eq!(targets[0].met, Some(false));
        assert!(targets[0].note.contains("2 B"), "{}", targets[0].note);
        assert_eq!((targets[1].measured, targets[1].met), (Some(1.1), Some(true)));
    }

    #[test]
    fn persist_is_judged_by_length_against_libpmem() {
        let lengths = [(64, 1.4), (128, 1.2), (256, 1.1), (4096, 0.9), (1 << 20, 1.2)];
        let rows = lengths.iter().flat_map(|&(length, ratio)| {
            [row(length, Kind::Policy, "a", 10.0), row(length, Kind::Peer, "libpmem", 10.0 * ratio)]
        });
        let targets = persist(&[report(Operation::CopyPersist, rows.collect())]);
        let met: Vec<_> = targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(false), Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn without_a_rival_nothing_is_claimed() {
        let alone = report(Operation::CopyPersist, vec![row(64, Kind::Policy, "a", 1.0)]);
        for target in persist(&[alone]).into_iter().chain(clear_two_threads(&[])).chain(regret(&[])) {
            assert_eq!((target.measured, target.met), (None, None));
            assert!(target.note.contains("not measured"));
        }
    }

    #[test]
    fn regret_is_judged_place_by_place_and_on_the_whole() {
        let rows = vec![
            row(1, Kind::Policy, "a", 1.06),
            row(1, Kind::Method, "b", 1.0),
            row(2, Kind::Policy, "a", 1.0),
            row(2, Kind::Method, "b", 1.1),
        ];
        let [each, mean] = regret(&[report(Operation::Clear, rows)]).try_into().unwrap();
        assert!((each.measured.unwrap() - 0.06).abs() < 1e-9);
        assert_eq!(each.met, Some(false));
        assert!((mean.measured.unwrap() - (1.06f64.sqrt() - 1.0)).abs() < 1e-9);
        assert_eq!(mean.met, Some(false));
    }

    #[test]
    fn stream_looks_at_the_operation_and_at_the_neighbour() {
        let Some(bypassing) = method::all().find(|it| it.effect == CacheEffect::Bypasses) else { return };
        let mut rows = vec![
            row(1, Kind::Policy, "a", 110.0),
            row(1, Kind::Method, bypassing.name, 101.0),
            row(1, Kind::Method, "c_library", 50.0),
        ];
        rows[0].disturbance_ns = Some(10.0);
        rows[1].disturbance_ns = Some(1.0);
        let [speed, disturbance] = stream(&[report(Operation::Clear, rows)]).try_into().unwrap();
        assert_eq!((speed.measured, speed.met), (Some(1.0), Some(true)));
        assert_eq!((disturbance.measured, disturbance.met), (Some(0.09), Some(false)));
    }

    #[test]
    fn the_cost_of_choosing_is_in_nanoseconds() {
        let mut one = report(Operation::Clear, Vec::new());
        one.choosing = Some(ChoosingCost { length: 4096, direct_ns: 50.0, chosen_ns: 52.5, choose_ns: 1.0 });
        let [target] = choosing(&[one]).try_into().unwrap();
        assert_eq!((target.measured, target.met, target.unit), (Some(2.5), Some(true), Unit::Nanoseconds));
    }
}
