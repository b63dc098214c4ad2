//! Noise, outliers and drift in the samples of a group.

use crate::engine::quality::{DRIFT, DRIFT_PROBABILITY, NOISY_PERCENT, QualityFlag};
use crate::engine::stats::{ENOUGH, Summary, Trend, median};
use crate::engine::{Metric, Row};

/// An outlier lies off by more than this share of the median, and by more than so many times the usual distance.
const OUTLYING: (f64, f64) = (0.1, 8.0);
/// Two heaps are told from one by at least so many samples,
const HEAP_SAMPLES: usize = 10;
/// each heap holding this share of them,
const HEAP_SHARE: f64 = 0.2;
/// with a gap between them of this share of the median, and so many times as wide as either heap's middle half.
const HEAP_GAP: (f64, f64) = (0.05, 5.0);

/// The worst that the samples of a row make doubtful, with its size in percent.
pub(super) fn doubt(row: &Row) -> Option<(QualityFlag, f64)> {
    if let Some(gap) = two_heaps(&row.samples) {
        return Some((QualityFlag::TwoSpeeds, gap * 100.0));
    }
    let spread = row.stats.pstdev_percent();
    // Written so that what is no number is noise too.
    if spread <= NOISY_PERCENT {
        return None;
    }
    Some((if single(&row.samples) { QualityFlag::Outliers } else { QualityFlag::Noise }, spread))
}

/// Returns true if the samples agree, except for a few.
fn single(samples: &[f64]) -> bool {
    if samples.len() < ENOUGH as usize {
        return false;
    }
    let middle = median(samples);
    let distance = |sample: f64| (sample - middle).abs();
    let usual = median(&samples.iter().map(|it| distance(*it)).collect::<Vec<f64>>());
    let far = (OUTLYING.0 * middle.abs()).max(OUTLYING.1 * usual);
    let others: Vec<f64> = samples.iter().copied().filter(|it| distance(*it) <= far).collect();
    let out = samples.len() - others.len();
    let agree =
        crate::engine::stats::Stats::of(&others).is_some_and(|stats| stats.pstdev_percent() <= NOISY_PERCENT);
    out > 0 && out * 4 <= samples.len() && agree
}

/// How far apart two heaps are that the samples fall into, as a share of the median; `None` where they are one heap.
fn two_heaps(samples: &[f64]) -> Option<f64> {
    if samples.len() < HEAP_SAMPLES {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let least = (HEAP_SHARE * sorted.len() as f64).ceil() as usize;
    let gap = |at: usize| sorted[at] - sorted[at - 1];
    let at = (least..=sorted.len() - least).max_by(|a, b| gap(*a).total_cmp(&gap(*b)))?;
    let (low, high) = sorted.split_at(at);
    let width = |heap: &[f64]| Summary::of(heap).map_or(0.0, |it| it.quartiles[1] - it.quartiles[0]);
    let share = gap(at) / median(&sorted).abs();
    (share >= HEAP_GAP.0 && gap(at) >= HEAP_GAP.1 * width(low).max(width(high))).then_some(share)
}

/// How much faster (above 0) or slower the machine became while a group was measured, as a share; `None` where that is
/// a trifle, or chance.
pub(super) fn drift(rows: &[Row]) -> Option<f64> {
    let trend = Trend::of(&in_turn(rows))?;
    (trend.change.abs() >= DRIFT && trend.probability <= DRIFT_PROBABILITY).then_some(trend.change)
}

/// The speeds of a group in the order in which they were measured, each over its row's median: rounds go forth and
/// back, and the first that counts goes back.
fn in_turn(rows: &[Row]) -> Vec<f64> {
    let rounds = rows.iter().map(|row| row.samples.len()).max().unwrap_or_default();
    let speed = |row: &Row, sample: f64| match row.metric {
        Metric::Seconds | Metric::Nanoseconds => row.stats.median / sample,
        _ => sample / row.stats.median,
    };
    let mut speeds = Vec::new();
    for round in 0..rounds {
        let of_row = |row: &Row| Some(speed(row, *row.samples.get(round)?));
        let usual = rows.iter().filter(|row| !row.metric.is_difference());
        if round % 2 == 0 {
            speeds.extend(usual.rev().filter_map(of_row));
        } else {
            speeds.extend(usual.filter_map(of_row));
        }
    }
    speeds.retain(|speed: &f64| speed.is_finite());
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::engine::{Config, Measurement, testing};

    fn row(samples: &[f64], metric: Metric) -> Row {
        testing::row(Measurement::Clear, (Kind::Method, "movnti"), Config::default(), (metric, samples), &[])
    }

    fn doubt_of(samples: &[f64]) -> Option<QualityFlag> {
        doubt(&row(samples, Metric::Bandwidth)).map(|(doubt, _)| doubt)
    }

    /// Normal deviates, by the sum of twelve uniform ones.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn noise_outliers_and_two_speeds_are_told_apart() {
        assert_eq!(doubt_of(&[10.0, 10.1, 9.9, 10.0, 10.2]), None);
        assert_eq!(doubt_of(&[10.0, 12.0, 8.0, 11.0, 9.0]), Some(QualityFlag::Noise));
        assert_eq!(doubt_of(&[10.0, 10.1, 9.9, 10.0, 10.2, 10.0, 7.0]), Some(QualityFlag::Outliers));
        let heaps = [10.0, 10.1, 9.9, 12.0, 12.1, 10.0, 12.2, 10.2, 12.0, 10.1, 12.1, 9.9];
        assert_eq!(doubt_of(&heaps), Some(QualityFlag::TwoSpeeds));
        // Too few to tell heaps from noise.
        assert_eq!(doubt_of(&heaps[..6]), Some(QualityFlag::Noise));
        assert_eq!(doubt_of(&[5.0]), None);
    }

    #[test]
    fn one_heap_is_seldom_taken_for_two() {
        let mut random = fastrand::Rng::with_seed(9);
        for size in [10, 15, 30, 100] {
            let mut seen = [0; 3];
            for _ in 0..300 {
                let normal: Vec<f64> = (0..size).map(|_| 100.0 + 15.0 * normal(&mut random)).collect();
                let uniform: Vec<f64> = (0..size).map(|_| 100.0 + 50.0 * random.f64()).collect();
                let skewed: Vec<f64> = (0..size).map(|_| 100.0 - 30.0 * random.f64().ln()).collect();
                for (seen, samples) in seen.iter_mut().zip([normal, uniform, skewed]) {
                    *seen += usize::from(two_heaps(&samples).is_some());
                }
            }
            assert!(seen.iter().all(|seen| *seen <= 6), "{size} samples: {seen:?} of 300");
        }
    }

    /// Rows of one group, whose machine changes its speed by `change` from the first turn to the last.
    fn group(rows: usize, rounds: usize, change: f64, noise: f64, metric: Metric) -> Vec<Row> {
        let mut random = fastrand::Rng::with_seed(5);
        let mut samples = vec![Vec::new(); rows];
        for turn in 0..rows * rounds {
            let (round, step) = (turn / rows, turn % rows);
            let at = if round % 2 == 0 { rows - 1 - step } else { step };
            let progress = turn as f64 / (rows * rounds - 1) as f64;
            let speed = (10.0 + at as f64) * (1.0 + change * progress) * (1.0 + noise * normal(&mut random));
            samples[at].push(if metric == Metric::Bandwidth { speed } else { 1.0 / speed });
        }
        samples.iter().map(|samples| row(samples, metric)).collect()
    }

    #[test]
    fn drift_is_seen_whatever_the_metric_and_says_which_way() {
        for metric in [Metric::Bandwidth, Metric::Seconds] {
            for change in [-0.2, -0.08, 0.08, 0.2] {
                let seen = drift(&group(8, 5, change, 0.01, metric)).expect("a drift");
                assert!((seen - change).abs() < 0.05, "{metric:?}: {seen} for {change}");
            }
        }
    }

    #[test]
    fn trifles_and_noise_are_no_drift() {
        assert_eq!(drift(&group(8, 5, 0.01, 0.001, Metric::Bandwidth)), None, "certain, but a trifle");
        assert_eq!(drift(&group(8, 5, 0.0, 0.2, Metric::Bandwidth)), None);
        assert_eq!(drift(&group(1, 5, 0.5, 0.0, Metric::Bandwidth)), None, "five samples are too few");
        assert_eq!(drift(&[]), None);
        // An interrupted group: some rows have a sample less.
        let mut rows = group(6, 5, -0.2, 0.01, Metric::Bandwidth);
        for row in &mut rows[..3] {
            row.samples.pop();
        }
        assert!(drift(&rows).is_some_and(|change| change < -0.1));
    }
}
