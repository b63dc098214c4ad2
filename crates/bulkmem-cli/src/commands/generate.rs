//! `bulkmem schema`, `completions` and `man`: documents made from the definitions of formats and commands.

use std::io;
use std::path::PathBuf;

use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::Results;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use schemars::schema_for;

use super::run::Histogram;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use crate::plain::plain;

/// Print the JSON Schema of a file format
///
/// The schema describes every field with its unit; docs/results-format.md, docs/profile-format.md
/// and docs/preload.md explain the formats.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example, with the schema checker check-jsonschema:
  bulkmem schema results > results.schema.json
  check-jsonschema --schemafile results.schema.json found.json")]
pub(crate) struct SchemaArgs {
    /// The file format
    #[arg(value_enum)]
    format: FileFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// Results, from `bulkmem bench … --output FILE` and `--json`
    Results,
    /// Profiles, from `bulkmem calibrate`
    Profile,
    /// Histograms, from `bulkmem run --histogram --json`
    Histogram,
}

pub(super) fn schema(args: &SchemaArgs) -> Outcome {
    let schema = match args.format {
        FileFormat::Results => schema_for!(Results),
        FileFormat::Profile => schema_for!(Profile),
        FileFormat::Histogram => schema_for!(Histogram),
    };
    output::print_json(&schema)?;
    Ok(Exit::Done)
}

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "bulkmem", &mut script);
    output::print_raw(&script)?;
    Ok(Exit::Done)
}

/// Print the manual page, or write those of all commands to a directory
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn man(args: &ManArgs, command: Command) -> Outcome {
    let Some(directory) = &args.output else {
        output::print_raw(&page(&command)?)?;
        return Ok(Exit::Done);
    };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    for (name, page) in pages(&command)? {
        let path = directory.join(name);
        bulkmem_output::write(&path, &page).map_err(|error| {
            Failure::new(format!("cannot write the manual page {}: {error}", path.display()))
                .help("name a directory you may write to: bulkmem man --output DIR")
        })?;
    }
    output::print(&format!("Wrote the manual pages to {}\n", plain(&directory.display().to_string())))?;
    Ok(Exit::Done)
}

/// Returns file names and manual pages of a command and all its subcommands.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        found.extend(pages(below)?);
    }
    found.push((Man::new(command.clone()).get_filename(), page(command)?));
    Ok(found)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    // clap_mangen's own synopsis lists every option without its value, and leaves out the `--` before a program. man-pages(7) has
    // no heading EXTRA.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().replace('-', r"\-");
    let page = String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    let around = page
        .split_once("\n.SH SYNOPSIS\n")
        .and_then(|(before, rest)| Some((before, rest.split_once("\n.SH ")?.1)));
    let Some((before, after)) = around else { return Ok(page.into_bytes()) };
    Ok(format!("{before}\n.SH SYNOPSIS\n{usage}\n.SH {after}").into_bytes())
}
