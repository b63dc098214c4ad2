//! Threads that are kept for many calls.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::num::NonZeroUsize;
use std::slice;

use crate::error::{Error, Failed, SOME, check_memory, fail, keeping_errno, outcome, slow_outcome};
use crate::range;

/// Threads that wait for work. Several threads can use the same workers: a call that finds them busy does not wait for
/// them. After fork(), a child has none, and its calls do all the work; it may free them.
#[derive(Debug)]
pub struct Workers(bulkmem::Workers);

impl Workers {
    pub(crate) fn get(&self) -> &bulkmem::Workers {
        &self.0
    }
}

/// Starts `count` threads and stores them in `*workers`. With the calling thread, a call has one thread more. Fails with
/// BULKMEM_ERROR_SYSTEM if the system does not start that many. They block all signals except those of their own faults.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_workers_new(count: usize, workers: *mut *mut Workers) -> c_int {
    slow_outcome(|| {
        range::not_null(workers, "workers")?;
        let count = NonZeroUsize::new(count).ok_or_else(no_workers)?;
        // SAFETY: passed on from the caller.
        unsafe { store(workers, || bulkmem::Workers::new(count)) }
    })
}

/// Starts one thread for each of `count` processors, pins it there, and stores the threads in `*workers`. Processors are
/// numbered as in /sys/devices/system/cpu. Leave one for the calling thread, which is not pinned.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_workers_new_pinned(
    processors: *const usize,
    count: usize,
    workers: *mut *mut Workers,
) -> c_int {
    slow_outcome(|| {
        range::not_null(workers, "workers")?;
        range::check("processors", processors.cast(), count.saturating_mul(size_of::<usize>()))?;
        if count == 0 {
            return Err(no_workers());
        }
        // SAFETY: the caller vouches for `count` elements, which do not wrap around the address space.
        let processors = unsafe { slice::from_raw_parts(processors, count) };
        // SAFETY: passed on from the caller.
        unsafe { store(workers, || bulkmem::Workers::pinned(processors)) }
    })
}

/// Ends the threads and waits for that. No call may use them any more. `workers` may be a null pointer.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_workers_free(workers: *mut Workers) {
    if !workers.is_null() {
        // SAFETY: the caller vouches for the origin, and does not use it again.
        let workers = unsafe { Box::from_raw(workers) };
        keeping_errno(|| {
            outcome(|| {
                drop(workers);
                Ok(())
            })
        });
    }
}

/// # Safety
/// `place` is writable.
unsafe fn store(
    place: *mut *mut Workers,
    start: impl FnOnce() -> io::Result<bulkmem::Workers>,
) -> Result<(), Failed> {
    check_memory(SOME)?;
    let workers = start().map_err(|error| fail(Error::System, format_args!("{error}")))?;
    // SAFETY: passed on from the caller.
    unsafe { place.write(Box::into_raw(Box::new(Workers(workers)))) };
    Ok(())
}

fn no_workers() -> Failed {
    fail(Error::Length, format_args!("0 workers: pass at least 1"))
}
