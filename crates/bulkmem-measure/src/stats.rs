//! Medians and quartiles of samples, and whether two of them differ by more than their noise.

use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

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
    fn geometric_mean_of_ratios() {
        assert!((geometric_mean([2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
