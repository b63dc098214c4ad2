//! One run: the measurements asked for, one after the other, their samplers sampled in turns, all of it saved as
//! it is measured.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::policy::{Choice, Policy};

use crate::engine::counters::{Counters, Counts};
use crate::engine::quality::Quality;
use crate::engine::stats::{Stats, median};
use crate::engine::{Candidate, Config, Finding, Measurement, Metric, Results, Row};
use crate::{MeasureError, Progress, Provenance, memory_left};

/// A measurement with its options.
pub trait Measure {
    /// Which one it is.
    fn measurement(&self) -> Measurement;

    /// Whether it can start: everything that can be found out before the first sample.
    ///
    /// # Errors
    /// The first thing that is in the way, with the remedy.
    fn validate(&self) -> Result<(), MeasureError>;

    /// Roughly how long it takes on a usual machine, seconds: what progress is reckoned by.
    fn seconds(&self) -> f64;

    /// Measures, into the run.
    ///
    /// # Errors
    /// Where something needed was refused halfway. What was measured by then stays in the run.
    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError>;
}

/// Those who follow a run.
#[allow(missing_debug_implementations, reason = "two callbacks and a flag")]
pub struct Observer<'a> {
    /// Is told how far it is.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Is given what there is, whenever a group of rows is complete; where it fails, the run ends.
    pub save: &'a mut dyn FnMut(&Results) -> io::Result<()>,
    /// Once set, no further sample is taken.
    pub stop: &'a AtomicBool,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The arguments that the run was started with; the results repeat them.
    pub command: Vec<String>,
    /// Counts hardware events too, in further samples of each candidate. If the machine has no counters, the results
    /// say why.
    pub counters: bool,
}

/// Measurements whose options have been checked.
#[allow(missing_debug_implementations, reason = "a measurement need not implement it")]
pub struct Validated<'m>(&'m [&'m dyn Measure]);

impl<'m> Validated<'m> {
    /// Checks the options of measurements.
    ///
    /// # Errors
    /// The first obstacle that can be found before anything is measured.
    pub fn new(measurements: &'m [&'m dyn Measure]) -> Result<Validated<'m>, MeasureError> {
        measurements.iter().try_for_each(|measurement| measurement.validate())?;
        Ok(Validated(measurements))
    }

    /// Runs the measurements one after the other. When `observer.stop` is set the run ends early, and `complete` is
    /// false in the results.
    ///
    /// # Errors
    /// If something that a measurement needs is refused. `observer.save` has received what was measured by then.
    pub fn measure<'a>(
        self,
        policy: &'a Policy,
        options: RunOptions,
        observer: Observer<'a>,
    ) -> Result<Results, MeasureError> {
        if !policy.runs_here() {
            return Err(MeasureError::Policy);
        }
        let seconds = self.0.iter().map(|it| it.seconds()).sum();
        let mut run = Run::new(policy, options.command, observer, seconds);
        if let Some(note) = memory_left().note() {
            run.note(note);
        }
        if options.counters {
            run.open_counters();
        }
        for measurement in self.0 {
            if run.stopped() {
                break;
            }
            run.begin(measurement.measurement(), measurement.seconds());
            measurement.measure(&mut run)?;
            run.end(measurement.seconds());
        }
        run.finish()
    }
}

/// What one sample showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// In the unit of the metric.
    pub(crate) value: f64,
    /// What else was seen, by name.
    pub(crate) also: Vec<(&'static str, f64)>,
}

/// The name by which a sample says beside its value how many operations it spans, where that is not one.
pub(crate) const OPERATIONS: &str = "operations";

impl Sample {
    fn operations(&self) -> f64 {
        self.also.iter().find(|(name, _)| *name == OPERATIONS).map_or(1.0, |(_, count)| *count)
    }
}

impl From<f64> for Sample {
    fn from(value: f64) -> Sample {
        Sample { value, also: Vec::new() }
    }
}

/// What is said in place of findings where each row has one sample.
pub(crate) const SINGLE: &str = "each figure is a single sample: how much it varies is not known, and nothing is concluded; give --runs 5 or more";

/// How a sample is taken.
pub(crate) type Taking<'c> = dyn FnMut() -> Result<Sample, MeasureError> + 'c;
/// How a sample is taken that lasts seconds: it calls what it is given every second or so, with what is to be said
/// beside the subject's name.
pub(crate) type LongTaking<'c> = dyn FnMut(&mut dyn FnMut(&str)) -> Result<Sample, MeasureError> + 'c;

/// Somebody who takes part in a group.
pub(crate) type Sampler<'c> = SamplerOf<Taking<'c>>;
/// Somebody whose samples last seconds.
pub(crate) type LongSampler<'c> = SamplerOf<LongTaking<'c>>;

/// Somebody who takes part in a group, and how samples are taken.
pub(crate) struct SamplerOf<S: ?Sized> {
    pub(crate) candidate: Candidate,
    pub(crate) config: Config,
    /// Takes one sample. One that returns [`MeasureError::Interrupted`] because somebody asked to stop ends the group,
    /// and what was sampled before is kept.
    pub(crate) sample: Box<S>,
    /// Whether the work happens in this thread, so that its hardware counters see it.
    pub(crate) counted: bool,
}

/// A run in progress.
#[allow(missing_debug_implementations, reason = "it holds callbacks")]
pub struct Run<'a> {
    policy: &'a Policy,
    watch: Observer<'a>,
    results: Results,
    started: Instant,
    samples: u64,
    counters: Option<Counters>,
    /// What was said by [`Run::note`].
    said: Vec<String>,
    quality: Quality,
    /// What the policy chooses in the places of the group to come.
    choices: Vec<(Candidate, Config, Choice)>,
    /// Whether the sample that is being taken is counted rather than timed.
    counting: Rc<Cell<bool>>,
    measurement: Measurement,
    /// The seconds of all measurements, of those done, and of the one that runs, by their own reckoning.
    expected: [f64; 3],
    /// Of the one that runs: how many groups it has, and how many are done.
    groups: (usize, usize),
}

impl<'a> Run<'a> {
    fn new(policy: &'a Policy, command: Vec<String>, watch: Observer<'a>, seconds: f64) -> Run<'a> {
        let mut provenance = Provenance::collect(bulkmem::machine::Machine::current().page_size, 0.0, 0);
        provenance.load.swap(0, 1);
        let results = Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance,
            command,
            rows: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            complete: false,
        };
        Run {
            policy,
            watch,
            results,
            started: Instant::now(),
            samples: 0,
            counters: None,
            said: Vec::new(),
            quality: Quality::default(),
            choices: Vec::new(),
            counting: Rc::default(),
            measurement: Measurement::Clear,
            expected: [seconds.max(1e-3), 0.0, 0.0],
            groups: (1, 0),
        }
    }

    fn open_counters(&mut self) {
        match Counters::open() {
            Ok(counters) => {
                if let Some(missing) = counters.incomplete() {
                    self.note(missing);
                }
                self.counters = Some(counters);
            }
            Err(reason) => self.note(reason),
        }
    }

    fn begin(&mut self, measurement: Measurement, seconds: f64) {
        self.measurement = measurement;
        self.expected[2] = seconds;
        self.groups = (1, 0);
    }

    fn end(&mut self, seconds: f64) {
        self.expected[1] += seconds;
        self.expected[2] = 0.0;
        self.groups = (1, 0);
    }

    fn finish(mut self) -> Result<Results, MeasureError> {
        if self.results.rows.is_empty() && self.stopped() {
            return Err(MeasureError::Interrupted);
        }
        self.results.complete = !self.stopped();
        self.save()?;
        Ok(self.results)
    }

    /// The policy that serves.
    pub(crate) fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Whether somebody asked to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    /// What [`Run::stopped`] looks at: long samples look at it too, between pieces of a second at most, and then give
    /// up with [`MeasureError::Interrupted`].
    pub(crate) fn stop_flag(&self) -> &'a AtomicBool {
        self.watch.stop
    }

    /// Whether the sample that is being taken is counted rather than timed: what it does beside the work would be
    /// counted too.
    pub(crate) fn counting(&self) -> Rc<Cell<bool>> {
        self.counting.clone()
    }

    /// Says how many groups the measurement has: what its progress is reckoned by.
    pub(crate) fn expect_groups(&mut self, groups: usize) {
        self.groups = (groups.max(1), 0);
    }

    /// Says what is left out and why, or what makes rows doubtful; once, however often it is said.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.said.contains(&note) {
            self.said.push(note);
        }
    }

    /// Says which method the policy's subject of the next group stands for in a place: its row says so then.
    pub(crate) fn chooses(&mut self, candidate: &Candidate, config: &Config, choice: Option<Choice>) {
        self.choices.extend(choice.map(|choice| (candidate.clone(), config.clone(), choice)));
    }

    /// Says what follows from the rows; of a single sample each, nothing does.
    pub(crate) fn add_finding(&mut self, text: impl Into<String>) {
        if self.rows().all(|row| row.samples.len() < 2) {
            return self.note(SINGLE);
        }
        self.results.findings.push(Finding { measurement: self.measurement, text: text.into() });
    }

    /// The rows of the measurement that runs.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.results.of(self.measurement)
    }

    /// Says what pages the kernel really put behind the memory.
    pub(crate) fn backed_by(&mut self, page_size: Option<usize>) {
        if let Some(bytes) = page_size {
            self.results.provenance.backing_page_size = bytes;
        }
    }

    /// Shows what is being done; `share` of the group is done.
    pub(crate) fn say(&mut self, what: &str, share: f64) {
        let (groups, done) = self.groups;
        let part = ((done as f64 + share) / groups as f64).min(1.0);
        let [all, past, current] = self.expected;
        let done = ((past + current * part) / all).clamp(0.0, 1.0);
        let elapsed = self.started.elapsed();
        // What is left is as fast as what was; in the beginning, as fast as reckoned.
        let reckoned = all * (1.0 - done);
        let observed = elapsed.as_secs_f64() * (1.0 - done) / done.max(1e-3);
        let trust = (done * 10.0).min(1.0);
        let left = Duration::from_secs_f64(reckoned * (1.0 - trust) + observed * trust);
        (self.watch.progress)(&Progress {
            done,
            elapsed,
            left,
            what: format!("{} {what}", self.measurement),
            note: None,
        });
    }

    /// Samples a group in turns: everybody once to warm up, which is not counted, then A B C, C B A, and so on, `runs`
    /// times. Then the rows are added and saved, and looked at for noise. `what` names the group for people.
    ///
    /// # Errors
    /// The first error of a sample, and where saving fails; what was sampled before stays.
    pub(crate) fn interleave(
        &mut self,
        what: &str,
        metric: Metric,
        runs: usize,
        samplers: &mut [Sampler<'_>],
    ) -> Result<(), MeasureError> {
        self.turns(what, metric, runs, samplers, |sample, _| sample())
    }

    /// The same for samples that last seconds.
    ///
    /// # Errors
    /// As [`Run::interleave`].
    pub(crate) fn interleave_long(
        &mut self,
        what: &str,
        metric: Metric,
        runs: usize,
        samplers: &mut [LongSampler<'_>],
    ) -> Result<(), MeasureError> {
        self.turns(what, metric, runs, samplers, |sample, say| sample(say))
    }

    fn turns<S: ?Sized>(
        &mut self,
        what: &str,
        metric: Metric,
        runs: usize,
        samplers: &mut [SamplerOf<S>],
        mut take: impl FnMut(&mut S, &mut dyn FnMut(&str)) -> Result<Sample, MeasureError>,
    ) -> Result<(), MeasureError> {
        let mut samples: Vec<Vec<Sample>> = samplers.iter().map(|_| Vec::new()).collect();
        self.quality.begin(self.results.rows.len());
        let steps = (runs + 1) * samplers.len();
        let mut outcome = Ok(());
        'turns: for round in 0..=runs {
            for step in 0..samplers.len() {
                if self.stopped() {
                    break 'turns;
                }
                let index = if round % 2 == 0 { step } else { samplers.len() - 1 - step };
                let taken = round * samplers.len() + step;
                let doing = format!("{what}: {}", samplers[index].candidate.name);
                let share = taken as f64 / steps as f64;
                self.say(&doing, share);
                let mut say = |more: &str| self.say(&format!("{doing}{more}"), share);
                let sample = match take(&mut samplers[index].sample, &mut say) {
                    Ok(sample) => sample,
                    // Given up halfway, as asked: it shows nothing, the samples before it do.
                    Err(MeasureError::Interrupted) => break 'turns,
                    Err(error) => {
                        outcome = Err(error);
                        break 'turns;
                    }
                };
                self.samples += 1;
                if round > 0 {
                    samples[index].push(sample);
                }
            }
        }
        let mut rows = Vec::new();
        for (sampler, mut samples) in samplers.iter_mut().zip(samples) {
            let counts = if outcome.is_ok() { self.count(sampler, &mut take)? } else { None };
            let SamplerOf { candidate, config, .. } = sampler;
            let taken = samples.len();
            samples.retain(|sample| sample.value.is_finite());
            if samples.len() < taken {
                let name = &candidate.name;
                self.note(format!(
                    "{}: {what}: figures of {name} that are no numbers are left out",
                    self.measurement
                ));
            }
            let row = row(self.measurement, candidate.clone(), config.clone(), metric, samples, counts);
            let chosen = self.choices.iter().find(|(who, at, _)| who == candidate && at == config);
            rows.extend(row.map(|row| Row { chosen: chosen.map(|(.., choice)| choice.to_string()), ..row }));
        }
        self.choices.clear();
        self.results.rows.extend(rows);
        self.quality.end(&format!("{}: {what}", self.measurement), &mut self.results.rows);
        self.groups.1 += 1;
        self.save()?;
        outcome
    }

    /// One more sample for each group of hardware counters, with these running.
    fn count<S: ?Sized>(
        &mut self,
        sampler: &mut SamplerOf<S>,
        take: &mut impl FnMut(&mut S, &mut dyn FnMut(&str)) -> Result<Sample, MeasureError>,
    ) -> Result<Option<Counts>, MeasureError> {
        if !sampler.counted || self.stopped() {
            return Ok(None);
        }
        let Some(counters) = &mut self.counters else { return Ok(None) };
        let mut counts = Counts::default();
        for group in 0..counters.groups() {
            let mut sample = Ok(Sample::default());
            self.counting.set(true);
            let reading = counters.during(group, || sample = take(&mut sampler.sample, &mut |_| {}));
            self.counting.set(false);
            match (sample, reading) {
                (Err(MeasureError::Interrupted), _) => return Ok(None),
                (Err(error), _) => return Err(error),
                (Ok(sample), Some(reading)) => counts.add(&reading, sample.operations()),
                (Ok(_), None) => {}
            }
        }
        Ok(counts.any())
    }

    /// Saves what there is.
    fn save(&mut self) -> Result<(), MeasureError> {
        let Provenance { backing_page_size, load: [before, _], .. } = self.results.provenance;
        let seconds = self.started.elapsed().as_secs_f64();
        self.results.provenance = Provenance::collect(backing_page_size, seconds, self.samples);
        self.results.provenance.load[0] = before;
        self.results.notes = [&self.said[..], &self.quality.notes()].concat();
        (self.watch.save)(&self.results).map_err(|source| MeasureError::Save { source })
    }
}

fn row(
    measurement: Measurement,
    candidate: Candidate,
    config: Config,
    metric: Metric,
    samples: Vec<Sample>,
    counters: Option<Counts>,
) -> Option<Row> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let mut seen: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    let also = samples.iter().flat_map(|sample| &sample.also).filter(|(_, value)| value.is_finite());
    for (name, value) in also {
        seen.entry(name).or_default().push(*value);
    }
    Some(Row {
        measurement,
        candidate,
        config,
        metric,
        stats: Stats::of(&values)?,
        samples: values,
        chosen: None,
        also: seen.into_iter().map(|(name, values)| (name.to_owned(), median(&values))).collect(),
        counters,
        flags: Vec::new(),
    })
}
