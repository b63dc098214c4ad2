//! `bulkmem bench clear`, `fill` and `copy`.

use bulkmem::Operation;
use bulkmem_measure::suite::{Key, PageSize, Results, SizesOptions};
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::Pivot;
use crate::commands::Outcome;
use crate::sizes::{size, sizes};

/// What it measures, and how.
#[derive(Args, Debug)]
pub(crate) struct SizesArgs {
    /// Sizes, or ranges of them [default: 16M,128M,1G]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) size: Vec<Vec<u64>>,
    /// How often a sample works through the memory [default: enough to be timed well]
    #[arg(long, short = 'l', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) loops: Option<u32>,
    /// Bytes a call [default: the whole size]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) chunk: Option<u64>,
    /// Start from memory full of zeros, as `perf bench mem` does; some processors move zeros faster
    #[arg(long)]
    pub(crate) zeros: bool,
    /// The pages behind the memory: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "thp")]
    pub(crate) page_size: Vec<PageSize>,
    /// Whom to say the speed-up against
    #[arg(long, value_name = "NAME", default_value = "c_library")]
    pub(crate) baseline: String,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
}

#[derive(Args, Debug)]
pub(crate) struct FillArgs {
    /// What to fill with
    #[arg(long, value_name = "BYTE", default_value_t = 0xA5)]
    pub(crate) byte: u8,
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
}

pub(super) fn run(args: &SizesArgs, operation: Operation, byte: Option<u8>) -> Outcome {
    let mut options = SizesOptions::new(operation);
    if !args.size.is_empty() {
        options.sizes = args.size.concat();
    }
    options.page_sizes.clone_from(&args.page_size);
    options.byte = byte.unwrap_or(options.byte);
    options.zeros = args.zeros;
    options.chunk = args.chunk;
    options.loops = args.loops;
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    args.common.run(&[&options], |found, width| text(found, &args.baseline, width))
}

fn text(found: &Results, baseline: &str, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    Pivot::across(Key::Size).baseline(baseline).text(&rows, width) + &remarks(found, width)
}
