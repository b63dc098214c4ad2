//! `bulkmem kmod`: the Linux module.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use bulkmem::machine::Machine;
use bulkmem_kmod::{
    CopyCounters, Counters, DeviceState, Flushcache, HINT_PATH, MEMORY_PATH, Module, Plan, Reason, Settings,
    Status, unhint_cgroup,
};
use bulkmem_measure::calibration::Profile;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome, chain, show};
use crate::output::{BAD, Column, GOOD, Table, faint, pairs, print_raw, section, size, styled, wrapped};
use crate::plain::plain;

/// Show the state of the Linux module, or set its parameters from the profile
///
/// The module clears huge pages at page faults with the method that measured best here, on unmodified kernels. Its device
/// /dev/bulkmem-memory gives memory of a chosen cache attribute. See docs/kernel/README.md.
///
/// A process declares memory that it is about to touch as one range through the library (bulkmem_kmod::BulkHint). For a
/// program that does not, `bulkmem run --bulk-hint` declares all its memory, and `bulkmem kmod hint-cgroup` that of a control
/// group.
#[derive(Args, Debug)]
#[command(subcommand_value_name = "COMMAND")]
pub(crate) struct KmodArgs {
    #[command(subcommand)]
    command: KmodCommand,
}

#[derive(Debug, Subcommand)]
enum KmodCommand {
    Status(StatusArgs),
    Apply(ApplyArgs),
    HintCgroup(HintCgroupArgs),
}

pub(super) fn run(args: &KmodArgs) -> Outcome {
    match &args.command {
        KmodCommand::Status(args) => status(args),
        KmodCommand::Apply(args) => apply(args),
        KmodCommand::HintCgroup(args) => hint_cgroup(args),
    }
}

/// Show whether the module is active, its parameters, and its counters
///
/// Exits with 1 if the module is not loaded or its livepatch is not in force, and says what to do.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters:
  extents  contiguous ranges that the method cleared
  pages    pages of 4 KiB; bytes: the same in bytes
  ms       the time that this took, interruptions included
  hinted   extents whose total length came from a process's hint
  longest  most bytes between two points at which the kernel may reschedule;
           write 0 to METHOD/longest in /sys/class/misc/bulkmem to start again

The kernel clears the pages around the faulting address last, in its own way; they count as stock. `faults` counts huge pages for \
page faults, `skipped` those below the threshold, which cached_method clears. Memory of /dev/bulkmem-memory counts only for its method.

Copies of huge pages have their own counters: `faults` counts huge pages copied, `skipped` those below copy_threshold, which \
copy_cached_method copies, `redone` those that the kernel copied because the method met an exception, `failed` those not copied because \
of a hardware error. The pages around the written address count as stock.

JSON: `state` (absent, unpatched, enabling, enabled, disabling, disabled, superseded), `kernel`, `installed` (the module's file, or null), \
`loaded`, `hint_device` and `memory_device` (present, disabled by the parameter of this name, missing in /dev, or not_loaded), `livepatch` (`enabled`, `transition`), `superseded_by` (another livepatch, or null), `taint`, `kernel_taint`, `parameters` (`method`, `cached_method`, \
`threshold`, `chunk`, `prefetch_distance`, `ignore_quirks`, `copy_method`, `copy_cached_method`, `copy_threshold`, `automatic`), `available`, `copy_available`, `counters` (`faults`, `skipped`, `hints`, \
`hinted_processes`, `unhinted_processes`, `methods`: each with `method`, `extents`, `pages`, `bytes`, `ns`, `hinted`, `longest`), `copies` (`faults`, `skipped`, `redone`, `failed`, `methods`: each with `method`, `extents`, `bytes`), `hinted_cgroups` \
(each with `id`, `path`), `persisted`, `flushcache` (`replaced`, `method`, `small_method`, `threshold`, `methods`: each with `method`, \
`calls`, `bytes`; copies to persistent memory).")]
struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print Prometheus's text format, for the textfile collector of node_exporter
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// The folder above /sys, /proc, /etc and /lib, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

#[derive(Serialize)]
struct StatusDocument<'s> {
    state: &'static str,
    #[serde(flatten)]
    status: &'s Status,
}

fn status(args: &StatusArgs) -> Outcome {
    let module = Module::with_root(&args.root);
    let status = module.status().map_err(Failure::new)?;
    let (state, meaning) = state_of(&status);
    if args.prometheus {
        print_raw(status.prometheus().as_bytes())?;
    } else if args.json || status.loaded {
        show(args.json, &StatusDocument { state, status: &status }, |width| {
            status_text(&meaning, &status, width)
        })?;
    }
    require_in_force(&module, &status).map(|()| Exit::Done)
}

/// Returns an error that says what to do, unless the module clears huge pages now.
fn require_in_force(module: &Module, status: &Status) -> Result<(), Failure> {
    module.require_loaded().map_err(|error| Failure::new(error).help(how_to_load(status)))?;
    if ["enabled", "enabling"].contains(&state_of(status).0) {
        return Ok(());
    }
    let help = "see \"Removing it\" and \"With other software\" in docs/kernel/install.md";
    Err(Failure::new("the module is loaded, but its livepatch is not in force").help(help))
}

/// Hint the processes of a control group, such as a virtual machine's or a service's
///
/// From now on, the kernel clears all huge pages of the processes in the control group, and in those below it, as parts of
/// large ranges. The hint ends with the control group, with --remove, or when the module is unloaded. `bulkmem kmod status`
/// lists the hinted control groups. Needs root. See docs/kernel/callers.md.
#[derive(Args, Debug)]
struct HintCgroupArgs {
    /// Folder of a control group of version 2, such as /sys/fs/cgroup/machine.slice
    path: PathBuf,
    /// Withdraw the hint
    #[arg(long)]
    remove: bool,
}

fn hint_cgroup(args: &HintCgroupArgs) -> Outcome {
    if args.remove {
        unhint_cgroup(&args.path).map_err(Failure::new)?;
        return Ok(Exit::Done);
    }
    let module = Module::running();
    require_in_force(&module, &module.status().map_err(Failure::new)?)?;
    bulkmem_kmod::hint_cgroup(&args.path).map_err(Failure::new)?;
    Ok(Exit::Done)
}

/// Hints this process, and the programs that it executes, as a whole.
pub(super) fn hint_process() -> Result<(), Failure> {
    let module = Module::running();
    require_in_force(&module, &module.status().map_err(Failure::new)?)?;
    bulkmem_kmod::hint_process().map_err(Failure::new)
}

fn how_to_load(status: &Status) -> String {
    match (&status.installed, status.kernel.as_str()) {
        (Some(file), _) => format!("it is installed as {}: run `modprobe bulkmem` as root", file.display()),
        (None, "") => "build it with `make -C kmod`, see docs/kernel/README.md".to_owned(),
        (None, kernel) => format!(
            "it is not installed for this kernel, {kernel}: `make install-kmod` builds and installs it for kernels 5.10 to \
             7.3 whose headers are installed"
        ),
    }
}

/// Returns the state of the module's livepatch: its name, and its meaning.
fn state_of(status: &Status) -> (&'static str, String) {
    let inactive = || {
        let inactive = styled(BAD, "loaded, but not active: the kernel clears huge pages in its own way");
        format!("{inactive}; `rmmod bulkmem` and `modprobe bulkmem` activate it")
    };
    let livepatch = status.livepatch.map(|patch| (patch.enabled, patch.transition));
    match (livepatch, &status.superseded_by) {
        _ if !status.loaded => ("absent", styled(BAD, "not loaded")),
        (None, Some(other)) => {
            let inactive = styled(BAD, "loaded, but not active");
            let other = plain(other);
            ("superseded", format!("{inactive}: the livepatch {other} has probably replaced bulkmem's; `rmmod bulkmem` and `modprobe bulkmem` activate it again"))
        }
        (Some((true, false)), Some(other)) => {
            let inactive = styled(BAD, "enabled, but not active");
            let other = plain(other);
            ("superseded", format!("{inactive}: the livepatch {other}, loaded later, replaces the same function"))
        }
        (None, None) => ("unpatched", inactive()),
        (Some((false, false)), _) => ("disabled", inactive()),
        (Some((true, false)), None) => {
            ("enabled", styled(GOOD, "active: bulkmem clears the huge pages of page faults"))
        }
        (Some((true, true)), _) => (
            "enabling",
            "being activated: the kernel moves each process from its own clearing to bulkmem's as soon as it can".into(),
        ),
        (Some((false, true)), _) => (
            "disabling",
            "being deactivated: the kernel moves each process back to its own clearing; then `rmmod bulkmem` works".into(),
        ),
    }
}

fn status_text(state: &str, status: &Status, width: usize) -> String {
    let mut text = section("Module", &pairs(&about(state, status), width), width);
    if let Some(settings) = &status.parameters {
        let available: Vec<&str> = status.available.iter().map(|method| method.name()).collect();
        let copies: Vec<&str> = status.copy_available.iter().map(|method| method.name()).collect();
        let available =
            format!("This processor can clear by {}; copy by {}.", available.join(", "), copies.join(", "));
        let available = faint(&available, width);
        text += &section("Parameters", &(parameters(settings, width) + &available), width);
    }
    if let Some(found) = &status.counters {
        let sum = format!(
            "{} huge pages were cleared for page faults, {} of them below the threshold (by cached_method); {} \
             hint{} active. {}",
            found.faults,
            found.skipped,
            found.hints,
            if found.hints == 1 { " is" } else { "s are" },
            hinted_processes(found),
        );
        let table = Table::of(&found.methods)
            .column(Column::left("method"), |it| it.method.to_string())
            .column(Column::right("extents"), |it| it.extents.to_string())
            .column(Column::right("pages"), |it| it.pages.to_string())
            .column(Column::right("bytes"), |it| it.bytes.to_string())
            .column(Column::right("").optional(1), |it| rounded(it.bytes))
            .column(Column::right("ms").optional(2), |it| format!("{:.1}", it.ns as f64 / 1e6))
            .column(Column::right("hinted"), |it| it.hinted.to_string())
            .column(Column::right("longest").optional(3), |it| it.longest.to_string());
        let counters = format!("{}{}\n", table.render(width), wrapped(&sum, "", width));
        text += &section("Counters", &counters, width);
    }
    if let Some(found) = &status.copies {
        text += &section("Copies", &copies(found, width), width);
    }
    let cgroups = status.hinted_cgroups.iter().map(|cgroup| {
        let number = || format!("number {}, not below /sys/fs/cgroup", cgroup.id);
        cgroup.path.as_ref().map_or_else(number, |path| plain(&path.display().to_string()))
    });
    let cgroups: Vec<String> = cgroups.collect();
    if !cgroups.is_empty() {
        text += &section("Hinted control groups", &(cgroups.join("\n") + "\n"), width);
    }
    if let Some(found) = status.flushcache.as_ref().filter(|it| it.replaced) {
        text += &section("Copies to persistent memory", &flushcache(found, width), width);
    }
    text.pop();
    text
}

/// Returns bytes with a unit, and nothing for none.
fn rounded(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { size(bytes) }
}

fn copies(found: &CopyCounters, width: usize) -> String {
    let table = Table::of(&found.methods)
        .column(Column::left("method"), |it| it.method.to_string())
        .column(Column::right("extents"), |it| it.extents.to_string())
        .column(Column::right("bytes"), |it| it.bytes.to_string())
        .column(Column::right("").optional(1), |it| rounded(it.bytes));
    let sum = format!(
        "{} huge pages were copied, {} of them below copy_threshold (by copy_cached_method). The kernel copied {} \
         again after an exception; {} could not be copied because of a hardware error.",
        found.faults, found.skipped, found.redone, found.failed,
    );
    format!("{}{}\n", table.render(width), wrapped(&sum, "", width))
}

fn flushcache(found: &Flushcache, width: usize) -> String {
    let table = Table::of(&found.methods)
        .column(Column::left("method"), |it| it.method.clone())
        .column(Column::right("calls"), |it| it.calls.to_string())
        .column(Column::right("bytes"), |it| it.bytes.to_string());
    let sum = format!(
        "Copies of {} bytes and more (flushcache_threshold) are made by {} (flushcache_method), smaller ones by {} \
         (flushcache_small_method).",
        found.threshold, found.method, found.small_method,
    );
    format!("{}{}\n", table.render(width), wrapped(&sum, "", width))
}

/// Returns a sentence on the processes that are hinted as a whole.
fn hinted_processes(found: &Counters) -> String {
    let plural = |count| if count == 1 { "process is" } else { "processes are" };
    let mut text =
        format!("{} {} hinted as a whole.", found.hinted_processes, plural(found.hinted_processes));
    if found.unhinted_processes > 0 {
        let were = if found.unhinted_processes == 1 { "child was" } else { "children were" };
        text += &format!(
            " {} {were} not, because a hint has room for 1024 processes at a time.",
            found.unhinted_processes
        );
    }
    text
}

fn about(state: &str, status: &Status) -> [(&'static str, String); 7] {
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let taint = status.kernel_taint.map(|taint| format!("the kernel's is {taint}"));
    let own = status.taint.as_ref().map(|letters| format!("{letters} of the module"));
    let taint: Vec<String> = own.into_iter().chain(taint).collect();
    let file = status.installed.as_ref().map(|file| plain(&file.display().to_string()));
    [
        ("state", state.to_owned()),
        ("kernel", or(status.kernel.clone(), "unknown")),
        ("file", or(file.unwrap_or_default(), "not installed: lost at reboot")),
        ("hints", device(status.hint_device, HINT_PATH, "hint_device")),
        ("memory", device(status.memory_device, MEMORY_PATH, "memory_device")),
        ("taint", or(taint.join("; "), "unknown")),
        ("at load", or(plain(status.persisted.as_deref().unwrap_or_default()), "the module's own defaults")),
    ]
}

fn device(state: DeviceState, path: &str, parameter: &str) -> String {
    match state {
        DeviceState::Present => path.to_owned(),
        DeviceState::Disabled => format!("none: the module was loaded with {parameter}=0"),
        _ => format!("missing: {path} does not exist; in a container, pass it with --device"),
    }
}

fn parameters(settings: &Settings, width: usize) -> String {
    let values: BTreeMap<_, _> = settings.values().into_iter().collect();
    Table::of([
        ("method", "method for extents of at least the threshold"),
        ("cached_method", "method for smaller ones"),
        ("threshold", "bytes; 2097152: for every huge page"),
        ("chunk", "bytes between two points at which other tasks may run"),
        ("prefetch_distance", "bytes that prefetchw looks ahead"),
        ("ignore_quirks", "1: use movnti even where it is published to be slow"),
        ("copy_method", "method for copies of at least copy_threshold"),
        ("copy_cached_method", "method for smaller copies"),
        ("copy_threshold", "bytes; 2097152: for every huge page"),
        ("automatic", "1: a large call of any program counts as one extent"),
    ])
    .column(Column::left("parameter"), |(name, _)| name.to_string())
    .column(Column::right("value"), |(name, _)| values.get(name).cloned().unwrap_or_default())
    .column(Column::left("what it is").prose(), |(_, meaning)| meaning.to_string())
    .render(width)
}

/// Set the module's parameters from the profile
///
/// `bulkmem calibrate` measures the module's methods too. Sets all parameters or none: if the kernel refuses a value, the
/// previous values are restored, and the error names the parameter.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How each parameter is derived:
  method             the one that measured fastest for the largest length; the
                     module's default if that gains nothing beyond the noise
  cached_method      the same, for one huge page, of those that use the cache
  threshold          the shortest length, at least 2 MiB, from which `method` was
                     faster than `cached_method`; if `method` bypasses the cache,
                     at least the length from which the profile's rules do
  chunk              the shortest of at least 2 MiB that is as fast as any, if it
                     takes less than 10 ms
  prefetch_distance  the fastest, if prefetchw is used
  ignore_quirks      1 if movnti measured best where it is published to be slow

JSON: `profile`, `dry_run`, `parameters` (each with `name`, `before`, `after`, `why`; null: unknown or unchanged), `persisted` (the \
file, or null).")]
struct ApplyArgs {
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
    /// The folder above /sys, /proc, /etc and /lib, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

#[derive(Serialize)]
struct ApplyDocument {
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

fn apply(args: &ApplyArgs) -> Outcome {
    let module = Module::with_root(&args.root);
    let (path, profile) = profile(args)?;
    let failure = |error: &(dyn Error + 'static), help: &str| {
        Failure::new(format!("{} cannot be applied: {}", path.display(), chain(error))).help(help)
    };
    let policy = profile.policy(Machine::current()).map_err(|error| {
        failure(&error, "run `bulkmem calibrate` on this machine, or name its profile: --profile FILE")
    })?;
    let plan = Plan::derive(&policy, Machine::current(), &profile.module_times())
        .map_err(|error| failure(&error, "run `bulkmem calibrate` again (without --op and --max-size)"))?;
    let before = module.status().map_err(Failure::new)?.parameters;
    if before.is_none() && !args.dry_run {
        module.require_loaded().map_err(|error| {
            Failure::new(error).help("`bulkmem kmod status` shows more; --dry-run works without the module")
        })?;
    }
    let mut before: BTreeMap<_, _> = before.iter().flat_map(Settings::values).collect();
    let mut persisted = None;
    if !args.dry_run {
        let set = module.set(&plan.settings).map_err(Failure::new)?;
        if args.persist {
            let origin = plain(&format!("from {} of {}", path.display(), profile.provenance.date));
            let saved = plan.settings.save(&args.root, &origin).map_err(|error| {
                let kept = match set.restore() {
                    Ok(()) => "the previous parameters are restored",
                    Err(it) => {
                        &format!("{it} could not be restored; `bulkmem kmod status` shows the present values")
                    }
                };
                Failure::new(format!("{}; {kept}", chain(&error))).help("run as root, or without --persist")
            });
            persisted = Some(saved?);
        }
    }
    let parameters = plan.reasons.into_iter().map(|Reason { parameter: name, value: after, why, .. }| {
        Parameter { name, before: before.remove(name), after, why }
    });
    let document =
        ApplyDocument { profile: path, dry_run: args.dry_run, parameters: parameters.collect(), persisted };
    show(args.json, &document, |width| apply_text(&document, &plan.settings, args, width))
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

fn apply_text(document: &ApplyDocument, settings: &Settings, args: &ApplyArgs, width: usize) -> String {
    let table = Table::of(&document.parameters)
        .column(Column::left("parameter"), |it| it.name.to_owned())
        .column(Column::right("before"), |it| it.before.clone().unwrap_or("–".to_owned()))
        .column(Column::right("after"), |it| it.after.clone().unwrap_or("unchanged".to_owned()))
        .column(Column::left("why").prose(), |it| plain(&it.why));
    let profile = document.profile.display();
    let mut lines = vec![match &document.persisted {
        _ if args.dry_run => format!("These are the values from {profile}. Nothing was set (--dry-run)."),
        None => format!("Set from {profile}, until the module is unloaded (--persist: also for later loads)"),
        Some(file) => format!("Set from {profile}, and written to {}", file.display()),
    }];
    if args.dry_run && args.persist {
        let file = Settings::file(&args.root);
        lines.push(format!("{} would contain: {}", file.display(), settings.options_line()));
    }
    let lines = lines.iter().map(|line| wrapped(&plain(line), "", width) + "\n");
    table.render(width) + &lines.collect::<String>()
}
