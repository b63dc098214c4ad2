//! `bulkmem bench chunks`.

use bulkmem_measure::engine::{Dimension, Results};
use bulkmem_measure::measurements::ChunksOptions;
use clap::Args;

use super::common::{Common, PageSizesArg};
use super::pivot::Pivot;
use super::rows::{distinct, remarks};
use crate::failure::Outcome;
use crate::parsers::{given_or, size, sizes};

/// A large range cleared in chunks, by method
///
/// Clears the same range in calls of 4 KiB, of 64 KiB, and so on up to 1 GiB, each call with its fence, and shows the
/// bandwidth of each method.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ChunksArgs {
    /// Total length [default: 4G, or half the available memory if that is less]
    #[arg(long, short = 'e', value_name = "SIZE", value_parser = size)]
    extent: Option<u64>,
    /// Bytes per call, or ranges of them [default: 4K,64K,2M,8M,32M,128M,1G, up to the total length]
    #[arg(long, short = 'k', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    chunk: Vec<Vec<u64>>,
    #[command(flatten)]
    pages: PageSizesArg,
    #[command(flatten)]
    common: Common,
}

const AFTER: &str = "\
How to read it: a method with the same speed in every line (movnti, clzero) does not depend on the length of a call: a kernel that \
clears huge pages 4 KiB at a time loses nothing with it. The speed of others (rep_stosb on some processors, from about the size of \
the last-level cache on) depends on the length, which they never see if the work arrives in pieces. The cost of the fence after \
each call shows in chunks up to about 32 KiB. The policy receives the total length, not only that of the chunk. Before each clear, \
other bytes are written to the memory, outside the time.

JSON: `rows` with `config`: `operation`, `size` (the total length), `chunk`, `page_size`; `metric`: `bandwidth`, GB/s; rows of the \
policy have `chosen`.

Source: Ankur Arora, [PATCH v3 00/21] huge page clearing optimizations, linux-kernel, June 2022.";

pub(super) fn run(args: &ChunksArgs) -> Outcome {
    let mut options = args.extent.map_or_else(ChunksOptions::new, ChunksOptions::of);
    options.chunks = given_or(distinct(args.chunk.concat()), options.chunks);
    options.page_sizes = distinct(args.pages.page_size.clone());
    (options.methods, options.peers, options.runs) = args.common.candidates();
    args.common.outputs.run(None, &options, view)
}

pub(super) fn view(found: &Results, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    Pivot::down(Dimension::Chunk).text(&rows, width) + &remarks(found, width)
}
