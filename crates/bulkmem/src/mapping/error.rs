//! Errors of memory mappings.

use std::io;

use super::Pages;

/// An error of a memory mapping.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A length of 0.
    #[error("a mapping has at least one byte: pass a length greater than 0")]
    Empty,
    /// A length greater than an address space holds.
    #[error(
        "{bytes} bytes, rounded up to whole pages, are more than an address space holds: pass a smaller length"
    )]
    TooLong {
        /// Requested length.
        bytes: usize,
    },
    /// Huge pages of a size that this kernel does not have.
    #[error(
        "this kernel has no explicit huge pages of {size} bytes; it has {known}: use one of those, or \
         Pages::Transparent",
        known = super::sizes_in_words(available)
    )]
    PageSize {
        /// Requested page size, bytes.
        size: u64,
        /// Page sizes that this kernel has, bytes.
        available: Vec<u64>,
    },
    /// The kernel does not have enough huge pages of that size free.
    #[error(
        "{needed} explicit huge pages of {size} bytes are needed and {free} are free: reserve them as root with \
         `{remedy}`"
    )]
    NotReserved {
        /// Page size, bytes.
        size: u64,
        /// Pages needed.
        needed: u64,
        /// Pages free.
        free: u64,
        /// The command that reserves them.
        remedy: String,
    },
    /// This kernel was built without transparent huge pages.
    #[error("this kernel has no transparent huge pages: use Pages::Base or Pages::Explicit")]
    NoTransparent(#[source] io::Error),
    /// Too little memory.
    #[error(
        "no memory for {bytes} bytes in {pages} pages: request less, free some, or raise the limit (ulimit -v, the \
         control group's memory.max, vm.overcommit_memory)"
    )]
    OutOfMemory {
        /// Requested length.
        bytes: usize,
        /// Requested kind of pages.
        pages: Pages,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("the kernel refused to {doing}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
