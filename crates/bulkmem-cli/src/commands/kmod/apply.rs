//! `bulkmem kmod apply`.

use std::error::Error;
use std::path::PathBuf;

use bulkmem::machine::Machine;
use bulkmem_kmod::{Module, Plan, PreviousValues, Settings};
use bulkmem_measure::calibration::Profile;
use clap::Args;
use serde::Serialize;

use super::root::Root;
use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome, chain};
use crate::output::{self, Column, Table};
use crate::plain::plain;

/// Set the module's parameters from the profile
///
/// Sets all parameters or none: if the kernel refuses a value, the previous values are restored, and the error names the
/// parameter. If the module lacks a method of the profile, the nearest one that it has is used, and the reason is shown.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How each parameter is derived:
  method             the profile's choice for the largest total length, in calls
                     of a huge page; if the module lacks that method, the fastest
                     one in the profile that it has and that treats the cache
                     alike; else movnti for stores that bypass the cache, and
                     stock for all others
  threshold          the total length from which that (or another store that
                     bypasses the cache) is chosen
  cached_method      the choice for a huge page, or just below the threshold
  chunk              the shortest call of at least 2 MiB that is as fast as any,
                     if it takes less than 10 ms
  prefetch_distance  that of the profile, if prefetchw is used
  ignore_quirks      1 if movnti measured best, which overrules what is published

JSON: `profile`, `dry_run`, `parameters` (each with `name`, `before`, `after`, `why`; null: unknown or unchanged), `persisted` (the \
file, or null).")]
pub(super) struct ApplyArgs {
    /// The profile [default: that of the policy that programs use here]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Show the new values without setting them
    #[arg(long)]
    dry_run: bool,
    /// Also apply the values whenever the module is loaded: write /etc/modprobe.d/bulkmem.conf
    #[arg(long)]
    persist: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

#[derive(Serialize)]
struct Document {
    profile: PathBuf,
    dry_run: bool,
    parameters: Vec<Parameter>,
    persisted: Option<PathBuf>,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    before: Option<String>,
    after: Option<String>,
    why: String,
}

pub(super) fn run(args: &ApplyArgs) -> Outcome {
    let module = args.root.module();
    let (path, profile) = profile(args)?;
    let failure = |error: &(dyn Error + 'static), help: &str| {
        Failure::new(format!("{} cannot be applied: {}", path.display(), chain(error))).help(help)
    };
    let policy = profile.policy(Machine::current()).map_err(|error| {
        failure(&error, "run `bulkmem calibrate` on this machine, or name its profile: --profile FILE")
    })?;
    let plan = Plan::derive(&policy, &profile.clear_times())
        .map_err(|error| failure(&error, "run `bulkmem calibrate`, with `--op clear` or without --op"))?;
    let before = current(&module, args.dry_run)?;
    let mut persisted = None;
    if !args.dry_run {
        let set = module.set(&plan.settings).map_err(Failure::new)?;
        if args.persist {
            let origin = format!("from {} of {}", path.display(), profile.provenance.date);
            persisted = Some(persist(&module, &plan.settings, &plain(&origin), set)?);
        }
    }
    let parameters = plan.reasons.into_iter().map(|reason| Parameter {
        name: reason.parameter,
        before: before.iter().find(|(name, _)| *name == reason.parameter).map(|(_, value)| value.clone()),
        after: reason.value,
        why: reason.why,
    });
    let document =
        Document { profile: path, dry_run: args.dry_run, parameters: parameters.collect(), persisted };
    if args.json {
        output::print_json(&document)?;
    } else {
        output::print(&text(&document, &plan.settings, args, output::width()))?;
    }
    Ok(Exit::Done)
}

fn profile(args: &ApplyArgs) -> Result<(PathBuf, Profile), Failure> {
    let Some(path) = &args.profile else {
        return ActivePolicy::load()?.profile.ok_or_else(|| {
            Failure::new("there is no profile of this machine to apply")
                .help("run `bulkmem calibrate`, or name a profile: --profile FILE")
        });
    };
    let profile = Profile::load(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {}", path.display(), chain(&error))))?;
    Ok((path.clone(), profile))
}

/// Returns the present parameters; none if the module is not loaded, which only a dry run allows.
fn current(module: &Module, dry_run: bool) -> Result<Vec<(&'static str, String)>, Failure> {
    let settings = module.status().map_err(Failure::new)?.parameters;
    if settings.is_none() && !dry_run {
        module.require_loaded().map_err(|error| {
            Failure::new(error).help("`bulkmem kmod status` shows more; --dry-run works without the module")
        })?;
    }
    Ok(settings.map(|settings| settings.values()).unwrap_or_default())
}

/// Writes the parameters for later loads; if that fails, restores the present ones.
fn persist(
    module: &Module,
    settings: &Settings,
    origin: &str,
    set: PreviousValues,
) -> Result<PathBuf, Failure> {
    settings.save(module.root(), origin).map_err(|error| {
        let kept = match set.restore() {
            Ok(()) => "the previous parameters are restored".to_owned(),
            Err(stuck) => {
                format!("{stuck} could not be restored; `bulkmem kmod status` shows the present values")
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
    for it in &document.parameters {
        let or = |value: &Option<String>, other: &str| value.clone().unwrap_or_else(|| other.to_owned());
        table.row([it.name.to_owned(), or(&it.before, "–"), or(&it.after, "unchanged"), plain(&it.why)]);
    }
    let profile = document.profile.display();
    let mut lines = vec![match (&document.persisted, document.dry_run) {
        (_, true) => format!("These are the values from {profile}. Nothing was set (--dry-run)."),
        (None, false) => {
            format!("Set from {profile}, until the module is unloaded (--persist: also for later loads)")
        }
        (Some(file), false) => format!("Set from {profile}, and written to {}", file.display()),
    }];
    if args.dry_run && args.persist {
        let file = Settings::file(&args.root.root);
        lines.push(format!("{} would contain: {}", file.display(), settings.options_line()));
    }
    let lines = lines.iter().map(|line| output::wrapped(&plain(line), "", width) + "\n");
    table.render(width) + &lines.collect::<String>()
}
