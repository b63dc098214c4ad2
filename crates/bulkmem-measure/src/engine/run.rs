//! A run: one measurement after the other, with interleaved samples, saved as they are measured.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::machine::Machine;
use bulkmem::policy::{Basis, Choice, Policy};
use serde::Serialize;

use crate::engine::counters::{Counters, Counting, Counts};
use crate::engine::interleave::{self, Source, StopRule};
use crate::engine::quality::Quality;
pub(crate) use crate::engine::sampler::{LongSampler, OPERATIONS, SINGLE, Sample, Sampler, SamplerOf, Take};
use crate::engine::stats::{Stats, median};
use crate::engine::{
    Candidate, Check, Config, Finding, MeasureError, Measurement, Metric, Provenance, Results, Row,
    memory_left,
};

/// A measurement with its options.
pub trait Measure {
    /// The measurement that its rows belong to.
    fn measurement(&self) -> Measurement;

    /// Checks every precondition that can be checked before the first sample.
    ///
    /// # Errors
    /// The first obstacle, with its remedy.
    fn validate(&self) -> Result<(), MeasureError>;

    /// Estimates how long it takes on a usual machine, seconds. Progress is computed from it.
    fn seconds(&self) -> f64;

    /// Measures, and adds rows and findings to the run.
    ///
    /// # Errors
    /// If something that it needs is refused. What was measured by then stays in the run.
    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError>;
}

/// Callbacks for progress and for saving partial results, and a flag for cancellation.
#[allow(missing_debug_implementations, reason = "two callbacks and a flag")]
pub struct Observer<'a> {
    /// Receives the progress.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Receives the results so far, whenever a group of rows is complete. An error ends the run.
    pub save: &'a mut dyn FnMut(&Results) -> io::Result<()>,
    /// Ends the run before the next sample, once set.
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
        let mut run = Run::new(policy, options, observer, seconds);
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

/// How the share that is done is computed.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// By groups of candidates: how many there are, and how many are done.
    Groups(usize, usize),
    /// By time: the end, since the start of the run.
    Until(Duration),
}

/// A run in progress.
#[allow(missing_debug_implementations, reason = "it holds callbacks")]
pub struct Run<'a> {
    policy: &'a Policy,
    observer: Observer<'a>,
    results: Results,
    started: Instant,
    samples: u64,
    counting: Rc<Counting>,
    /// The texts of [`Run::note`].
    notes: Vec<String>,
    quality: Quality,
    /// The policy's choices in the configurations of the next group.
    choices: Vec<(Candidate, Config, Choice)>,
    measurement: Measurement,
    /// The seconds that all measurements, those that are done, and the current one are estimated to take.
    expected: [f64; 3],
    pace: Pace,
    /// When the current measurement began, since the start of the run.
    began: Duration,
    /// False if a measurement left something out for lack of time.
    all_measured: bool,
    /// When progress was last reported.
    reported: Option<Instant>,
}

impl<'a> Run<'a> {
    fn new(policy: &'a Policy, options: RunOptions, observer: Observer<'a>, seconds: f64) -> Run<'a> {
        let mut provenance = Provenance::collect(Machine::current().page_size, 0.0, 0);
        provenance.load.swap(0, 1);
        let results = Results {
            format: Results::FORMAT.to_owned(),
            version: Results::VERSION,
            provenance,
            command: options.command,
            rows: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            complete: false,
        };
        let mut run = Run {
            policy,
            observer,
            results,
            started: Instant::now(),
            samples: 0,
            counting: Rc::default(),
            notes: Vec::new(),
            quality: Quality::default(),
            choices: Vec::new(),
            measurement: Measurement::Clear,
            expected: [seconds.max(1e-3), 0.0, 0.0],
            pace: Pace::Groups(1, 0),
            began: Duration::ZERO,
            all_measured: true,
            reported: None,
        };
        run.notes.extend(memory_left().note());
        if options.counters {
            run.open_counters();
        }
        run
    }

    fn open_counters(&mut self) {
        match Counters::open() {
            Ok(counters) => {
                self.notes.extend(counters.incomplete());
                self.counting = Rc::new(Counting::with(counters));
            }
            Err(reason) => self.note(reason),
        }
    }

    fn begin(&mut self, measurement: Measurement, seconds: f64) {
        self.measurement = measurement;
        self.expected[2] = seconds;
        self.pace = Pace::Groups(1, 0);
        self.began = self.elapsed();
    }

    fn end(&mut self, seconds: f64) {
        self.expected[1] += seconds;
        self.expected[2] = 0.0;
    }

    fn finish(mut self) -> Result<Results, MeasureError> {
        if self.results.rows.is_empty() && self.stopped() {
            return Err(MeasureError::Interrupted);
        }
        self.results.complete = self.all_measured && !self.stopped();
        self.save()?;
        Ok(self.results)
    }

    /// The policy that is measured.
    pub(crate) fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// True once the user wants to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.observer.stop.load(Ordering::Relaxed)
    }

    /// The flag behind [`Run::stopped`]. Long samples read it at least once a second and then return
    /// [`MeasureError::Interrupted`].
    pub(crate) fn stop_flag(&self) -> &'a AtomicBool {
        self.observer.stop
    }

    /// Time since the start of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The state of counting, for samples that do more than the measured work.
    pub(crate) fn counting(&self) -> Rc<Counting> {
        self.counting.clone()
    }

    /// Sets how many groups the measurement has, from which progress is computed.
    pub(crate) fn expect_groups(&mut self, groups: usize) {
        self.pace = Pace::Groups(groups.max(1), 0);
    }

    /// Sets when the measurement ends, since the start of the run, from which progress is computed.
    pub(crate) fn expect_end(&mut self, end: Duration) {
        self.pace = Pace::Until(end);
    }

    /// Marks the results as incomplete although the run goes on to its end.
    pub(crate) fn leave_incomplete(&mut self) {
        self.all_measured = false;
    }

    /// Adds a note about what was left out, or what makes rows doubtful. A note that is there already is not repeated.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Sets the method that the policy chooses in a configuration of the next group: the row of the policy names it.
    pub(crate) fn chooses(&mut self, candidate: &Candidate, config: &Config, choice: Option<Choice>) {
        self.choices.extend(choice.map(|choice| (candidate.clone(), config.clone(), choice)));
    }

    /// Adds a conclusion from the rows. If each row has a single sample, adds a note instead that nothing follows.
    pub(crate) fn add_finding(&mut self, text: impl Into<String>) {
        if self.rows().all(|row| row.samples.len() < 2) {
            return self.note(SINGLE);
        }
        self.results.findings.push(Finding { measurement: self.measurement, text: text.into(), check: None });
    }

    /// Adds the check of a performance target.
    pub(crate) fn add_check(&mut self, text: String, check: Check) {
        self.results.findings.push(Finding { measurement: self.measurement, text, check: Some(check) });
    }

    /// How many rows there are, of all measurements.
    pub(crate) fn row_count(&self) -> usize {
        self.results.rows.len()
    }

    /// The rows from a number on.
    pub(crate) fn rows_from(&self, first: usize) -> impl Iterator<Item = &Row> {
        self.results.rows.iter().skip(first)
    }

    /// Changes the rows from a number on, and saves.
    ///
    /// # Errors
    /// If saving fails.
    pub(crate) fn amend_rows(
        &mut self,
        first: usize,
        change: impl FnOnce(&mut [Row]),
    ) -> Result<(), MeasureError> {
        change(self.results.rows.get_mut(first..).unwrap_or_default());
        self.save()
    }

    /// The rows of the current measurement.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.results.of(self.measurement)
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
        let part = match self.pace {
            Pace::Groups(groups, done) => (done as f64 + share) / groups as f64,
            Pace::Until(end) => {
                let whole = end.saturating_sub(self.began).as_secs_f64().max(1e-3);
                self.elapsed().saturating_sub(self.began).as_secs_f64() / whole
            }
        };
        let [all, past, current] = self.expected;
        let done = ((past + current * part.min(1.0)) / all).clamp(0.0, 1.0);
        let elapsed = self.started.elapsed();
        // The rest goes at the speed of what is done; in the beginning, at the estimated speed.
        let estimated = all * (1.0 - done);
        let observed = elapsed.as_secs_f64() * (1.0 - done) / done.max(1e-3);
        let trust = (done * 10.0).min(1.0);
        let left = Duration::from_secs_f64(estimated * (1.0 - trust) + observed * trust);
        (self.observer.progress)(&Progress {
            done,
            elapsed,
            left,
            what: format!("{} {what}", self.measurement),
            note: None,
        });
    }

    /// Samples a group of candidates, interleaved, `runs` times each after a warm-up. Then adds and saves the rows, and
    /// checks them for noise. `what` names the group for people.
    ///
    /// # Errors
    /// The first error of a sample, and if saving fails; what was sampled before stays.
    pub(crate) fn interleave<S: Take + ?Sized>(
        &mut self,
        what: &str,
        metric: Metric,
        runs: usize,
        samplers: &mut [SamplerOf<S>],
    ) -> Result<(), MeasureError> {
        self.quality.begin(self.results.rows.len());
        let (samples, outcome) = self.sample(what, metric, StopRule::fixed(runs), samplers.iter_mut());
        self.add_rows(what, metric, samplers, samples, outcome)
    }

    /// Samples a group of candidates a little, by the first rule, and then those that `front` selects by the medians of
    /// the first samples, by the second rule. Adds and saves rows as [`Run::interleave`] does. Returns how many
    /// candidates have no sample.
    ///
    /// # Errors
    /// As [`Run::interleave`].
    pub(crate) fn interleave_front(
        &mut self,
        what: &str,
        metric: Metric,
        [first, second]: [StopRule; 2],
        samplers: &mut [Sampler<'_>],
        front: impl Fn(&[Option<f64>]) -> Vec<usize>,
    ) -> Result<usize, MeasureError> {
        self.quality.begin(self.results.rows.len());
        let (mut samples, mut outcome) = self.sample(what, metric, first, samplers.iter_mut());
        if outcome.is_ok() {
            let values = |samples: &Vec<Sample>| samples.iter().map(|it| it.value).collect::<Vec<f64>>();
            let medians: Vec<Option<f64>> = samples
                .iter()
                .map(|samples| (!samples.is_empty()).then(|| median(&values(samples))))
                .collect();
            let chosen = front(&medians);
            let at_the_front =
                samplers.iter_mut().enumerate().filter(|(at, _)| chosen.contains(at)).map(|(_, it)| it);
            let (again, ended) = self.sample(what, metric, second, at_the_front);
            outcome = ended;
            let indices = (0..samplers.len()).filter(|at| chosen.contains(at));
            for (index, again) in indices.zip(again) {
                // The few samples that brought a candidate to the front are biased: they count only if there is nothing
                // else.
                if again.len() >= 3 || samples[index].is_empty() {
                    samples[index] = again;
                }
            }
        }
        let missing = samples.iter().filter(|samples| samples.is_empty()).count();
        self.add_rows(what, metric, samplers, samples, outcome)?;
        Ok(missing)
    }

    fn sample<'s, S: Take + ?Sized + 's>(
        &mut self,
        what: &str,
        metric: Metric,
        rule: StopRule,
        samplers: impl Iterator<Item = &'s mut SamplerOf<S>>,
    ) -> (Vec<Vec<Sample>>, Result<(), MeasureError>) {
        let mut group = Group { run: self, what, metric, samplers: samplers.collect() };
        let candidates = group.samplers.len();
        interleave::interleave(&mut group, candidates, rule)
    }

    /// Adds the rows of a group, and saves.
    fn add_rows<S: Take + ?Sized>(
        &mut self,
        what: &str,
        metric: Metric,
        samplers: &mut [SamplerOf<S>],
        samples: Vec<Vec<Sample>>,
        outcome: Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let mut rows = Vec::new();
        for (sampler, mut samples) in samplers.iter_mut().zip(samples) {
            let counts = match outcome {
                Ok(()) if !samples.is_empty() => self.count(sampler)?,
                _ => None,
            };
            let SamplerOf { candidate, config, .. } = sampler;
            let taken = samples.len();
            samples.retain(|sample| sample.value.is_finite());
            if samples.len() < taken {
                let name = &candidate.name;
                self.note(format!(
                    "{}: {what}: samples of {name} that are not numbers are left out",
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
        if let Pace::Groups(_, done) = &mut self.pace {
            *done += 1;
        }
        self.save()?;
        outcome
    }

    /// One more sample for each group of hardware counters, with these running.
    fn count<S: Take + ?Sized>(
        &mut self,
        sampler: &mut SamplerOf<S>,
    ) -> Result<Option<Counts>, MeasureError> {
        if !sampler.counted || self.stopped() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        for group in 0..self.counting.groups() {
            let (sample, reading) = self.counting.during(group, || sampler.sample.take(&mut |_| {}));
            match (sample, reading) {
                (Err(MeasureError::Interrupted), _) => return Ok(None),
                (Err(error), _) => return Err(error),
                (Ok(sample), Some(reading)) => counts.add(&reading, sample.operations()),
                (Ok(_), None) => {}
            }
        }
        Ok(counts.any())
    }

    /// Saves the results so far.
    fn save(&mut self) -> Result<(), MeasureError> {
        let Provenance { backing_page_size, load: [before, _], .. } = self.results.provenance;
        let seconds = self.started.elapsed().as_secs_f64();
        self.results.provenance = Provenance::collect(backing_page_size, seconds, self.samples);
        self.results.provenance.load[0] = before;
        self.results.provenance.policy = origin(self.policy);
        self.results.notes = [&self.notes[..], &self.quality.notes()].concat();
        (self.observer.save)(&self.results).map_err(|source| MeasureError::Save { source })
    }
}

/// A group of candidates in a run.
struct Group<'g, 'a, S: ?Sized> {
    run: &'g mut Run<'a>,
    what: &'g str,
    metric: Metric,
    samplers: Vec<&'g mut SamplerOf<S>>,
}

impl<S: Take + ?Sized> Source for Group<'_, '_, S> {
    type Sample = Sample;

    fn take(&mut self, candidate: usize, done: f64) -> Result<Sample, MeasureError> {
        let Group { run, what, samplers, .. } = self;
        let sampler = &mut *samplers[candidate];
        let doing = format!("{what}: {}", sampler.candidate.name);
        if run.reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
            run.say(&doing, done);
        }
        let sample = sampler.sample.take(&mut |more: &str| run.say(&format!("{doing}{more}"), done))?;
        run.samples += 1;
        Ok(sample)
    }

    fn cost(&self, sample: &Sample) -> f64 {
        if self.metric.higher_is_better() { 1.0 / sample.value } else { sample.value }
    }

    fn elapsed(&self) -> Duration {
        self.run.elapsed()
    }

    fn stopped(&self) -> bool {
        self.run.stopped()
    }
}

/// Describes the origin of a policy.
fn origin(policy: &Policy) -> String {
    let basis = match &policy.origin().basis {
        Basis::Profile { path } => {
            let path = path.as_ref().map_or("not saved".to_owned(), |path| path.display().to_string());
            format!("profile {path}")
        }
        Basis::Defaults { microarchitecture, .. } => format!("defaults for {microarchitecture}"),
        _ => "unknown".to_owned(),
    };
    let forced = &policy.origin().forced;
    let forced: Vec<String> =
        forced.iter().map(|(operation, choice)| format!("{operation}:{choice}")).collect();
    if forced.is_empty() { basis } else { format!("{basis}; forced: {}", forced.join(",")) }
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
