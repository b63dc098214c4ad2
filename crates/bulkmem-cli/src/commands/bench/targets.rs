//! `bulkmem bench targets`.

use crate::parsers::size;
use clap::Args;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bulkmem_measure::{Bound, MeasureError, Target, TargetOptions, TargetReport, Unit, targets};

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Outcome, measure_failure, nothing_measured};
use crate::interrupt;
use crate::output::{self, BAD, Column, FAINT, GOOD, Progress, Table, styled, wrapped};
use crate::plain::plain;

/// Check every promise of the project against this machine
///
/// A promise that is not kept is a finding, not a failure: it exits with 0.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `evidence`, `policy`, `targets` (each with `what`, `bound`, `unit`, `measured`, `met`, `note`), `notes`, `complete`.")]
pub(crate) struct TargetsArgs {
    /// The largest length [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// The time it may take [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn run(args: &TargetsArgs) -> Outcome {
    let mut options = TargetOptions::default();
    options.budget = args.budget.unwrap_or(options.budget);
    options.max_length = args.max_size.unwrap_or(options.max_length);
    let served = ActivePolicy::load()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("bench targets");
    let report =
        targets(&options, &served.policy, &mut |it| progress.update(it.done, it.left, &it.what), &stop);
    drop(progress);
    let report = match report {
        Ok(report) => report,
        Err(MeasureError::Interrupted) => return nothing_measured(&stop),
        Err(error) => return Err(measure_failure(error)),
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report, output::width()))?;
    }
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted: only what was measured by then is shown")?;
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

fn text(report: &TargetReport, width: usize) -> String {
    let mut table = Table::new([
        Column::left("promise").prose(),
        Column::right("bound"),
        Column::right("measured"),
        Column::left("met"),
        Column::left("worst at").prose().optional(1),
    ]);
    for target in &report.targets {
        table.row([
            target.what.clone(),
            match target.bound {
                Bound::AtLeast(bound) => format!("≥ {}", value(bound, target.unit)),
                Bound::AtMost(bound) => format!("≤ {}", value(bound, target.unit)),
            },
            target.measured.map_or("–".to_owned(), |measured| value(measured, target.unit)),
            match target.met {
                Some(true) => styled(GOOD, "yes"),
                Some(false) => styled(BAD, "no"),
                None => styled(FAINT, "?"),
            },
            target.note.clone(),
        ]);
    }
    let count =
        |met: Option<bool>| report.targets.iter().filter(|target: &&Target| target.met == met).count();
    let mut text = table.render(width);
    text += &format!(
        "\n{} met, {} not met, {} not measured.\n",
        count(Some(true)),
        count(Some(false)),
        count(None),
    );
    text += &format!("{}\n", wrapped(&format!("Policy: {}", plain(&report.policy)), "", width));
    for note in &report.notes {
        text += &format!("{}\n", wrapped(&format!("Note: {}", plain(note)), "", width));
    }
    text
}

/// A value with its unit.
fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{value:.2}"),
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::Nanoseconds => format!("{value:.1} ns"),
    }
}
