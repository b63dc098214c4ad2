//! Threads for work that goes on without them if the system has none left.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::MeasureError;

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

/// Starts a thread with a small stack.
///
/// # Errors
/// [`MeasureError::System`] if the system has none left.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, MeasureError> {
    let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
    thread.map_err(|source| MeasureError::System { doing: "start a thread", source })
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
}
