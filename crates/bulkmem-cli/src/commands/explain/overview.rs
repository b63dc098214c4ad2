//! The answer for the machine on one screen: methods and speeds of every operation, on cold and on warm memory.

use std::env;
use std::fmt::Write as _;

use bulkmem::machine::Machine;
use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation};
use bulkmem_measure::c_library;
use bulkmem_measure::engine::CacheState;
use serde::Serialize;

use crate::active_policy::ActivePolicy;
use crate::commands::branches::Branches;
use crate::commands::lengths::{self, Cell, LENGTHS, Row};
use crate::commands::ways::{self, DropIn, Gain};
use crate::failure::Failure;
use crate::output::{HEADING, digits, faint, pairs, plural, styled, wrapped};
use crate::plain::plain;
use crate::provenance::microarchitecture;
use crate::results::word;
use crate::thresholds::CThreshold;

/// Variables of unchanged programs that their gains do not take into account or only in part, with the only value that counts, if there
/// is one.
const VARIABLES: [(&str, Option<&str>); 4] = [
    ("BULKMEM_FROM", None),
    ("BULKMEM_LOOK", Some("off")),
    ("BULKMEM_METHOD", None),
    ("BULKMEM_POPULATE", Some("on")),
];

/// The document that `--json` prints.
#[derive(Serialize)]
pub(super) struct Overview {
    microarchitecture: String,
    processor: String,
    processors: usize,
    c_library: String,
    date: String,
    rows: Vec<Row>,
    /// The gains over the C library and libpmem.
    gains: Vec<Gain>,
    /// The gains of programs with the drop-in libpmem.
    drop_in: Vec<DropIn>,
    thresholds: [CThreshold; 2],
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
        let rows = lengths::rows(profile, |operation, length, state| {
            let branches = Branches::find(&active.policy, operation, length as usize, Intent::Throughput, 1)?;
            Some(branches.choice(state == CacheState::Warm))
        });
        Ok(Overview {
            microarchitecture: microarchitecture(&machine.cpu),
            processor: machine.cpu.name.clone(),
            processors: machine.processors,
            c_library: c_library().unwrap_or_else(|| "not glibc".to_owned()),
            date: profile.provenance.date.clone(),
            gains: ways::gains(profile, &rows),
            drop_in: ways::drop_in(profile),
            thresholds: CThreshold::all(Some(&profile.provenance)),
            rows,
        })
    }

    pub(super) fn text(&self, policy: &Policy, width: usize) -> String {
        let Overview { microarchitecture, processor, processors, c_library, date, .. } = self;
        let date = date.split('T').next().unwrap_or_default();
        let processors = plural(*processors, "CPU");
        // A brand without a number, as virtual machines report it, says less than the microarchitecture.
        let brand = if processor.contains(|it: char| it.is_ascii_digit()) {
            format!(" ({processor})")
        } else {
            String::new()
        };
        let machine = format!("{microarchitecture}{brand}, {processors}, {c_library}, calibrated {date}");
        let mut text = format!("{}\n", styled(HEADING, wrapped(&plain(&machine), "", width)));
        let states = self.rows.first().into_iter().flat_map(|row| row.states.keys());
        let columns: Vec<Vec<String>> = states.map(|state| self.column(*state)).collect();
        let lines = beside(&columns);
        if lines.iter().all(|line| line.chars().count() + 6 <= width) {
            text += &self.table(policy, &lines);
        } else {
            columns.iter().for_each(|column| text += &self.table(policy, column));
        }
        let mut cells =
            self.rows.iter().flat_map(|row| row.states.values().flatten().map(|it| (row.length, it)));
        let elsewhere = |(length, cell): (u64, &Cell)| cell.measured_length.is_some_and(|at| at != length);
        let looks = Operation::ALL.into_iter().any(|operation| policy.look(operation).is_some());
        let looks = if looks { ", without the time of looks (docs/looking.md)" } else { "" };
        let mut legend = format!(
            "GB/s of one thread{looks}. ×: times the C library, or libpmem for operations that persist; cold: not in the cache, \
             warm: in it; –: not measured."
        );
        if cells.any(elsewhere) {
            legend += " Some lengths are up to a factor of 2 away (--json).";
        }
        legend += " Reasons: `bulkmem explain --op copy --size 1G`.";
        text + &format!("\n{}\n{}", faint(&legend, width), self.ways(policy, width))
    }

    /// Returns the ways to use bulkmem, and what they gain.
    fn ways(&self, policy: &Policy, width: usize) -> String {
        let gains = self.gains.iter().map(|it| format!("{} {}", it.operation, it.over_c_library()));
        let gains =
            format!("{} (times the C library, geometric means)", gains.collect::<Vec<_>>().join("; "));
        let libpmem =
            self.gains.iter().filter_map(|it| Some(format!("{} {}", it.operation, it.over_libpmem()?)));
        let libpmem = libpmem.collect::<Vec<_>>().join("; ");
        let libpmem = (!libpmem.is_empty()).then(|| {
            ("× libpmem", format!("{libpmem} (PMDK's make the bytes durable; geometric means, too)"))
        });
        let threads = match policy.threads(Operation::Copy, 1 << 30) {
            1 => String::new(),
            threads => format!(" ({threads} for a copy of 1G)"),
        };
        let options = format!(
            "; for more, Options::intent(Intent::Stream) if the bytes are not read soon, Intent::Reuse if they are; \
             total_len(n) for parts of n; threads(Threads::Auto){threads}; populate(true) for new pages"
        );
        let ways = ways::ways(&self.gains, &self.drop_in);
        let ways = ways.map(|(way, write, about)| (way, format!("{write}{about}")));
        let [rust, c, unchanged, with_libpmem] = &ways;
        let counts = |(name, only): &(&str, Option<&str>)| {
            env::var_os(name).is_some_and(|value| only.map_or(!value.is_empty(), |only| value == only))
        };
        let set: Vec<&str> = VARIABLES.iter().filter(|it| counts(it)).map(|(name, _)| *name).collect();
        let unless = match set[..] {
            [] => String::new(),
            _ => format!("; the program inherits {}, and may gain more or less", set.join(", ")),
        };
        let [memcpy, memset] = self.thresholds.each_ref().map(CThreshold::short);
        let thresholds = format!("past the cache: memcpy {memcpy}, memset {memset}");
        let with_libpmem = (!self.drop_in.is_empty()).then(|| with_libpmem.clone());
        let rows = [("Rust, C", gains)].into_iter().chain(libpmem).chain([
            (rust.0, rust.1.clone() + &options),
            c.clone(),
            (unchanged.0, unchanged.1.clone() + &unless),
        ]);
        let rows = rows.chain(with_libpmem).chain([("C library", thresholds)]);
        pairs(&rows.collect::<Vec<_>>(), width)
    }

    /// Returns the title and the cells of a cache state.
    fn column(&self, state: CacheState) -> Vec<String> {
        let cells = self.rows.iter().map(|row| row.cell(state));
        let cells = cells.map(|cell| cell.map_or_else(|| line("–", "–", ""), text));
        [line("GB/s", "×", &format!("{}: method", word(&state)))].into_iter().chain(cells).collect()
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

fn text(cell: &Cell) -> String {
    let number = |it: Option<f64>| digits(it.unwrap_or(f64::NAN));
    let times = cell.times_c_library.or(cell.times_libpmem);
    line(&number(cell.gb_per_s), &number(times), cell.choice.method.name)
}

fn line(rate: &str, times: &str, method: &str) -> String {
    format!("{rate:>4} {times:>4} {method}")
}

/// Joins columns of the same height.
fn beside(columns: &[Vec<String>]) -> Vec<String> {
    let joined = columns.iter().cloned().reduce(|left, right| {
        let width = left.iter().map(|line| line.chars().count()).max().unwrap_or_default();
        let lines = left.iter().zip(right);
        lines.map(|(left, right)| format!("{left:<width$}  {right}").trim_end().to_owned()).collect()
    });
    joined.unwrap_or_default()
}
