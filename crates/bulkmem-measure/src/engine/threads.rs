//! Threads for work that goes on without them if the system has none left.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use bulkmem::machine::Machine;
use bulkmem::{Mapping, Options, Pages, Threads, Workers};

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

/// The threads that share the work of a call, the calling one included.
#[derive(Clone, Copy)]
pub(crate) enum Team<'w> {
    /// So many, the others started for the call.
    Started(usize),
    /// So many, the others kept ready. There are at least as many.
    Ready(usize, &'w Workers),
}

impl<'w> Team<'w> {
    pub(crate) fn count(self) -> usize {
        match self {
            Team::Started(threads) | Team::Ready(threads, _) => threads,
        }
    }

    /// Returns the same options for calls by these threads.
    pub(crate) fn shares<'p>(self, options: Options<'p>) -> Options<'p>
    where
        'w: 'p,
    {
        let several = NonZeroUsize::new(self.count()).filter(|threads| threads.get() > 1);
        let options = options.threads(several.map_or(Threads::One, Threads::Exactly));
        match self {
            Team::Ready(_, workers) if several.is_some() => options.workers(workers),
            _ => options,
        }
    }
}

impl From<usize> for Team<'_> {
    fn from(threads: usize) -> Self {
        Team::Started(threads)
    }
}

/// Starts the threads of calls that so many share; `None` if it is one.
pub(crate) fn ready(threads: usize) -> Result<Option<Workers>> {
    let others = threads.checked_sub(1).and_then(NonZeroUsize::new);
    let workers = others.map(Workers::new).transpose();
    workers.map_err(|source| MeasureError::System { doing: "start threads", source })
}

/// Gives each of the threads a part of the ranges, in whole pages.
pub(crate) fn split<'w>(
    team: impl Into<Team<'w>>,
    dst: *mut u8,
    src: *const u8,
    length: usize,
    work: impl Fn(*mut u8, *const u8, usize) + Sync,
) {
    let team = team.into();
    let part = length.div_ceil(team.count().max(1)).next_multiple_of(Machine::current().page_size);
    if team.count() < 2 || part >= length {
        return work(dst, src, length);
    }
    let ends = (Sendable(dst), Sendable(src.cast_mut()));
    let (work, ends) = (&work, &ends);
    let piece = move |at: usize| {
        let from = at * part;
        work(ends.0.0.wrapping_add(from), ends.1.0.wrapping_add(from), part.min(length - from));
    };
    let pieces = length.div_ceil(part);
    match team {
        Team::Ready(_, workers) => workers.share(pieces, piece),
        Team::Started(_) => thread::scope(|scope| {
            for at in 1..pieces {
                // As in the library: if the system has no more threads, this one does their pieces.
                if spawn(scope, move || piece(at)).is_err() {
                    piece(at);
                }
            }
            piece(0);
        }),
    }
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
        let workers = ready(7).unwrap().unwrap();
        let teams = [1, 2, 3, 7].map(|threads| [Team::Started(threads), Team::Ready(threads, &workers)]);
        for team in teams.into_iter().flatten() {
            let threads = team.count();
            for length in [0, 1, 4096, 4097, 100_000] {
                let parts = std::sync::Mutex::new(Vec::new());
                let (dst, src) =
                    (std::ptr::without_provenance_mut(1 << 20), std::ptr::without_provenance(1 << 30));
                split(team, dst, src, length, |dst, src, length| {
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
