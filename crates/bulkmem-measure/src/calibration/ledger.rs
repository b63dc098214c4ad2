//! Everything that a calibration has measured so far.
//!
//! Speeds change from minute to minute, so only figures whose samples were interleaved compare. Those of another time are scaled by the
//! ratios of the candidates that were measured both times.

use std::cmp::Reverse;
use std::time::SystemTime;

use bulkmem::Operation;
use bulkmem::policy::{Choice, Situation};

use crate::calibration::derive;
use crate::calibration::derive::look::Samples;
use crate::calibration::derive::table::FEWEST_SAMPLES;
use crate::calibration::{AliasingRule, Figure, ModuleFigure};
use crate::engine::Load;
use crate::engine::stats::{ENOUGH, Summary};

/// The figures measured so far, and what else decides.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) figures: Vec<Figure>,
    /// Times of the Linux module's methods.
    pub(super) module: Vec<ModuleFigure>,
    /// The copies that the C library does slowly.
    pub(super) aliasing: Option<AliasingRule>,
    /// Times of looks, and of calls in memory whose pages are not mapped yet.
    pub(super) looks: Samples,
    /// The operations that were measured to the end, with the time and the load.
    pub(super) finished: Vec<(Operation, SystemTime, Option<Load>)>,
}

impl Ledger {
    /// Adds the figures of candidates in one configuration, whose samples were interleaved.
    ///
    /// If candidates were measured before, keeps whichever of both sets has the smaller uncertainty in total; of equals, the one with
    /// more samples, then the new one. Scales the figures of the others by the geometric mean of the sets' ratios.
    pub(super) fn add(&mut self, group: &[Figure]) {
        let known_and_new = |new| Some([self.known(new)?, new]);
        let both: Vec<[&Figure; 2]> = group.iter().filter_map(known_and_new).collect();
        let ratio = ratio(both.iter().copied());
        let [before, now] = [0, 1].map(|time| uncertainty(both.iter().map(|pair| pair[time])));
        if before < now {
            for new in group {
                if self.known(new).is_none() {
                    self.figures.push(scaled(new, ratio));
                }
            }
            return;
        }
        if let Some(first) = group.first() {
            self.scale_all_like(first, 1.0 / ratio);
        }
        for new in group {
            self.replace(new.clone());
        }
    }

    /// Adds figures in relation to others of the same group, which were measured before, and stay as they were. Adds nothing if none was.
    pub(super) fn add_in_relation(&mut self, new: &[Figure], others: &[Figure]) {
        let known = |other| Some([self.known(other)?, other]);
        let both: Vec<[&Figure; 2]> = others.iter().filter_map(known).collect();
        if both.is_empty() {
            return;
        }
        let ratio = ratio(both.into_iter());
        for figure in new {
            self.replace(scaled(figure, ratio));
        }
    }

    /// Adds the figures of a candidate by number of threads, whose samples were interleaved, in relation to those of one thread that are
    /// known, which stay. With each number of threads, other candidates keep their relation to it.
    pub(super) fn add_by_threads(&mut self, group: &[Figure]) {
        let one_thread = group.iter().filter(|it| it.condition.threads == 1);
        let ratio = ratio(one_thread.filter_map(|new| Some([self.known(new)?, new])));
        for new in group.iter().map(|it| scaled(it, ratio)) {
            match self.known(&new) {
                Some(_) if new.condition.threads == 1 => continue,
                // There was no time.
                Some(known) if new.samples < known.samples.min(FEWEST_SAMPLES) => continue,
                Some(known) => self.scale_all_like(&new, new.median_ns / known.median_ns),
                None => {}
            }
            self.replace(new);
        }
    }

    /// Returns the choice at the largest length measured so far.
    pub(super) fn winner(&self, operation: Operation, situation: Situation) -> Option<Choice> {
        derive::choices(&self.figures, operation, situation).last()?.1.choice()
    }

    /// Returns the figure of the same candidate in the same configuration.
    fn known(&self, figure: &Figure) -> Option<&Figure> {
        self.figures.iter().find(|known| is_same(known, figure))
    }

    fn replace(&mut self, figure: Figure) {
        match self.figures.iter_mut().find(|known| is_same(known, &figure)) {
            Some(known) => *known = figure,
            None => self.figures.push(figure),
        }
    }

    /// Multiplies the times of all candidates in the configuration of a figure.
    fn scale_all_like(&mut self, figure: &Figure, factor: f64) {
        for known in self.figures.iter_mut().filter(|known| configuration(known) == configuration(figure)) {
            *known = scaled(known, factor);
        }
    }
}

fn configuration(it: &Figure) -> impl PartialEq {
    (it.operation, it.cost, it.length, it.condition)
}

fn is_same(a: &Figure, b: &Figure) -> bool {
    (&a.method, a.parameters) == (&b.method, b.parameters) && configuration(a) == configuration(b)
}

/// Returns how many times as long the first of each pair takes, as a geometric mean; 1 of none.
fn ratio<'f>(pairs: impl Iterator<Item = [&'f Figure; 2]>) -> f64 {
    let logarithms = pairs.map(|[a, b]| (a.median_ns / b.median_ns).ln());
    let logarithms: Vec<f64> = logarithms.filter(|it| it.is_finite()).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp()
}

/// Returns the sum of the medians' relative uncertainties, then, to compare equals, the number of samples. Fewer samples than [`ENOUGH`]
/// do not show how much they vary.
fn uncertainty<'f>(figures: impl Iterator<Item = &'f Figure>) -> (f64, Reverse<u32>) {
    let of = |it: &Figure| {
        let summary = Summary { median: it.median_ns, quartiles: it.quartiles_ns, samples: it.samples };
        let width = summary.half_width() / summary.median;
        if it.samples < ENOUGH || !width.is_finite() { f64::INFINITY } else { width }
    };
    figures.fold((0.0, Reverse(0)), |(width, Reverse(samples)), it| {
        (width + of(it), Reverse(samples + it.samples))
    })
}

fn scaled(figure: &Figure, factor: f64) -> Figure {
    Figure {
        median_ns: figure.median_ns * factor,
        quartiles_ns: figure.quartiles_ns.map(|ns| ns * factor),
        disturbance_ns: figure.disturbance_ns.map(|ns| ns * factor),
        ..figure.clone()
    }
}

#[cfg(test)]
mod tests {
    use bulkmem::method::Parameters;

    use super::*;
    use crate::calibration::{Condition, Cost};

    /// A quarter of the samples lies below the median by a share of it, and a quarter above.
    fn figure(method: &str, median_ns: f64, spread: f64, samples: u32) -> Figure {
        Figure {
            operation: Operation::Clear,
            cost: Cost::Throughput,
            method: method.to_owned(),
            parameters: Parameters::default(),
            length: 64,
            condition: Condition::new(true, true, 1),
            median_ns,
            quartiles_ns: [median_ns * (1.0 - spread), median_ns * (1.0 + spread)],
            samples,
            disturbance_ns: None,
        }
    }

    fn ledger(groups: &[&[Figure]]) -> Ledger {
        let mut ledger = Ledger::default();
        for group in groups {
            ledger.add(group);
        }
        ledger
    }

    /// Returns the times, rounded.
    fn times(ledger: &Ledger) -> Vec<(&str, f64)> {
        ledger.figures.iter().map(|it| (&*it.method, it.median_ns.round())).collect()
    }

    #[test]
    fn the_more_certain_figure_stays() {
        let figure = |ns, spread, samples| figure("movnti", ns, spread, samples);
        let all = [figure(1.0, 0.0, 5), figure(2.0, 0.0, 9), figure(3.0, 0.0, 3), figure(4.0, 0.5, 31)];
        let ledger = ledger(&all.each_ref().map(std::slice::from_ref));
        assert_eq!(ledger.figures, [figure(2.0, 0.0, 9)]);
    }

    /// The machine was twice as fast at the second time. Taken one by one, movnti would have its figure of the second time, and the C library
    /// that of the first.
    #[test]
    fn figures_of_two_times_do_not_mix() {
        let before = [figure("c_library", 100.0, 0.1, 9), figure("movnti", 120.0, 0.3, 9)];
        let now = [figure("c_library", 50.0, 0.2, 31), figure("movnti", 60.0, 0.1, 31)];
        let expected = [("c_library", 50.0), ("movnti", 60.0)];
        assert_eq!(times(&ledger(&[&before, &now])), expected);
        assert_eq!(times(&ledger(&[&now, &before])), expected, "whichever came first");
    }

    #[test]
    fn what_was_measured_once_gets_its_relation_to_what_was_measured_twice() {
        let before = [
            figure("c_library", 100.0, 0.2, 9),
            figure("movnti", 120.0, 0.2, 9),
            figure("portable", 90.0, 0.2, 9),
        ];
        let now = [
            figure("c_library", 50.0, 0.1, 9),
            figure("movnti", 60.0, 0.1, 9),
            figure("clzero", 30.0, 0.1, 9),
        ];
        let more_certain_now = ledger(&[&before, &now]);
        let expected = [("c_library", 50.0), ("movnti", 60.0), ("portable", 45.0), ("clzero", 30.0)];
        assert_eq!(times(&more_certain_now), expected);
        let portable = &more_certain_now.figures[2];
        assert_eq!(portable.quartiles_ns.map(f64::round), [36.0, 54.0]);
        let expected = [("c_library", 50.0), ("movnti", 60.0), ("clzero", 30.0), ("portable", 45.0)];
        assert_eq!(times(&ledger(&[&now, &before])), expected, "more certain before");
        // Another configuration is not concerned.
        let other = Figure { length: 128, ..figure("portable", 90.0, 0.2, 9) };
        assert_eq!(times(&ledger(&[&[other], &before[..2], &now]))[0], ("portable", 90.0));
    }

    /// The mean of all that is known, and the disturbance, which is a part of the time.
    #[test]
    fn a_relation_is_to_all_others_and_of_all_times() {
        let of = |method, median_ns, disturbance_ns| Figure {
            disturbance_ns: Some(disturbance_ns),
            ..figure(method, median_ns, 0.1, 9)
        };
        let known = [of("c_library", 400.0, 0.0), of("portable", 900.0, 0.0)];
        let mut ledger = ledger(&[&known]);
        let others = [of("c_library", 100.0, 0.0), of("portable", 100.0, 0.0)];
        ledger.add_in_relation(&[of("movnti", 50.0, 20.0)], &others);
        // Four and nine times as slow.
        let added = &ledger.figures[2];
        let near = |ns: f64, expected: f64| (ns - expected).abs() < 1e-6;
        assert!(near(added.median_ns, 300.0) && near(added.disturbance_ns.unwrap(), 120.0), "{added:?}");
        assert!(near(added.quartiles_ns[0], 270.0) && near(added.quartiles_ns[1], 330.0), "{added:?}");
        assert_eq!(ledger.figures[..2], known, "as before");
        ledger.add_in_relation(&[of("clzero", 50.0, 20.0)], &[of("rep_stosb", 50.0, 20.0)]);
        assert_eq!(ledger.figures.len(), 3, "nothing is known");
    }

    /// A time of 0 has no relation to others, and spoils none.
    #[test]
    fn a_ratio_that_is_not_finite_does_not_count() {
        let known = [figure("c_library", 100.0, 0.1, 9), figure("movnti", 0.0, 0.0, 9)];
        let now = [
            figure("c_library", 50.0, 0.2, 9),
            figure("movnti", 60.0, 0.2, 9),
            figure("clzero", 30.0, 0.2, 9),
        ];
        for groups in [[&known[..], &now], [&now[..], &known]] {
            let ledger = ledger(&groups);
            assert!(ledger.figures.iter().all(|it| it.median_ns.is_finite()), "{:?}", times(&ledger));
        }
    }

    /// Two threads seemed no faster than one, because the machine had become slower.
    #[test]
    fn threads_are_in_relation_to_one() {
        let of = |method, threads, ns, samples| Figure {
            condition: Condition::new(true, true, threads),
            ..figure(method, ns, 0.1, samples)
        };
        let known = [of("movnti", 1, 100.0, 9), of("c_library", 1, 150.0, 9)];
        // Measured precisely, but at another time.
        let slow = [of("movnti", 2, 100.0, 31), of("c_library", 2, 120.0, 31)];
        let mut ledger = ledger(&[&known, &slow]);
        ledger.add_by_threads(&[
            of("movnti", 1, 200.0, 9),
            of("movnti", 2, 120.0, 9),
            of("movnti", 4, 110.0, 9),
        ]);
        let expected = [100.0, 150.0, 60.0, 72.0, 55.0];
        let all = |ledger: &Ledger| times(ledger).into_iter().map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(all(&ledger), expected);
        ledger.add_by_threads(&[of("movnti", 1, 100.0, 1), of("movnti", 2, 100.0, 1)]);
        assert_eq!(all(&ledger), expected, "there was no time");
        // By another candidate, if the choice was not measured at that length.
        ledger.add_by_threads(&[
            of("clzero", 1, 60.0, 9),
            of("clzero", 2, 30.0, 9),
            of("c_library", 1, 75.0, 9),
        ]);
        assert_eq!(all(&ledger), [100.0, 150.0, 60.0, 72.0, 55.0, 120.0, 60.0]);
        let mut empty = Ledger::default();
        empty.add_by_threads(&[of("movnti", 1, 200.0, 15), of("movnti", 2, 120.0, 15)]);
        assert_eq!(all(&empty), [200.0, 120.0]);
    }
}
