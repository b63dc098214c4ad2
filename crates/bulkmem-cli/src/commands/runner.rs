//! Runs measurements: shows progress, saves results as they are measured, and handles Ctrl-C.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bulkmem_measure::MeasureError;
use bulkmem_measure::engine::{Measure, Observer, Results, RunOptions, Validated};

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome, measure_failure, nothing_measured};
use crate::output::{self, Progress};
use crate::sink::Sink;
use crate::{interrupt, plain, results};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files<'f> {
    pub(super) json: Option<&'f Path>,
    /// The output for comma-separated values; `-` is stdout.
    pub(super) csv: Option<&'f Path>,
    /// The measured files: they are never written to as an output.
    pub(super) inputs: &'f [PathBuf],
}

/// Measures, saving to files as it goes, then shows the results, also those of an interrupted run.
pub(super) fn run(
    name: &'static str,
    measurements: &[&dyn Measure],
    counters: bool,
    files: Files<'_>,
    show: impl FnOnce(&Results) -> Result<(), Failure>,
) -> Outcome {
    let uncounted: Option<Vec<_>> = measurements.iter().map(|it| it.uncounted()).collect();
    if let Some(reason) = uncounted.filter(|_| counters).and_then(|reasons| reasons.first().copied()) {
        let failure = Failure::usage(format!("--counters would count nothing here: {reason}"));
        return Err(failure
            .help("clear, fill, copy, chunks, vm, persist, corun, reuse, choice, targets and all count"));
    }
    let measurements = Validated::new(measurements).map_err(measure_failure)?;
    let inputs: Vec<&Path> = files.inputs.iter().map(AsRef::as_ref).collect();
    let open = |path: Option<&Path>, replaces| {
        let file = path.filter(|path| *path != "-");
        file.map(|path| Sink::open(path, &inputs, replaces)).transpose()
    };
    let (mut json, mut csv) = (open(files.json, Some(Results::FORMAT))?, open(files.csv, None)?);
    if let (Some(Sink { file: Some(json), .. }), Some(Sink { file: Some(csv), .. })) = (&json, &csv)
        && json.replaces_the_same_as(csv)
    {
        return Err(Failure::usage("--output and --csv name the same file").help("name two files"));
    }
    let served = ActivePolicy::load()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new(name);
    let mut save = |found: &Results| {
        if let Some(sink) = &mut json {
            sink.save(plain::pretty_json(found)?, found)?;
        }
        if let Some(sink) = &mut csv {
            sink.save(results::csv(found)?, found)?;
        }
        Ok(())
    };
    let watch = Observer {
        progress: &mut |it| progress.update(it.done, it.left, &it.what),
        save: &mut save,
        stop: &stop,
    };
    // A command to measure may have arguments that are not Unicode.
    let command = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let options = RunOptions { command, counters };
    let found = measurements.measure(&served.policy, options, watch);
    drop(progress);
    let mut written = Ok(());
    for sink in [json, csv].into_iter().flatten() {
        match sink.finish() {
            Ok(None) => {}
            Ok(Some(note)) => output::note(&note)?,
            Err(error) => written = Err(error),
        }
    }
    if matches!(found, Err(MeasureError::Interrupted)) {
        return nothing_measured(&stop);
    }
    let found = found.map_err(measure_failure)?;
    show(&found)?;
    written?;
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted: only what was measured by then is shown")?;
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}
