//! The distance of a candidate from the control, and whether it is more than noise.

use crate::engine::stats::{ENOUGH, median, medians_interval};
use crate::engine::{Config, Kind, Row, Run};

/// The distance of a row's samples from those of a control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// By how much the row's median is above the control's: in percent, or in the metric's unit if that has no ratios.
    pub by: f64,
    /// Its 95 % interval, bootstrapped.
    pub interval: [f64; 2],
    /// True if both have enough samples to tell anything from noise: at least five.
    pub enough: bool,
}

impl Contrast {
    /// Compares a row with a control; `None` where one has no samples.
    pub fn of(row: &Row, control: &Row) -> Option<Contrast> {
        Contrast::between(&row.samples, &control.samples, row.metric.is_difference())
    }

    fn between(samples: &[f64], control: &[f64], difference: bool) -> Option<Contrast> {
        let compare = |median: f64, control: f64| {
            if difference { median - control } else { (median / control - 1.0) * 100.0 }
        };
        (!samples.is_empty() && !control.is_empty()).then(|| Contrast {
            by: compare(median(samples), median(control)),
            interval: medians_interval(samples, control, compare),
            enough: samples.len().min(control.len()) >= ENOUGH as usize,
        })
    }

    /// True if it is more than noise: the interval does not contain 0, and both have at least five samples.
    pub fn distinguishable(&self) -> bool {
        let [low, high] = self.interval;
        self.enough && (low > 0.0 || high < 0.0)
    }
}

/// Adds a finding about differences from a control, or a note if there are too few samples to tell any.
pub(crate) fn conclude(run: &mut Run<'_>, runs: usize, finding: Option<String>) {
    let enough = ENOUGH as usize;
    if runs < enough {
        run.note(format!(
            "{runs} runs are too few to tell anything from the control: --runs {enough}, or more"
        ));
    } else if let Some(text) = finding {
        run.add_finding(text);
    }
}

pub(crate) fn names(rows: &[(&Row, Contrast)]) -> String {
    rows.iter().map(|(row, _)| row.candidate.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The control of that name in the place of a row; of the kernel's rows, with any page size.
pub fn control_of<'r>(rows: &[&'r Row], row: &Row, name: &str) -> Option<&'r Row> {
    let mut controls = rows.iter().copied().filter(|other| other.candidate.kind == Kind::Control);
    // The kernel's own pages may be of another size than the memory of the others.
    let page_size = |other: &Row| {
        if row.candidate.kind == Kind::Kernel { other.config.page_size } else { row.config.page_size }
    };
    controls.find(|other| {
        let config = Config { page_size: page_size(other), ..row.config.clone() };
        other.candidate.name == name && other.measurement == row.measurement && other.config == config
    })
}

/// The rows of some kinds, each with its distance from the control of that name. Leaves out rows without a control.
pub(crate) fn contrasts<'r>(rows: &[&'r Row], kinds: &[Kind], control: &str) -> Vec<(&'r Row, Contrast)> {
    let wanted = rows.iter().filter(|row| kinds.contains(&row.candidate.kind));
    wanted.filter_map(|row| Some((*row, Contrast::of(row, control_of(rows, row, control)?)?))).collect()
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
            let same = Contrast::between(&around(0.0, 10.0, 9, 2 * seed + 1), &control, true).unwrap();
            false_alarms += usize::from(same.distinguishable());
            let other = Contrast::between(&around(30.0, 10.0, 9, 2 * seed + 1), &control, true).unwrap();
            assert!(other.distinguishable() && (other.by - 30.0).abs() < 10.0, "{other:?}");
        }
        assert!(false_alarms <= 16, "{false_alarms} of 200");
    }

    #[test]
    fn few_samples_tell_nothing() {
        let few = Contrast::between(&[2.0; 4], &[1.0; 9], false).unwrap();
        assert_eq!((few.by, few.interval, few.distinguishable()), (100.0, [100.0; 2], false));
        assert!(Contrast::between(&[2.0; 5], &[1.0; 5], false).unwrap().distinguishable());
        assert_eq!(Contrast::between(&[], &[1.0], false), None);
    }
}
