//! What all measurements of the suite have in common: arguments, progress, saving as measured, and printing.

use std::path::{Path, PathBuf};

use bulkmem_measure::engine::Peers;
use bulkmem_measure::engine::{Measure, MethodSet, Results};
use clap::Args;

use super::counted;
use crate::commands::follow::{Files, follow, follow_counting, is_stdout};
use crate::failure::Outcome;
use crate::names::names;
use crate::{output, plain, results};

/// Arguments of every measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// How often each sampler is measured, in turns; once more before, to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// The C library, libpmem, the kernel and reading beside the methods
    #[arg(long, value_name = "WHO", value_enum, default_value = "all")]
    pub(crate) peers: PeersArg,
    /// Count cycles, instructions, loads, misses and stores as well, in four more runs of each
    #[arg(long)]
    pub(crate) counters: bool,
    /// Print JSON; `bulkmem schema results` describes it
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the rows to this file as comma-separated values too; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
    /// Save the results to this file as they are measured, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Who takes part beside the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PeersArg {
    /// Nobody
    None,
    /// All that are installed
    All,
}

/// Which methods.
#[derive(Args, Clone, Debug)]
pub(crate) struct MethodArgs {
    /// Only these methods, or `all`; with parameters: write_prefetch_avx512[write_distance=4096] [default: those that the
    /// sources compare]
    #[arg(long, short = 'f', visible_alias = "function", value_name = "METHODS", value_parser = names)]
    pub(crate) method: Vec<Vec<String>>,
}

impl Common {
    pub(crate) fn peers(&self) -> Peers {
        match self.peers {
            PeersArg::None => Peers::None,
            PeersArg::All => Peers::All,
        }
    }

    /// How many samples.
    pub(crate) fn runs(&self) -> usize {
        self.runs as usize
    }

    /// Measures, saving as it goes, and prints what came of it: `view` turns results into text of some columns' width.
    pub(crate) fn run(
        &self,
        measurements: &[&dyn Measure],
        view: impl Fn(&Results, usize) -> String,
    ) -> Outcome {
        self.run_on(None, measurements, view)
    }

    /// The same for measurements of `input`, a file that is never written to as an output.
    pub(crate) fn run_on(
        &self,
        input: Option<&Path>,
        measurements: &[&dyn Measure],
        view: impl Fn(&Results, usize) -> String,
    ) -> Outcome {
        let csv = self.csv.as_deref();
        let show = |found: &Results| {
            if self.json {
                output::print_raw(results::json(found)?.as_bytes())?;
            } else if csv.is_some_and(is_stdout) {
                output::print_raw(results::csv(found)?.as_bytes())?;
            } else {
                let found = &plain::results(found);
                output::print(&view(found, output::width()))?;
                if self.counters {
                    output::print(&counted::text(found, output::width()))?;
                }
            }
            Ok(())
        };
        let files = Files { json: self.output.as_deref(), csv, input };
        if self.counters {
            follow_counting("bench", measurements, files, show)
        } else {
            follow("bench", measurements, files, show)
        }
    }
}

impl MethodArgs {
    /// Which methods these are.
    pub(crate) fn wanted(&self) -> MethodSet {
        match self.method.concat() {
            none if none.is_empty() => MethodSet::Representative,
            some if some.iter().any(|name| name == "all") => MethodSet::All,
            some => MethodSet::Named(some),
        }
    }
}

/// What stands below every table: findings and notes.
pub(crate) fn remarks(found: &Results, width: usize) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        text += &format!("{}\n", output::wrapped(&finding.text, "", width));
    }
    for note in &found.notes {
        text += &format!("{}\n", output::wrapped(&format!("Note: {note}"), "", width));
    }
    text
}
