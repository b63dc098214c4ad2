//! `bulkmem kmod status`.

use bulkmem_kmod::{Counters, Settings, Status};
use clap::Args;
use serde::Serialize;

use super::{Outcome, Root};
use crate::failure::{Exit, Failure};
use crate::output::{self, BAD, Column, FAINT, GOOD, HEADING, Table, pairs, size, styled, wrapped};
use crate::plain::plain;

/// Show whether the module is in force, its parameters, and what it has cleared so far
///
/// Exits with 1, and says how to get it, where the module is not loaded.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters:
  extents  contiguous stretches that the method was handed
  pages    pages of 4 KiB; bytes: the same in bytes
  hinted   extents whose size came from a process's hint
  The pages around the faulting address are cleared last, by the kernel's own
  way, and count as stock. Huge pages for page faults are counted as faults,
  those below the threshold, which cached_method clears, as skipped. Memory of
  /dev/bulkmem counts in its method only.

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

/// How far the module is in force.
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

/// What `--json` prints.
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
        Err(error) => Err(Failure::new(error).help(how_to_get_it(&status))),
    }
}

/// What is left to be done where the module is not loaded.
fn how_to_get_it(status: &Status) -> String {
    match (&status.installed, status.kernel.as_str()) {
        (Some(file), _) => format!("it is installed as {}: `modprobe bulkmem`, as root", file.display()),
        (None, "") => "build it: `make -C kmod`, as docs/kernel/README.md has it".to_owned(),
        (None, kernel) => format!(
            "it is not installed for this kernel, {kernel}: where that is one of 6.1 to 6.12 and its headers are there, \
             `make install-kmod` builds and installs it"
        ),
    }
}

impl State {
    fn of(status: &Status) -> State {
        match (status.loaded, status.livepatch) {
            (false, _) => State::Absent,
            (true, None) => State::Unpatched,
            (true, Some(patch)) => match (patch.enabled, patch.transition) {
                (true, true) => State::Enabling,
                (true, false) => State::Enabled,
                (false, true) => State::Disabling,
                (false, false) => State::Disabled,
            },
        }
    }

    fn words(self) -> String {
        match self {
            State::Absent => styled(BAD, "not loaded"),
            State::Enabled => styled(GOOD, "in force: bulkmem clears the huge pages of page faults"),
            State::Enabling => {
                "coming into force: some processes still have to leave the kernel's own clearing; the \
                                kernel moves each as soon as it can"
                    .to_owned()
            }
            State::Disabling => {
                "going out of force: some processes still have to leave bulkmem's clearing; then \
                                 `rmmod bulkmem` works"
                    .to_owned()
            }
            State::Disabled | State::Unpatched => {
                let why = "loaded, but not in force: the kernel clears huge pages by itself";
                format!("{}; `rmmod bulkmem` and `modprobe bulkmem` put it in force", styled(BAD, why))
            }
        }
    }
}

fn text(state: State, status: &Status, width: usize) -> String {
    let heading = |text: &str| format!("{}\n", styled(HEADING, text));
    let mut text = heading("Module") + &pairs(&about(state, status), width);
    if let Some(settings) = &status.parameters {
        let available: Vec<&str> = status.available.iter().map(|method| method.name()).collect();
        text += &format!("\n{}{}", heading("Parameters"), parameters(settings).render(width));
        let available = format!("This processor can run: {}.", available.join(", "));
        text += &format!("{}\n", styled(FAINT, wrapped(&available, "", width)));
    }
    if let Some(found) = &status.counters {
        text += &format!("\n{}{}", heading("Counters"), counters(found).render(width));
        let sum = format!(
            "{} huge pages were cleared for page faults, {} of them below the threshold (by cached_method); {} \
             hint{} in force.",
            found.faults,
            found.skipped,
            found.hints,
            if found.hints == 1 { " is" } else { "s are" },
        );
        text += &format!("{}\n", wrapped(&sum, "", width));
    }
    text
}

fn about(state: State, status: &Status) -> Vec<(&'static str, String)> {
    let or = |value: Option<String>, other: &str| value.unwrap_or_else(|| other.to_owned());
    let taint = status.kernel_taint.map(|taint| format!("the kernel's is {taint}"));
    let own = status.taint.as_ref().map(|letters| format!("{letters} of the module"));
    let taint: Vec<String> = own.into_iter().chain(taint).collect();
    vec![
        ("state", state.words()),
        ("kernel", if status.kernel.is_empty() { "unknown".to_owned() } else { status.kernel.clone() }),
        (
            "file",
            or(
                status.installed.as_ref().map(|file| plain(&file.display().to_string())),
                "not installed: gone at reboot",
            ),
        ),
        (
            "device",
            (if status.device { "/dev/bulkmem" } else { "missing: /dev/bulkmem is not there" }).to_owned(),
        ),
        ("taint", if taint.is_empty() { "unknown".to_owned() } else { taint.join("; ") }),
        ("at load", plain(&or(status.persisted.clone(), "the module's own defaults"))),
    ]
}

fn parameters(settings: &Settings) -> Table {
    let mut table =
        Table::new([Column::left("parameter"), Column::right("value"), Column::left("what it is").prose()]);
    let values = settings.values();
    let mut row = |name: &str, what: &str| {
        let value = values.iter().find(|(other, _)| *other == name);
        table.row([
            name.to_owned(),
            value.map(|(_, value)| value.clone()).unwrap_or_default(),
            what.to_owned(),
        ]);
    };
    row("method", "clears extents from the threshold on");
    row("cached_method", "clears smaller ones");
    row("threshold", "bytes; 0: every extent is large");
    row("chunk", "bytes between two points at which others may run");
    row("prefetch_distance", "bytes that prefetchw looks ahead");
    row("ignore_quirks", "1: movnti also where it is published to be slow");
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
