//! The ways to use bulkmem, and their gains over the C library and libpmem on a machine.

use bulkmem::Operation;
use bulkmem::machine::Caches;
use bulkmem::method::{CacheEffect, Parameters, by_name, c_library};
use bulkmem::pointers::SHORTEST_BY_POLICY;
use bulkmem::policy::{Choice, Situation};
use bulkmem_measure::calibration::{Cost, Profile};
use bulkmem_measure::engine::CacheState;
use bulkmem_measure::stats::geometric_mean;
use serde::Serialize;

use super::lengths::{LENGTHS, Row, measured};
use crate::figures;
use crate::output::{digits, size};

/// The operations that the C library has too, with its function.
const FUNCTIONS: [(Operation, &str); 3] =
    [(Operation::Clear, "memset to 0"), (Operation::Fill, "memset"), (Operation::Copy, "memcpy")];

/// The gain of the choices for an operation.
#[derive(Debug, Serialize)]
pub(super) struct Gain {
    pub(super) operation: Operation,
    #[serde(skip)]
    function: &'static str,
    /// Length from which the calls of an unchanged program gain; `None` if they never do.
    unchanged_from: Option<u64>,
    /// Times the C library's speed from that length on, by the methods that such calls use.
    unchanged: Times,
    /// Times the C library's speed.
    #[serde(flatten)]
    c_library: Times,
    /// Times libpmem's speed.
    libpmem: Times,
}

/// The gain of a program with the drop-in libpmem, whose calls go by length alone.
#[derive(Debug, Serialize)]
pub(super) struct DropIn {
    operation: Operation,
    #[serde(skip)]
    functions: &'static str,
    /// Times PMDK's speed.
    #[serde(flatten)]
    times: Times,
}

/// Returns the gains of programs with the drop-in libpmem, as far as libpmem was measured.
pub(super) fn drop_in(profile: &Profile) -> Vec<DropIn> {
    let all = figures::all(profile);
    let gain = |(operation, functions)| {
        let mean = |state| {
            geometric_mean(LENGTHS.into_iter().filter_map(|(_, length)| {
                let (name, parameters) = at(profile, operation, Situation::Throughput, length)?;
                let choice = Choice::new(by_name(name)?, parameters);
                measured(&all, operation, length, state, Cost::Throughput, choice)?.times_libpmem
            }))
        };
        let times = Times { cold: mean(CacheState::Cold), warm: mean(CacheState::Warm) };
        times.measured_text().map(|_| DropIn { operation, functions, times })
    };
    let functions =
        [(Operation::CopyPersist, "pmem_memcpy_persist"), (Operation::FillPersist, "pmem_memset_persist")];
    functions.into_iter().filter_map(gain).collect()
}

/// How many times as fast a choice is, on cold and on warm memory: geometric means of the lengths; `None` if nothing was measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    cold: Option<f64>,
    warm: Option<f64>,
}

impl Times {
    fn of<'a>(
        rows: impl Iterator<Item = &'a Row> + Clone,
        times: impl Fn(&Row, CacheState) -> Option<f64>,
    ) -> Times {
        let mean = |state| geometric_mean(rows.clone().filter_map(|row| times(row, state)));
        Times { cold: mean(CacheState::Cold), warm: mean(CacheState::Warm) }
    }

    fn text(self) -> String {
        let times = |gain: Option<f64>| gain.map_or("–".to_owned(), |gain| format!("{} ×", digits(gain)));
        format!("{} cold, {} warm", times(self.cold), times(self.warm))
    }

    /// Returns the text, if anything was measured.
    fn measured_text(self) -> Option<String> {
        self.cold.or(self.warm).map(|_| self.text())
    }
}

/// Returns the gains by the choices of a profile.
pub(super) fn gains(profile: &Profile, rows: &[Row]) -> Vec<Gain> {
    let all = figures::all(profile);
    // As the preloaded library does.
    let preloaded_from =
        (Caches::from(profile.provenance.caches).sane().l3 / 4).max(SHORTEST_BY_POLICY as u64);
    let gain = |(operation, function)| {
        let rules = profile.rules_of(operation, Situation::Throughput);
        let rule = rules.filter(|rule| rule.method != c_library().name).map(|rule| rule.from);
        let look = profile.looks.iter().filter(|look| look.operation == operation).map(|look| look.from);
        let full = rule.chain(look).min().map(|from| from.max(preloaded_from));
        let reused = reused_from(profile, operation);
        let rows = rows.iter().filter(|row| row.operation == operation);
        // Shorter calls have the intent `Reuse`, and look; with the time of reading the bytes back.
        let unchanged = Times::of(rows.clone(), |row, state| {
            if full.is_some_and(|from| from <= row.length) {
                return row.cell(state)?.times_c_library;
            }
            reused.filter(|from| *from <= row.length)?;
            let (name, parameters) =
                at(profile, operation, situation(profile, operation, state == CacheState::Warm), row.length)?;
            let choice = Choice::new(by_name(name)?, parameters);
            measured(&all, operation, row.length, state, Cost::Reuse, choice)?.times_c_library
        });
        let c_library = Times::of(rows.clone(), |row, state| row.cell(state)?.times_c_library);
        let libpmem = Times::of(rows, |row, state| row.cell(state)?.times_libpmem);
        let unchanged_from = full.into_iter().chain(reused).min();
        Gain { operation, function, unchanged_from, unchanged, c_library, libpmem }
    };
    FUNCTIONS.into_iter().map(gain).collect()
}

/// Returns the situation of the short calls of unchanged programs that find memory cached or uncached.
fn situation(profile: &Profile, operation: Operation, cached: bool) -> Situation {
    let own = || profile.rules_of(operation, Situation::CachedReuse).next().is_some();
    match cached {
        false => Situation::UncachedReuse,
        true if own() => Situation::CachedReuse,
        true => Situation::Reuse,
    }
}

/// Returns the method of a table for a length.
fn at(
    profile: &Profile,
    operation: Operation,
    situation: Situation,
    length: u64,
) -> Option<(&str, Parameters)> {
    let rule = profile.rules_of(operation, situation).take_while(|rule| rule.from <= length).last()?;
    Some((&rule.method, rule.parameters))
}

/// The length from which a look pays although the bytes are used next.
fn reused_from(profile: &Profile, operation: Operation) -> Option<u64> {
    let look = profile.looks.iter().find(|look| look.operation == operation)?;
    profile.rules_of(operation, Situation::UncachedReuse).next()?;
    let situations = [true, false].map(|cached| situation(profile, operation, cached));
    let starts = situations.into_iter().flat_map(|it| profile.rules_of(operation, it)).map(|rule| rule.from);
    let pays = |from: &u64| {
        let [cached, uncached] = situations.map(|situation| at(profile, operation, situation, *from));
        let method = uncached.and_then(|(name, _)| by_name(name));
        method.is_some_and(|it| it.effect != CacheEffect::Allocates) && uncached != cached
    };
    let starts = starts.filter(|from| *from >= look.from).chain([look.from]);
    Some(starts.filter(pays).min()?.max(SHORTEST_BY_POLICY as u64))
}

impl Gain {
    /// Returns the gains over the C library.
    pub(super) fn over_c_library(&self) -> String {
        self.c_library.text()
    }

    /// Returns the gains over libpmem; `None` if it was not measured.
    pub(super) fn over_libpmem(&self) -> Option<String> {
        self.libpmem.measured_text()
    }
}

/// Returns each way with what to write, and what to add to that.
pub(super) fn ways(gains: &[Gain], drop_in: &[DropIn]) -> [(&'static str, &'static str, String); 4] {
    let of = |it: &Gain| {
        let measured = it.unchanged.measured_text().map(|text| format!(" {text}"));
        Some(format!("{} from {}{}", it.function, size(it.unchanged_from?), measured.unwrap_or_default()))
    };
    let unchanged = match gains.iter().filter_map(of).collect::<Vec<_>>() {
        none if none.is_empty() => "the C library is the fastest at every length".to_owned(),
        some => some.join("; "),
    };
    let of = |it: &DropIn| format!("{} {}", it.functions, it.times.text());
    let with_libpmem = match drop_in.iter().map(of).collect::<Vec<_>>() {
        none if none.is_empty() => "PMDK's was not measured".to_owned(),
        some => some.join("; "),
    };
    [
        ("Rust", "bulkmem::copy(dst, src)", String::new()),
        ("C and C++", "bulkmem_copy(dst, src, n), by make install-c", " (docs/c.md)".to_owned()),
        (
            "no change",
            "make install install-c; bulkmem run -- PROGRAM",
            format!(": {unchanged} (docs/preload.md)"),
        ),
        ("libpmem", "bulkmem run --libpmem -- PROGRAM", format!(" (times PMDK's): {with_libpmem}")),
    ]
}
