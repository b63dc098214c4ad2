//! Samplers of candidates, and interleaved sampling, so that drift of the machine and its other users affect all candidates
//! alike: A B C, then C B A, then another order and its reverse. What a candidate leaves in the caches makes the next one
//! faster or slower, so none may always follow the same. The very first sample, which follows other work, is replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkmem::policy::Choice;

use crate::engine::{Candidate, Config, MeasureError, Result, Summary};

#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// In the unit of the metric.
    pub(crate) value: f64,
    /// Other values of the same sample, by name.
    pub(crate) also: Vec<(&'static str, f64)>,
}

/// The name under which a sample reports how many operations it spans, if not one.
pub(crate) const OPERATIONS: &str = "operations";

impl From<f64> for Sample {
    fn from(value: f64) -> Sample {
        Sample { value, also: Vec::new() }
    }
}

/// A candidate of a group, its configuration, and how it is sampled.
pub(crate) struct Sampler<'c> {
    pub(crate) candidate: Candidate,
    pub(crate) config: Config,
    pub(crate) sample: Box<Taking<'c>>,
    /// True if the work happens in this thread, so that its hardware counters see it.
    pub(crate) counted: bool,
    /// The method that the candidate chooses in this configuration, if it is the policy.
    pub(crate) chosen: Option<Choice>,
}

/// [`MeasureError::Interrupted`] once the user wants to stop.
pub(crate) fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(MeasureError::Interrupted) } else { Ok(()) }
}

/// Takes one sample. If that lasts seconds, calls its argument every second or so with a text to show next to the
/// candidate's name. [`MeasureError::Interrupted`] ends the group; the samples before it are kept.
pub(crate) type Taking<'c> = dyn FnMut(&mut dyn FnMut(&str)) -> Result<Sample> + 'c;

/// When to stop sampling a group of candidates. A round takes one sample of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopRule {
    /// Takes one more round first and discards its samples. If false, takes the first sample again.
    pub(crate) warm_up: bool,
    pub(crate) most: usize,
    /// Stops after this many rounds once the best two candidates are separated.
    pub(crate) until_separated: Option<usize>,
    /// Takes no sample after this time, measured as [`Source::elapsed`] does.
    pub(crate) deadline: Option<Duration>,
    /// Completes so many rounds even after the deadline.
    pub(crate) least: usize,
}

impl StopRule {
    /// A warm-up round, then a fixed number of rounds.
    pub(crate) fn fixed(rounds: usize) -> StopRule {
        StopRule { warm_up: true, most: rounds, until_separated: None, deadline: None, least: 0 }
    }

    /// At least `least` rounds, then more until the best two candidates are separated, at most `most`: a difference
    /// that is within the noise by then is not worth more time.
    pub(crate) fn until_separated(least: usize, most: usize) -> StopRule {
        StopRule { warm_up: false, until_separated: Some(least), ..StopRule::fixed(most) }
    }
}

pub(crate) trait Source {
    type Sample;

    /// Takes one sample of a candidate, by its index; `done` is the share of the rounds that is done.
    /// [`MeasureError::Interrupted`] once the user wants to stop.
    fn take(&mut self, candidate: usize, done: f64) -> Result<Self::Sample>;

    /// The cost of a sample, by which candidates are separated: lower is better.
    fn cost(&self, sample: &Self::Sample) -> f64;

    fn elapsed(&self) -> Duration;
}

/// Samples the candidates 0 to `candidates` - 1, interleaved, until the rule or the user ends it. Returns the samples of
/// each candidate in the order in which they were taken, and the error that ended it, if any.
pub(crate) fn interleave<S: Source>(
    source: &mut S,
    candidates: usize,
    rule: StopRule,
) -> (Vec<Vec<S::Sample>>, Result<()>) {
    let mut samples: Vec<Vec<S::Sample>> = std::iter::repeat_with(Vec::new).take(candidates).collect();
    let warm_ups = usize::from(rule.warm_up);
    let rounds = rule.most + warm_ups;
    let mut order: Vec<usize> = (0..candidates).collect();
    let mut random = fastrand::Rng::new();
    // The first candidate's first sample counts only if there is no time for another one.
    let extra = usize::from(!rule.warm_up).min(candidates);
    let discarded = if rule.warm_up { candidates } else { extra };
    let mut taken = 0;
    for round in 0..rounds {
        let before = if round == 0 { &order[..extra] } else { &[] };
        for &index in before.iter().chain(&order) {
            let late = rule.deadline.is_some_and(|deadline| source.elapsed() >= deadline);
            if late && round >= rule.least {
                return (samples, Ok(()));
            }
            let done = taken as f64 / (rule.most * candidates + discarded) as f64;
            taken += 1;
            match source.take(index, done) {
                Ok(_) if round < warm_ups => {}
                Ok(sample) if taken == 1 + extra => samples[index] = vec![sample],
                Ok(sample) => samples[index].push(sample),
                // Stopped in the middle of a sample. The samples before it count.
                Err(MeasureError::Interrupted) => return (samples, Ok(())),
                Err(error) => return (samples, Err(error)),
            }
        }
        let kept = (round + 1).saturating_sub(warm_ups);
        match kept {
            0 => {}
            kept if kept % 2 == 1 => order.reverse(),
            _ => random.shuffle(&mut order),
        }
        if rule.until_separated.is_some_and(|least| kept >= least) && separated(source, &samples) {
            break;
        }
    }
    (samples, Ok(()))
}

/// True if the best candidate is separated from the second, by twice the noise that a single look at the samples would
/// require: this looks after every round, and chance must not end it.
fn separated<S: Source>(source: &S, samples: &[Vec<S::Sample>]) -> bool {
    let costs = |samples: &Vec<S::Sample>| samples.iter().map(|it| source.cost(it)).collect::<Vec<f64>>();
    let mut summaries: Vec<Summary> = samples.iter().filter_map(|it| Summary::of(&costs(it))).collect();
    summaries.sort_by(|a, b| a.median.total_cmp(&b.median));
    match summaries.as_slice() {
        [best, second, ..] => best.separated_by(second, 2.0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates with planted times, and a clock that advances by them.
    struct Planted {
        times_ns: Vec<f64>,
        noise: f64,
        random: fastrand::Rng,
        elapsed_ns: f64,
        order: Vec<usize>,
        /// Stops, or fails, at this sample.
        end: Option<(usize, fn() -> MeasureError)>,
    }

    impl Planted {
        fn new(times_ns: &[f64], noise: f64) -> Planted {
            let random = fastrand::Rng::with_seed(7);
            let times_ns = times_ns.to_vec();
            Planted { times_ns, noise, random, elapsed_ns: 0.0, order: Vec::new(), end: None }
        }

        fn run(&mut self, rule: StopRule) -> Vec<usize> {
            let (samples, outcome) = interleave(self, self.times_ns.len(), rule);
            outcome.expect("nothing fails");
            samples.iter().map(Vec::len).collect()
        }
    }

    impl Source for Planted {
        type Sample = f64;

        fn take(&mut self, candidate: usize, done: f64) -> Result<f64, MeasureError> {
            assert!((0.0..1.0).contains(&done));
            if let Some((_, error)) = self.end.filter(|(at, _)| *at == self.order.len()) {
                return Err(error());
            }
            let ns = self.times_ns[candidate] * (1.0 + self.noise * (2.0 * self.random.f64() - 1.0));
            self.elapsed_ns += ns;
            self.order.push(candidate);
            Ok(ns)
        }

        fn cost(&self, sample: &f64) -> f64 {
            *sample
        }

        fn elapsed(&self) -> Duration {
            Duration::from_secs_f64(self.elapsed_ns / 1e9)
        }
    }

    #[test]
    fn a_fixed_count_discards_the_warm_up_and_every_second_round_reverses_a_new_order() {
        let mut planted = Planted::new(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0);
        assert_eq!(planted.run(StopRule::fixed(200)), [200; 5]);
        let rounds: Vec<&[usize]> = planted.order.chunks(5).collect();
        assert_eq!(rounds[..2], [[0, 1, 2, 3, 4]; 2], "the most important first, if time runs out");
        for pair in rounds[1..].chunks(2) {
            assert!(pair[0].iter().eq(pair[1].iter().rev()));
        }
        for candidate in 0..5 {
            let pairs = planted.order.windows(2).filter(|pair| pair[1] == candidate);
            let before: std::collections::BTreeSet<usize> = pairs.map(|pair| pair[0]).collect();
            assert_eq!(before.len(), 5, "{candidate} follows each, also itself");
        }
        let mut planted = Planted::new(&[1.0, 2.0], 0.0);
        assert_eq!(planted.run(StopRule { warm_up: false, ..StopRule::fixed(1) }), [1, 1]);
        assert_eq!(planted.order, [0, 0, 1], "the first sample is taken again");
    }

    #[test]
    fn separated_candidates_end_it_after_the_fewest_rounds() {
        let rule = StopRule::until_separated(6, 40);
        assert_eq!(Planted::new(&[100.0, 200.0], 0.02).run(rule), [6, 6]);
        fastrand::seed(7);
        let by_chance = (0..1000).filter(|seed| {
            let mut planted = Planted::new(&[100.0, 100.1], 0.05);
            planted.random.seed(*seed);
            planted.run(rule) != [40, 40]
        });
        let by_chance = by_chance.count();
        assert!((1..60).contains(&by_chance), "{by_chance} of 1000 within the noise end early, 36 are usual");
        assert_eq!(Planted::new(&[100.0], 0.05).run(rule), [6], "nothing to separate from");
    }

    #[test]
    fn the_deadline_ends_it_between_samples() {
        let deadline = Some(Duration::from_secs(1));
        let rule = StopRule { deadline, ..StopRule::until_separated(6, 40) };
        assert_eq!(
            Planted::new(&[4e8, 4e8, 4e8], 0.0).run(rule),
            [1, 1, 0],
            "one was taken again, the third sample began in time"
        );
        assert_eq!(
            [1, 3].map(|least| Planted::new(&[1e9, 2e9, 3e9], 0.0).run(StopRule { least, ..rule })),
            [[1, 1, 1], [3, 3, 3]]
        );
        assert_eq!(Planted::new(&[2e9, 1.0], 0.0).run(rule), [1, 0], "no time to take it again");
        let fixed = StopRule { deadline, ..StopRule::fixed(9) };
        assert_eq!(Planted::new(&[3e8], 0.0).run(fixed), [3], "one of the four was the warm-up");
    }

    #[test]
    fn an_interrupted_sample_keeps_those_before_it_and_an_error_is_returned() {
        let mut planted = Planted::new(&[1.0, 2.0], 0.0);
        planted.end = Some((3, || MeasureError::Interrupted));
        assert_eq!(planted.run(StopRule::fixed(9)), [1, 0]);
        let mut planted = Planted::new(&[1.0, 2.0], 0.0);
        planted.end = Some((4, || MeasureError::Policy));
        let (samples, outcome) = interleave(&mut planted, 2, StopRule::fixed(9));
        assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(matches!(outcome, Err(MeasureError::Policy)));
    }
}
