//! `bulkmem kmod status`.

use bulkmem_kmod::{Counters, Settings, Status};
use clap::Args;
use serde::Serialize;

use super::root::Root;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, BAD, Column, GOOD, Table, faint, pairs, section, size, styled, wrapped};
use crate::plain::plain;

/// Show whether the module is active, its parameters, and its counters
///
/// Exits with 1 if the module is not loaded, and says how to load it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters:
  extents  contiguous ranges that the method cleared
  pages    pages of 4 KiB; bytes: the same in bytes
  hinted   extents whose total length came from a process's hint

The kernel clears the pages around the faulting address last, in its own way; they count as stock. `faults` counts huge pages for \
page faults, `skipped` those below the threshold, which cached_method clears. Memory of /dev/bulkmem counts only for its method.

JSON: `state` (absent, unpatched, enabling, enabled, disabling, disabled), `kernel`, `installed` (the module's file, or null), \
`loaded`, `device`, `livepatch` (`enabled`, `transition`), `taint`, `kernel_taint`, `parameters` (`method`, `cached_method`, \
`threshold`, `chunk`, `prefetch_distance`, `ignore_quirks`), `available`, `counters` (`faults`, `skipped`, `hints`, `methods`: each \
with `method`, `extents`, `pages`, `bytes`, `hinted`), `persisted`.")]
pub(super) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: Root,
}

/// The state of the module's livepatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Absent,
    Unpatched,
    Enabling,
    Enabled,
    Disabling,
    Disabled,
}

#[derive(Serialize)]
struct Document<'s> {
    state: State,
    #[serde(flatten)]
    status: &'s Status,
}

pub(super) fn run(args: &StatusArgs) -> Outcome {
    let module = args.root.module();
    let status = module.status().map_err(Failure::new)?;
    let state = State::of(&status);
    if args.json {
        output::print_json(&Document { state, status: &status })?;
    } else if status.loaded {
        output::print(&text(state, &status, output::width()))?;
    }
    match module.require_loaded() {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(Failure::new(error).help(how_to_load(&status))),
    }
}

fn how_to_load(status: &Status) -> String {
    match (&status.installed, status.kernel.as_str()) {
        (Some(file), _) => format!("it is installed as {}: run `modprobe bulkmem` as root", file.display()),
        (None, "") => "build it with `make -C kmod`, see docs/kernel/README.md".to_owned(),
        (None, kernel) => format!(
            "it is not installed for this kernel, {kernel}: `make install-kmod` builds and installs it for kernels 6.1 to \
             6.12 whose headers are installed"
        ),
    }
}

impl State {
    fn of(status: &Status) -> State {
        match status.livepatch.map(|patch| (patch.enabled, patch.transition)) {
            _ if !status.loaded => State::Absent,
            None => State::Unpatched,
            Some((true, true)) => State::Enabling,
            Some((true, false)) => State::Enabled,
            Some((false, true)) => State::Disabling,
            Some((false, false)) => State::Disabled,
        }
    }

    fn describe(self) -> String {
        match self {
            State::Absent => styled(BAD, "not loaded"),
            State::Enabled => styled(GOOD, "active: bulkmem clears the huge pages of page faults"),
            State::Enabling => {
                "being activated: the kernel moves each process from its own clearing to bulkmem's \
                                as soon as it can"
                    .to_owned()
            }
            State::Disabling => {
                "being deactivated: the kernel moves each process back to its own clearing; then \
                                 `rmmod bulkmem` works"
                    .to_owned()
            }
            State::Disabled | State::Unpatched => format!(
                "{}; `rmmod bulkmem` and `modprobe bulkmem` activate it",
                styled(BAD, "loaded, but not active: the kernel clears huge pages in its own way")
            ),
        }
    }
}

fn text(state: State, status: &Status, width: usize) -> String {
    let mut text = section("Module", &pairs(&about(state, status), width), width);
    if let Some(settings) = &status.parameters {
        let available: Vec<&str> = status.available.iter().map(|method| method.name()).collect();
        let available = format!("This processor can run: {}.", available.join(", "));
        text +=
            &section("Parameters", &(parameters(settings).render(width) + &faint(&available, width)), width);
    }
    if let Some(found) = &status.counters {
        let sum = format!(
            "{} huge pages were cleared for page faults, {} of them below the threshold (by cached_method); {} \
             hint{} active.",
            found.faults,
            found.skipped,
            found.hints,
            if found.hints == 1 { " is" } else { "s are" },
        );
        let table = counters(found).render(width);
        text += &section("Counters", &format!("{table}{}\n", wrapped(&sum, "", width)), width);
    }
    text.pop();
    text
}

fn about(state: State, status: &Status) -> Vec<(&'static str, String)> {
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let taint = status.kernel_taint.map(|taint| format!("the kernel's is {taint}"));
    let own = status.taint.as_ref().map(|letters| format!("{letters} of the module"));
    let taint: Vec<String> = own.into_iter().chain(taint).collect();
    let file = status.installed.as_ref().map(|file| plain(&file.display().to_string()));
    let device = if status.device { "/dev/bulkmem" } else { "missing: /dev/bulkmem does not exist" };
    vec![
        ("state", state.describe()),
        ("kernel", or(status.kernel.clone(), "unknown")),
        ("file", or(file.unwrap_or_default(), "not installed: lost at reboot")),
        ("device", device.to_owned()),
        ("taint", or(taint.join("; "), "unknown")),
        ("at load", or(plain(status.persisted.as_deref().unwrap_or_default()), "the module's own defaults")),
    ]
}

fn parameters(settings: &Settings) -> Table {
    let mut table =
        Table::new([Column::left("parameter"), Column::right("value"), Column::left("what it is").prose()]);
    let values = settings.values();
    for (name, what) in [
        ("method", "method for extents of at least the threshold"),
        ("cached_method", "method for smaller ones"),
        ("threshold", "bytes; 0: for every extent"),
        ("chunk", "bytes between two points at which other tasks may run"),
        ("prefetch_distance", "bytes that prefetchw looks ahead"),
        ("ignore_quirks", "1: use movnti even where it is published to be slow"),
    ] {
        let value = values.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
        table.row([name.to_owned(), value.unwrap_or_default(), what.to_owned()]);
    }
    table
}

fn counters(found: &Counters) -> Table {
    let mut table = Table::new([
        Column::left("method"),
        Column::right("extents"),
        Column::right("pages"),
        Column::right("bytes"),
        Column::right("").optional(1),
        Column::right("hinted"),
    ]);
    for done in &found.methods {
        table.row([
            done.method.to_string(),
            done.extents.to_string(),
            done.pages.to_string(),
            done.bytes.to_string(),
            if done.bytes == 0 { String::new() } else { size(done.bytes) },
            done.hinted.to_string(),
        ]);
    }
    table
}
