//! Measuring with somebody who watches: progress, files that are saved as measured, and Ctrl-C.

use std::path::Path;
use std::sync::atomic::Ordering;

use bulkmem::policy::Policy;
use bulkmem_measure::MeasureError;
use bulkmem_measure::suite::{Measure, Results, Watch, measure, measure_counting};

use super::{Outcome, measure_failure, nothing_measured};
use crate::failure::{Exit, Failure};
use crate::output::{self, Progress};
use crate::served::Served;
use crate::{interrupt, results};

/// Measures, saving to the files named (- is no file) as it goes, then shows what was found; also where it was
/// interrupted.
pub(super) fn follow(
    name: &'static str,
    measurements: &[&dyn Measure],
    json: Option<&Path>,
    csv: Option<&Path>,
    show: impl FnOnce(&Results) -> Result<(), Failure>,
) -> Outcome {
    follow_with(measure, name, measurements, json, csv, show)
}

/// The same, with what the hardware counts.
pub(super) fn follow_counting(
    name: &'static str,
    measurements: &[&dyn Measure],
    json: Option<&Path>,
    csv: Option<&Path>,
    show: impl FnOnce(&Results) -> Result<(), Failure>,
) -> Outcome {
    follow_with(measure_counting, name, measurements, json, csv, show)
}

/// What measures.
type Measuring =
    for<'a> fn(&[&dyn Measure], &'a Policy, Vec<String>, Watch<'a>) -> Result<Results, MeasureError>;

fn follow_with(
    measure: Measuring,
    name: &'static str,
    measurements: &[&dyn Measure],
    json: Option<&Path>,
    csv: Option<&Path>,
    show: impl FnOnce(&Results) -> Result<(), Failure>,
) -> Outcome {
    for measurement in measurements {
        measurement.validate().map_err(measure_failure)?;
    }
    // A file that can't be written is found out before measuring.
    let sink =
        |path: Option<&Path>| path.filter(|path| !is_stdout(path)).map(results::Sink::create).transpose();
    let (json, csv) = (sink(json)?, sink(csv)?);
    let served = Served::load()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new(name);
    let mut save = |found: &Results| {
        if let Some(sink) = &json {
            sink.write(results::json(found)?.as_bytes())?;
        }
        if let Some(sink) = &csv {
            sink.write(results::csv(found)?.as_bytes())?;
        }
        Ok(())
    };
    let watch = Watch {
        progress: &mut |it| progress.update(it.done, it.left, &it.what),
        save: &mut save,
        stop: &stop,
    };
    // What is no Unicode is part of a command to measure, and not ours; it is kept as far as it can be shown.
    let command = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let found = measure(measurements, &served.policy, command, watch);
    drop(progress);
    let found = match found {
        Ok(found) => found,
        Err(MeasureError::Interrupted) => return nothing_measured(&stop),
        Err(error) => return Err(measure_failure(error)),
    };
    show(&found)?;
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted: only what was measured by then is shown")?;
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// Whether a path means stdout.
pub(super) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
