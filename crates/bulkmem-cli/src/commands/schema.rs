//! `bulkmem schema`: what the files of bulkmem look like, for programs that read or write them.

use bulkmem_measure::calibration::Profile;
use bulkmem_measure::engine::Results;
use clap::{Args, ValueEnum};
use schemars::schema_for;

use super::Outcome;
use crate::failure::Exit;
use crate::output;

/// Print the JSON Schema of a file format
///
/// Every field is described there, with its unit; docs/results-format.md and docs/profile-format.md say it in words.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example, with a checker of your choice:
  bulkmem schema results > results.schema.json
  check-jsonschema --schemafile results.schema.json found.json")]
pub(crate) struct SchemaArgs {
    /// Whose schema
    #[arg(value_enum)]
    pub(crate) format: FileFormat,
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// What `bulkmem bench … --output FILE` and `--json` write
    Results,
    /// What `bulkmem calibrate` writes
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
