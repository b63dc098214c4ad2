//! What rows of a bench say about each other: who is the best peer, and what the policy's choice lost.

use bulkmem::Operation;

use crate::report::{BenchRow, Kind, RegretSummary};
use crate::stats::geometric_mean;

/// The methods of our own table that the sources compare with, for an operation. With libpmem they are the peers.
pub(crate) fn baselines(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Clear | Operation::Fill => &["c_library", "rep_stosb", "movnti"],
        Operation::Copy => &["c_library", "rep_movsb", "movnti", "nontemporal_sse2"],
        Operation::Persist | Operation::Flush => &[],
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

/// The regret over all places.
pub(crate) fn summary(rows: &[BenchRow]) -> Option<RegretSummary> {
    let regrets: Vec<(f64, u64)> = rows.iter().filter_map(|row| Some((row.regret?, row.length))).collect();
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
    use bulkmem::Intent;
    use bulkmem::method::Parameters;
    use bulkmem::policy::{Condition, Cost};

    use super::*;
    use crate::report::Contestant;

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
    fn unmeasured_lengths_are_not_powers_and_lie_inside() {
        let lengths = unmeasured_lengths(64, 1 << 30);
        assert!(lengths.len() >= 20);
        assert!(lengths.iter().all(|length| !length.is_power_of_two() && (64..=1 << 30).contains(length)));
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(lengths.iter().any(|length| is_prime(*length) && *length > 1 << 28));
        assert!(unmeasured_lengths(100, 100).is_empty());
    }
}
