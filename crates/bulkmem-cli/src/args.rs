//! The arguments, and the help that goes with them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bulkmem::{Intent, Operation};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::commands::{BenchCommand, CompareArgs, KmodArgs, SchemaArgs};
use crate::names::names;
use crate::sizes::{size, sizes};

const AFTER: &str = "\
Sizes:
  4096, 4K, 4KiB, 256M and 1.5G are sizes; units are binary. Where several may be
  given, a range 4K-1M means 4K and its doubles up to 1M.

Environment:
  BULKMEM_METHOD   forces methods: clear:movnti,copy:rep_movsb; with parameters:
                   clear:write_prefetch_avx512[write_distance=4096]
  BULKMEM_PROFILE  the profile to use in config of the user's and the system's;
                   calibrate writes it
  BULKMEM_EADR     1: the caches are in the persistence domain, persist and
                   flush need only a fence
  NO_COLOR         any value turns colours off

Exit codes:
  0    done
  1    failed; stderr says why, and what can be done about it
  2    the arguments, or the variables above, make no sense
  3    `compare` found rows that became worse
  130  interrupted; what was finished by then has been kept";

/// Clears, fills, copies and persists large memory at the limit of the machine, by measuring it
#[derive(Debug, Parser)]
#[command(name = "bulkmem", version, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // These two say what they are at their arguments.
    Calibrate(CalibrateArgs),
    Bench(BenchArgs),
    /// Show what this machine has, and which profile or defaults serve
    Info(InfoArgs),
    /// Show which method serves a length, why, and what the alternatives measured
    Explain(ExplainArgs),
    /// Show every method this library knows, and which of them can run here
    Methods(MethodsArgs),
    // And these two.
    Reproduce(ReproduceArgs),
    Report(ReportArgs),
    // And these.
    Compare(CompareArgs),
    Kmod(KmodArgs),
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands to a directory
    Man(ManArgs),
}

/// Measure this machine and write its profile, which the library then follows
///
/// Takes at most a minute (--quick: ten seconds; --thorough: ten minutes). Operations that were measured to the end replace
/// those of the profile, the others stay; the profile before is kept as profile.json.old. Ctrl-C keeps the operations that
/// are measured by then; a second Ctrl-C ends the command immediately and keeps nothing new. For figures worth keeping, let
/// the machine do nothing else: rules that were measured under a lighter load are not replaced.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `path` (where the profile was written, or null), `choices` (each with `operation`, `intent`, `from`, `method`, \
`parameters`, `gb_per_s` (slowest and fastest), `times_c_library`, `reason`), `notes` (what was left out and why), `profile` (as \
in the file).")]
pub(crate) struct CalibrateArgs {
    /// Take at most 10 seconds
    #[arg(long, conflicts_with = "thorough")]
    pub(crate) quick: bool,
    /// Take ten minutes: more lengths, more parameters, more samples
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Only these operations [default: all]; what the profile has of the others stays
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = operation())]
    pub(crate) op: Vec<Operation>,
    /// The largest length to measure [default: 1G; with --thorough 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Write the profile to this file
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub(crate) output: Option<PathBuf>,
    /// Write the profile for every user of this machine: /etc/bulkmem/profile.json
    #[arg(long)]
    pub(crate) system: bool,
    /// Replace rules that were measured under a lighter load
    #[arg(long)]
    pub(crate) force: bool,
    /// Measure and show what would be chosen, but write nothing
    #[arg(long, conflicts_with_all = ["output", "system"])]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The time it may take
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, hide = true)]
    pub(crate) budget: Option<Duration>,
}

/// Measure memory: each table of the sources as one measurement, and how well the policy chooses
#[derive(Args, Debug)]
#[command(subcommand_value_name = "MEASUREMENT", subcommand_help_heading = "Measurements")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) measurement: BenchCommand,
}

/// Compare the policy's choice with every method and with other libraries
///
/// Contestants are measured in turns, so that a change of the machine's speed strikes them all; compare the ratios
/// within one run rather than figures of two runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `evidence` (machine, date, commit), `operation`, `policy`, `rows` (each with `length`, `intent`, `cost`, \
`condition`, `contestant`, `median_ns`, `quartiles_ns`, `samples`, `gb_per_s`, `ratio_to_best_peer`, `regret`), `regret`, \
`overall` (each length over the conditions: `length`, `intent`, `threads`, `conditions`, `ratio_to_best_peer`, `best_peer`, \
`regret`, `best_method`), `choosing`, `notes`, `complete`.")]
pub(crate) struct ChoiceArgs {
    /// What to compare
    #[arg(value_parser = operation())]
    pub(crate) operation: Operation,
    /// Lengths, or ranges of them [default: 4K,64K,1M,16M,256M]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) size: Vec<Vec<u64>>,
    /// Between the smallest and the largest of the lengths, those that calibration does not measure
    #[arg(long)]
    pub(crate) unmeasured: bool,
    /// What happens to the bytes next [default: throughput]
    #[arg(long, value_name = "INTENT", value_delimiter = ',', value_parser = intent())]
    pub(crate) intent: Vec<Intent>,
    /// Numbers of threads that share the work [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Start ranges off the cache lines
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// Ranges that are not in the cache [default]
    #[arg(long)]
    pub(crate) cold: bool,
    /// Ranges that are in the cache, as far as they fit; with --cold both are measured
    #[arg(long)]
    pub(crate) warm: bool,
    /// Only these methods beside the choice, or `all` [default: all]
    #[arg(long, value_name = "METHODS", value_parser = names)]
    pub(crate) method: Vec<Vec<String>>,
    /// Leave out libpmem, reading, and the ratios to peers
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// The time it may take [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every row to this file as comma-separated values too; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) csv: Option<PathBuf>,
}

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

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `bulkmem` (version), `machine`, `instructions` (each with `name`, `available`, `methods`: those that need it), `counters` \
(`available`, `reason`), `policy` (`basis`: `profile` with `path` and `provenance`, or `defaults` with `microarchitecture`, `why` \
and `source`; `forced`: pairs of operation and method; `refused`: each with `path` and `reason`), `rules` (each with \
`operation`, `intent`, `from`, `choice`, `reason`).")]
pub(crate) struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `operation`, `length`, `intent`, `method`, `parameters`, `from`, `reason`, `threads`, `origin`, `evidence` (null \
without a profile that measured this; else `cost`, `condition`, `length` and `figures`: each with `method`, `parameters`, \
`median_ns`, `quartiles_ns`, `samples`, `disturbance_ns`, `gb_per_s`, `times_c_library`, `chosen`).")]
pub(crate) struct ExplainArgs {
    /// The operation
    #[arg(long, value_name = "OPERATION", value_parser = operation())]
    pub(crate) op: Operation,
    /// The length of the whole extent
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: u64,
    /// What happens to the bytes next
    #[arg(long, value_name = "INTENT", value_parser = intent(), default_value = "throughput")]
    pub(crate) intent: Intent,
    /// Threads that share the work: a number, or `auto`: as many as saturate memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: Threads,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How many threads share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    Auto,
    Exactly(NonZeroUsize),
}

#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: a list; each row with `name`, `summary`, `operations`, `effect` (allocates, bypasses, evicts, mixed), `ordering` \
(ordered, weak), `requires`, `available`, `missing`, `tunables` (each with `name`, `operations`, `smallest`, `largest`, `step`, \
`default`, `search`).")]
pub(crate) struct MethodsArgs {
    /// Only methods that can do this operation
    #[arg(long, value_name = "OPERATION", value_parser = operation())]
    pub(crate) op: Option<Operation>,
    /// Only methods that can run on this machine
    #[arg(long)]
    pub(crate) available: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lay the published tables beside this machine's figures, and judge what they conclude
///
/// Measures what is needed (some minutes; --quick: about one), then shows which published machine is most alike, which
/// conclusions of the sources hold here, and what bulkmem's own choice does. With FILES nothing is measured: the
/// figures come from results that `bulkmem bench … --output FILE` saved.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `evidence`, `alike` (each with `machine`, `distance`: root mean square of logarithms, `same_model`, `reasons`), `conclusions` \
(each with `claim`, `source`, `published`, `here`, `verdict`: holds, fails, not-measured), `choices` (each with `size`, `gb_per_s`, \
`times_string`, `times_movnti`), `figures` (each with `table`, `machine`, `candidate`, `config`, `unit`, `published`, `here`, `against`, \
`published_ratio`, `here_ratio`).")]
pub(crate) struct ReproduceArgs {
    /// Results to take the figures from instead of measuring
    #[arg(value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// Take about a minute: smaller extents
    #[arg(long)]
    pub(crate) quick: bool,
    /// Show every published figure beside ours, too
    #[arg(long)]
    pub(crate) figures: bool,
    /// Save what is measured to this file, for `report` and `compare`
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

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

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this directory, which is made if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// An operation by name.
pub(crate) fn operation() -> impl TypedValueParser<Value = Operation> {
    PossibleValuesParser::new(Operation::ALL.map(Operation::name)).try_map(|name| name.parse::<Operation>())
}

fn intent() -> impl TypedValueParser<Value = Intent> {
    PossibleValuesParser::new(Intent::ALL.map(Intent::name)).try_map(|name| name.parse::<Intent>())
}

fn threads(text: &str) -> Result<Threads, &'static str> {
    match text {
        "auto" => Ok(Threads::Auto),
        _ => text.parse().map(Threads::Exactly).map_err(|_| "write a number of at least 1, or `auto`"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        super::Cli::command().debug_assert();
    }
}
