//! `bulkmem bench clear`, `fill`, `copy` and `chunks`.

use bulkmem::Operation;
use bulkmem::machine;
use bulkmem::policy::Choice;
use bulkmem_measure::engine::{Dimension, Results, distinct};
use bulkmem_measure::measurements::{Attribute, ChunksOptions, SizesOptions};
use clap::Args;

use super::common::{Common, PageSizesArg, attribute_or_all, attributes};
use super::pivot::Pivot;
use super::rows::remarks;
use crate::failure::Outcome;
use crate::parsers::{byte, given_or, size, sizes, threads};

pub(super) const BASELINE: &str = "c_library";

#[derive(Args, Debug)]
struct SizesArgs {
    /// Sizes, or ranges of them [default: 16M,128M,1G]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    size: Vec<Vec<u64>>,
    /// Passes over the memory per sample [default: as many as accurate timing needs]
    #[arg(long, short = 'l', alias = "nr_loops", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    loops: Option<u32>,
    /// Bytes per call [default: the whole size]
    #[arg(long, short = 'k', value_name = "SIZE", value_parser = size)]
    chunk: Option<u64>,
    #[command(flatten)]
    pages: PageSizesArg,
    /// Numbers of threads that share the work
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = threads)]
    threads: Vec<usize>,
    /// Start from memory full of zeros, as `perf bench mem memcpy` does [default: from other bytes, which are written
    /// again before each clear]
    #[arg(long)]
    zeros: bool,
    /// Distance of the start from a page boundary, bytes; 16 is that of memory from malloc
    #[arg(long, value_name = "BYTES", default_value = "0")]
    offset: u64,
    /// Candidate that speed-ups are relative to: a method, a peer, or any other line of the table [default: c_library]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Cache attributes, of memory that is cleared or filled.
#[derive(Args, Debug)]
struct AttributeArgs {
    /// Cache attributes of memory from the kernel module: wb, wc, uc, wt, or `all`; several are interleaved. The default
    /// size is then 4M
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',', value_parser = attribute_or_all)]
    attr: Vec<Option<Attribute>>,
}

/// Clear by size and method: mean ± standard deviation, and the speed-up over a baseline
///
/// Shows how fast each method writes zeros over memory that holds other bytes, at each size, as `perf bench mem memset`
/// and the sources do. At sizes that fit the last-level cache, methods that write to the cache are fastest; above it,
/// usually those that bypass the cache (movnti, clzero), because what they overwrite need not be read first.
#[derive(Args, Debug)]
#[command(after_long_help = format!("{AFTER_CLEAR}{AFTER}"))]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    sizes: SizesArgs,
    #[command(flatten)]
    attributes: AttributeArgs,
}

/// Fill with a byte by size and method
///
/// Like `bench clear`, with a byte other than zero: some processors write zeros faster than other bytes. Instructions that
/// only write zeros (clzero) do not take part.
#[derive(Args, Debug)]
#[command(after_long_help = format!("{AFTER_FILL}{AFTER}"))]
pub(crate) struct FillArgs {
    /// Byte to fill with: 0 to 255, or 0x00 to 0xff
    #[arg(long, value_name = "BYTE", value_parser = byte, default_value = "0xa5")]
    byte: u8,
    #[command(flatten)]
    sizes: SizesArgs,
    #[command(flatten)]
    attributes: AttributeArgs,
}

/// Copy by size and method
///
/// Shows how fast each method copies from one range of memory to another. The figure counts the bytes copied: memory
/// transfers two to three times as many, because they are read and written, and stores to the cache read the destination
/// first.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    sizes: SizesArgs,
}

/// A large range cleared in chunks, by method
///
/// Clears the same range in calls of 4 KiB, of 64 KiB, and so on up to 1 GiB, each call with its fence, and shows the
/// bandwidth of each method.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_CHUNKS)]
pub(crate) struct ChunksArgs {
    /// Total length [default: 4G, or half the available memory if that is less]
    #[arg(long, short = 'e', visible_alias = "extent", value_name = "SIZE", value_parser = size)]
    total: Option<u64>,
    /// Bytes per call, or ranges of them [default: 4K,64K,2M,8M,32M,128M,1G, up to the total length]
    #[arg(long, short = 'k', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    chunk: Vec<Vec<u64>>,
    #[command(flatten)]
    pages: PageSizesArg,
    #[command(flatten)]
    common: Common,
}

const AFTER: &str = "\
How to read it: `the policy's choice` is what bulkmem does by default; the text below the table names the method. Methods are \
called directly. c_library (memset, memcpy) and libpmem, if it is installed, are peers. `(reading)` is the speed of plain reads, a \
physical reference that does not compete. All candidates are interleaved in one run, so compare lines, not runs. GB/s are 10⁹ \
bytes per second; perf's GB are 2³⁰ bytes. Ignore differences smaller than the deviations. With --threads, the time includes \
starting the threads.

JSON: `rows` with `config`: `operation`, `size`, `page_size`, and if given `chunk`, `threads`, `offset`, `content` (`zeros`), with \
--attr `attribute` and `target`; `metric`: `bandwidth`, GB/s; rows of the policy have `chosen`.

Sources: Ankur Arora, [PATCH 4/8] x86/asm: add clear_page_nt(), linux-kernel, October 2020; Denis Vlasenko, copy_page(): \
non-temporal stores look useful?, linux-kernel, August 2004, for rep_stosd, rep_movsd, the loops at the start of a cache line of \
instructions and across two, and copies with prefetches ([read_distance=512]).";

const AFTER_CLEAR: &str = "\
Before each pass, other bytes are written to the memory, outside the time, because some processors clear zeros faster. (With \
--zeros they are not.) `kernel: first touch` is the clearing of the kernel: fresh memory of the same size is prefaulted, and the \
time includes finding and mapping pages.

With --attr, memory comes from the kernel module's device (docs/kernel/README.md), and attributes are compared in one table. To wc \
memory all stores stream like non-temporal ones; to uc memory each goes out separately, so that REP STOSB, which may write byte by \
byte there, takes hundreds of times as long. Keep sizes small.

";
const AFTER_FILL: &str = "\
With --attr, memory comes from the kernel module's device; see `bench clear --help`.

";

const AFTER_CHUNKS: &str = "\
How to read it: a method with the same speed in every line (movnti, clzero) does not depend on the length of a call: a kernel that \
clears huge pages 4 KiB at a time loses nothing with it. The speed of others (rep_stosb on some processors, from about the size of \
the last-level cache on) depends on the length, which they never see if the work arrives in pieces. The cost of the fence after \
each call shows in chunks up to about 32 KiB. The policy receives the total length, not only that of the chunk. Before each clear, \
other bytes are written to the memory, outside the time.

JSON: `rows` with `config`: `operation`, `size` (the total length), `chunk`, `page_size`; `metric`: `bandwidth`, GB/s; rows of the \
policy have `chosen`.

Source: Ankur Arora, [PATCH v3 00/21] huge page clearing optimizations, linux-kernel, June 2022.";

/// Default size of memory with other attributes: some methods write uncached memory byte by byte, and each byte takes a
/// tenth of a microsecond.
const DEVICE_SIZE: u64 = 4 << 20;

pub(super) fn clear(args: &ClearArgs) -> Outcome {
    args.sizes.run(SizesOptions::new(Operation::Clear), &args.attributes.attr)
}

pub(super) fn fill(args: &FillArgs) -> Outcome {
    let options = SizesOptions { byte: args.byte, ..SizesOptions::new(Operation::Fill) };
    args.sizes.run(options, &args.attributes.attr)
}

pub(super) fn copy(args: &CopyArgs) -> Outcome {
    args.sizes.run(SizesOptions::new(Operation::Copy), &[])
}

impl SizesArgs {
    fn run(&self, default: SizesOptions, attr: &[Option<Attribute>]) -> Outcome {
        // Tables show methods with all their parameters.
        let shown = |name: &String| {
            Choice::parse(name, default.operation, machine::features())
                .map_or_else(|_| name.clone(), |choice| choice.to_string())
        };
        let sizes = if attr.is_empty() { default.sizes } else { vec![DEVICE_SIZE] };
        let options = SizesOptions {
            sizes: given_or(distinct(self.size.concat()), sizes),
            page_sizes: distinct(self.pages.page_size.clone()),
            attributes: attributes(attr),
            chunk: self.chunk,
            loops: self.loops,
            threads: distinct(self.threads.clone()),
            zeros: self.zeros,
            offset: self.offset,
            baseline: self.baseline.as_ref().map(shown),
            candidates: self.common.candidates(),
            ..default
        };
        let baseline = options.baseline.as_deref().unwrap_or(BASELINE);
        self.common.outputs.run(&[], &[&options], &|found, width| view(found, baseline, width))
    }
}

pub(super) fn view(found: &Results, baseline: &str, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    let several = rows.iter().any(|row| row.config.attribute != rows[0].config.attribute);
    let across = if several { Dimension::Attribute } else { Dimension::Size };
    let pivot = Pivot { baseline: Some(baseline), ..Pivot::across(across) };
    pivot.text(&rows, width) + &remarks(found, width)
}

pub(super) fn chunks(args: &ChunksArgs) -> Outcome {
    let mut options = args.total.map_or_else(ChunksOptions::default, ChunksOptions::of);
    options.chunks = given_or(distinct(args.chunk.concat()), options.chunks);
    options.page_sizes = distinct(args.pages.page_size.clone());
    options.candidates = args.common.candidates();
    args.common.outputs.run(&[], &[&options], &view_chunks)
}

pub(super) fn view_chunks(found: &Results, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    Pivot::down(Dimension::Chunk).text(&rows, width) + &remarks(found, width)
}
