//! `bulkmem bench clear`, `fill` and `copy`.

use std::num::NonZeroUsize;

use bulkmem::Operation;
use bulkmem::machine;
use bulkmem::policy::Choice;
use bulkmem_measure::engine::{Dimension, PageSize, Results};
use bulkmem_measure::measurements::SizesOptions;
use clap::Args;

use super::common::{Common, MethodArgs, remarks};
use super::pivot::Pivot;
use super::target::{AttributeArg, attributes};
use crate::failure::Outcome;
use crate::parsers::{byte, size, sizes};

/// Whom speed-ups are said against where nobody else is named.
const USUAL_BASELINE: &str = "c_library";

/// What is measured, and how.
#[derive(Args, Debug)]
pub(crate) struct SizesArgs {
    /// Sizes, or ranges of them [default: 16M,128M,1G]
    #[arg(long, short = 's', value_name = "SIZES", value_delimiter = ',', value_parser = sizes)]
    pub(crate) size: Vec<Vec<u64>>,
    /// How often a sample works through the memory [default: enough to be timed well]
    #[arg(long, short = 'l', alias = "nr_loops", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) loops: Option<u32>,
    /// Bytes a call [default: the whole size]
    #[arg(long, short = 'k', value_name = "SIZE", value_parser = size)]
    pub(crate) chunk: Option<u64>,
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
    /// Numbers of threads that share the work
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Start from memory full of zeros, as `perf bench mem memcpy` does [default: other bytes, written anew before each
    /// clear]
    #[arg(long)]
    pub(crate) zeros: bool,
    /// Start so many bytes past a page, as memory from malloc does: 16
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub(crate) offset: u64,
    /// Whom to say the speed-up against: any method, peer or row [default: c_library]
    #[arg(long, value_name = "NAME")]
    pub(crate) baseline: Option<String>,
    #[command(flatten)]
    pub(crate) methods: MethodArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// In what memory; not asked of copies.
#[derive(Args, Debug)]
pub(crate) struct AttributeArgs {
    /// Cache attributes of memory that the kernel module gives, or `all`: wb, wc, uc, wt; several are measured in turns.
    /// The default size is 4M then
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    pub(crate) attr: Vec<AttributeArg>,
}

/// Clear by size and method: mean ± standard deviation, and the speed-up against a baseline
///
/// Shows how fast each method writes zeros over memory that holds other bytes, at each size: the table that
/// `perf bench mem memset` and the sources have. At sizes that fit the last-level cache, methods that write through
/// the cache lead; past it, those that bypass it (movnti, clzero) usually do, as nobody reads what is overwritten.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_CLEAR)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
}

/// Fill with a byte by size and method
///
/// As `bench clear`, with a byte that is not zero: some processors write zeros faster than anything else, and
/// instructions that write only zeros (clzero) do not take part.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_FILL)]
pub(crate) struct FillArgs {
    /// What to fill with: 0 to 255, or 0x00 to 0xff
    #[arg(long, value_name = "BYTE", value_parser = byte, default_value = "0xa5")]
    pub(crate) byte: u8,
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
}

/// Copy by size and method
///
/// Shows how fast each method copies from one stretch of memory to another. The figure counts the bytes copied: memory
/// moves two to three times as many, read, written, and with cached stores read once more before they are written.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_COPY)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
}

/// What the three have in common; `concat!` takes literals only.
macro_rules! after {
    ($own:literal) => {
        concat!(
            $own,
            "\
How to read it:
  Rows: `the policy's choice` is what bulkmem does by itself, and the line below the table names
  the method; then methods, called directly; c_library (memset, memcpy) and libpmem, where it is
  installed, are peers; `(reading)` is what memory delivers to a plain read, a physical reference
  that does not compete. All are measured in turns in the same run, so compare rows, not runs.
  GB/s are 10⁹ bytes a second; perf's GB are 2³⁰ bytes. A difference smaller than the deviations is
  none. With --threads, starting the threads is in the time.

JSON: `rows` with `config`: `operation`, `size`, `page_size`, and where asked for `chunk`, `threads`,
`offset`, `content` (`zeros`), with --attr `attribute` and `target`; `metric`: `bandwidth`, GB/s; the policy's rows with `chosen`.

Source: Ankur Arora, [PATCH 4/8] x86/asm: add clear_page_nt(), linux-kernel, October 2020."
        )
    };
}

const AFTER_CLEAR: &str = after!(
    "\
What is cleared holds other bytes: they are written anew before each loop, outside the time, as
some processors clear zeros faster than anything that is worth clearing. (--zeros leaves them.)
`kernel: first touch` is the kernel's own clearing: fresh memory of the same size, prefaulted.
Finding and mapping the pages is in its time.
With --attr memory comes from the kernel module's device (docs/kernel/README.md), and attributes
stand side by side. Every store is legal in every memory: to wc memory all of them stream as
non-temporal ones do; to uc memory each goes out by itself, so that REP STOSB, which may write
byte by byte there, takes hundreds of times as long. Keep sizes small.

"
);
const AFTER_FILL: &str = after!(
    "\
With --attr memory comes from the kernel module's device: `bench clear --help` says what to expect.

"
);
const AFTER_COPY: &str = after!("");

/// What is cleared or filled in memory of other attributes, where nobody says how much: uncached memory is written byte by
/// byte by some, each taking a tenth of a microsecond.
const USUAL_OF_DEVICE: u64 = 4 << 20;

pub(super) fn run(
    args: &SizesArgs,
    operation: Operation,
    byte: Option<u8>,
    attr: &[AttributeArg],
) -> Outcome {
    let mut options = SizesOptions::new(operation);
    options.attributes = attributes(attr);
    if !attr.is_empty() {
        options.sizes = vec![USUAL_OF_DEVICE];
    }
    if !args.size.is_empty() {
        options.sizes = distinct(args.size.concat());
    }
    options.page_sizes = distinct(args.page_size.clone());
    options.threads = distinct(args.threads.iter().map(|threads| threads.get()).collect());
    options.byte = byte.unwrap_or(options.byte);
    options.zeros = args.zeros;
    options.offset = args.offset;
    options.chunk = args.chunk;
    options.loops = args.loops;
    options.methods = args.methods.wanted();
    options.peers = args.common.peers();
    options.runs = args.common.runs();
    options.baseline = args.baseline.as_deref().map(|name| as_shown(name, operation));
    let baseline = options.baseline.clone();
    let baseline = baseline.as_deref().unwrap_or(USUAL_BASELINE);
    args.common.run(&[&options], |found, width| text(found, baseline, width))
}

/// A method's name with its parameters as tables show it; other names stay.
fn as_shown(name: &str, operation: Operation) -> String {
    Choice::parse(name, operation, machine::features())
        .map_or_else(|_| name.to_owned(), |choice| choice.to_string())
}

/// Each value once, in the order given.
pub(super) fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut list = Vec::new();
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
    list
}

pub(super) fn text(found: &Results, baseline: &str, width: usize) -> String {
    let rows: Vec<_> = found.rows.iter().collect();
    let attributes = distinct(rows.iter().map(|row| row.config.attribute.as_deref()).collect());
    let key = if attributes.len() > 1 { Dimension::Attribute } else { Dimension::Size };
    Pivot::across(key).baseline(baseline).text(&rows, width) + &remarks(found, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_once() {
        assert_eq!(distinct(vec![3, 1, 3, 2, 1]), [3, 1, 2]);
    }
}
