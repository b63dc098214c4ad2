//! `bulkmem report`.
//!
//! Files become machines, machines become sections of charts and tables, and these become a page, Markdown or a picture.

mod facts;
mod html;
mod input;
mod lay;
mod look;
mod markdown;
mod model;
mod names;
mod picture;
mod sections;
mod verdict;

use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

use crate::active_policy::ActivePolicy;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use crate::plain::plain;
use crate::sink::Sink;
use input::Input;
use model::{Chart, Report};

/// Write a report: measurements and profiles as charts, tables and sentences
///
/// Files are results (`bulkmem bench … --output FILE`) and profiles, of one machine or of several, which are laid side
/// by side. Of figures that several files have of one machine, those of the last file count. The profile that serves here is
/// added to results of this machine; without files it is all that is reported on.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Formats:
  html      one file that needs no network: charts to point at and to click, light
            and dark, also for print; the data can be saved from it
  markdown  tables and sentences; with --chart one table, to paste
  svg, png  one chart as a picture with its legend

How to read each chart: docs/report.md.

Examples:
  bulkmem bench clear --size 4K-1G --output clear.json && bulkmem report clear.json
  bulkmem report here.json there.json --output both.html
  bulkmem report clear.json --format png --chart clear --output clear.png
  bulkmem report clear.json --format markdown --chart clear --output -")]
pub(crate) struct ReportArgs {
    /// Results and profiles [default: the profile that serves]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the report to this file; - is stdout [default: bulkmem-report.html, or .md, .svg, .png]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value = "html")]
    pub(crate) format: Format,
    /// Only this chart: its name, or the beginning of it: clear, chunks, iops; an unknown name lists those that exist
    #[arg(long, value_name = "NAME")]
    pub(crate) chart: Option<String>,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Html,
    Markdown,
    Svg,
    Png,
}

pub(super) fn run(args: &ReportArgs) -> Outcome {
    let output = args.output.clone().unwrap_or_else(|| default_output(args));
    let to_stdout = output.as_os_str() == "-";
    if args.chart.is_some() && args.format == Format::Html {
        return Err(Failure::usage(
            "--chart goes with --format svg, png or markdown: the page has all charts",
        )
        .help("leave --chart out, or add --format svg"));
    }
    let files: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let sink = if to_stdout { None } else { Some(Sink::open(&output, &files)?) };
    let inputs = inputs(args)?;
    let report = report(&inputs);
    let bytes = match (args.format, &args.chart) {
        (Format::Html, _) => html::render(&report)?.into_bytes(),
        (Format::Markdown, None) => markdown::render(&report).into_bytes(),
        (Format::Markdown, Some(name)) => markdown::chart(find(&report, Some(name))?).into_bytes(),
        (Format::Svg, name) => picture::svg(find(&report, name.as_deref())?)?.into_bytes(),
        (Format::Png, name) => picture::png(find(&report, name.as_deref())?)?,
    };
    let Some(sink) = sink else {
        output::print_raw(&bytes)?;
        return Ok(Exit::Done);
    };
    sink.write(&bytes).map_err(|error| sink.failure(&error))?;
    // On stdout, the sentence would become part of the report.
    if sink.is_stream() {
        return Ok(Exit::Done);
    }
    let name = plain(&output.display().to_string());
    output::print(&format!("Wrote {name} ({})\n", output::size(bytes.len() as u64)))?;
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

/// The files that were named, and the profile that serves where they are about this machine and no profile is among
/// them; where none was named, that profile.
fn inputs(args: &ReportArgs) -> Result<Vec<Input>, Failure> {
    let mut inputs =
        args.files.iter().map(|path| Input::load(path)).collect::<Result<Vec<Input>, Failure>>()?;
    if inputs.iter().any(Input::is_profile) {
        return Ok(inputs);
    }
    let served = ActivePolicy::load()?;
    if !inputs.is_empty() {
        if let Some((path, _)) = &served.profile {
            let profile = Input::load(path)?;
            if inputs.iter().any(|input| input.same_machine(&profile)) {
                inputs.push(profile);
            }
        }
        return Ok(inputs);
    }
    let Some((path, _)) = &served.profile else {
        return Err(Failure::new("there is no profile of this machine to report on").help(
            "run `bulkmem calibrate` first, or name files that `bulkmem bench … --output FILE` wrote; `bulkmem info` \
             says which profiles were looked at, and why none serves",
        ));
    };
    Ok(vec![Input::load(path)?])
}

fn report(inputs: &[Input]) -> Report {
    let machines = input::machines(inputs);
    Report {
        title: match machines.as_slice() {
            [one] => format!("bulkmem on {}", one.label),
            several => format!("bulkmem on {} machines", several.len()),
        },
        machines: machines.iter().map(facts::machine).collect(),
        verdict: verdict::all(&machines),
        sections: sections::all(&machines),
        files: inputs.iter().map(facts::source).collect(),
    }
}

/// The chart of a name; without one, the only chart.
fn find<'r>(report: &'r Report, name: Option<&str>) -> Result<&'r Chart, Failure> {
    let charts: Vec<&Chart> = report.sections.iter().flat_map(|section| &section.charts).collect();
    if charts.is_empty() {
        return Err(Failure::new("there is no chart in these files"));
    }
    let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
    let Some(name) = name else {
        return match charts.as_slice() {
            [only] => Ok(only),
            _ => Err(Failure::usage(format!("there are {} charts, and a picture holds one", charts.len()))
                .help(format!("name one: --chart {}", names.join(", --chart ")))),
        };
    };
    if let Some(chart) = charts.iter().find(|chart| chart.name == name) {
        return Ok(chart);
    }
    // The beginning of a name is enough where only one has it.
    let begun: Vec<&&Chart> =
        charts.iter().filter(|chart| chart.name.starts_with(&format!("{name}-"))).collect();
    match begun.as_slice() {
        [only] => Ok(only),
        [] => Err(Failure::usage(format!("there is no chart `{}`", name.escape_debug()))
            .help(format!("there are: {}", names.join(", ")))),
        several => {
            let names: Vec<&str> = several.iter().map(|chart| chart.name.as_str()).collect();
            Err(Failure::usage(format!("there are {} charts of `{name}`", several.len()))
                .help(format!("name one: --chart {}", names.join(", --chart "))))
        }
    }
}
