//! The distance of a candidate from the control, and whether it is more than noise.

use crate::Kind;
use crate::engine::Row;
use crate::engine::stats::{ENOUGH, bootstrap, median, ratio_interval};

/// The distance of a row's samples from those of a control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// By the medians. In the metric's unit for [`Contrast::difference`], percent for [`Contrast::slowdown`].
    pub by: f64,
    /// Its 95 % interval, bootstrapped.
    pub interval: [f64; 2],
    enough: bool,
}

impl Contrast {
    /// By how much a row's median is above the control's, in the unit of both; `None` where one has no samples.
    pub fn difference(row: &Row, control: &Row) -> Option<Contrast> {
        Contrast::differing(&row.samples, &control.samples)
    }

    /// By how many percent a row takes longer than the control, by the medians of times; `None` where one has no
    /// samples.
    pub fn slowdown(row: &Row, control: &Row) -> Option<Contrast> {
        Contrast::slower(&row.samples, &control.samples)
    }

    /// Either of them, as the metric has ratios or not.
    pub fn of(row: &Row, control: &Row) -> Option<Contrast> {
        if row.metric.is_difference() {
            Contrast::difference(row, control)
        } else {
            Contrast::slowdown(row, control)
        }
    }

    fn differing(samples: &[f64], control: &[f64]) -> Option<Contrast> {
        let interval = |samples: &[f64], control: &[f64]| {
            bootstrap(&[samples, control], |drawn| median(&drawn[0]) - median(&drawn[1]))
        };
        Contrast::new(samples, control, |samples, control| samples - control, interval)
    }

    fn slower(samples: &[f64], control: &[f64]) -> Option<Contrast> {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = |samples: &[f64], control: &[f64]| ratio_interval(samples, control).map(percent);
        Contrast::new(samples, control, |samples, control| percent(samples / control), interval)
    }

    fn new(
        samples: &[f64],
        control: &[f64],
        compare: impl Fn(f64, f64) -> f64,
        interval: impl Fn(&[f64], &[f64]) -> [f64; 2],
    ) -> Option<Contrast> {
        if samples.is_empty() || control.is_empty() {
            return None;
        }
        Some(Contrast {
            by: compare(median(samples), median(control)),
            interval: interval(samples, control),
            enough: samples.len().min(control.len()) >= ENOUGH as usize,
        })
    }

    /// True if both have enough samples to tell anything from noise: at least five.
    pub fn enough(&self) -> bool {
        self.enough
    }

    /// True if it is more than noise: the interval does not contain 0, and both have at least five samples.
    pub fn distinguishable(&self) -> bool {
        let [low, high] = self.interval;
        self.enough && (low > 0.0 || high < 0.0)
    }
}

/// Returns the note on a run with too few samples to tell anything from the control.
pub(crate) fn too_few(runs: usize) -> Option<String> {
    let enough = ENOUGH as usize;
    (runs < enough).then(|| {
        format!("{runs} runs are too few to tell anything from the control: --runs {enough}, or more")
    })
}

/// The control of that name in the place of a row.
pub fn control_of<'r>(rows: &[&'r Row], row: &Row, name: &str) -> Option<&'r Row> {
    let mut controls = rows.iter().copied().filter(|other| other.candidate.kind == Kind::Control);
    controls.find(|other| {
        other.candidate.name == name && other.measurement == row.measurement && other.config == row.config
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples around a center, the same every time, some of them far off.
    fn around(center: f64, noise: f64, count: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| center + (random.f64() - 0.5) * noise).collect()
    }

    #[test]
    fn planted_differences_are_found_and_noise_is_not() {
        let mut false_alarms = 0;
        for seed in 0..200 {
            let control = around(0.0, 10.0, 9, 2 * seed);
            let same = Contrast::differing(&around(0.0, 10.0, 9, 2 * seed + 1), &control).unwrap();
            false_alarms += usize::from(same.distinguishable());
            let other = Contrast::differing(&around(30.0, 10.0, 9, 2 * seed + 1), &control).unwrap();
            assert!(other.distinguishable() && (other.by - 30.0).abs() < 10.0, "{other:?}");
        }
        assert!(false_alarms <= 16, "{false_alarms} of 200");
    }

    #[test]
    fn few_samples_tell_nothing() {
        let few = Contrast::slower(&[2.0; 4], &[1.0; 9]).unwrap();
        assert_eq!((few.by, few.interval, few.distinguishable()), (100.0, [100.0; 2], false));
        assert!(Contrast::slower(&[2.0; 5], &[1.0; 5]).unwrap().distinguishable());
        assert_eq!(Contrast::slower(&[], &[1.0]), None);
    }
}
