//! Medians, quartiles, intervals and trends of samples, and whether two of them differ by more than their noise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::statistics::{Data, OrderStatistics, Statistics};

/// Fewer samples than this say nothing about their own noise.
pub(crate) const ENOUGH: u32 = 5;

/// Two speeds are told from one by at least so many samples,
const SPEED_SAMPLES: usize = 10;
/// each speed with this share of them,
const SPEED_SHARE: f64 = 0.2;
/// with a gap between them of this share of the median, and so many times as wide as the middle half of either.
const SPEED_GAP: (f64, f64) = (0.05, 5.0);

/// Samples in brief.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// First and third quartile.
    pub quartiles: [f64; 2],
    /// How many samples.
    pub samples: u32,
}

impl Summary {
    /// The summary of some samples; `None` of none. Order does not matter.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        if samples.is_empty() {
            return None;
        }
        let mut data = Data::new(samples.to_vec());
        Some(Summary {
            median: data.median(),
            quartiles: [data.lower_quartile(), data.upper_quartile()],
            samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
        })
    }

    /// The same, but of samples that have two speeds the median is replaced by the geometric mean, and the quartiles by the
    /// medians of both speeds: which of them the median is may change with every run.
    pub(crate) fn of_one_or_two_speeds(samples: &[f64]) -> Option<Summary> {
        let summary = Summary::of(samples)?;
        let Some(TwoSpeeds { medians, .. }) = two_speeds(samples) else { return Some(summary) };
        let median = geometric_mean(samples.iter().copied())?;
        Some(Summary { median, quartiles: medians, ..summary })
    }

    /// Half the width of the median's 95 % interval: 1.57 × interquartile range ÷ √n (the notches of McGill, Tukey
    /// and Larsen, 1978). Too small to be trusted below 5 samples.
    pub fn half_width(&self) -> f64 {
        1.57 * (self.quartiles[1] - self.quartiles[0]) / f64::from(self.samples).sqrt()
    }

    /// Whether the two medians differ by more than so many times the noise of both; false below 5 samples.
    pub fn separated_by(&self, other: &Summary, times: f64) -> bool {
        self.samples.min(other.samples) >= ENOUGH
            && (self.median - other.median).abs() > times * self.half_width().hypot(other.half_width())
    }
}

/// So many other candidates say what happened in a round.
const FEWEST_OTHERS: usize = 3;

/// Returns interleaved samples of several candidates, in the order of the rounds, without what slowed or sped up a whole round: each
/// is divided by the median, over the other candidates, of the round's sample in relation to the median of its candidate (randomized
/// blocks; Fisher, 1935). Returns the samples as they are if there are fewer than four candidates, or if they would vary more: then
/// it was not the round.
pub(crate) fn without_rounds(samples: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let relative = |own: &Vec<f64>| -> Vec<f64> {
        let middle = median(own);
        own.iter().map(|sample| sample / middle).collect()
    };
    let relative: Vec<Vec<f64>> = samples.iter().map(relative).collect();
    let of_others = |own: usize, round: usize| {
        let others = relative.iter().enumerate().filter(|(other, _)| *other != own);
        let others: Vec<f64> = others.filter_map(|(_, it)| it.get(round).copied()).collect();
        let middle = median(&others);
        if others.len() >= FEWEST_OTHERS && middle > 0.0 { middle } else { 1.0 }
    };
    let without = |(own, samples): (usize, &Vec<f64>)| -> Vec<f64> {
        samples.iter().enumerate().map(|(round, sample)| sample / of_others(own, round)).collect()
    };
    let without: Vec<Vec<f64>> = samples.iter().enumerate().map(without).collect();
    let spread = |samples: &[Vec<f64>]| -> f64 {
        let summaries = samples.iter().filter_map(|it| Summary::of(it));
        summaries.map(|it| (it.quartiles[1] - it.quartiles[0]) / it.median).sum()
    };
    if spread(&without) < spread(samples) { without } else { samples.to_vec() }
}

/// Samples in full: what tables and files show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Median.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the population: with the mean, the form that `perf bench` and the sources use.
    pub pstdev: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// The 95 % interval of the median, from [`bootstrap`]ping; the median twice for a single sample.
    pub interval: [f64; 2],
}

impl Stats {
    /// The statistics of some samples, whose order does not matter; `None` of none, and where one is no finite number.
    pub fn of(samples: &[f64]) -> Option<Stats> {
        if samples.is_empty() || !samples.iter().all(|sample| sample.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Stats {
            median: median(&sorted),
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            pstdev: sorted.as_slice().population_std_dev(),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            interval: bootstrap(&[&sorted], |drawn| Data::new(&mut drawn[0][..]).median()),
        })
    }

    /// The standard deviation over the mean, percent.
    pub fn pstdev_percent(&self) -> f64 {
        100.0 * self.pstdev / self.mean
    }
}

/// The median; NaN of nothing.
pub fn median(samples: &[f64]) -> f64 {
    Data::new(samples.to_vec()).median()
}

/// How often [`bootstrap`] draws.
const DRAWS: usize = 1000;

/// The 95 % interval of a statistic of one or several groups of samples: percentiles of the statistic over groups
/// drawn anew, with replacement, from each group (Efron, 1979). The same samples in the same order always give the same
/// interval. The statistic may change the order of what was drawn. No group may be empty.
pub fn bootstrap(groups: &[&[f64]], statistic: impl Fn(&mut [Vec<f64>]) -> f64) -> [f64; 2] {
    let mut random = fastrand::Rng::with_seed(0x6275_6c6b);
    let mut drawn: Vec<Vec<f64>> = groups.iter().map(|group| group.to_vec()).collect();
    let mut draw = || {
        for (group, drawn) in groups.iter().zip(&mut drawn) {
            drawn.fill_with(|| group[random.usize(..group.len())]);
        }
        statistic(&mut drawn)
    };
    let mut statistics = Data::new((0..DRAWS).map(|_| draw()).collect::<Vec<f64>>());
    [statistics.quantile(0.025), statistics.quantile(0.975)]
}

/// The 95 % interval of a comparison of two medians, such as their ratio, by [`bootstrap`]ping.
pub fn medians_interval(a: &[f64], b: &[f64], compare: impl Fn(f64, f64) -> f64) -> [f64; 2] {
    bootstrap(&[a, b], |drawn| {
        let [a, b] = [0, 1].map(|group: usize| Data::new(&mut drawn[group][..]).median());
        compare(a, b)
    })
}

/// How probable it is that the middles of two groups differ as much as they do, or more, where there is no difference:
/// Welch's t-test (1947), two-sided, of means from which that share of the samples is trimmed on each side, which keeps
/// single bad samples from hiding a difference (Yuen, 1974). 1 where too few samples are left to tell.
pub fn welch(a: &[f64], b: &[f64], trim: f64) -> f64 {
    let trimmed = |samples: &[f64]| {
        let mut samples = samples.to_vec();
        samples.sort_unstable_by(f64::total_cmp);
        let out = (samples.len() as f64 * trim) as usize;
        let (first, left) = (out, samples.len().checked_sub(2 * out).filter(|left| *left >= 2)?);
        let mean = samples[first..first + left].mean();
        // What is trimmed counts for the variance as the last sample that is not.
        let (low, high) = (samples[first], samples[first + left - 1]);
        let spread = (samples.len() - 1) as f64 * samples.iter().map(|it| it.clamp(low, high)).variance();
        Some((mean, spread / (left * (left - 1)) as f64, (left - 1) as f64))
    };
    let (Some((mean_a, error_a, freedom_a)), Some((mean_b, error_b, freedom_b))) = (trimmed(a), trimmed(b))
    else {
        return 1.0;
    };
    let error = error_a + error_b;
    if error == 0.0 {
        return if mean_a == mean_b { 1.0 } else { 0.0 };
    }
    let freedom = error * error / (error_a * error_a / freedom_a + error_b * error_b / freedom_b);
    let t = (mean_a - mean_b).abs() / error.sqrt();
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |distribution| 2.0 * distribution.sf(t))
}

/// Probabilities of many tests at once, corrected so that of those below a limit at most that share is there by chance
/// (Benjamini and Hochberg, 1995). In the order given.
pub fn corrected(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut least = 1.0f64;
    for (rank, &at) in order.iter().enumerate().rev() {
        least = least.min(probabilities[at] * probabilities.len() as f64 / (rank + 1) as f64);
        corrected[at] = least;
    }
    corrected
}

/// A tendency of values that come one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// How much the values change from the first to the last, outliers ignored: the median slope between two of them
    /// (Theil, 1950; Sen, 1968), times their number less one.
    pub change: f64,
    /// How probable it is that values without a trend look as much like one: the Mann–Kendall test, two-sided.
    pub probability: f64,
}

/// More values than this are put together by their medians, neighbours with neighbours.
const MOST_POINTS: usize = 400;
/// Fewer values than this show no trend.
const FEWEST_POINTS: usize = 8;

impl Trend {
    /// The trend of some values; `None` of fewer than 8.
    pub fn of(values: &[f64]) -> Option<Trend> {
        if values.len() < FEWEST_POINTS {
            return None;
        }
        let values: Vec<f64> = values.chunks(values.len().div_ceil(MOST_POINTS)).map(median).collect();
        let (mut sum, mut slopes) = (0i64, Vec::with_capacity(values.len() * values.len() / 2));
        for (at, value) in values.iter().enumerate() {
            for (after, later) in values.iter().enumerate().skip(at + 1) {
                sum += i64::from(later > value) - i64::from(later < value);
                slopes.push((later - value) / (after - at) as f64);
            }
        }
        let n = values.len() as f64;
        let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
        let z = (sum.unsigned_abs() as f64 - 1.0).max(0.0) / deviation;
        Some(Trend {
            change: Data::new(slopes).median() * (n - 1.0),
            probability: (2.0 * Normal::standard().sf(z)).min(1.0),
        })
    }
}

/// Two speeds that some samples have.
pub(crate) struct TwoSpeeds {
    /// How far apart they are, as a share of the median of all.
    pub(crate) gap: f64,
    medians: [f64; 2],
}

/// Returns the two speeds of some samples; `None` if it is one speed.
pub(crate) fn two_speeds(samples: &[f64]) -> Option<TwoSpeeds> {
    if samples.len() < SPEED_SAMPLES {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let least = (SPEED_SHARE * sorted.len() as f64).ceil() as usize;
    let gap = |at: usize| sorted[at] - sorted[at - 1];
    let at = (least..=sorted.len() - least).max_by(|a, b| gap(*a).total_cmp(&gap(*b)))?;
    let (low, high) = sorted.split_at(at);
    let width = |half: &[f64]| Summary::of(half).map_or(0.0, |it| it.quartiles[1] - it.quartiles[0]);
    let share = gap(at) / median(&sorted).abs();
    let are_apart = share >= SPEED_GAP.0 && gap(at) >= SPEED_GAP.1 * width(low).max(width(high));
    are_apart.then(|| TwoSpeeds { gap: share, medians: [median(low), median(high)] })
}

/// The geometric mean; `None` of nothing. All values must be above 0.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mean = values.into_iter().geometric_mean();
    (!mean.is_nan()).then_some(mean)
}

#[cfg(test)]
mod tests;
