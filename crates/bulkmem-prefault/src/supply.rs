//! Sources of new pages, and what is left of them.

use std::fs;
use std::os::fd::BorrowedFd;

use rustix::fs::fstatfs;

/// Source of new pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Supply<'a> {
    /// The machine's memory.
    Memory,
    /// The same, through a tmpfs with a limit of its own.
    Shared(BorrowedFd<'a>),
    /// The pool of huge pages of this size.
    HugePages(u64),
    /// Huge pages that are reserved for this mapping.
    Reserved,
}

/// Returns the number of huge pages of that size that are free and not reserved.
pub(crate) fn free_pages(page: u64) -> u64 {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page / 1024);
    let number = |file: &str| -> u64 {
        let text = fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    number("free_hugepages").saturating_sub(number("resv_hugepages"))
}

/// Returns the bytes left on the file system of a tmpfs; `None` if it has no limit.
pub(crate) fn left_on_tmpfs(file: BorrowedFd<'_>) -> Option<u64> {
    let system = fstatfs(file).ok()?;
    (system.f_blocks > 0).then(|| system.f_bavail.saturating_mul(system.f_bsize as u64))
}
