//! Threads for work that goes on without them if the system has none left.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use bulkmem::machine::Machine;
use bulkmem::{Mapping, Pages};

use crate::engine::{MeasureError, Result};

/// Plenty for loops over memory; a limit on the address space counts every stack in full.
const STACK: usize = 256 << 10;

/// Calls `work` with each item, on at most `threads` threads, the calling one included.
pub(crate) fn share<T: Send>(threads: usize, items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    thread::scope(|scope| {
        // Stops at the first thread that the system refuses: the others do its share.
        _ = (1..threads).map_while(|_| spawn(scope, worker).ok()).count();
        worker();
    });
}

/// Gives each of so many threads, the calling one included, a part of the ranges, in whole pages.
pub(crate) fn split(
    threads: usize,
    dst: *mut u8,
    src: *const u8,
    length: usize,
    work: impl Fn(*mut u8, *const u8, usize) + Sync,
) {
    let part = length.div_ceil(threads.max(1)).next_multiple_of(Machine::current().page_size);
    if threads < 2 || part >= length {
        return work(dst, src, length);
    }
    let ends = (Sendable(dst), Sendable(src.cast_mut()));
    let (work, ends) = (&work, &ends);
    thread::scope(|scope| {
        for from in (part..length).step_by(part) {
            let piece = move || {
                work(ends.0.0.wrapping_add(from), ends.1.0.wrapping_add(from), part.min(length - from));
            };
            // As in the library: if the system has no more threads, this one does their pieces.
            if spawn(scope, piece).is_err() {
                piece();
            }
        }
        work(dst, src, part);
    });
}

/// An address that another thread is given to work on.
struct Sendable(*mut u8);

// SAFETY: sending an address accesses nothing; code that dereferences it justifies that itself.
unsafe impl Sync for Sendable {}

/// Starts a thread with a small stack. Fails if the system has none left.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
    thread.map_err(|source| MeasureError::System { doing: "start a thread", source })
}

/// Checks that so many threads find room. Without it, a thread that starts may end the process: it needs memory for its
/// signal stack, too, and cannot report that there is none.
pub(crate) fn check_room(threads: usize) -> Result<()> {
    let bytes = threads.saturating_mul(2 * STACK);
    let full = |_| MeasureError::System { doing: "start a thread", source: ErrorKind::OutOfMemory.into() };
    Mapping::new(bytes, Pages::Base).map(drop).map_err(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_however_many_threads_there_are() {
        for threads in [0, 1, 2, 7, 50] {
            let mut numbers = vec![0u32; 100];
            share(threads, numbers.iter_mut(), |number| *number += 1);
            assert_eq!(numbers, [1; 100], "{threads} threads");
        }
    }
    #[test]
    fn split_covers_everything_once() {
        for threads in [1, 2, 3, 7] {
            for length in [0, 1, 4096, 4097, 100_000] {
                let parts = std::sync::Mutex::new(Vec::new());
                let (dst, src) =
                    (std::ptr::without_provenance_mut(1 << 20), std::ptr::without_provenance(1 << 30));
                split(threads, dst, src, length, |dst, src, length| {
                    assert_eq!(dst.addr() - (1 << 20), src.addr() - (1 << 30));
                    parts.lock().unwrap().push((dst.addr() - (1 << 20), length));
                });
                let mut parts = parts.into_inner().unwrap();
                parts.sort_unstable();
                assert!(parts.len() <= threads.max(1));
                let end = parts.iter().fold(0, |end, (from, length)| {
                    assert_eq!(*from, end);
                    end + length
                });
                assert_eq!(end, length);
            }
        }
    }
}
