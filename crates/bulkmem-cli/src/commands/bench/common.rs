//! What all measurements of the suite have in common: arguments, progress, saving as measured, and printing.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bulkmem_measure::MeasureError;
use bulkmem_measure::suite::{Measure, Peers, Results, Wanted, Watch, measure};
use clap::Args;

use crate::commands::{Outcome, measure_failure, nothing_measured};
use crate::failure::Exit;
use crate::names::names;
use crate::output::{self, Progress};
use crate::served::Served;
use crate::{interrupt, results};

/// Arguments of every measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// How often each contender is measured, in turns; once more before, to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// The C library, libpmem, the kernel and reading beside the methods
    #[arg(long, value_name = "WHO", value_enum, default_value = "all")]
    pub(crate) peers: PeersArg,
    /// Print JSON
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
        for measurement in measurements {
            measurement.validate().map_err(measure_failure)?;
        }
        // A file that can't be written is found out before measuring.
        let output = self.output.as_deref().map(results::Sink::create).transpose()?;
        let csv =
            self.csv.as_deref().filter(|path| !is_stdout(path)).map(results::Sink::create).transpose()?;
        let served = Served::load()?;
        let stop = interrupt::flag()?;
        let mut progress = Progress::new("bench");
        let mut save = |found: &Results| {
            if let Some(sink) = &output {
                sink.write(results::json(found)?.as_bytes())?;
            }
            if let Some(sink) = &csv {
                sink.write(results::csv(found)?.as_bytes())?;
            }
            Ok(())
        };
        let watch = Watch {
            progress: &mut |it| progress.update(it.done, it.left, &it.what),
            save: &mut save,
            stop: &stop,
        };
        let found = measure(measurements, &served.policy, std::env::args().skip(1).collect(), watch);
        drop(progress);
        let found = match found {
            Ok(found) => found,
            Err(MeasureError::Interrupted) => return nothing_measured(&stop),
            Err(error) => return Err(measure_failure(error)),
        };
        if self.json {
            output::print_raw(results::json(&found)?.as_bytes())?;
        } else if self.csv.as_deref().is_some_and(is_stdout) {
            output::print_raw(results::csv(&found)?.as_bytes())?;
        } else {
            output::print(&view(&found, output::width()))?;
        }
        if stop.load(Ordering::Relaxed) {
            output::note("interrupted: only what was measured by then is shown")?;
            return Ok(Exit::Interrupted);
        }
        Ok(Exit::Done)
    }
}

impl MethodArgs {
    /// Which methods these are.
    pub(crate) fn wanted(&self) -> Wanted {
        match self.method.concat() {
            none if none.is_empty() => Wanted::Usual,
            some if some.iter().any(|name| name == "all") => Wanted::All,
            some => Wanted::Named(some),
        }
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
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
