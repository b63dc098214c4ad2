//! The answer for the machine on one screen: methods and speeds of every operation, on cold and on warm memory.

use std::fmt::Write as _;

use bulkmem::machine::Machine;
use bulkmem::policy::{Basis, Choice, Policy};
use bulkmem::{Intent, Operation};
use bulkmem_measure::calibration::{Condition, Cost, Profile};
use serde::Serialize;

use super::branches::Branches;
use crate::active_policy::ActivePolicy;
use crate::failure::Failure;
use crate::figures::{self, Series};
use crate::output::{HEADING, digits, faint, plural, styled, wrapped};
use crate::plain::plain;

const LENGTHS: [(&str, u64); 4] = [("64K", 64 << 10), ("1M", 1 << 20), ("16M", 16 << 20), ("1G", 1 << 30)];

/// Measured lengths within this factor count for a length.
const NEAR: f64 = 2.0;

/// The document that `--json` prints.
#[derive(Serialize)]
pub(super) struct Overview {
    microarchitecture: String,
    processor: String,
    processors: usize,
    c_library: String,
    date: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    operation: Operation,
    length: u64,
    #[serde(skip)]
    name: &'static str,
    cold: Option<Cell>,
    warm: Option<Cell>,
}

/// The choice for one length and cache state, with its figure.
#[derive(Serialize)]
struct Cell {
    #[serde(flatten)]
    choice: Choice,
    measured_length: Option<u64>,
    gb_per_s: Option<f64>,
    times_c_library: Option<f64>,
}

impl Overview {
    pub(super) fn of(active: &ActivePolicy) -> Result<Overview, Failure> {
        let Some((_, profile)) = &active.profile else {
            return Err(Failure::new("there is no profile of this machine to explain").help(
                "run `bulkmem calibrate` first; `bulkmem info` lists the profiles that were found, and why none can be \
                 used; `bulkmem explain --op clear --size 1M` shows a choice without one",
            ));
        };
        let machine = Machine::current();
        let microarchitecture = match &Policy::defaults(machine).origin().basis {
            Basis::Defaults { microarchitecture, .. } => microarchitecture.clone(),
            _ => "unknown".to_owned(),
        };
        let rows = Operation::ALL.into_iter().flat_map(|operation| rows(&active.policy, profile, operation));
        Ok(Overview {
            microarchitecture,
            processor: machine.cpu.name.clone(),
            processors: machine.processors,
            c_library: c_library(),
            date: profile.provenance.date.clone(),
            rows: rows.collect(),
        })
    }

    pub(super) fn text(&self, policy: &Policy, width: usize) -> String {
        let Overview { microarchitecture, processor, processors, c_library, date, .. } = self;
        let date = date.split('T').next().unwrap_or_default();
        let processors = plural(*processors, "processor");
        let machine =
            format!("{microarchitecture} ({processor}), {processors}, {c_library}, calibrated {date}");
        let mut text = format!("{}\n", styled(HEADING, wrapped(&plain(&machine), "", width)));
        let columns =
            [self.column("cold", |row| row.cold.as_ref()), self.column("warm", |row| row.warm.as_ref())];
        let lines = beside(&columns);
        if lines.iter().all(|line| line.chars().count() + 6 <= width) {
            text += &self.table(policy, &lines);
        } else {
            columns.iter().for_each(|column| text += &self.table(policy, column));
        }
        let mut cells = self.rows.iter().flat_map(|row| [(row, &row.cold), (row, &row.warm)]);
        let elsewhere = |(row, cell): (&Row, &Option<Cell>)| {
            cell.as_ref().and_then(|it| it.measured_length).is_some_and(|at| at != row.length)
        };
        let looks = Operation::ALL.into_iter().any(|operation| policy.look(operation).is_some());
        let looks = if looks { ", without the time of looks (docs/looking.md)" } else { "" };
        let mut legend = format!(
            "GB/s of one thread{looks}. ×: times the C library; cold: not in the cache, warm: in it; –: not measured."
        );
        if cells.any(elsewhere) {
            legend += " Some lengths are up to a factor of 2 away (--json).";
        }
        let threads = match policy.threads(Operation::Copy, 1 << 30) {
            1 => String::new(),
            threads => format!(": {threads} for a copy of 1G"),
        };
        let more = format!(
            "To get more: Options::intent(Intent::Stream) if the bytes are not read soon, Intent::Reuse if they are; \
             total_len(n) for a part of n bytes; threads(Threads::Auto){threads}; Mapping for huge pages. Reasons: \
             `bulkmem explain --op copy --size 1G`."
        );
        text + &format!("\n{}{}\n", faint(&legend, width), wrapped(&more, "", width))
    }

    /// Returns the title and the cells of a cache state.
    fn column<'o>(&'o self, state: &str, cell: impl Fn(&'o Row) -> Option<&'o Cell>) -> Vec<String> {
        let cells = self.rows.iter().map(|row| cell(row).map_or_else(|| line("–", "–", ""), Cell::text));
        [line("GB/s", "×", &format!("{state}: method"))].into_iter().chain(cells).collect()
    }

    /// Returns lines, the first of which is the title, with the operations and lengths.
    fn table(&self, policy: &Policy, lines: &[String]) -> String {
        let mut text = String::new();
        let forced = &policy.origin().forced;
        for (at, line) in lines.iter().enumerate() {
            let row = at.checked_sub(1).map(|at| &self.rows[at]);
            if let Some(Row { operation, length, .. }) = row
                && *length == LENGTHS[0].1
            {
                let forced = forced.iter().find(|(other, _)| other == operation);
                let forced = forced.map(|(_, choice)| format!(", forced to {choice}")).unwrap_or_default();
                _ = writeln!(text, "{}{forced}", styled(HEADING, operation));
            }
            _ = writeln!(text, "{:>4}  {}", row.map_or("", |row| row.name), line.trim_end());
        }
        text
    }
}

impl Cell {
    fn text(&self) -> String {
        let number = |it: Option<f64>| digits(it.unwrap_or(f64::NAN));
        line(&number(self.gb_per_s), &number(self.times_c_library), self.choice.method.name)
    }
}

fn line(rate: &str, times: &str, method: &str) -> String {
    format!("{rate:>4} {times:>4} {method}")
}

/// Joins two columns of the same height.
fn beside([left, right]: &[Vec<String>; 2]) -> Vec<String> {
    let width = left.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    left.iter()
        .zip(right)
        .map(|(left, right)| format!("{left:<width$}  {right}").trim_end().to_owned())
        .collect()
}

fn rows(policy: &Policy, profile: &Profile, operation: Operation) -> Vec<Row> {
    let all = figures::of_kind(profile, operation, Cost::Throughput);
    let series = |warm| all.iter().find(|it| it.condition == Condition { aligned: true, warm, threads: 1 });
    let row = |(name, length): (&'static str, u64)| {
        let branches = Branches::find(policy, operation, length as usize, Intent::Throughput, 1)?;
        let cell = |warm| cell(series(warm)?, length, branches.choice(warm));
        Some(Row { operation, length, name, cold: cell(false), warm: cell(true) })
    };
    LENGTHS.into_iter().filter_map(row).collect()
}

/// Returns the figure of a choice at the nearest length; `None` if nothing was measured near the length.
fn cell(series: &Series<'_>, length: u64, choice: Choice) -> Option<Cell> {
    let distance = |at: u64| (at as f64 / length as f64).ln().abs();
    let is_near = |at: u64| distance(at) <= NEAR.ln();
    series.lengths().into_iter().find(|at| is_near(*at))?;
    let own = series.along(choice.method.name, &choice.parameters).filter(|figure| is_near(figure.length));
    let own = own.min_by(|a, b| distance(a.length).total_cmp(&distance(b.length)));
    Some(Cell {
        choice,
        measured_length: own.map(|figure| figure.length),
        gb_per_s: own.map(|figure| figure.length as f64 / figure.median_ns),
        times_c_library: own.map(|figure| series.times_c_library(figure)).filter(|times| times.is_finite()),
    })
}

/// Returns the name and version of the C library that this process uses.
#[cfg(target_env = "gnu")]
fn c_library() -> String {
    // SAFETY: the function returns a static text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn c_library() -> String {
    "not glibc".to_owned()
}
