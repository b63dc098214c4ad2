//! A run: one measurement after the other, with interleaved samples, saved as they are measured.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::policy::{Basis, Policy};
use serde::Serialize;

use crate::engine::implementation::POPULATING;
pub(crate) use crate::engine::interleave::{OPERATIONS, Sample, Sampler, go_on};
use crate::engine::interleave::{Source, interleave};
use crate::engine::quality::Quality;
use crate::engine::stats::median;
use crate::engine::{
    Check, Counting, Counts, Finding, Kind, MeasureError, Measurement, Metric, Provenance, Result, Results,
    Row, Share, Stats, StopRule, Summary, memory_left,
};

pub(crate) const ONE_THREAD: &str = "only one thread is counted; let --threads include 1";
pub(crate) const SINGLE: &str = "each figure is a single sample: how much it varies is not known, and nothing is concluded; give --runs 5 or more, or a longer --budget";

/// A measurement with its options.
pub trait Measure {
    /// The measurement that its rows belong to.
    fn measurement(&self) -> Measurement;

    /// Checks every precondition that can be checked before the first sample. Returns the first obstacle, with its remedy.
    fn validate(&self) -> Result<()>;

    /// Returns the reason if hardware counters cannot count the measured work.
    fn uncounted(&self) -> Option<&'static str> {
        None
    }

    /// Estimates how long it takes on a usual machine, seconds. Progress is computed from it.
    fn seconds(&self) -> f64;

    /// Measures, and adds rows and findings to the run. They stay in it if something that is needed is refused.
    fn measure(&self, run: &mut Run<'_>) -> Result<()>;

    /// Adds findings about all of its rows, also if the user stopped the run.
    fn conclude(&self, _run: &mut Run<'_>) {}
}

/// Callbacks for progress and for saving partial results, and a flag for cancellation.
#[allow(missing_debug_implementations, reason = "two callbacks and a flag")]
pub struct Observer<'a> {
    /// Receives the progress.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Receives the results so far, whenever a group of rows is complete; every few seconds, if saving takes long. An error ends
    /// the run.
    pub save: &'a mut dyn FnMut(&Results) -> io::Result<()>,
    /// Ends the run before the next sample, once set.
    pub stop: &'a AtomicBool,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The arguments that the run was started with; the results repeat them.
    pub command: Vec<String>,
    /// Counts hardware events too, in further samples. If the machine has no counters, the results say why.
    pub counters: bool,
}

/// Measurements whose options have been checked.
#[allow(missing_debug_implementations, reason = "a measurement need not implement it")]
pub struct Validated<'m>(&'m [&'m dyn Measure]);

impl<'m> Validated<'m> {
    /// Checks the options of measurements. Returns the first obstacle that can be found before anything is measured.
    pub fn new(measurements: &'m [&'m dyn Measure]) -> Result<Validated<'m>> {
        measurements.iter().try_for_each(|measurement| measurement.validate())?;
        Ok(Validated(measurements))
    }

    /// Runs the measurements one after the other. When `observer.stop` is set the run ends early, and `complete` is false in
    /// the results. Fails if something that a measurement needs is refused, after `observer.save` received the rest.
    pub fn measure<'a>(
        self,
        policy: &'a Policy,
        options: RunOptions,
        observer: Observer<'a>,
    ) -> Result<Results> {
        if !policy.runs_here() {
            return Err(MeasureError::Policy);
        }
        let seconds: f64 = self.0.iter().map(|it| it.seconds()).sum();
        let mut provenance = Provenance::collect(Machine::current().page_size, 0.0, 0);
        provenance.load.swap(0, 1);
        let notes = memory_left().note().into_iter().chain(provenance.placement()).collect();
        let results = Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance,
            command: options.command,
            ..Results::default()
        };
        let mut run = Run {
            policy,
            observer,
            results,
            started: Instant::now(),
            samples: 0,
            counting: Rc::default(),
            notes,
            quality: Quality::default(),
            measurement: Measurement::Clear,
            first: 0,
            expected: [seconds.max(1e-3), 0.0, 0.0],
            groups: None,
            began: Duration::ZERO,
            all_measured: true,
            reported: None,
            saved: None,
        };
        match options.counters.then(Counting::open) {
            Some(Ok(counting)) => {
                run.notes.extend(counting.incomplete());
                run.counting = Rc::new(counting);
            }
            Some(Err(reason)) => run.note(reason),
            None => {}
        }
        for measurement in self.0 {
            if run.stopped() {
                break;
            }
            run.measurement = measurement.measurement();
            run.first = run.results.rows.len();
            run.expected[2] = measurement.seconds();
            run.began = run.elapsed();
            run.groups = None;
            match measurement.measure(&mut run) {
                // What was measured before stays.
                Err(MeasureError::Interrupted) if run.stopped() => {}
                Ok(()) => {}
                Err(error) => {
                    // Of two errors, the first one is the cause.
                    if !run.results.rows.is_empty() {
                        _ = run.save();
                    }
                    return Err(error);
                }
            }
            measurement.conclude(&mut run);
            run.expected[1] += run.expected[2];
        }
        if run.results.rows.is_empty() && run.stopped() {
            return Err(MeasureError::Interrupted);
        }
        run.results.complete = run.all_measured && !run.stopped();
        run.save()?;
        Ok(run.results)
    }
}

/// Progress of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// The share that is done, 0 to 1.
    pub done: f64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Time until the end, estimated.
    pub left: Duration,
    /// The current step.
    pub what: String,
    /// Something that changes how results are to be read, such as too little memory; reported once.
    pub note: Option<String>,
}

/// Progress is reported between samples at most this often: a sample may take only microseconds.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// Saving thousands of rows takes longer than measuring a group. From this time on, it pauses so many times as long.
const LONG_SAVE: Duration = Duration::from_millis(20);
const PAUSE_AFTER_SAVE: u32 = 30;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A run in progress.
#[allow(missing_debug_implementations, reason = "it holds callbacks")]
pub struct Run<'a> {
    pub(crate) policy: &'a Policy,
    /// Long samples read its `stop` at least once a second and then return [`MeasureError::Interrupted`].
    pub(crate) observer: Observer<'a>,
    pub(crate) results: Results,
    started: Instant,
    samples: u64,
    /// The state of counting, for samples that do more than the measured work.
    pub(crate) counting: Rc<Counting>,
    notes: Vec<String>,
    quality: Quality,
    measurement: Measurement,
    /// Its first row.
    first: usize,
    /// The seconds that all measurements, those that are done, and the current one are estimated to take.
    expected: [f64; 3],
    /// How many groups of candidates the measurement has, and how many are done; `None` if it has a fixed time.
    groups: Option<(usize, usize)>,
    /// When the current measurement began, since the start of the run.
    began: Duration,
    /// False if a measurement left something out for lack of time: the results are incomplete.
    pub(crate) all_measured: bool,
    reported: Option<Instant>,
    /// When the results were last saved, and how long that took.
    saved: Option<(Instant, Duration)>,
}

impl<'a> Run<'a> {
    pub(crate) fn stopped(&self) -> bool {
        self.observer.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sets how many groups the measurement has, from which progress is computed: otherwise it is computed from the time.
    pub(crate) fn expect_groups(&mut self, groups: usize) {
        self.groups = Some((groups.max(1), 0));
    }

    /// Adds a note about what was left out, or what makes rows doubtful. A note that is there already is not repeated.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a conclusion from the rows. If each row has a single sample, adds a note instead that nothing follows.
    pub(crate) fn add_finding(&mut self, text: impl Into<String>) {
        if self.rows().all(|row| row.samples.len() < 2) {
            return self.note(SINGLE);
        }
        self.results.findings.push(Finding { measurement: self.measurement, text: text.into(), check: None });
    }

    pub(crate) fn add_check(&mut self, text: String, check: Check) {
        self.results.findings.push(Finding { measurement: self.measurement, text, check: Some(check) });
    }

    /// Changes the rows from a number on, and saves soon.
    pub(crate) fn amend_rows(&mut self, first: usize, change: impl FnOnce(&mut [Row])) -> Result<()> {
        change(self.results.rows.get_mut(first..).unwrap_or_default());
        self.save_soon()
    }

    /// The rows of what is being measured; not those of the same measurement with other options in this run.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        let rows = self.results.rows.get(self.first..).unwrap_or_default().iter();
        rows.filter(|row| row.measurement == self.measurement)
    }

    /// Records the size of the pages that back the measured memory.
    pub(crate) fn backed_by(&mut self, page_size: Option<usize>) {
        if let Some(bytes) = page_size {
            self.results.provenance.backing_page_size = bytes;
        }
    }

    /// Reports what is being done; `share` of the group is done.
    pub(crate) fn say(&mut self, what: &str, share: f64) {
        self.reported = Some(Instant::now());
        let elapsed = self.elapsed();
        let [all, past, current] = self.expected;
        let part = match self.groups {
            Some((groups, done)) => (done as f64 + share) / groups as f64,
            None => elapsed.saturating_sub(self.began).as_secs_f64() / current.max(1e-3),
        };
        let part = part.min(1.0);
        let done = ((past + current * part) / all).clamp(0.0, 1.0);
        let times = [self.began.as_secs_f64(), elapsed.saturating_sub(self.began).as_secs_f64()];
        let left = Duration::from_secs_f64(left(self.expected, times, part));
        (self.observer.progress)(&Progress {
            done,
            elapsed,
            left,
            what: format!("{} {what}", self.measurement),
            note: None,
        });
    }

    /// Samples a group of candidates, interleaved, `runs` times each after a warm-up. Then adds and saves the rows, and
    /// checks them for noise. `what` names the group for people. Returns the first error of a sample, and if saving fails;
    /// what was sampled before stays. [`MeasureError::Interrupted`] if the user stopped the run before.
    pub(crate) fn interleave(
        &mut self,
        what: &str,
        metric: Metric,
        runs: usize,
        samplers: &mut [Sampler<'_>],
    ) -> Result<()> {
        self.interleave_by(what, metric, StopRule::fixed(runs), samplers)
    }

    /// The same by another rule.
    pub(crate) fn interleave_by(
        &mut self,
        what: &str,
        metric: Metric,
        rule: StopRule,
        samplers: &mut [Sampler<'_>],
    ) -> Result<()> {
        go_on(self.observer.stop)?;
        self.quality.begin(self.results.rows.len());
        let (samples, outcome) = self.sample(what, metric, rule, samplers.iter_mut());
        self.add_rows(what, metric, samplers, samples, outcome)
    }

    /// Samples a group of candidates a little, by the first rule, and then those that `front` selects by the medians of
    /// the first samples, by the second rule. Adds and saves rows as [`Run::interleave`] does. Returns how many
    /// candidates have no sample.
    pub(crate) fn interleave_front(
        &mut self,
        what: &str,
        metric: Metric,
        [first, second]: [StopRule; 2],
        samplers: &mut [Sampler<'_>],
        front: impl Fn(&[Option<f64>]) -> Vec<usize>,
    ) -> Result<usize> {
        self.quality.begin(self.results.rows.len());
        let (mut samples, mut outcome) = self.sample(what, metric, first, samplers.iter_mut());
        if outcome.is_ok() {
            let median = |samples: &Vec<Sample>| Summary::of(&values(samples)).map(|it| it.median);
            let mut chosen = front(&samples.iter().map(median).collect::<Vec<_>>());
            chosen.sort_unstable();
            let at_the_front = samplers.iter_mut().enumerate().filter(|(at, _)| chosen.contains(at));
            let (again, ended) = self.sample(what, metric, second, at_the_front.map(|(_, it)| it));
            outcome = ended;
            for (index, again) in chosen.into_iter().zip(again) {
                // The samples that brought a candidate to the front are biased: they count only if there are no others.
                if again.len() >= 3 || samples[index].is_empty() {
                    samples[index] = again;
                }
            }
        }
        let missing = samples.iter().filter(|samples| samples.is_empty()).count();
        self.add_rows(what, metric, samplers, samples, outcome)?;
        Ok(missing)
    }

    fn sample<'s, 'c: 's>(
        &mut self,
        what: &str,
        metric: Metric,
        rule: StopRule,
        samplers: impl Iterator<Item = &'s mut Sampler<'c>>,
    ) -> (Vec<Vec<Sample>>, Result<()>) {
        let mut group = Group { run: self, what, metric, samplers: samplers.collect() };
        let candidates = group.samplers.len();
        interleave(&mut group, candidates, rule)
    }

    fn add_rows(
        &mut self,
        what: &str,
        metric: Metric,
        samplers: &mut [Sampler<'_>],
        samples: Vec<Vec<Sample>>,
        outcome: Result<()>,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for (sampler, mut samples) in samplers.iter_mut().zip(samples) {
            let countable = outcome.is_ok() && !samples.is_empty();
            let counters = if countable { self.count(sampler)? } else { None };
            let Sampler { candidate, config, chosen, .. } = sampler;
            let (measurement, taken) = (self.measurement, samples.len());
            samples.retain(|sample| sample.value.is_finite());
            if samples.len() < taken {
                let name = &candidate.name;
                self.note(format!(
                    "{measurement}: {what}: samples of {name} that are not numbers are left out"
                ));
            }
            let values = values(&samples);
            let Some(stats) = Stats::of(&values) else { continue };
            let mut also: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for (name, value) in samples.iter().flat_map(|it| &it.also).filter(|(_, it)| it.is_finite()) {
                also.entry(name).or_default().push(*value);
            }
            rows.push(Row {
                measurement,
                candidate: candidate.clone(),
                config: config.clone(),
                metric,
                stats,
                samples: values,
                chosen: chosen.map(|choice| choice.to_string()),
                also: also.into_iter().map(|(name, values)| (name.to_owned(), median(&values))).collect(),
                counters,
                flags: Vec::new(),
            });
        }
        self.results.rows.extend(rows);
        self.quality.end(&format!("{}: {what}", self.measurement), &mut self.results.rows);
        if let Some((_, done)) = &mut self.groups {
            *done += 1;
        }
        self.save_soon()?;
        outcome
    }

    /// One more sample for each group of hardware counters, with these running.
    fn count(&mut self, sampler: &mut Sampler<'_>) -> Result<Option<Counts>> {
        if !sampler.counted || self.stopped() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        for group in 0..self.counting.groups() {
            match self.counting.during(group, || (sampler.sample)(&mut |_| {})) {
                (Err(MeasureError::Interrupted), _) => return Ok(None),
                (Err(error), _) => return Err(error),
                (Ok(sample), Some(reading)) => {
                    let operations = sample.also.iter().find(|(name, _)| *name == OPERATIONS);
                    counts.add(&reading, operations.map_or(1.0, |(_, count)| *count));
                }
                (Ok(_), None) => {}
            }
        }
        let populates = sampler.candidate.name == POPULATING;
        let writes = populates || !matches!(sampler.candidate.kind, Kind::Read | Kind::Control);
        counts.conclude(writes, &sampler.config);
        Ok(counts.any())
    }

    /// Saves the results so far, unless that was done shortly before and takes long.
    fn save_soon(&mut self) -> Result<()> {
        match self.saved {
            Some((at, took))
                if took >= LONG_SAVE && at.elapsed() < (took * PAUSE_AFTER_SAVE).min(LONGEST_PAUSE) =>
            {
                Ok(())
            }
            _ => self.save(),
        }
    }

    fn save(&mut self) -> Result<()> {
        let began = Instant::now();
        let Provenance { backing_page_size, load: [before, _], .. } = self.results.provenance;
        let seconds = self.started.elapsed().as_secs_f64();
        self.results.provenance = Provenance::collect(backing_page_size, seconds, self.samples);
        self.results.provenance.load[0] = before;
        self.results.provenance.policy = origin(self.policy);
        self.results.notes = [&self.notes[..], &self.quality.notes()].concat();
        let outcome = (self.observer.save)(&self.results).map_err(|source| MeasureError::Save { source });
        self.saved = Some((Instant::now(), began.elapsed()));
        outcome
    }
}

struct Group<'g, 'a, 'c> {
    run: &'g mut Run<'a>,
    what: &'g str,
    metric: Metric,
    samplers: Vec<&'g mut Sampler<'c>>,
}

impl Source for Group<'_, '_, '_> {
    type Sample = Sample;

    fn take(&mut self, candidate: usize, done: f64) -> Result<Sample> {
        let Group { run, what, samplers, .. } = self;
        go_on(run.observer.stop)?;
        let sampler = &mut *samplers[candidate];
        let doing = format!("{what}: {}", sampler.candidate.name);
        if run.reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
            run.say(&doing, done);
        }
        let sample = (sampler.sample)(&mut |more| run.say(&format!("{doing}{more}"), done))?;
        run.samples += 1;
        Ok(sample)
    }

    fn cost(&self, sample: &Sample) -> f64 {
        if self.metric.higher_is_better() { 1.0 / sample.value } else { sample.value }
    }

    fn elapsed(&self) -> Duration {
        self.run.elapsed()
    }
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

fn origin(policy: &Policy) -> String {
    let basis = match &policy.origin().basis {
        Basis::Profile { path: Some(path) } => format!("profile {}", path.display()),
        Basis::Profile { path: None } => "profile not saved".to_owned(),
        Basis::Defaults { microarchitecture, .. } => format!("defaults for {microarchitecture}"),
        _ => "unknown".to_owned(),
    };
    let forced = policy.origin().forced.iter();
    let forced: Vec<String> = forced.map(|(operation, choice)| format!("{operation}:{choice}")).collect();
    if forced.is_empty() { basis } else { format!("{basis}; forced: {}", forced.join(",")) }
}

/// Returns how long the rest of a run takes, in seconds, from what all measurements, those before and the current one were estimated to
/// take, and what those before and the current one took, of which `part` is done.
///
/// The rest of the current one goes at the speed of what is done of it; in the beginning, at the estimated speed. The others go at
/// the speed of those before, but not much slower or faster: one that takes many times as long as estimated says little about others.
fn left([all, past, current]: [f64; 3], [before, so_far]: [f64; 2], part: f64) -> f64 {
    let mix = |estimated: f64, observed: f64, done: f64| {
        let trust = (done * 10.0).min(1.0);
        estimated * (1.0 - trust) + observed * trust
    };
    let own = mix(current * (1.0 - part), so_far * (1.0 - part) / part.max(1e-3), part);
    let pace = (before / past.max(1e-3)).clamp(0.8, 1.25);
    let others = (all - past - current).max(0.0);
    own + mix(others, others * pace, past / all.max(1e-3))
}

#[cfg(test)]
mod tests {
    use super::left;

    #[test]
    fn a_slow_measurement_makes_the_estimate_grow_by_its_own_time() {
        // Ten measurements of 10 s; the fourth takes 40.
        let mut most = 0.0f64;
        for tenth in 0..=10 {
            let part = f64::from(tenth) / 10.0;
            let so_far = 40.0 * part;
            most = most.max(30.0 + so_far + left([100.0, 30.0, 10.0], [30.0, so_far], part));
        }
        assert!((130.0..131.0).contains(&most), "{most}");
        let after = 70.0 + left([100.0, 40.0, 10.0], [70.0, 0.0], 0.0);
        assert!(after < 1.25 * most, "{after}");
    }

    #[test]
    fn the_rest_adapts_to_the_speed() {
        assert_eq!(left([100.0, 0.0, 100.0], [0.0, 0.0], 0.0), 100.0);
        assert_eq!(left([100.0, 0.0, 100.0], [0.0, 100.0], 0.5), 100.0);
        assert_eq!(left([100.0, 50.0, 50.0], [60.0, 0.0], 1.0), 0.0);
        let others = left([100.0, 50.0, 25.0], [60.0, 15.0], 0.5) - 15.0;
        assert!((others - 30.0).abs() < 1e-9, "{others}");
    }
}
