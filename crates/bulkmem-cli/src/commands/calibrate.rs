//! `bulkmem calibrate`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bulkmem::policy::{Mode, Profile};
use bulkmem_measure::{CalibrateOptions, MeasureError, calibrate};
use serde::Serialize;

use super::choices::{self, ChoiceRow};
use super::{Outcome, measure_failure, nothing_measured};
use crate::args::CalibrateArgs;
use crate::failure::{Exit, Failure, chain};
use crate::output::{self, FAINT, Progress, duration, styled};
use crate::plain::plain;
use crate::{interrupt, provenance};

/// Where `--system` writes to.
const SYSTEM: &str = "/etc/bulkmem/profile.json";
/// More than a profile takes: whether there is room is found out before measuring.
const ROOM: usize = 1 << 20;

pub(super) fn run(args: &CalibrateArgs) -> Outcome {
    let options = options(args);
    options.validate().map_err(measure_failure)?;
    let target = if args.dry_run { None } else { Some(target(args)?) };
    if let Some(target) = &target {
        check_writable(target)?;
    }
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("calibrate");
    let mut save = |profile: &Profile| {
        let Some(target) = &target else { return };
        // What is measured by now is kept, should the process be killed. Where that fails it is tried again at the
        // end, and then it counts.
        _ = profile.save(target);
    };
    let mut notes = Vec::new();
    let mut follow = |it: &bulkmem_measure::Progress| match &it.note {
        Some(note) => notes.push(note.clone()),
        None => progress.update(it.done, it.left, &it.what),
    };
    let measured = calibrate(&options, &mut follow, &stop, &mut save);
    drop(progress);
    let profile = match measured {
        Ok(profile) => profile,
        Err(MeasureError::Interrupted) => return nothing_measured(&stop),
        Err(error) => return Err(measure_failure(error)),
    };
    let saved = target.as_deref().map(|target| save_to(target, &profile)).transpose();
    let shown = show(args, &profile, target.as_deref().filter(|_| saved.is_ok()), &notes);
    // That it could not be kept matters more than that it could not be shown.
    saved?;
    if stop.load(Ordering::Relaxed) && !profile.provenance.complete {
        output::note(
            "interrupted: what was measured by then was kept, and the profile is marked as incomplete",
        )?;
        return Ok(Exit::Interrupted);
    }
    shown.map(|()| Exit::Done)
}

fn options(args: &CalibrateArgs) -> CalibrateOptions {
    let mode = match args {
        CalibrateArgs { quick: true, .. } => Mode::Quick,
        CalibrateArgs { thorough: true, .. } => Mode::Thorough,
        _ => Mode::Default,
    };
    let mut options = CalibrateOptions::new(mode);
    options.budget = args.budget.unwrap_or(options.budget);
    options.max_length = args.max_size.unwrap_or(options.max_length);
    if !args.op.is_empty() {
        options.operations.clone_from(&args.op);
    }
    options
}

/// The file to write.
fn target(args: &CalibrateArgs) -> Result<PathBuf, Failure> {
    let path = if let Some(path) = &args.output {
        path.clone()
    } else if args.system {
        PathBuf::from(SYSTEM)
    } else if let Some(path) = std::env::var_os("BULKMEM_PROFILE").filter(|path| !path.is_empty()) {
        path.into()
    } else {
        Profile::user_path().ok_or_else(|| {
            Failure::new("there is no place for a profile: neither XDG_CONFIG_HOME nor HOME is set")
                .help("name the file: bulkmem calibrate --output FILE")
        })?
    };
    // The file that a link points to is replaced, not the link.
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

/// Whether the profile can be written there: found out before a minute is spent on measuring.
fn check_writable(path: &Path) -> Result<(), Failure> {
    if path.exists() && !path.is_file() {
        return Err(cannot_write(path, "it is not an ordinary file"));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if directory.exists() && !directory.is_dir() {
        return Err(cannot_write(path, format!("{} is not a folder", directory.display())));
    }
    let try_out = || {
        fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new().prefix(".bulkmem-").tempfile_in(directory)?;
        file.write_all(&vec![b' '; ROOM])?;
        file.as_file().sync_all()
    };
    try_out().map_err(|error| cannot_write(path, error))
}

fn save_to(path: &Path, profile: &Profile) -> Result<(), Failure> {
    profile.save(path).map_err(|error| cannot_write(path, chain(&error)))
}

fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot write the profile {}: {why}", path.display())).help(
        "name a file you may write: bulkmem calibrate --output FILE; BULKMEM_PROFILE=FILE makes the library use it",
    )
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    path: Option<&'a Path>,
    choices: Vec<ChoiceRow>,
    notes: &'a [String],
    profile: &'a Profile,
}

fn show(
    args: &CalibrateArgs,
    profile: &Profile,
    path: Option<&Path>,
    notes: &[String],
) -> Result<(), Failure> {
    let choices = choices::of(profile);
    if args.json {
        return Ok(output::print_json(&Document { path, choices, notes, profile })?);
    }
    let provenance = &profile.provenance;
    let mut text = format!("{}\n\n", plain(&provenance::cpu(&provenance.cpu)));
    text += &choices::text(&choices, output::width());
    for saturation in &profile.threads {
        text += &format!(
            "{} is fastest with {} threads from {} on.\n",
            saturation.operation,
            saturation.threads,
            output::size(saturation.from)
        );
    }
    let took = duration(std::time::Duration::from_secs_f64(provenance.seconds.max(0.0)));
    text += &format!("\n{}\n", styled(FAINT, format!("{} samples in {took}.", provenance.samples)));
    for note in notes {
        text += &format!("{}\n", output::wrapped(&format!("Note: {}", plain(note)), "", output::width()));
    }
    text += &match path {
        Some(path) => format!("Wrote {}\n", plain(&path.display().to_string())),
        None => "Wrote nothing.\n".to_owned(),
    };
    Ok(output::print(&text)?)
}
