//! `bulkmem kmod apply`.

use std::path::PathBuf;

use bulkmem::machine::Machine;
use bulkmem_kmod::{Before, KernelError, Module, Settings};
use bulkmem_measure::calibration::{Plan, PlanError, Profile};
use clap::Args;
use serde::Serialize;

use super::{Outcome, Root};
use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, chain};
use crate::output::{self, Column, Table};
use crate::plain::plain;

/// Set the module's method, chunk and threshold as the profile says
///
/// All or nothing: where the kernel refuses a value, those that were set before are set back, and the error names the
/// parameter. What of the profile the module cannot do is mapped to the nearest that it can, and said.
#[derive(Args, Debug)]
#[command(after_long_help = "\
What follows from what:
  method             the profile's choice for the largest extents, in calls of
                     a huge page; where the module lacks that method, the one
                     that it has and the profile measured to be the fastest of
                     those that treat the cache alike; else movnti for stores
                     past the cache, and stock for all others
  threshold          the extent from which that (or another store past the
                     cache) is chosen
  cached_method      its choice for a huge page, or just below the threshold
  chunk              the shortest call from 2 MiB on that is as fast as any, if
                     it takes less than 10 ms
  prefetch_distance  the profile's, where prefetchw is used
  ignore_quirks      1 where movnti was measured to be best: that overrules
                     what is published

JSON: `profile`, `dry_run`, `parameters` (each with `name`, `before`, `after`, `why`; null: unknown or left), `persisted` (the file, or \
null).")]
pub(super) struct ApplyArgs {
    /// The profile [default: the one that serves here]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Show what would be set, and set nothing
    #[arg(long)]
    dry_run: bool,
    /// Have the module loaded so from now on: write /etc/modprobe.d/bulkmem.conf
    #[arg(long)]
    persist: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    profile: PathBuf,
    dry_run: bool,
    parameters: Vec<Line>,
    persisted: Option<PathBuf>,
}

/// A parameter.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    before: Option<String>,
    after: Option<String>,
    why: String,
}

pub(super) fn run(args: &ApplyArgs) -> Outcome {
    let module = args.root.module();
    let (path, profile) = profile(args)?;
    let plan = Plan::from_profile(&profile, Machine::current()).map_err(|error| {
        let text = format!("{} cannot be applied: {}", path.display(), chain(&error));
        match error {
            PlanError::NoRules => {
                Failure::new(text).help("run `bulkmem calibrate`, with `--op clear` or without --op")
            }
            _ => Failure::new(text)
                .help("run `bulkmem calibrate` on this machine, or name its profile: --profile FILE"),
        }
    })?;
    let before = current(&module, args.dry_run)?;
    let mut persisted = None;
    if !args.dry_run {
        let set = module.set(&plan.settings).map_err(Failure::new)?;
        if args.persist {
            let whence = format!("from {} of {}", path.display(), profile.provenance.date);
            persisted = Some(persist(&module, &plan.settings, &plain(&whence), set)?);
        }
    }
    let lines = plan.reasons.into_iter().map(|reason| Line {
        name: reason.parameter,
        before: before.iter().find(|(name, _)| *name == reason.parameter).map(|(_, value)| value.clone()),
        after: reason.value,
        why: reason.why,
    });
    let document = Document { profile: path, dry_run: args.dry_run, parameters: lines.collect(), persisted };
    if args.json {
        output::print_json(&document)?;
    } else {
        output::print(&text(&document, &plan.settings, args, output::width()))?;
    }
    Ok(Exit::Done)
}

fn profile(args: &ApplyArgs) -> Result<(PathBuf, Profile), Failure> {
    if let Some(path) = &args.profile {
        let profile = Profile::load(path)
            .map_err(|error| Failure::new(format!("cannot read {}: {}", path.display(), chain(&error))))?;
        return Ok((path.clone(), profile));
    }
    ActivePolicy::load()?.profile.ok_or_else(|| {
        Failure::new("there is no profile of this machine that could be applied")
            .help("run `bulkmem calibrate`, or name a profile: --profile FILE")
    })
}

/// What is set now; nothing where the module is not loaded and need not be.
fn current(module: &Module, dry_run: bool) -> Result<Vec<(&'static str, String)>, Failure> {
    match module.status().map_err(Failure::new)?.parameters {
        Some(settings) => Ok(settings.values()),
        None if dry_run => Ok(Vec::new()),
        None => {
            module.must_be_loaded().map_err(|error| {
                Failure::new(error).help("`bulkmem kmod status` tells more; --dry-run works without it")
            })?;
            Ok(Vec::new())
        }
    }
}

/// Writes what the module is loaded with; where that fails, the parameters are set back as well.
fn persist(module: &Module, settings: &Settings, whence: &str, set: Before) -> Result<PathBuf, Failure> {
    settings.persist(module.root(), whence).map_err(|error: KernelError| {
        let kept = match set.restore() {
            Ok(()) => "the parameters are as they were before".to_owned(),
            Err(stuck) => {
                format!("{stuck} could not be set back; `bulkmem kmod status` shows what is in force")
            }
        };
        Failure::new(format!("{}; {kept}", chain(&error))).help("run as root, or without --persist")
    })
}

fn text(document: &Document, settings: &Settings, args: &ApplyArgs, width: usize) -> String {
    let mut table = Table::new([
        Column::left("parameter"),
        Column::right("before"),
        Column::right("after"),
        Column::left("why").prose(),
    ]);
    for line in &document.parameters {
        let or = |value: &Option<String>, other: &str| value.clone().unwrap_or_else(|| other.to_owned());
        table.row([line.name.to_owned(), or(&line.before, "–"), or(&line.after, "left"), plain(&line.why)]);
    }
    let mut text = table.render(width);
    let mut say = |line: String| text += &format!("{}\n", output::wrapped(&plain(&line), "", width));
    let profile = document.profile.display();
    match (&document.persisted, document.dry_run) {
        (_, true) => {
            say(format!("This is what {profile} comes down to. Nothing was set (--dry-run)."));
            if args.persist {
                let file = Settings::file(&args.root.root);
                say(format!("{} would say: {}", file.display(), settings.options_line()));
            }
        }
        (None, false) => {
            say(format!("Set as {profile} says, until the module is unloaded (--persist: for later loads)"))
        }
        (Some(file), false) => say(format!("Set as {profile} says, and written to {}", file.display())),
    }
    text
}
