//! `bulkmem calibrate`.

mod target;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bulkmem::Durability::{CachesIncluded, FlushToMemory};
use bulkmem::{Durability, Operation};
use bulkmem_measure::calibration::{Mode, Profile, Saturation};
use bulkmem_measure::{CalibrateOptions, Kept, MeasureError, calibrate, is_heavy};
use clap::Args;
use serde::Serialize;

use self::target::Target;
use super::choices::{self, ChoiceRow};
use super::placement::PlacementArgs;
use crate::active_policy::profile_of;
use crate::failure::{Exit, Failure, Outcome, measure_failure, nothing_measured, show};
use crate::output::{self, Progress, duration, faint, size, wrapped};
use crate::parsers::{given_or, one_of, operation, size as parse_size, time};
use crate::plain::plain;
use crate::{interrupt, provenance};

const SYSTEM: &str = "/etc/bulkmem/profile.json";
const VARIABLE: &str = "BULKMEM_PROFILE";

/// Measure this machine, and write its policy file, which programs use, and its profile
///
/// Takes at most a minute (--quick: ten seconds; --thorough: ten minutes). Operations that were measured completely replace
/// those of the present profile; the others stay. Copies of the previous files are kept with the extension .old. Ctrl-C
/// keeps the operations measured so far; a second Ctrl-C exits immediately and keeps nothing new. For the best results
/// leave the machine idle: rules that were measured under a lighter load are not replaced, nor are those for greater lengths than
/// --max-size.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `path` (of the profile, or null), `choices` (each with `operation`, `intent`, `from`, `method`, `parameters`, `gb_per_s` \
(slowest and fastest), `times_c_library`, `reason`), `notes` (what was left out, and why), `profile` (as in the file).")]
pub(crate) struct CalibrateArgs {
    /// Take at most 10 seconds
    #[arg(long, conflicts_with = "thorough")]
    quick: bool,
    /// Take ten minutes: more lengths, more parameters, more samples
    #[arg(long)]
    thorough: bool,
    /// Measure only these operations, and keep the rules for the others [default: all]
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = operation())]
    op: Vec<Operation>,
    /// Largest length to measure [default: 1G; with --thorough 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Storage that survives a power failure, for the operations that persist. Written to the policy file; replaces the
    /// variable BULKMEM_EADR, which is no longer read [default: as in the present policy file, else flush-to-memory]
    #[arg(long, value_name = "STORAGE", value_parser = one_of(DURABILITY))]
    durability: Option<Durability>,
    /// Write the profile to this file, and the policy file next to it
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    output: Option<PathBuf>,
    /// Write the profile for all users of this machine: /etc/bulkmem/profile.json
    #[arg(long)]
    system: bool,
    /// Replace rules that were measured under a lighter load, or for greater lengths
    #[arg(long)]
    force: bool,
    /// Measure and show the choices, but write nothing
    #[arg(long, conflicts_with_all = ["output", "system"])]
    dry_run: bool,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Longest duration
    #[arg(long, value_name = "TIME", value_parser = time, hide = true)]
    budget: Option<Duration>,
}

const DURABILITY: &[(&str, &str, Durability)] = &[
    (FlushToMemory.name(), "Memory only (ADR): every cache line is written back", FlushToMemory),
    (
        CachesIncluded.name(),
        "Caches too (eADR, GPF): a fence is enough. Elsewhere, a power failure loses data",
        CachesIncluded,
    ),
];

pub(super) fn run(args: &CalibrateArgs) -> Outcome {
    args.placement.apply()?;
    let options = options(args);
    options.validate().map_err(measure_failure)?;
    let open = || Target::open(&path(args)?, &options.operations, args.max_size, args.force);
    let mut target = (!args.dry_run).then(open).transpose()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("calibrate");
    let mut save = |profile: &Profile| {
        // Keeps what is measured so far if the process is killed. A failure is reported when this is repeated at the end.
        _ = target.as_mut().map(|target| target.save(profile));
    };
    let mut notes = Vec::new();
    let mut observe = |it: &bulkmem_measure::Progress| match &it.note {
        Some(note) => notes.push(note.clone()),
        None => progress.update(it.done, it.left, &it.what),
    };
    let measured = calibrate(&options, &mut observe, &stop, &mut save);
    drop(progress);
    let profile = match measured {
        Err(MeasureError::Interrupted) => return nothing_measured(&stop),
        measured => measured.map_err(measure_failure)?,
    };
    let saved = target.as_mut().map(|target| target.finish(&profile)).transpose();
    let written = saved.as_ref().ok().and_then(Option::as_ref).and_then(|saved| saved.written.as_ref());
    let shown = show_choices(args, &profile, target.as_ref().zip(written), &notes);
    // Failing to save is reported before failing to show.
    let saved = saved?;
    warn_of_emulator(&profile)?;
    warn_of_load(&profile)?;
    if let (Some(target), Some(saved)) = (&target, &saved) {
        let path = target.path.display();
        let unfinished = saved.kept_because(Kept::Unfinished);
        if !unfinished.is_empty() {
            output::note(&format!("not measured completely: {unfinished}; {path} keeps its rules for that"))?;
        }
        let longer = saved.kept_because(Kept::Longer);
        if !longer.is_empty() {
            output::note(&format!(
                "measured only at shorter lengths than before: {longer}; {path} keeps its rules for that; calibrate when the machine \
                 is idle, or --force replaces them"
            ))?;
        }
        if saved.written.is_none() && target.previous.is_some() {
            output::note(&format!("{path} is unchanged"))?;
        }
        if let Some((unmerged, _)) = &saved.unmerged {
            output::note(&format!("the new measurements are in {}", unmerged.display()))?;
        }
    }
    let finished = |operation| profile.coverage.operations.iter().any(|it| it.operation == operation);
    if stop.load(Ordering::Relaxed) && !options.operations.iter().copied().all(finished) {
        output::note("interrupted: operations that were not measured completely are marked as such")?;
        return Ok(Exit::Interrupted);
    }
    shown?;
    saved.and_then(|saved| saved.unmerged).map_or(Ok(Exit::Done), |(_, why)| Err(why))
}

fn warn_of_emulator(profile: &Profile) -> Result<(), Failure> {
    let Some(emulator) = &profile.provenance.emulator else { return Ok(()) };
    Ok(output::warn(&format!(
        "measured under the emulator {emulator}, whose times say nothing about a processor: programs use this policy file only \
         if BULKMEM_PROFILE names it"
    ))?)
}

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
    options.operations = given_or(args.op.clone(), options.operations);
    options.durability = args.durability;
    options
}

/// Returns the path of the profile; the policy file differs in the extension.
fn path(args: &CalibrateArgs) -> Result<PathBuf, Failure> {
    let variable = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let (path, given) = match (&args.output, variable) {
        (Some(path), _) => (path.clone(), "--output"),
        _ if args.system => (SYSTEM.into(), "--system"),
        (None, Some(path)) => (path.into(), VARIABLE),
        (None, None) => {
            let path = bulkmem::policy::user_path().ok_or_else(|| {
                Failure::new("there is no folder for a profile: neither XDG_CONFIG_HOME nor HOME is set")
                    .help("name the file: bulkmem calibrate --output FILE.json")
            });
            (path?, "")
        }
    };
    match path.extension().and_then(OsStr::to_str) {
        Some("policy") => Ok(profile_of(&path)),
        // Programs would refuse to load a profile.
        Some("json") if given != VARIABLE => Ok(path),
        _ => Err(Failure::usage(format!("{given} {} does not end in .policy", path.display())).help(
            "calibrate writes FILE.policy, which programs load and BULKMEM_PROFILE names, and FILE.json, the profile",
        )),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    path: Option<&'a Path>,
    choices: Vec<ChoiceRow>,
    notes: &'a [String],
    profile: &'a Profile,
}

/// Shows the choices; `written` is the target with the profile that was written to it.
fn show_choices(
    args: &CalibrateArgs,
    profile: &Profile,
    written: Option<(&Target, &Profile)>,
    notes: &[String],
) -> Outcome {
    let (path, written_profile) = written.map(|(target, written)| (target.path.as_path(), written)).unzip();
    let choices = choices::of(profile);
    let document = Document { path, choices, notes, profile: written_profile.unwrap_or(profile) };
    show(args.json, &document, |width| {
        let provenance = &profile.provenance;
        let mut text = format!("{}\n\n", plain(&provenance::cpu(&provenance.cpu)));
        text += &choices::text(&document.choices, width);
        for Saturation { operation, from, threads } in &profile.threads {
            text += &format!("{operation} is fastest with {threads} threads from {} on.\n", size(*from));
        }
        let took = duration(Duration::from_secs_f64(provenance.seconds.max(0.0)));
        text += &format!("\n{}", faint(&format!("{} samples in {took}.", provenance.samples), width));
        for note in notes {
            text += &format!("{}\n", wrapped(&format!("Note: {}", plain(note)), "", width));
        }
        let Some((target, written)) = written else { return text + "Wrote nothing.\n" };
        text += &format!("Wrote {}\n", plain(&target.path.display().to_string()));
        if let Some(backup) = &target.backup {
            text += &format!("The previous profile is in {}\n", plain(&backup.display().to_string()));
        }
        let has_rules =
            |profile: &Profile, operation| profile.rules.iter().any(|it| it.operation == operation);
        let kept = |it: &Operation| !has_rules(profile, *it) && has_rules(written, *it);
        let kept: Vec<&str> = Operation::ALL.iter().filter(|it| kept(it)).map(|it| it.name()).collect();
        if !kept.is_empty() {
            text += &format!("Its rules for {} stay: they were not measured again.\n", kept.join(", "));
        }
        text
    })
}
