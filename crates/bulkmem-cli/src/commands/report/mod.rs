//! `bulkmem report`.

mod html;
mod markdown;
mod model;
mod plot;

use std::fs;
use std::path::PathBuf;

use super::Outcome;
use crate::args::{Format, ReportArgs};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::served::Served;
use model::Report;

pub(super) fn run(args: &ReportArgs) -> Outcome {
    let served = Served::load()?;
    let Some((_, profile)) = &served.profile else {
        return Err(Failure::new("there is no profile of this machine to report on")
            .help("run `bulkmem calibrate` first; `bulkmem info` says which files were looked at, and why none serves"));
    };
    let report = Report::of(profile);
    let text = match args.format {
        Format::Html => html::render(&report)?,
        Format::Markdown => markdown::render(&report),
    };
    let output = args.output.clone().unwrap_or_else(|| {
        PathBuf::from(match args.format {
            Format::Html => "bulkmem-report.html",
            Format::Markdown => "bulkmem-report.md",
        })
    });
    if output.as_os_str() == "-" {
        output::print_raw(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    fs::write(&output, text).map_err(|error| {
        Failure::new(format!("cannot write {}: {error}", output.display()))
            .help("name a file you may write: --output FILE, or --output - for stdout")
    })?;
    output::print(&format!("Wrote {}\n", output.display()))?;
    Ok(Exit::Done)
}
