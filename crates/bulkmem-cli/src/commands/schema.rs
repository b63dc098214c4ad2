//! `bulkmem schema`: the formats of bulkmem's files, for programs that read or write them.

use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::Results;
use clap::{Args, ValueEnum};
use schemars::schema_for;

use crate::failure::{Exit, Outcome};
use crate::output;

/// Print the JSON Schema of a file format
///
/// The schema describes every field with its unit; docs/results-format.md and docs/profile-format.md explain the formats.
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
}

pub(super) fn run(args: &SchemaArgs) -> Outcome {
    let schema = match args.format {
        FileFormat::Results => schema_for!(Results),
        FileFormat::Profile => schema_for!(Profile),
    };
    output::print_json(&schema)?;
    Ok(Exit::Done)
}
