//! The measuring suite: each table of the sources as one measurement, on any machine, with statistics, controls and
//! peers.
//!
//! A measurement is a struct of options that implements [`Measure`]. It builds contenders and hands them, group by
//! group, to `Run::take_turns`, which samples them in turns, computes the statistics, looks for noise, and saves
//! what there is by then. All that is found ends up as rows of one kind ([`Row`]), so that tables, reports,
//! comparisons and files need to know only that kind.
//!
//! ```text
//! options ─▶ contenders ─▶ turns ─▶ rows ─▶ results (saved as measured)
//! ```

mod all;
mod buffer;
mod chunks;
mod compare;
mod contrast;
mod corun;
mod device;
mod doer;
mod first_touch;
mod fork;
mod iops;
mod lineup;
mod page_size;
mod parse;
mod persist;
mod place;
mod pollution;
pub(crate) mod quality;
mod reservation;
mod results;
mod reuse;
mod rounds;
mod run;
mod sizes;
mod target;
#[cfg(test)]
mod testing;
pub(crate) mod units;
mod vm;

pub use all::all;
pub use bulkmem::kernel::{Attribute, BadAttribute};
pub use chunks::ChunksOptions;
pub use compare::{CHANCE, Change, CompareOptions, Comparison, Differences, Identity, Side, Verdict};
pub use contrast::{Contrast, control_of};
pub use corun::{ALONE, CorunOptions, SAME_PROCESSOR_TIME, Victim};
pub use device::Attributes;
pub use doer::Wanted;
pub use fork::{CHILD_WRITES, ForkOptions};
pub use iops::IopsOptions;
pub use page_size::{BadPageSize, PageSize};
pub use parse::ResultsError;
pub use persist::PersistOptions;
pub use place::{Direction, Key, Memory, Pattern, Place};
pub use pollution::{NOTHING, PollutionOptions, SAME_TIME, home_of};
pub use quality::Doubt;
pub use results::{Finding, Measurement, Metric, Results, Row, Subject};
pub use reuse::{Payoff, Pays, ReuseOptions, payoffs};
pub use run::{Measure, Run, Watch, measure, measure_counting};
pub use sizes::{Peers, SizesOptions};
pub use target::{Target, TargetOptions};
pub use vm::VmOptions;
