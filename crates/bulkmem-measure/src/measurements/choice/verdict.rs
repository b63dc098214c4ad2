//! What rows of a bench say about each other: who is the best peer, and what the policy's choice lost.

use std::collections::BTreeMap;

use bulkmem::{Intent, Operation};

use crate::calibration::derive::{NOISE, allowed_loss};
use crate::engine::Kind;
use crate::engine::stats::geometric_mean;
use crate::measurements::choice::report::{BenchRow, Contestant, Overall, RegretSummary};

/// The methods of our own table that the sources compare with, for an operation. With libpmem they are the peers.
pub(crate) fn baselines(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Clear | Operation::Fill => &["c_library", "rep_stosb", "movnti"],
        Operation::Copy => &["c_library", "rep_movsb", "movnti", "nontemporal_sse2"],
        Operation::FillPersist | Operation::CopyPersist | Operation::Persist => &[],
    }
}

/// Sorts the rows of one place, the fastest first, and fills in their ratios to the best peer and the policy's
/// regret.
pub(crate) fn judge(rows: &mut [BenchRow]) {
    rows.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    let least = |rows: &[BenchRow], counts: fn(&BenchRow) -> bool| {
        rows.iter().find(|row| counts(row)).map(|row| row.median_ns)
    };
    let peer = least(rows, |row| row.contestant.baseline);
    // The C library is a peer, and a method that could have been chosen as well.
    let best = least(rows, |row| {
        row.contestant.kind == Kind::Method
            || (row.contestant.kind == Kind::Peer && row.contestant.name == "c_library")
    });
    for row in rows {
        row.ratio_to_best_peer = peer.map(|peer| peer / row.median_ns);
        if row.contestant.kind == Kind::Policy {
            row.regret = best.map(|best| (row.median_ns / best - 1.0).max(0.0));
        }
    }
}

/// What a bench says of each length, intent and number of threads on the whole: a choice cannot know whether its
/// ranges are aligned or in the cache, so it is judged over all of these conditions that were measured.
pub(crate) fn overall(rows: &[BenchRow]) -> Vec<Overall> {
    let mut configs: BTreeMap<(u64, Intent, usize), Config<'_>> = BTreeMap::new();
    for row in rows {
        let config = configs.entry((row.length, row.intent, row.condition.threads)).or_default();
        let contestant = &row.contestant;
        let name = (contestant.kind, contestant.name.as_str(), format!("{:?}", contestant.parameters));
        let times = config.entry(name).or_insert_with(|| (contestant, BTreeMap::new()));
        times.1.insert((row.condition.aligned, row.condition.warm), row.median_ns);
    }
    configs
        .into_iter()
        .filter_map(|((length, intent, threads), config)| weigh(length, intent, threads, &config))
        .collect()
}

/// The contestants of a place, each with its times by condition (aligned, warm).
type Config<'a> = BTreeMap<(Kind, &'a str, String), (&'a Contestant, Times)>;
type Times = BTreeMap<(bool, bool), f64>;

fn weigh(length: u64, intent: Intent, threads: usize, config: &Config<'_>) -> Option<Overall> {
    let (_, chosen) = config.values().find(|(contestant, _)| contestant.kind == Kind::Policy)?;
    // The mean time of those that were measured in every condition that the choice was measured in.
    let mean =
        |times: &Times| geometric_mean(chosen.keys().map(|key| times.get(key).copied().unwrap_or(f64::NAN)));
    let least = |counts: &dyn Fn(&Contestant, &Times) -> bool| -> Option<(String, f64)> {
        config
            .values()
            .filter(|(contestant, times)| counts(contestant, times))
            .filter_map(|(contestant, times)| Some((contestant.name.clone(), mean(times)?)))
            .filter(|(_, mean)| mean.is_finite())
            .min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let plain = config.values().find(|(contestant, _)| is_c_library(contestant)).map(|(_, times)| times);
    // By the rule that fitting goes by.
    let could_be_chosen = |times: &Times| {
        let gain = |(key, ns): (&(bool, bool), &f64)| Some((plain?.get(key)? / ns).ln());
        let allowed = allowed_loss(times.iter().filter_map(gain)).max(NOISE.ln_1p());
        times.iter().filter_map(gain).all(|gain| gain >= -allowed)
    };
    let own = mean(chosen)?;
    let peer = least(&|contestant, _| contestant.baseline);
    let best = least(&|contestant, times| {
        is_c_library(contestant) || (contestant.kind == Kind::Method && could_be_chosen(times))
    });
    Some(Overall {
        length,
        intent,
        threads,
        conditions: chosen.len(),
        ratio_to_best_peer: peer.as_ref().map(|(_, peer)| peer / own),
        best_peer: peer.map(|(name, _)| name),
        regret: best.as_ref().map(|(_, best)| (own / best - 1.0).max(0.0)),
        best_method: best.map(|(name, _)| name),
    })
}

fn is_c_library(contestant: &Contestant) -> bool {
    contestant.kind == Kind::Peer && contestant.name == bulkmem::method::c_library().name
}

/// The regret over all places.
pub(crate) fn summary(rows: &[BenchRow]) -> Option<RegretSummary> {
    let overall = overall(rows);
    let regrets: Vec<(f64, u64)> =
        overall.iter().filter_map(|config| Some((config.regret?, config.length))).collect();
    let (worst, worst_length) = regrets.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(RegretSummary {
        geometric_mean: geometric_mean(regrets.iter().map(|(regret, _)| 1.0 + regret))? - 1.0,
        worst,
        worst_length,
        rows: regrets.len(),
    })
}

/// Lengths from `least` to `most` that calibration does not measure: between each two powers of four, which it
/// measures, one near the geometric middle, where rules change, and a prime.
pub fn unmeasured_lengths(least: u64, most: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(64u64), |power| power.checked_mul(4));
    let mut lengths = Vec::new();
    for power in powers.take_while(|power| *power <= most) {
        let middle = power.saturating_mul(2);
        // Just beside the middle, which calibration may have looked at where the choice changes.
        lengths.push(middle + (middle / 21).max(1));
        lengths.extend((power.saturating_mul(29) / 10..).find(|length| is_prime(*length)));
    }
    lengths.retain(|length| (least..=most).contains(length));
    lengths
}

fn is_prime(number: u64) -> bool {
    number > 1
        && (2..)
            .take_while(|divisor| divisor * divisor <= number)
            .all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use crate::calibration::{Condition, Cost};
    use bulkmem::method::Parameters;

    use super::*;

    fn row(kind: Kind, name: &str, baseline: bool, median_ns: f64) -> BenchRow {
        let contestant =
            Contestant { kind, name: name.to_owned(), parameters: Parameters::default(), baseline };
        BenchRow {
            length: 4096,
            intent: Intent::Throughput,
            cost: Cost::Throughput,
            condition: Condition { aligned: true, warm: false, threads: 1 },
            contestant,
            median_ns,
            quartiles_ns: [median_ns; 2],
            samples: 9,
            gb_per_s: 4096.0 / median_ns,
            disturbance_ns: None,
            ratio_to_best_peer: None,
            regret: None,
            counters: None,
        }
    }

    #[test]
    fn ratios_and_regret() {
        let mut rows = [
            row(Kind::Policy, "clzero", false, 110.0),
            row(Kind::Read, "read", false, 50.0),
            row(Kind::Method, "clzero", false, 100.0),
            row(Kind::Method, "movnti", true, 220.0),
            row(Kind::Peer, "c_library", true, 440.0),
        ];
        judge(&mut rows);
        assert_eq!(rows[0].contestant.kind, Kind::Read, "sorted");
        let policy = rows.iter().find(|row| row.contestant.kind == Kind::Policy).unwrap();
        assert!((policy.ratio_to_best_peer.unwrap() - 2.0).abs() < 1e-12, "movnti is the best peer");
        assert!((policy.regret.unwrap() - 0.1).abs() < 1e-12, "reading is no method");
        let summary = summary(&rows).unwrap();
        assert_eq!((summary.rows, summary.worst_length), (1, 4096));
        assert!((summary.geometric_mean - 0.1).abs() < 1e-12);
    }

    #[test]
    fn the_c_library_counts_in_hindsight_and_the_best_choice_has_no_regret() {
        let mut rows = [row(Kind::Policy, "movnti", false, 90.0), row(Kind::Peer, "c_library", true, 100.0)];
        judge(&mut rows);
        assert_eq!(rows[0].regret, Some(0.0));
        let mut rows = [row(Kind::Policy, "movnti", false, 120.0), row(Kind::Peer, "c_library", true, 100.0)];
        judge(&mut rows);
        assert!((rows[1].regret.unwrap() - 0.2).abs() < 1e-12);
        let mut alone = [row(Kind::Policy, "movnti", false, 120.0)];
        judge(&mut alone);
        assert_eq!((alone[0].regret, alone[0].ratio_to_best_peer), (None, None));
        assert_eq!(summary(&alone), None);
    }

    #[test]
    fn a_choice_is_judged_over_all_conditions() {
        let warm = |row: BenchRow| BenchRow { condition: Condition { warm: true, ..row.condition }, ..row };
        let rows = [
            row(Kind::Policy, "c_library", false, 100.0),
            warm(row(Kind::Policy, "c_library", false, 20.0)),
            row(Kind::Peer, "c_library", true, 100.0),
            warm(row(Kind::Peer, "c_library", true, 20.0)),
            // Twice as fast cold, but a good deal slower warm: no better choice, as nobody knows beforehand.
            row(Kind::Method, "movnti", true, 50.0),
            warm(row(Kind::Method, "movnti", true, 60.0)),
            row(Kind::Method, "store_avx", false, 80.0),
            warm(row(Kind::Method, "store_avx", false, 20.0)),
            // Measured in one condition only: not comparable.
            row(Kind::Method, "clzero", false, 1.0),
        ];
        let overall = overall(&rows);
        let [config] = overall.as_slice() else { panic!("{overall:?}") };
        assert_eq!((config.length, config.threads, config.conditions), (4096, 1, 2));
        assert_eq!(config.best_method.as_deref(), Some("store_avx"));
        assert!((config.regret.unwrap() - ((100.0f64 / 80.0).sqrt() - 1.0)).abs() < 1e-9);
        assert_eq!(config.best_peer.as_deref(), Some("c_library"));
        assert!((config.ratio_to_best_peer.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn unmeasured_lengths_are_not_powers_and_lie_inside() {
        let lengths = unmeasured_lengths(64, 1 << 30);
        assert!(lengths.len() >= 20);
        assert!(lengths.iter().all(|length| !length.is_power_of_two() && (64..=1 << 30).contains(length)));
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(lengths.iter().any(|length| is_prime(*length) && *length > 1 << 28));
        assert!(unmeasured_lengths(100, 100).is_empty());
    }
}
