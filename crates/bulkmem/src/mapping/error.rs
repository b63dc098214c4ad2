//! Why memory could not be had.

use std::io;

use super::Pages;

/// Why the operating system gave no memory, or not as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A region of no bytes was asked for.
    #[error("a region holds at least one byte: ask for more than 0")]
    Empty,
    /// More was asked for than an address space holds.
    #[error("{bytes} bytes, rounded up to whole pages, are more than an address space holds: ask for less")]
    TooLong {
        /// What was asked for.
        bytes: usize,
    },
    /// Huge pages of a size that this kernel does not have.
    #[error(
        "this kernel has no explicit huge pages of {size} bytes; it has {known}: ask for one of those, or for \
         Pages::Transparent",
        known = super::sizes_in_words(available)
    )]
    PageSize {
        /// What was asked for, bytes.
        size: u64,
        /// What there is, bytes each.
        available: Vec<u64>,
    },
    /// The kernel does not have enough huge pages of that size free.
    #[error(
        "{needed} explicit huge pages of {size} bytes are needed and {free} are free: reserve them as root with \
         `{remedy}`"
    )]
    NotReserved {
        /// Bytes a page.
        size: u64,
        /// Pages needed.
        needed: u64,
        /// Pages free.
        free: u64,
        /// The command that reserves them.
        remedy: String,
    },
    /// This kernel was built without transparent huge pages.
    #[error("this kernel has no transparent huge pages: ask for Pages::Base or Pages::Explicit")]
    NoTransparent(#[source] io::Error),
    /// There is not that much memory.
    #[error(
        "no memory for {bytes} bytes in {pages} pages: ask for less, free some, or raise the limit (ulimit -v, the \
         control group's memory.max, vm.overcommit_memory)"
    )]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
        /// In which pages.
        pages: Pages,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("the kernel refused to {doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
