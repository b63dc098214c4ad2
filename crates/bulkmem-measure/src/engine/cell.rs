//! Interleaved sampling: A B C, then C B A, and so on, so that drift and neighbours on the machine
//! meet all candidates alike.

use std::time::Duration;

use crate::engine::meter::{Cell, Meter, Session};
use crate::engine::stats::Summary;

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopRule {
    /// At least so many, as long as the deadline allows.
    pub(crate) least: u32,
    /// At most so many: then what is inside the noise stays there.
    pub(crate) most: u32,
    /// Whether everybody gets a first sample even after the deadline.
    pub(crate) everybody: bool,
    /// When to stop all the same.
    pub(crate) deadline: Duration,
}

/// What the samples of one candidate showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) summary: Summary,
    /// Median of the neighbour's part.
    pub(crate) disturbance_ns: Option<f64>,
}

/// Samples every trial in its cell in turn, until the best two are separated or `rule` says stop. The results are in the
/// order of the trials; `None` for one that has no sample because somebody asked to stop.
pub(crate) fn interleave<T, M: Meter<T>>(
    session: &mut Session<'_, M>,
    trials: &[(Cell, T)],
    rule: StopRule,
) -> Vec<Option<Measured>> {
    let mut times = vec![Vec::new(); trials.len()];
    let mut disturbances = vec![Vec::new(); trials.len()];
    for round in 0..rule.most {
        for step in 0..trials.len() {
            let index = if round % 2 == 0 { step } else { trials.len() - 1 - step };
            if (round > 0 || !rule.everybody) && session.over(rule.deadline) {
                break;
            }
            if let Some(sample) = session.sample(&trials[index].0, &trials[index].1) {
                times[index].push(sample.ns);
                disturbances[index].extend(sample.disturbance_ns);
            }
        }
        if session.over(rule.deadline) || (round + 1 >= rule.least && decided(&times)) {
            break;
        }
    }
    times
        .iter()
        .zip(&disturbances)
        .map(|(times, disturbances)| {
            Some(Measured {
                summary: Summary::of(times)?,
                disturbance_ns: Summary::of(disturbances).map(|summary| summary.median),
            })
        })
        .collect()
}

/// Whether the best is separated from the second, twice as far as one look at the samples would need: this looks
/// again and again, and chance must not end it.
fn decided(times: &[Vec<f64>]) -> bool {
    let mut summaries: Vec<_> = times.iter().filter_map(|times| Summary::of(times)).collect();
    summaries.sort_by(|a, b| a.median.total_cmp(&b.median));
    match summaries.as_slice() {
        [best, second, ..] => best.separated_by(second, 2.0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::engine::fake::{self, Planted};

    fn run(costs: &[f64], noise: f64, rule: StopRule) -> (Vec<Option<Measured>>, u64) {
        let stop = AtomicBool::new(false);
        let mut quiet = |_: &crate::Progress| {};
        let planted = Planted::new(noise, |_: &Cell, trial: &f64| *trial);
        let mut session = Session::new(planted, &stop, &mut quiet, Duration::from_secs(1));
        let trials: Vec<_> = costs.iter().map(|&cost| (fake::cell(4096), cost)).collect();
        let result = interleave(&mut session, &trials, rule);
        (result, session.samples())
    }

    const AMPLE: StopRule =
        StopRule { least: 6, most: 40, everybody: true, deadline: Duration::from_secs(1) };

    #[test]
    fn stops_early_when_clear_and_goes_on_when_not() {
        let (results, clear) = run(&[100.0, 200.0], 0.02, AMPLE);
        assert!((results[0].unwrap().summary.median - 100.0).abs() < 3.0);
        assert_eq!(clear, 12, "six rounds of two");
        let (_, close) = run(&[100.0, 100.1], 0.05, AMPLE);
        assert_eq!(close, 80, "all forty rounds");
    }

    #[test]
    fn the_deadline_holds_but_everybody_gets_a_sample() {
        let (results, samples) = run(&[1e9, 2e9, 3e9], 0.0, AMPLE);
        assert_eq!(samples, 3);
        assert!(results.iter().all(Option::is_some));
    }

    #[test]
    fn without_everybody_the_deadline_holds_from_the_start() {
        let (results, samples) = run(&[6e8, 6e8, 6e8], 0.0, StopRule { everybody: false, ..AMPLE });
        assert_eq!(samples, 2, "the second began in time");
        assert!(results[2].is_none());
    }

    #[test]
    fn a_stop_takes_no_further_sample() {
        let stop = AtomicBool::new(true);
        let mut quiet = |_: &crate::Progress| {};
        let planted = Planted::new(0.0, |_: &Cell, trial: &f64| *trial);
        let mut session = Session::new(planted, &stop, &mut quiet, Duration::from_secs(1));
        let trials = [(fake::cell(64), 1.0), (fake::cell(64), 2.0)];
        assert_eq!(interleave(&mut session, &trials, AMPLE), vec![None, None]);
        assert_eq!(session.samples(), 0);
    }
}
