//! `bulkmem explain`.

mod length;
mod overview;

use bulkmem::{Intent, Operation};
use clap::Args;

use crate::active_policy::ActivePolicy;
use crate::failure::{Outcome, show};
use crate::parsers::{self, Threads};
use length::Answer;
use overview::Overview;

/// Show which methods are used here, and how they measured: of every operation, or of one length and why
///
/// Without options: GB/s of every operation at four lengths, on memory that is not in the cache (cold) and that is
/// (warm). With --op and --size: the method for that length, what decides, and how the alternatives measured.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON with --op and --size: `operation`, `length`, `intent`, `method`, `parameters`, `from`, `reason` (the rule by length, which \
applies if `look` is null), `look` (null, or `from`, `cached_below` in ticks, `reason`, `cached` and `uncached`, each with `method`, \
`parameters`, `reason`, and `unmapped`, null if that cannot be told, or `from` in ticks, `method`, `parameters`), `page_aliasing` (null, or for copies that the C library \
would do slowly: `from`, `below`, `method`, `parameters`, `reason`), `threads`, `origin`, `measured` (a list, empty without a profile that measured this; for \
cold and for warm memory `cost`, `condition`, `length` and `figures`: each with `method`, `parameters`, `median_ns`, \
`quartiles_ns`, `samples`, `disturbance_ns`, `gb_per_s`, `times_c_library` and `times_libpmem` (null if the \
library was not measured; libpmem is a `method` that is never chosen), `chosen`).

JSON without them: `microarchitecture`, `processor`, `processors`, `c_library`, `date` (of the profile), `rows`: each with \
`operation`, `length`, `cold`, `warm` (each null if nothing was measured near that length, or `method`, `parameters`, \
`measured_length`, `gb_per_s`, `times_c_library`, `times_libpmem`), `gains` (for `clear`, `fill` and `copy`: `cold` and `warm`, times the C library \
as geometric means of the lengths, `libpmem`: `cold` and `warm`, times libpmem, null if it was not measured; `unchanged_from`: length from which a program under `bulkmem run` gains, or null; `unchanged`: `cold` and `warm`, times the C \
library as means of the lengths from there on, below a quarter of the last-level cache with the time of reading the bytes; null if none was measured), `drop_in` (for `copy_persist` and `fill_persist` by a program under `bulkmem run --libpmem`: `cold` and \
`warm`, times PMDK's libpmem; empty if that was not measured), `thresholds` (as in `info`).")]
pub(crate) struct ExplainArgs {
    /// The operation [default: all, at four lengths]
    #[arg(long, value_name = "OPERATION", value_parser = parsers::operation(), requires = "size")]
    op: Option<Operation>,
    /// The total length
    #[arg(long, value_name = "SIZE", value_parser = parsers::size, requires = "op")]
    size: Option<u64>,
    /// Use of the bytes afterwards
    #[arg(long, value_name = "INTENT", value_parser = parsers::intent(), default_value = "throughput", requires = "op")]
    intent: Intent,
    /// Threads that share the work: a number, or `auto`, as many as saturate memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = parsers::threads_or_auto, requires = "op")]
    threads: Threads,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ExplainArgs) -> Outcome {
    let active = ActivePolicy::load()?;
    let ExplainArgs { op, size, intent, threads, json } = *args;
    let (Some(operation), Some(length)) = (op, size) else {
        let overview = Overview::of(&active)?;
        return show(json, &overview, |width| overview.text(&active.policy, width));
    };
    let answer = Answer::find(&active, operation, length, intent, threads)?;
    show(json, &answer, |width| answer.text(width))
}
