//! Medians and quartiles of samples, and whether two of them differ by more than their noise.

use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics, Statistics};

/// Fewer samples than this say nothing about their own noise.
const ENOUGH: u32 = 5;

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

    /// Half the width of the median's 95 % interval: 1.57 × interquartile range ÷ √n (the notches of McGill, Tukey
    /// and Larsen, 1978). Too small to be trusted below 5 samples.
    pub fn half_width(&self) -> f64 {
        1.57 * (self.quartiles[1] - self.quartiles[0]) / f64::from(self.samples).sqrt()
    }

    /// The interquartile range over the median.
    pub fn relative_spread(&self) -> f64 {
        (self.quartiles[1] - self.quartiles[0]) / self.median
    }

    /// Whether the two medians differ by more than the noise of both; false below 5 samples.
    pub fn separated(&self, other: &Summary) -> bool {
        self.separated_by(other, 1.0)
    }

    /// Whether the two medians differ by more than so many times the noise of both; false below 5 samples.
    pub fn separated_by(&self, other: &Summary, times: f64) -> bool {
        self.samples.min(other.samples) >= ENOUGH
            && (self.median - other.median).abs() > times * self.half_width().hypot(other.half_width())
    }
}

/// Samples in full: what tables and files show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The statistics of some samples; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Stats> {
        let mut data = Data::new(samples.to_vec());
        if samples.is_empty() {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Some(Stats {
            median: data.median(),
            mean,
            pstdev: samples.population_std_dev(),
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            interval: bootstrap(&[samples], |resampled| median(&resampled[0])),
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
/// drawn anew, with replacement, from each group (Efron, 1979). The same samples always give the same interval.
pub fn bootstrap(groups: &[&[f64]], statistic: impl Fn(&[Vec<f64>]) -> f64) -> [f64; 2] {
    let mut random = fastrand::Rng::with_seed(0x6275_6c6b);
    let mut drawn: Vec<Vec<f64>> = groups.iter().map(|group| group.to_vec()).collect();
    let mut draw = || {
        for (group, drawn) in groups.iter().zip(&mut drawn) {
            drawn.fill_with(|| group[random.usize(..group.len())]);
        }
        statistic(&drawn)
    };
    let mut statistics = Data::new((0..DRAWS).map(|_| draw()).collect::<Vec<f64>>());
    [statistics.quantile(0.025), statistics.quantile(0.975)]
}

/// The geometric mean; `None` of nothing. All values must be above 0.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_quartiles() {
        let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(summary.median, 3.0);
        assert!(summary.quartiles[0] >= 1.0 && summary.quartiles[0] <= 2.0);
        assert!(summary.quartiles[1] >= 4.0 && summary.quartiles[1] <= 5.0);
        assert_eq!(summary.samples, 5);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[7.0]).unwrap().median, 7.0);
    }

    #[test]
    fn separation_needs_samples_and_distance() {
        let samples = |center: f64, n: usize| -> Vec<f64> {
            (0..n).map(|i| center + (i as f64 / n as f64 - 0.5) * 10.0).collect()
        };
        let far =
            |n| Summary::of(&samples(100.0, n)).unwrap().separated(&Summary::of(&samples(110.0, n)).unwrap());
        assert!(!far(4), "four samples prove nothing");
        assert!(far(40));
        let a = Summary::of(&samples(100.0, 40)).unwrap();
        let b = Summary::of(&samples(100.5, 40)).unwrap();
        assert!(!a.separated(&b), "half a nanosecond is inside the noise");
    }

    #[test]
    fn statistics_of_known_samples() {
        let stats = Stats::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((stats.mean, stats.pstdev, stats.median), (5.0, 2.0, 4.5));
        assert_eq!((stats.min, stats.max), (2.0, 9.0));
        assert!(stats.interval[0] >= 4.0 && stats.interval[1] <= 7.0, "{stats:?}");
        assert!(stats.interval[0] < stats.median && stats.median < stats.interval[1], "{stats:?}");
        assert_eq!(stats.pstdev_percent(), 40.0);
        let one = Stats::of(&[3.0]).unwrap();
        assert_eq!((one.pstdev, one.interval), (0.0, [3.0, 3.0]));
        assert_eq!(Stats::of(&[]), None);
    }

    /// Of many samples around known medians the interval holds the truth about as often as it says.
    #[test]
    fn intervals_cover_what_they_should() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut sample = || (0..25).map(|_| 100.0 + random.f64() + random.f64()).collect::<Vec<f64>>();
        let covered = (0..200).filter(|_| {
            let [low, high] = Stats::of(&sample()).unwrap().interval;
            (low..=high).contains(&101.0)
        });
        let covered = covered.count();
        assert!((175..=200).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn ratios_of_two_groups_have_an_interval() {
        let (old, new) = ([10.0, 11.0, 10.5, 10.2, 10.8], [20.0, 21.0, 20.4, 20.9, 20.7]);
        let ratio = |groups: &[Vec<f64>]| median(&groups[1]) / median(&groups[0]);
        let [low, high] = bootstrap(&[&old, &new], ratio);
        assert!(low > 1.7 && high < 2.2 && low < high, "{low} {high}");
    }

    #[test]
    fn geometric_mean_of_ratios() {
        assert!((geometric_mean([2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
