//! `bulkmem calibrate`.

mod lock;
mod target;

use crate::parsers::{operation, size};
use clap::Args;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bulkmem::Operation;
use bulkmem_measure::calibration::{Mode, Profile};
use bulkmem_measure::{CalibrateOptions, Kept, MeasureError, calibrate, is_heavy};
use serde::Serialize;

use self::target::{Saved, Target, Unmerged};
use super::choices::{self, ChoiceRow};
use crate::active_policy::evidence_of;
use crate::failure::{Exit, Failure, Outcome, measure_failure, nothing_measured};
use crate::output::{self, FAINT, Progress, duration, styled};
use crate::plain::plain;
use crate::{interrupt, provenance};

/// Measure this machine and write its profile, which the library then follows
///
/// Takes at most a minute (--quick: ten seconds; --thorough: ten minutes). Operations that were measured to the end replace
/// those of the profile, the others stay; the profile before is kept as profile.json.old. Ctrl-C keeps the operations that
/// are measured by then; a second Ctrl-C ends the command immediately and keeps nothing new. For figures worth keeping, let
/// the machine do nothing else: rules that were measured under a lighter load are not replaced.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `path` (where the profile was written, or null), `choices` (each with `operation`, `intent`, `from`, `method`, \
`parameters`, `gb_per_s` (slowest and fastest), `times_c_library`, `reason`), `notes` (what was left out and why), `profile` (as \
in the file).")]
pub(crate) struct CalibrateArgs {
    /// Take at most 10 seconds
    #[arg(long, conflicts_with = "thorough")]
    pub(crate) quick: bool,
    /// Take ten minutes: more lengths, more parameters, more samples
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Only these operations [default: all]; what the profile has of the others stays
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = operation())]
    pub(crate) op: Vec<Operation>,
    /// The largest length to measure [default: 1G; with --thorough 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Write the profile to this file
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub(crate) output: Option<PathBuf>,
    /// Write the profile for every user of this machine: /etc/bulkmem/profile.json
    #[arg(long)]
    pub(crate) system: bool,
    /// Replace rules that were measured under a lighter load
    #[arg(long)]
    pub(crate) force: bool,
    /// Measure and show what would be chosen, but write nothing
    #[arg(long, conflicts_with_all = ["output", "system"])]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The time it may take
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, hide = true)]
    pub(crate) budget: Option<Duration>,
}

/// Where `--system` writes to.
const SYSTEM: &str = "/etc/bulkmem/profile.json";
/// Names the policy file.
const VARIABLE: &str = "BULKMEM_PROFILE";

pub(super) fn run(args: &CalibrateArgs) -> Outcome {
    let options = options(args);
    options.validate().map_err(measure_failure)?;
    let mut target = if args.dry_run { None } else { Some(Target::open(&path(args)?, args.force)?) };
    if let Some(target) = &target {
        target.refuse_heavier_load(&options.operations)?;
    }
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("calibrate");
    let mut save = |profile: &Profile| {
        let Some(target) = &mut target else { return };
        // What is measured by now is kept, should the process be killed. Where that fails it is tried again at the
        // end, and then it counts.
        _ = target.save(profile);
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
    let saved = target.as_mut().map(|target| target.finish(&profile)).transpose();
    let shown = show(args, &profile, saved.as_ref().ok().and_then(Option::as_ref), &notes);
    // That it could not be kept matters more than that it could not be shown.
    let saved = saved?;
    warn_of_load(&profile)?;
    if let (Some(target), Some(saved)) = (&target, &saved) {
        say(target, saved)?;
    }
    let finished = |operation| profile.coverage.operations.iter().any(|it| it.operation == operation);
    if stop.load(Ordering::Relaxed) && !options.operations.iter().copied().all(finished) {
        output::note("interrupted: the operations that were not measured to the end are marked as such")?;
        return Ok(Exit::Interrupted);
    }
    shown?;
    match saved.and_then(|saved| saved.unmerged) {
        Some(Unmerged { path, why, help }) => {
            let path = path.display();
            Err(Failure::new(format!("the profile was not replaced by what is in {path}: {why}")).help(help))
        }
        None => Ok(Exit::Done),
    }
}

/// Says what was kept, and where.
fn say(target: &Target, saved: &Saved) -> Result<(), Failure> {
    let path = target.path().display();
    let unfinished: Vec<&str> = saved
        .kept
        .iter()
        .filter(|(_, why)| *why == Kept::Unfinished)
        .map(|(operation, _)| operation.name())
        .collect();
    if !unfinished.is_empty() {
        let names = unfinished.join(", ");
        output::note(&format!("not measured to the end: {names}; {path} keeps what it has of that"))?;
    }
    if saved.written.is_none() && target.has_previous() {
        output::note(&format!("{path} is unchanged"))?;
    }
    if let Some(unmerged) = &saved.unmerged {
        output::note(&format!("what was measured is in {}", unmerged.path.display()))?;
    }
    Ok(())
}

/// Warns if other processes disturbed the calibration.
fn warn_of_load(profile: &Profile) -> Result<(), Failure> {
    let loads = profile.coverage.operations.iter().filter_map(|it| Some((it.operation, it.load.as_ref()?)));
    let heavy: Vec<_> = loads.filter(|(_, load)| is_heavy(load)).collect();
    let Some((_, worst)) = heavy.iter().max_by(|a, b| a.1.others.total_cmp(&b.1.others)) else {
        return Ok(());
    };
    let names: Vec<&str> = heavy.iter().map(|(operation, _)| operation.name()).collect();
    Ok(output::warn(&format!(
        "other processes used {} while {} was measured: stop them and calibrate again",
        provenance::load(worst),
        names.join(", ")
    ))?)
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

/// The evidence to write; the policy file has the same name but for its extension.
fn path(args: &CalibrateArgs) -> Result<PathBuf, Failure> {
    let (path, given) = if let Some(path) = &args.output {
        (path.clone(), "--output")
    } else if args.system {
        return Ok(PathBuf::from(SYSTEM));
    } else if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        (path.into(), VARIABLE)
    } else {
        let policy = bulkmem::policy::user_path().ok_or_else(|| {
            Failure::new("there is no place for a profile: neither XDG_CONFIG_HOME nor HOME is set")
                .help("name the file: bulkmem calibrate --output FILE.json")
        })?;
        return Ok(evidence_of(&policy));
    };
    match path.extension().and_then(OsStr::to_str) {
        Some("policy") => Ok(evidence_of(&path)),
        // Programs would refuse to load the evidence.
        Some("json") if given != VARIABLE => Ok(path),
        _ => Err(Failure::usage(format!("{given} {} does not end in .policy", path.display())).help(
            "calibrate writes FILE.policy, which programs load and BULKMEM_PROFILE names, and FILE.json, the evidence",
        )),
    }
}

fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot write the profile {}: {why}", path.display())).help(
        "name a file you may write: bulkmem calibrate --output FILE.json; BULKMEM_PROFILE=FILE.policy makes programs use it",
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
    saved: Option<&Saved>,
    notes: &[String],
) -> Result<(), Failure> {
    let choices = choices::of(profile);
    let written = saved.and_then(|saved| saved.written.as_ref());
    let path = written.map(|(path, _)| path.as_path());
    if args.json {
        let profile = written.map_or(profile, |(_, written)| written);
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
    let Some((path, written)) = written else {
        text += "Wrote nothing.\n";
        return Ok(output::print(&text)?);
    };
    text += &format!("Wrote {}\n", plain(&path.display().to_string()));
    if let Some(backup) = saved.and_then(|saved| saved.backup.as_ref()) {
        text += &format!("The profile before is in {}\n", plain(&backup.display().to_string()));
    }
    let measured = |operation| profile.rules.iter().any(|rule| rule.operation == operation);
    let kept = |operation: &Operation| {
        !measured(*operation) && written.rules.iter().any(|rule| rule.operation == *operation)
    };
    let kept: Vec<&str> = Operation::ALL.iter().filter(|it| kept(it)).map(|it| it.name()).collect();
    if !kept.is_empty() {
        text += &format!("Its rules for {} stay: they were not measured again.\n", kept.join(", "));
    }
    Ok(output::print(&text)?)
}
