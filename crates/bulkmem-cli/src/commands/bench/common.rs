//! Arguments that several measurements share, and running a measurement with them.

use std::path::{Path, PathBuf};

use bulkmem_measure::engine::{Measure, MethodSet, PageSize, Peers, Results};
use clap::Args;

use super::counted;
use crate::commands::runner::{self, Files, is_stdout};
use crate::failure::{Failure, Outcome};
use crate::names::names;
use crate::parsers::one_of;
use crate::{output, plain, results};

/// Arguments of most measurements.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Methods to measure, or `all`; with parameters: write_prefetch_avx512[write_distance=4096] [default: a
    /// representative selection, and those that the policy chooses]
    #[arg(long, short = 'f', visible_alias = "function", value_name = "METHODS", value_parser = names)]
    method: Vec<Vec<String>>,
    /// Samples of each candidate; samples are interleaved, and follow one round of warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Candidates besides methods: the C library, libpmem, the kernel, reading
    #[arg(long, value_name = "PEERS", default_value = "all", value_parser = one_of(PEERS))]
    peers: Peers,
    #[command(flatten)]
    pub(super) outputs: Outputs,
}

/// Outputs of a measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct Outputs {
    /// Also count cycles, instructions, loads, misses and stores, in four more samples of each candidate
    #[arg(long)]
    counters: bool,
    #[command(flatten)]
    display: Display,
    /// Save the results to this file after each step, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const PEERS: &[(&str, &str, Peers)] =
    &[("none", "No other candidates", Peers::None), ("all", "All that are installed", Peers::All)];

/// The format that results are printed in.
#[derive(Args, Clone, Debug)]
pub(crate) struct Display {
    /// Print JSON; `bulkmem schema results` describes it
    #[arg(long)]
    json: bool,
    /// Also write the results to this file as comma-separated values; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

/// The page size behind the memory.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageSizeArg {
    /// Page size of the memory: 4K, thp (transparent huge pages), 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "thp")]
    pub(crate) page_size: PageSize,
}

/// Page sizes to compare.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageSizesArg {
    /// Page sizes of the memory: 4K, thp (transparent huge pages), 2M or 1G
    #[arg(long, short = 'p', visible_alias = "page", value_name = "SIZES", value_delimiter = ',')]
    #[arg(default_value = "thp")]
    pub(crate) page_size: Vec<PageSize>,
}

impl Common {
    /// Returns the options that every measurement has: methods, peers, and number of samples.
    pub(super) fn candidates(&self) -> (MethodSet, Peers, usize) {
        let methods = match self.method.concat() {
            none if none.is_empty() => MethodSet::Representative,
            some if some.iter().any(|name| name == "all") => MethodSet::All,
            some => MethodSet::Named(some),
        };
        (methods, self.peers, self.runs as usize)
    }
}

impl Outputs {
    /// Measures, and prints the results; `view` turns them into text of some width. `input` is a file that is measured, if
    /// any: it is never written to as an output.
    pub(super) fn run(
        &self,
        input: Option<&Path>,
        measurement: &dyn Measure,
        view: impl Fn(&Results, usize) -> String,
    ) -> Outcome {
        let files = Files { json: self.output.as_deref(), csv: self.display.csv.as_deref(), input };
        let show = |found: &Results| {
            self.display.print(found, |found, width| {
                let counts = if self.counters { counted::text(found, width) } else { String::new() };
                view(found, width) + &counts
            })
        };
        runner::run("bench", &[measurement], self.counters, files, show)
    }
}

impl Display {
    /// Prints results; `view` turns them into text of some width.
    pub(super) fn print(
        &self,
        found: &Results,
        view: impl Fn(&Results, usize) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            output::print_raw(results::json(found)?.as_bytes())?;
        } else if self.csv.as_deref().is_some_and(is_stdout) {
            output::print_raw(results::csv(found)?.as_bytes())?;
        } else {
            output::print(&view(&plain::results(found), output::width()))?;
        }
        Ok(())
    }
}
