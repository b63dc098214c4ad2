//! Judges the policy's rows against those of methods and peers: the best peer, and the regret of the choice.

use std::collections::BTreeMap;

use bulkmem::method::{self, Parameters};
use bulkmem::{Intent, Operation};

use crate::calibration::derive::{NOISE, allowed_loss};
use crate::engine::stats::geometric_mean;
use crate::engine::units::bytes;
use crate::engine::{Alignment, CacheState, Candidate, Kind, Metric, Row};

/// Methods of this library that the sources compare with, for an operation. Together with other libraries they are the
/// peers.
pub(super) fn baselines(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Clear | Operation::Fill => &["c_library", "rep_stosb", "movnti"],
        Operation::Copy => &["c_library", "rep_movsb", "movnti", "nontemporal_sse2"],
        Operation::FillPersist | Operation::CopyPersist | Operation::Persist => &[],
    }
}

/// True for the candidates that "the best peer" means: the C library, libpmem, and the plain methods that the sources
/// compare with.
pub fn is_baseline(candidate: &Candidate, operation: Operation) -> bool {
    let default = || {
        let method = method::by_name(&candidate.name);
        method.is_some_and(|method| method.default_parameters(operation) == candidate.parameters)
    };
    candidate.kind == Kind::Peer
        || (candidate.kind == Kind::Method
            && baselines(operation).contains(&candidate.name.as_str())
            && default())
}

/// True for a row of a peer.
pub(super) fn is_peer(row: &Row) -> bool {
    row.config.operation.is_some_and(|operation| is_baseline(&row.candidate, operation))
}

/// Nanoseconds per operation, by the median; `None` for rows of another metric.
pub(super) fn median_ns(row: &Row) -> Option<f64> {
    (row.metric == Metric::Bandwidth).then_some(row.config.size? as f64 / row.stats.median)
}

/// Adds to the policy's row of one configuration how many times as fast it is as the best peer (`times_best_peer`), and
/// how much longer it takes than the best method in hindsight, a share (`regret`).
pub(super) fn annotate(rows: &mut [Row]) {
    let least = |counts: &dyn Fn(&Row) -> bool| {
        rows.iter().filter(|row| counts(row)).filter_map(median_ns).min_by(f64::total_cmp)
    };
    let peer = least(&is_peer);
    // The C library is a peer, and a method that could have been chosen as well.
    let best = least(&|row| row.candidate.kind == Kind::Method || is_c_library(&row.candidate));
    for row in rows.iter_mut().filter(|row| row.candidate.kind == Kind::Policy) {
        let Some(own) = median_ns(row) else { continue };
        let judged = [
            ("times_best_peer", peer.map(|peer| peer / own)),
            ("regret", best.map(|best| (own / best - 1.0).max(0.0))),
        ];
        row.also.extend(judged.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
}

/// Adds the same, over all conditions, to the policy's rows.
pub(super) fn annotate_overall(rows: &mut [Row]) {
    let all = overall(&rows.iter().collect::<Vec<_>>());
    for row in rows.iter_mut().filter(|row| row.candidate.kind == Kind::Policy) {
        let here = |it: &&Overall| {
            row.metric == Metric::Bandwidth
                && Some(it.operation) == row.config.operation
                && (Some(it.length), Some(it.intent), Some(it.threads))
                    == (row.config.size, row.config.intent, row.config.threads)
        };
        let Some(whole) = all.iter().find(here) else { continue };
        let judged = [("overall_times_best_peer", whole.times_best_peer), ("overall_regret", whole.regret)];
        row.also.extend(judged.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
}

/// One operation, length, intent and number of threads over the conditions (alignment and cache) that were measured. A
/// choice knows neither condition, so it is judged by the geometric mean of the times over all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// The operation.
    pub operation: Operation,
    /// Bytes per operation.
    pub length: u64,
    /// The use of the bytes after the operation.
    pub intent: Intent,
    /// Threads that share the work.
    pub threads: usize,
    /// How many conditions.
    pub conditions: usize,
    /// The best peer's time divided by the choice's: above 1 is faster than every peer. `None` without a peer.
    pub times_best_peer: Option<f64>,
    /// That peer.
    pub best_peer: Option<String>,
    /// The choice's time divided by that of the best method in hindsight, minus 1: of the methods that
    /// [`derive_policy`](crate::derive_policy) could choose, which lose to the C library in no condition, or little
    /// compared with what they gain in another.
    pub regret: Option<f64>,
    /// That method.
    pub best_method: Option<String>,
}

type Condition = (Option<Alignment>, Option<CacheState>);
/// The times of each candidate by condition.
type Group<'a> = Vec<(&'a Candidate, BTreeMap<Condition, f64>)>;

/// Judges rows of choices over all conditions.
pub fn overall(rows: &[&Row]) -> Vec<Overall> {
    let mut groups: BTreeMap<(Operation, u64, Intent, usize), Group<'_>> = BTreeMap::new();
    for row in rows {
        let config = &row.config;
        let key = (config.operation, config.size, config.intent, config.threads.or(Some(1)));
        let (Some(ns), (Some(operation), Some(size), Some(intent), Some(threads))) = (median_ns(row), key)
        else {
            continue;
        };
        let group = groups.entry((operation, size, intent, threads)).or_default();
        let at = group.iter().position(|(known, _)| **known == row.candidate).unwrap_or_else(|| {
            group.push((&row.candidate, BTreeMap::new()));
            group.len() - 1
        });
        group[at].1.insert((config.alignment, config.cache), ns);
    }
    groups.into_iter().filter_map(|(key, group)| judge(key, &group)).collect()
}

fn judge(
    (operation, length, intent, threads): (Operation, u64, Intent, usize),
    group: &Group<'_>,
) -> Option<Overall> {
    type Times = BTreeMap<Condition, f64>;
    let (_, chosen) = group.iter().find(|(candidate, _)| candidate.kind == Kind::Policy)?;
    // The mean time of candidates that were measured in every condition that the choice was measured in.
    let mean =
        |times: &Times| geometric_mean(chosen.keys().map(|key| times.get(key).copied().unwrap_or(f64::NAN)));
    let least = |counts: &dyn Fn(&Candidate, &Times) -> bool| -> Option<(String, f64)> {
        group
            .iter()
            .filter(|(candidate, times)| counts(candidate, times))
            .filter_map(|(candidate, times)| Some((candidate.name.clone(), mean(times)?)))
            .filter(|(_, mean)| mean.is_finite())
            .min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let plain = group.iter().find(|(candidate, _)| is_c_library(candidate)).map(|(_, times)| times);
    // By the rule of calibration.
    let could_be_chosen = |times: &Times| {
        let gain = |(key, ns): (&Condition, &f64)| Some((plain?.get(key)? / ns).ln());
        let allowed = allowed_loss(times.iter().filter_map(gain)).max(NOISE.ln_1p());
        times.iter().filter_map(gain).all(|gain| gain >= -allowed)
    };
    let own = mean(chosen)?;
    let peer = least(&|candidate, _| is_baseline(candidate, operation));
    let best = least(&|candidate, times| {
        is_c_library(candidate) || (candidate.kind == Kind::Method && could_be_chosen(times))
    });
    Some(Overall {
        operation,
        length,
        intent,
        threads,
        conditions: chosen.len(),
        times_best_peer: peer.as_ref().map(|(_, peer)| peer / own),
        best_peer: peer.map(|(name, _)| name),
        regret: best.as_ref().map(|(_, best)| (own / best - 1.0).max(0.0)),
        best_method: best.map(|(name, _)| name),
    })
}

fn is_c_library(candidate: &Candidate) -> bool {
    candidate.kind == Kind::Peer
        && candidate.name == method::c_library().name
        && candidate.parameters == Parameters::default()
}

/// The regret over several lengths, intents and numbers of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// Geometric mean of choice ÷ best ([`Overall::regret`]), minus 1.
    pub geometric_mean: f64,
    /// The largest regret.
    pub worst: f64,
    /// The length with the largest regret.
    pub worst_length: u64,
    /// How many configurations.
    pub configurations: usize,
}

impl Regret {
    /// The finding.
    pub(super) fn text(&self, operation: Operation) -> String {
        format!(
            "{operation}: regret over {}: {:.1} % in the geometric mean, at worst {:.1} % at {}.",
            match self.configurations {
                1 => "1 configuration".to_owned(),
                several => format!("{several} configurations"),
            },
            self.geometric_mean * 100.0,
            self.worst * 100.0,
            bytes(self.worst_length),
        )
    }
}

/// Summarizes the regret; `None` if no configuration has both the choice and a method.
pub fn regret(overall: &[Overall]) -> Option<Regret> {
    let regrets: Vec<(f64, u64)> = overall.iter().filter_map(|it| Some((it.regret?, it.length))).collect();
    let (worst, worst_length) = regrets.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Regret {
        geometric_mean: geometric_mean(regrets.iter().map(|(regret, _)| 1.0 + regret))? - 1.0,
        worst,
        worst_length,
        configurations: regrets.len(),
    })
}

/// Lengths from `least` to `most` that calibration does not measure: between each two powers of four, which it
/// measures, one near the geometric middle, where rules change, and a prime.
pub fn unmeasured_lengths(least: u64, most: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(64u64), |power| power.checked_mul(4));
    let mut lengths = Vec::new();
    for power in powers.take_while(|power| *power <= most) {
        let middle = power.saturating_mul(2);
        // Next to the middle itself, which calibration may have measured where the choice changes.
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
    use super::*;
    use crate::engine::{Config, Measurement, testing};

    fn row(kind: Kind, name: &str, cache: CacheState, median_ns: f64) -> Row {
        let config = Config {
            operation: Some(Operation::Clear),
            size: Some(4096),
            threads: Some(1),
            alignment: Some(Alignment::Aligned),
            cache: Some(cache),
            intent: Some(Intent::Throughput),
            ..Config::default()
        };
        let samples = [4096.0 / median_ns; 9];
        testing::row(Measurement::Choice, (kind, name), config, (Metric::Bandwidth, &samples), &[])
    }

    fn cold(kind: Kind, name: &str, median_ns: f64) -> Row {
        row(kind, name, CacheState::Cold, median_ns)
    }

    fn of(rows: &[Row]) -> Vec<Overall> {
        overall(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_policys_row_has_its_ratio_to_the_best_peer_and_its_regret() {
        let mut rows = [
            cold(Kind::Policy, "policy", 110.0),
            cold(Kind::Read, "read", 50.0),
            cold(Kind::Method, "clzero", 100.0),
            cold(Kind::Method, "movnti", 220.0),
            cold(Kind::Peer, "c_library", 440.0),
        ];
        annotate(&mut rows);
        annotate_overall(&mut rows);
        let also = &rows[0].also;
        assert!((also["times_best_peer"] - 2.0).abs() < 1e-9, "movnti is the best peer: {also:?}");
        assert!((also["regret"] - 0.1).abs() < 1e-9, "reading is not a method: {also:?}");
        for name in ["times_best_peer", "regret"] {
            assert!((also[name] - also[&format!("overall_{name}")]).abs() < 1e-9, "{also:?}");
        }
        assert!(rows[1..].iter().all(|row| row.also.is_empty()));
        let summary = regret(&of(&rows)).unwrap();
        assert_eq!((summary.configurations, summary.worst_length), (1, 4096));
        assert!((summary.geometric_mean - 0.1).abs() < 1e-9);
        let text =
            "clear: regret over 1 configuration: 10.0 % in the geometric mean, at worst 10.0 % at 4 KiB.";
        assert_eq!(summary.text(Operation::Clear), text);
    }

    #[test]
    fn the_c_library_counts_in_hindsight_and_the_best_choice_has_no_regret() {
        let regret_of = |own: f64| {
            let mut rows = [cold(Kind::Policy, "policy", own), cold(Kind::Peer, "c_library", 100.0)];
            annotate(&mut rows);
            rows[0].also["regret"]
        };
        assert_eq!(regret_of(90.0), 0.0);
        assert!((regret_of(120.0) - 0.2).abs() < 1e-9);
        let mut alone = [cold(Kind::Policy, "policy", 120.0)];
        annotate(&mut alone);
        annotate_overall(&mut alone);
        assert!(alone[0].also.is_empty());
        assert_eq!(regret(&of(&alone)), None);
    }

    #[test]
    fn a_choice_is_judged_over_all_conditions() {
        let warm = |kind, name, ns| row(kind, name, CacheState::Warm, ns);
        let rows = [
            cold(Kind::Policy, "policy", 100.0),
            warm(Kind::Policy, "policy", 20.0),
            cold(Kind::Peer, "c_library", 100.0),
            warm(Kind::Peer, "c_library", 20.0),
            // Twice as fast cold, but much slower warm: not a better choice, as the condition is not known beforehand.
            cold(Kind::Method, "movnti", 50.0),
            warm(Kind::Method, "movnti", 60.0),
            cold(Kind::Method, "store_avx", 80.0),
            warm(Kind::Method, "store_avx", 20.0),
            // Measured in one condition only: not comparable.
            cold(Kind::Method, "clzero", 1.0),
        ];
        let overall = of(&rows);
        let [whole] = overall.as_slice() else { panic!("{overall:?}") };
        assert_eq!((whole.length, whole.threads, whole.conditions), (4096, 1, 2));
        assert_eq!(whole.best_method.as_deref(), Some("store_avx"));
        assert!((whole.regret.unwrap() - ((100.0f64 / 80.0).sqrt() - 1.0)).abs() < 1e-9);
        assert_eq!(whole.best_peer.as_deref(), Some("c_library"));
        assert!((whole.times_best_peer.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn baselines_are_libraries_and_plain_methods_with_their_default_parameters() {
        let mut candidate = Candidate::named(Kind::Method, "movnti");
        assert!(
            is_baseline(&candidate, Operation::Clear) && !is_baseline(&candidate, Operation::CopyPersist)
        );
        candidate.parameters.set("write_distance", 64);
        assert!(!is_baseline(&candidate, Operation::Clear));
        assert!(is_baseline(&Candidate::named(Kind::Peer, "libpmem"), Operation::Persist));
        assert!(!is_baseline(&Candidate::named(Kind::Policy, "policy"), Operation::Clear));
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
