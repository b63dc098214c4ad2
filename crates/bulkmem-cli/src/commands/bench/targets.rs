//! `bulkmem bench targets`.

use std::time::Duration;

use bulkmem_measure::engine::{Check, Measurement, Results};
use bulkmem_measure::measurements::TargetsOptions;
use clap::Args;

use super::common::Outputs;
use crate::failure::Outcome;
use crate::output::{BAD, Column, FAINT, GOOD, Table, styled, wrapped};
use crate::parsers::size;

/// Check every performance target of the project on this machine
///
/// A target that is not met is a finding, not a failure: the exit code is 0.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: as all measurements; rows are those of `bench choice`. Each finding has a `check`: `what`, `bound`, `unit`, `measured`, \
`met` (null if not measured), `note`.")]
pub(crate) struct TargetsArgs {
    /// The largest length [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Time it may take [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    budget: Option<Duration>,
    #[command(flatten)]
    outputs: Outputs,
}

pub(super) fn run(args: &TargetsArgs) -> Outcome {
    let defaults = TargetsOptions::default();
    let options = TargetsOptions {
        budget: args.budget.unwrap_or(defaults.budget),
        max_length: args.max_size.unwrap_or(defaults.max_length),
    };
    args.outputs.run(None, &options, view)
}

/// Shows a line for each target.
pub(super) fn view(found: &Results, width: usize) -> String {
    let findings = found.findings.iter().filter(|finding| finding.measurement == Measurement::Targets);
    let checks: Vec<&Check> = findings.filter_map(|finding| finding.check.as_ref()).collect();
    let mut table = Table::new([
        Column::left("target").prose(),
        Column::right("bound"),
        Column::right("measured"),
        Column::left("met"),
        Column::left("worst at").prose().optional(1),
    ]);
    for check in &checks {
        table.row([
            check.what.clone(),
            check.bound.text(check.unit),
            check.measured.map_or("–".to_owned(), |measured| check.unit.text(measured)),
            match check.met {
                Some(true) => styled(GOOD, "yes"),
                Some(false) => styled(BAD, "no"),
                None => styled(FAINT, "?"),
            },
            check.note.clone(),
        ]);
    }
    let count = |met: Option<bool>| checks.iter().filter(|check| check.met == met).count();
    let (met, not_met, unknown) = (count(Some(true)), count(Some(false)), count(None));
    let counts = format!("{met} met, {not_met} not met, {unknown} not measured.");
    let policy = format!("Policy: {}", found.provenance.policy);
    let notes = found.notes.iter().map(|note| format!("Note: {note}"));
    let lines: String =
        [policy].into_iter().chain(notes).map(|line| wrapped(&line, "", width) + "\n").collect();
    format!("{}\n{counts}\n{lines}", table.render(width))
}
