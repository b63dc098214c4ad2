//! `bulkmem bench chunks`.

use bulkmem_measure::engine::{Dimension, PageSize, Results};
use bulkmem_measure::measurements::ChunksOptions;
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::Pivot;
use super::sizes::distinct;
use crate::failure::Outcome;
use crate::parsers::{size, sizes};

/// An extent cleared in chunks, by method
///
/// Clears the same large extent by calls of 4 KiB, of 64 KiB, and so on up to 1 GiB, each call with its fence, and shows
/// the bandwidth of each method.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ChunksArgs {
    /// Bytes cleared in all [default: 4G, or half the available memory where that is less]
    #[arg(long, short = 'e', value_name = "SIZE", value_parser = size)]
    pub(crate) extent: Option<u64>,
    /// Bytes a call, or ranges of them [default: 4K,64K,2M,8M,32M,128M,1G, as far as the extent holds them]
    #[arg(long, short = 'k', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) chunk: Vec<Vec<u64>>,
    /// The pages behind the memory: 4K, thp (transparent huge pages), 2M, 1G
    #[arg(
        long,
        short = 'p',
        visible_alias = "page",
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "thp"
    )]
    pub(crate) page_size: Vec<PageSize>,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

const AFTER: &str = "\
How to read it:
  A method that is flat down the table (movnti, clzero) does not care how long one call is: a kernel
  that clears huge pages 4 KiB at a time loses nothing with it. One that rises (rep_stosb on some
  processors, from about the last-level cache's size on) does something with the length, and never
  gets to see it when the work comes in pieces. The fence after each call shows in chunks up to
  some 32 KiB. The policy is told the extent, not only the chunk. Memory is written to with other
  bytes before each clear, outside the time.

JSON: `rows` with `config`: `operation`, `size` (the extent), `chunk`, `page_size`; `metric`:
`bandwidth`, GB/s; the policy's rows with `chosen`.

Source: Ankur Arora, [PATCH v3 00/21] huge page clearing optimizations, linux-kernel, June 2022.";

pub(super) fn run(args: &ChunksArgs) -> Outcome {
    let mut options = args.extent.map_or_else(ChunksOptions::new, ChunksOptions::of);
    if !args.chunk.is_empty() {
        options.chunks = distinct(args.chunk.concat());
    }
    options.page_sizes = distinct(args.page_size.clone());
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    args.common.run(&[&options], text)
}

pub(super) fn text(found: &Results, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    Pivot::down(Dimension::Chunk).text(&rows, width) + &remarks(found, width)
}
