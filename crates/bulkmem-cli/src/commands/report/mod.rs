//! `bulkmem report`.
//!
//! Files become machines, machines become sections of charts and tables, and these become a page, Markdown or a picture.

mod advice;
mod answers;
mod html;
mod input;
mod labels;
mod layout;
mod markdown;
mod model;
mod opening;
mod render;
mod sections;
mod style;
mod summary;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use crate::plain::plain;
use crate::provenance;
use crate::sink::Sink;
use input::{Input, Machine};
use model::{Card, Chart, Report};

/// Write a report: measurements and profiles as charts, tables and sentences
///
/// Reads results (`bulkmem bench … --output FILE`) and profiles, of one machine or of several, which are then compared. If
/// several files have the same figure of a machine, the last file counts. The active profile is added to results of this
/// machine; without files, the report is about the active profile alone.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Formats:
  html      one file that needs no network: interactive charts, light and dark,
            also for print; the data can be saved from it
  markdown  tables and sentences; with --chart one table, to paste
  svg, png  one chart as a picture with its legend

How to read each chart: docs/report.md.

Examples:
  bulkmem bench clear --size 4K-1G --output clear.json && bulkmem report clear.json
  bulkmem report here.json there.json --output both.html
  bulkmem report clear.json --format png --chart clear --output clear.png
  bulkmem report clear.json --format markdown --chart clear --output -")]
pub(crate) struct ReportArgs {
    /// Results and profiles [default: the active profile]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the report to this file; - is stdout [default: bulkmem-report.html, or .md, .svg, .png]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value = "html")]
    pub(crate) format: Format,
    /// Only this chart: its name, or the beginning of it: clear, chunks, iops; an unknown name lists all charts
    #[arg(long, value_name = "NAME")]
    pub(crate) chart: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Html,
    Markdown,
    Svg,
    Png,
}

pub(super) fn run(args: &ReportArgs) -> Outcome {
    let output = args.output.clone().unwrap_or_else(|| default_output(args));
    if args.chart.is_some() && args.format == Format::Html {
        let reason = "--chart needs --format svg, png or markdown: the HTML page has all charts";
        return Err(Failure::usage(reason).help("leave --chart out, or add --format svg"));
    }
    let files: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let sink = Sink::open(&output, &files, None)?;
    let inputs = inputs(args)?;
    let report = report(&inputs);
    let chart = || find(&report, args.chart.as_deref());
    let bytes = match args.format {
        Format::Html => html::render(&report)?.into_bytes(),
        Format::Markdown if args.chart.is_none() => markdown::render(&report).into_bytes(),
        Format::Markdown => markdown::chart(chart()?).into_bytes(),
        Format::Svg => render::svg(chart()?)?.into_bytes(),
        Format::Png => render::png(chart()?)?,
    };
    sink.write(&bytes)?;
    // A stream may be stdout, where the sentence would become part of the report.
    if sink.file.is_some_and(|file| file.regular().is_some()) {
        let name = plain(&output.display().to_string());
        output::print(&format!("Wrote {name} ({})\n", output::size(bytes.len() as u64)))?;
    }
    Ok(Exit::Done)
}

fn default_output(args: &ReportArgs) -> PathBuf {
    let extension = match args.format {
        Format::Html => "html",
        Format::Markdown => "md",
        Format::Svg => "svg",
        Format::Png => "png",
    };
    let chart = args.chart.as_deref().map(|name| format!("-{}", model::slug(name))).unwrap_or_default();
    PathBuf::from(format!("bulkmem-report{chart}.{extension}"))
}

/// Reads the given files. Adds the active profile if no file is given, or if no file is a profile and one of them
/// describes this machine.
fn inputs(args: &ReportArgs) -> Result<Vec<Input>, Failure> {
    let mut inputs: Vec<Input> =
        args.files.iter().map(|path| Input::load(path)).collect::<Result<_, Failure>>()?;
    if inputs.iter().any(|input| input.profile.is_some()) {
        return Ok(inputs);
    }
    if let Some((path, _)) = &ActivePolicy::load()?.profile {
        let profile = Input::load(path)?;
        if inputs.is_empty() || inputs.iter().any(|input| input.machine() == profile.machine()) {
            inputs.push(profile);
        }
    } else if inputs.is_empty() {
        return Err(Failure::new("there is no profile of this machine to report on").help(
            "run `bulkmem calibrate` first, or name files that `bulkmem bench … --output FILE` wrote; `bulkmem info` \
             lists the profiles that were found, and why none can be used",
        ));
    }
    Ok(inputs)
}

fn report(inputs: &[Input]) -> Report<'_> {
    let machines = input::machines(inputs);
    let card = |it: &Machine<'_>| Card {
        heading: it.label.clone(),
        facts: provenance::machine(it.provenance),
        ..Card::default()
    };
    Report {
        title: match machines.as_slice() {
            [one] => format!("bulkmem on {}", one.name()),
            several => format!("bulkmem on {} machines", several.len()),
        },
        openings: machines.iter().map(opening::of).collect(),
        summaries: summary::all(&machines),
        sections: sections::all(&machines),
        machines: machines.iter().map(card).collect(),
        files: inputs.iter().map(Input::source).collect(),
    }
}

/// Returns the chart with this name, or with a name that begins with it; without a name, the only chart.
fn find<'r>(report: &'r Report<'_>, name: Option<&str>) -> Result<&'r Chart, Failure> {
    let charts: Vec<&Chart> = report.sections.iter().flat_map(|section| &section.charts).collect();
    if let Some(chart) = charts.iter().find(|chart| Some(chart.name.as_str()) == name) {
        return Ok(chart);
    }
    let begins = |chart: &&Chart| name.is_none_or(|name| chart.name.starts_with(&format!("{name}-")));
    let found: Vec<&Chart> = charts.iter().copied().filter(begins).collect();
    let names = |charts: &[&Chart], joint: &str| {
        charts.iter().map(|chart| chart.name.as_str()).collect::<Vec<_>>().join(joint)
    };
    let name = name.map(str::escape_debug);
    match (found.as_slice(), name) {
        ([only], _) => Ok(only),
        _ if charts.is_empty() => Err(Failure::new("these files contain no chart")),
        ([], Some(name)) => Err(Failure::usage(format!("there is no chart `{name}`"))
            .help(format!("there are: {}", names(&charts, ", ")))),
        (several, name) => {
            let of = name.map(|name| format!(" of `{name}`")).unwrap_or_default();
            let reason = format!("there are {} charts{of}, and a picture shows one", several.len());
            Err(Failure::usage(reason).help(format!("name one: --chart {}", names(several, ", --chart "))))
        }
    }
}
