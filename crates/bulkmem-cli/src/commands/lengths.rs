//! The choices of a policy at four lengths, by the cache state of the memory, with the speeds of a profile.

use std::collections::BTreeMap;

use bulkmem::Operation;
use bulkmem::method::c_library;
use bulkmem::policy::Choice;
use bulkmem_measure::calibration::{Condition, Cost, Profile, SUMMARY, distance};
use bulkmem_measure::engine::{CacheState, LIBPMEM};
use serde::Serialize;

use crate::figures::{self, Series};

pub(super) const LENGTHS: [(&str, u64); 4] =
    [("64K", SUMMARY[0]), ("1M", SUMMARY[1]), ("16M", SUMMARY[2]), ("1G", SUMMARY[3])];
/// The cache states that a profile distinguishes.
const STATES: [CacheState; 2] = [CacheState::Cold, CacheState::Warm];

/// The choices for an operation and a length.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) operation: Operation,
    pub(super) length: u64,
    #[serde(skip)]
    pub(super) name: &'static str,
    /// `None` if nothing was measured near the length.
    #[serde(flatten)]
    pub(super) states: BTreeMap<CacheState, Option<Cell>>,
}

impl Row {
    /// Returns the choice for a cache state.
    pub(super) fn cell(&self, state: CacheState) -> Option<&Cell> {
        self.states.get(&state)?.as_ref()
    }
}

/// The choice for one length and cache state, with its figure.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    #[serde(flatten)]
    pub(super) choice: Choice,
    pub(super) measured_length: Option<u64>,
    pub(super) gb_per_s: Option<f64>,
    pub(super) times_c_library: Option<f64>,
    pub(super) times_libpmem: Option<f64>,
}

/// Returns the rows of every operation; `choose` returns the choice for a length and for warm or for cold memory.
pub(super) fn rows(
    profile: &Profile,
    choose: impl Fn(Operation, u64, CacheState) -> Option<Choice>,
) -> Vec<Row> {
    let all = figures::all(profile);
    let rows = Operation::ALL.into_iter().flat_map(|operation| {
        let row = |(name, length): (&'static str, u64)| {
            let in_state = |state| {
                let choice = choose(operation, length, state)?;
                Some((state, measured(&all, operation, length, state, Cost::Throughput, choice)))
            };
            let states = STATES.into_iter().map(in_state).collect::<Option<_>>()?;
            Some(Row { operation, length, name, states })
        };
        LENGTHS.into_iter().filter_map(row).collect::<Vec<_>>()
    });
    rows.collect()
}

/// Returns a choice with the figure by that cost of one thread on aligned memory; `None` if nothing was measured near the length.
pub(super) fn measured(
    all: &[Series<'_>],
    operation: Operation,
    length: u64,
    state: CacheState,
    cost: Cost,
    choice: Choice,
) -> Option<Cell> {
    let condition = Condition::new(true, state == CacheState::Warm, 1);
    let wanted = (operation, cost, condition);
    cell(all.iter().find(|it| (it.operation, it.cost, it.condition) == wanted)?, length, choice)
}

/// Returns the figure of a choice at the nearest length; `None` if nothing was measured near the length.
fn cell(series: &Series<'_>, length: u64, choice: Choice) -> Option<Cell> {
    series.lengths().into_iter().find(|at| distance(*at, length).is_some())?;
    let own = series.along(choice.method.name, &choice.parameters);
    let near = own.filter_map(|figure| Some((distance(figure.length, length)?, figure)));
    let own = near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, figure)| figure);
    Some(Cell {
        choice,
        measured_length: own.map(|figure| figure.length),
        gb_per_s: own.map(|figure| figure.length as f64 / figure.median_ns),
        times_c_library: own.and_then(|figure| series.times(figure, c_library().name)),
        times_libpmem: own.and_then(|figure| series.times(figure, LIBPMEM)),
    })
}
