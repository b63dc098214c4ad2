//! Errors.

use std::io;
use std::path::PathBuf;

use crate::limits::MemoryLeft;
use crate::text::size;

/// A prefault that did not complete. The memory that is ready stays ready.
#[derive(Debug, thiserror::Error)]
#[error("{} of {} are ready", size(*ready), size(*total))]
#[non_exhaustive]
pub struct Error {
    /// Bytes that are ready. They need not be the first ones, if several threads worked.
    pub ready: u64,
    /// Bytes that were requested.
    pub total: u64,
    /// The cause.
    #[source]
    pub cause: Cause,
}

/// The cause of an [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The caller cancelled, by the flag or the callback.
    #[error("cancelled")]
    Cancelled,
    /// Huge pages ran out.
    #[error("no huge page of {} is left{}", size(*page), huge_pages_remedy(*page, *free))]
    HugePages {
        /// Page size, bytes.
        page: u64,
        /// Pages that are free and not reserved.
        free: u64,
    },
    /// A memory limit is near: a larger step could end the process.
    #[error(
        "only {left}, and {} stay free{}; {}",
        size(*keep), size_hint(*needed), left.limit.remedy()
    )]
    Limit {
        /// Memory left, and the limit.
        left: MemoryLeft,
        /// Bytes that stay free, as the options say.
        keep: u64,
        /// Bytes of the next page.
        needed: u64,
    },
    /// The memory may not be locked: `RLIMIT_MEMLOCK`.
    #[error(
        "{} cannot be locked: this process may lock {} (ulimit -l), and {} are locked; raise that limit, or grant \
         CAP_IPC_LOCK",
        size(*needed), size(*limit), size(*locked)
    )]
    LockLimit {
        /// Bytes to lock.
        needed: u64,
        /// The limit, bytes.
        limit: u64,
        /// Bytes that this process has locked.
        locked: u64,
    },
    /// The file is shorter than the range, from the beginning or because it was truncated.
    #[error("the file has {}, and the range ends at {}; extend the file (truncate -s), or shorten the range",
        bytes(*length), bytes(*end))]
    TooShort {
        /// Length of the file, bytes.
        length: u64,
        /// End of the range within the file, bytes.
        end: u64,
    },
    /// The file system is full.
    #[error("the file system has {} left; remove files, or enlarge it (tmpfs: mount -o remount,size=…)", size(*free))]
    NoSpace {
        /// Bytes left.
        free: u64,
    },
    /// The kernel could not provide a page, and the reason is not known.
    #[error(
        "the kernel could not provide a page of {}: the file is shorter than its mapping, its file system is full, or \
         reading it failed",
        .name.display()
    )]
    Fault {
        /// The name of the mapping.
        name: PathBuf,
    },
    /// Memory ran out.
    #[error("the kernel has no memory left; free some")]
    OutOfMemory(#[source] io::Error),
    /// A page has a hardware error.
    #[error("the range has a page with a hardware memory error (hwpoison); map other memory")]
    Poisoned(#[source] io::Error),
    /// The memory or file is not of a kind that can be prefaulted.
    #[error("{what}; {remedy}")]
    Unsupported {
        /// The obstacle.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("cannot {doing}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl Cause {
    pub(crate) fn unsupported(what: impl Into<String>, remedy: &'static str) -> Cause {
        Cause::Unsupported { what: what.into(), remedy }
    }

    pub(crate) fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Cause {
        move |source| Cause::System { doing, source: source.into() }
    }
}

fn bytes(count: u64) -> String {
    format!("{count} bytes")
}

fn size_hint(needed: u64) -> String {
    if needed > 4096 { format!(" (a page has {})", size(needed)) } else { String::new() }
}

fn huge_pages_remedy(page: u64, free: u64) -> String {
    if free > 0 {
        return format!(
            " for this process, although {free} are free: raise the control group's hugetlb limit, allow other NUMA nodes, \
             enlarge the file system (hugetlbfs: mount -o remount,size=…), or lower what stays free"
        );
    }
    format!(": reserve more as root in /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page / 1024)
}
