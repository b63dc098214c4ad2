//! Maps every page of large memory in advance ("prefault"): with all threads, on the right NUMA nodes, within the limits of
//! the machine, with progress, and cancellable.
//!
//! A program that touches fresh memory waits for a page fault at each page, and meets a lack of memory in the middle of its
//! work: as SIGBUS, or as a SIGKILL of the out-of-memory killer. A prefault takes all faults in advance, and reports a lack of
//! memory as an [`Error`] with the bytes that are ready.
//!
//! | to prefault | use |
//! |---|---|
//! | memory of the crate `bulkmem` | [`prefault_mapping`] |
//! | a file: on hugetlbfs, a tmpfs, a disk or DAX, or a memfd | [`prefault_file`] |
//! | any range of addresses | [`prefault_range`] |
//!
//! ```
//! use bulkmem::{Mapping, Pages};
//! use bulkmem_prefault::{Options, prefault_mapping};
//!
//! let mut memory = Mapping::new(64 << 20, Pages::Transparent)?;
//! let ready = prefault_mapping(&mut memory, &Options::new().threads(2))?;
//! assert_eq!(ready.bytes, 64 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contents
//!
//! A prefault keeps the contents, also those that other threads and processes write at the same time. It uses
//! `MADV_POPULATE_WRITE` (Linux 5.14), and on older kernels an atomic OR with 0 that the kernel executes (`FUTEX_WAKE_OP`).
//! Both report a page that the kernel cannot provide as an error, without SIGBUS.
//!
//! # Limits
//!
//! Each thread works in steps of about 4 ms. Before each step, the room below every memory limit is checked: of each control
//! group of this process and above it (versions 1 and 2), of the machine's available memory, of the nodes that the pages come
//! from, of the tmpfs. The prefault stops before the [`Options::keep_free`] bytes below a limit, and the error names the
//! limit. Pages that exist need no room. A lack of huge pages needs no check, because the kernel reports it as an error.
//!
//! **One race remains.** Between the check and the step, other processes may use up the room. Then the kernel reclaims memory,
//! and if it finds none, its out-of-memory killer ends a process, possibly this one, by SIGKILL. `MADV_POPULATE_WRITE` does
//! not prevent that. A larger [`Options::keep_free`] makes it less likely; a control group of one's own, with
//! `memory.min`, excludes it.
//!
//! # Resources
//!
//! Files are mapped step by step, so that no page tables for the whole file are needed: at most 128 KiB for each thread and 512 KiB
//! for 128 threads, and the stacks. There are at most four threads for each processor.

#[cfg(doctest)]
mod doctests;

mod error;
pub mod limits;
mod mappings;
mod memory;
pub mod numa;
mod options;
mod pace;
mod pages;
mod queue;
mod room;
mod run;
mod shared;
mod supply;
mod text;

use std::ops::Range;
use std::os::fd::AsFd;

use bulkmem::Mapping;

pub use error::{Cause, Error};
pub use options::{KEEP_FREE, Options, Placement, Progress, Ready};
pub use shared::Limits;

use crate::memory::{Addresses, FilePart, Memory};
use crate::pace::{Clock, SystemClock};
use crate::queue::Piece;

/// Prefaults a mapping.
///
/// # Errors
/// If the memory is not ready as a whole: the error says how much is, and why.
pub fn prefault_mapping(mapping: &mut Mapping, options: &Options<'_>) -> Result<Ready, Error> {
    let (start, length) = (mapping.as_mut_ptr(), mapping.len());
    // SAFETY: the mapping is borrowed, so it stays mapped.
    unsafe { prefault_range(start, length, options) }
}

/// Prefaults the pages that a range of addresses touches.
///
/// The range may lie in several mappings, private or shared, of memory or files. All must be writable. With
/// [`Placement::Default`], each is prefaulted on the nodes that it is bound to.
///
/// # Errors
/// If the memory is not ready as a whole: the error says how much is, and why.
///
/// # Safety
/// During the call, what is mapped at the pages of the range stays mapped there. (A prefault of other memory that is mapped
/// there instead would change no contents, but lock it, or exhaust what it is mapped from.)
pub unsafe fn prefault_range(start: *mut u8, length: usize, options: &Options<'_>) -> Result<Ready, Error> {
    // SAFETY: passed on from the caller.
    unsafe { range_by(start, length, options, &SystemClock::new()) }
}

/// # Safety
/// As for [`prefault_range`].
unsafe fn range_by(
    start: *mut u8,
    length: usize,
    options: &Options<'_>,
    clock: &dyn Clock,
) -> Result<Ready, Error> {
    let failed = |cause| Error { ready: 0, total: length as u64, cause };
    // SAFETY: passed on from the caller.
    let memory = unsafe { Addresses::new(start, length) }.map_err(failed)?;
    let first = start.addr() as u64 - memory.origin();
    let pieces = pieces(&memory);
    let lock = || memory.lock().map_err(|source| lock_cause(source, memory.length));
    let locked = (options.lock && length > 0).then(lock).transpose().map_err(failed)?;
    let ready = run::run(&memory, first..first + length as u64, pieces, options, clock)?;
    if let Some(locked) = locked {
        locked.keep();
    }
    Ok(ready)
}

/// Prefaults a part of a regular file, which must be open for reading and writing: allocates its pages, and keeps its
/// contents. Neither creates, extends nor truncates it.
///
/// # Errors
/// If the part is not ready as a whole: the error says how much is, and why.
pub fn prefault_file(file: impl AsFd, range: Range<u64>, options: &Options<'_>) -> Result<Ready, Error> {
    let total = range.end.saturating_sub(range.start);
    let failed = |cause| Error { ready: 0, total, cause };
    if options.lock {
        let what = "a lock of a file ends with its mapping";
        return Err(failed(Cause::unsupported(what, "map the file, and prefault the range of addresses")));
    }
    let range = range.start..range.start + total;
    let memory = FilePart::new(file.as_fd(), range.clone()).map_err(failed)?;
    let first = range.start - memory.origin();
    let pieces = vec![Piece { range: 0..memory.length, nodes: numa::bound_nodes() }];
    run::run(&memory, first..first + total, pieces, options, &SystemClock::new())
}

/// Divides a range by the nodes that its mappings are bound to.
fn pieces(memory: &Addresses) -> Vec<Piece> {
    let several = numa::Topology::current().online.0.len() > 1;
    let own = numa::bound_nodes();
    let mut pieces: Vec<Piece> = Vec::new();
    for area in &memory.areas {
        let range = memory.part_of(area);
        let bound = || numa::bound_nodes_at(memory.address(range.start)).or_else(|| own.clone());
        let nodes = if several { bound() } else { None };
        match pieces.last_mut() {
            Some(last) if last.nodes == nodes => last.range.end = range.end,
            _ => pieces.push(Piece { range, nodes }),
        }
    }
    pieces
}

fn lock_cause(error: rustix::io::Errno, needed: u64) -> Cause {
    use rustix::io::Errno;
    use rustix::process::{Resource, getrlimit};
    if !matches!(error, Errno::NOMEM | Errno::PERM | Errno::AGAIN) {
        return Cause::System { doing: "lock memory (mlock2)", source: error.into() };
    }
    let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
    Cause::LockLimit { needed, limit, locked: limits::locked() }
}
