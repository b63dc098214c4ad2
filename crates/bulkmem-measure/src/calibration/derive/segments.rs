//! Fits the choices of a table as a whole: a change of method must pay for itself over the lengths that it covers.

use std::collections::BTreeMap;

use crate::calibration::derive::table::{Figures, Key, Row, Timing};
use crate::engine::stats::Summary;

/// What a change of the choice costs: as much as a twenty-fifth of the time at lengths that span a factor of 2.
const CHANGE: f64 = 0.04;
/// The most changes in a table, where the candidates allow it.
pub(super) const MOST_CHANGES: usize = 4;
/// The least and the most weight of a length: the binary logarithm of the range that it stands for.
const WEIGHTS: (f64, f64) = (0.5, 2.0);
/// Times are interpolated between lengths within this factor. Over a wider range, a candidate that was not measured in
/// between was left out because it was slow there.
const WIDEST_GAP: f64 = 4.5;

/// Candidates with the regret of choosing them, the logarithm of a ratio of times; those that may not be chosen are left
/// out.
pub(super) type Regrets = BTreeMap<Key, f64>;

/// Returns the rows with times for candidates that were measured only at lengths around that of a row.
pub(super) fn complete(rows: &BTreeMap<u64, Row>) -> BTreeMap<u64, Row> {
    let mut complete = rows.clone();
    for (&length, row) in &mut complete {
        let conditions: Vec<_> = row.values().flat_map(|figures| figures.0.keys()).copied().collect();
        let (below, above) = (rows.range(..length), rows.range(length + 1..));
        let near = |other: u64| {
            other as f64 * WIDEST_GAP > length as f64 && length as f64 * WIDEST_GAP > other as f64
        };
        let below: Vec<_> = below.rev().take_while(|(other, _)| near(**other)).collect();
        let above: Vec<_> = above.take_while(|(other, _)| near(**other)).collect();
        for key in below.iter().flat_map(|(_, row)| row.keys()) {
            for condition in &conditions {
                let timing = |row: &Row| row.get(key)?.0.get(condition).copied();
                let nearest = |rows: &[(&u64, &Row)]| {
                    rows.iter().find_map(|(other, row)| Some((**other, timing(row)?)))
                };
                let (None, Some(low), Some(high)) = (timing(row), nearest(&below), nearest(&above)) else {
                    continue;
                };
                if (high.0 as f64) < low.0 as f64 * WIDEST_GAP {
                    let Figures(figures) = row.entry(key.clone()).or_default();
                    figures.insert(*condition, between(low, high, length));
                }
            }
        }
    }
    complete
}

/// Interpolates as straight lines between logarithms.
fn between((low, below): (u64, Timing), (high, above): (u64, Timing), length: u64) -> Timing {
    let ln = |length: u64| (length as f64).ln();
    let share = (ln(length) - ln(low)) / (ln(high) - ln(low));
    let mix = |a: f64, b: f64| a * (1.0 - share) + b * share;
    let exp = |of: fn(&Summary) -> f64| mix(of(&below.summary).ln(), of(&above.summary).ln()).exp();
    let summary = Summary {
        median: exp(|it| it.median),
        quartiles: [exp(|it| it.quartiles[0]), exp(|it| it.quartiles[1])],
        samples: below.summary.samples.min(above.summary.samples),
    };
    let disturbance_ns = mix(below.disturbance_ns, above.disturbance_ns);
    Timing { summary, disturbance_ns, spread: mix(below.spread, above.spread) }
}

/// Returns a choice for each length, in rising order: those with the least regret in total, where each change counts
/// too, and at most `most_changes` if the candidates allow it.
pub(super) fn fit(table: &[(u64, Regrets)], most_changes: usize) -> Vec<Key> {
    /// The least total up to a length for a choice at it, and the choice at the length before.
    type Best = BTreeMap<Key, (f64, Option<Key>)>;
    let lengths: Vec<u64> = table.iter().map(|(length, _)| *length).collect();
    let mut allowed = most_changes;
    loop {
        // For each number of changes so far, the best at each length.
        let mut best: Vec<Vec<Best>> = vec![Vec::new(); allowed + 1];
        for (at, (_, regrets)) in table.iter().enumerate() {
            for changes in 0..=allowed {
                let extended = regrets.iter().filter_map(|(key, regret)| {
                    let own = weight(&lengths, at) * regret;
                    if at == 0 {
                        return (changes == 0).then(|| (key.clone(), (own, None)));
                    }
                    let stay = best[changes][at - 1].get(key).map(|(total, _)| (*total, key));
                    let change = changes.checked_sub(1).and_then(|fewer| {
                        let others = best[fewer][at - 1].iter().filter(|(other, _)| *other != key);
                        others
                            .map(|(other, (total, _))| (total + CHANGE, other))
                            .min_by(|a, b| a.0.total_cmp(&b.0))
                    });
                    let (total, before) =
                        [stay, change].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))?;
                    Some((key.clone(), (total + own, Some(before.clone()))))
                });
                let extended: Best = extended.collect();
                best[changes].push(extended);
            }
        }
        let Some(last) = table.len().checked_sub(1) else { return Vec::new() };
        let ends = (0..=allowed).flat_map(|changes| {
            best[changes][last].iter().map(move |(key, (total, _))| (*total, changes, key.clone()))
        });
        if let Some((_, mut changes, mut key)) = ends.min_by(|a, b| a.0.total_cmp(&b.0)) {
            let mut choices = vec![key.clone()];
            for at in (1..=last).rev() {
                let Some(before) = best[changes][at][&key].1.clone() else { break };
                changes -= usize::from(before != key);
                key = before;
                choices.push(key.clone());
            }
            choices.reverse();
            return choices;
        }
        // Too few candidates were measured along the lengths.
        allowed += most_changes;
    }
}

/// Returns the binary logarithm of the range that a length stands for, half way to its neighbours.
fn weight(lengths: &[u64], at: usize) -> f64 {
    let half = |a: usize, b: usize| match (lengths.get(a), lengths.get(b)) {
        (Some(a), Some(b)) => (*b as f64 / *a as f64).log2() / 2.0,
        _ => WEIGHTS.1 / 2.0,
    };
    (half(at.wrapping_sub(1), at) + half(at, at + 1)).clamp(WEIGHTS.0, WEIGHTS.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::fake::COLD;
    use bulkmem::method::Parameters;

    fn key(method: &str) -> Key {
        Key { method: method.to_owned(), parameters: Parameters::default() }
    }

    /// Lengths that double, with the regrets of two methods.
    fn table(regrets: &[[f64; 2]]) -> Vec<(u64, Regrets)> {
        let of = |at: usize, [a, b]: [f64; 2]| (64 << at, Regrets::from([(key("a"), a), (key("b"), b)]));
        regrets.iter().enumerate().map(|(at, regrets)| of(at, *regrets)).collect()
    }

    fn fitted(regrets: &[[f64; 2]]) -> String {
        fit(&table(regrets), MOST_CHANGES).into_iter().map(|key| key.method).collect()
    }

    #[test]
    fn a_change_must_pay_for_itself() {
        assert_eq!(fitted(&[[0.0, 0.1], [0.03, 0.0], [0.0, 0.1]]), "aaa", "two changes for 3 %");
        assert_eq!(fitted(&[[0.0, 0.1], [0.3, 0.0], [0.0, 0.1]]), "aba");
        assert_eq!(fitted(&[[0.0, 0.02], [0.02, 0.0], [0.02, 0.0], [0.02, 0.0]]), "bbbb");
        assert_eq!(fitted(&[[0.0, 0.1], [0.0, 0.1], [0.1, 0.0], [0.1, 0.0]]), "aabb");
        assert_eq!(fitted(&[]), "");
    }

    #[test]
    fn there_are_at_most_four_changes_if_the_candidates_allow_it() {
        let alternating: Vec<[f64; 2]> =
            (0..13).map(|at| if at % 2 == 0 { [0.0, 0.2] } else { [0.2, 0.0] }).collect();
        let changes = |choices: &[Key]| choices.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes(&fit(&table(&alternating), MOST_CHANGES)), MOST_CHANGES);
        let only_one_each: Vec<(u64, Regrets)> =
            (0..12).map(|at| (64 << at, Regrets::from([(key(["a", "b"][at % 2]), 0.0)]))).collect();
        assert_eq!(changes(&fit(&only_one_each, MOST_CHANGES)), 11);
    }

    #[test]
    fn a_candidate_counts_between_lengths_at_which_it_was_measured() {
        let timing = |ns: f64| Timing {
            summary: Summary { median: ns, quartiles: [ns, ns], samples: 9 },
            disturbance_ns: 0.0,
            spread: 0.0,
        };
        let row = |all: &[(&str, f64)]| -> Row {
            all.iter().map(|(name, ns)| (key(name), Figures([(COLD, timing(*ns))].into()))).collect()
        };
        let mut rows = BTreeMap::from([
            (100, row(&[("a", 10.0), ("b", 20.0)])),
            (200, row(&[("a", 20.0)])),
            (400, row(&[("a", 40.0), ("b", 80.0)])),
        ]);
        let filled = complete(&rows);
        assert!((filled[&200][&key("b")].0[&COLD].ns() - 40.0).abs() < 0.01);
        assert_eq!((&filled[&100], &filled[&400]), (&rows[&100], &rows[&400]));
        let last = rows.remove(&400).unwrap();
        rows.insert(4000, last);
        assert_eq!(complete(&rows), rows, "too far away");
    }
}
