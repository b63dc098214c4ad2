//! Flushing, draining, and what waits for the medium.

use std::ffi::{c_int, c_void};
use std::path::Path;

use bulkmem::method;

use crate::address::page_size;
use crate::failure::{Failed, guarded, system};
use crate::methods::methods;
use crate::ranges::{self, Kind};
use crate::sysfs;

/// Writes back the cache lines of a range. Durable after `pmem_drain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_flush(start: *const c_void, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe { methods().flush(start.cast(), length) }
}

/// As `pmem_flush`, also where caches survive a power failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_deep_flush(start: *const c_void, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe { methods().deep_flush(start.cast(), length) }
}

/// Waits for the calling thread's flushes and non-temporal stores.
#[unsafe(no_mangle)]
pub extern "C" fn pmem_drain() {
    method::fence();
}

/// Makes a range of persistent memory durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_persist(start: *const c_void, length: usize) {
    // SAFETY: passed on from the caller.
    unsafe { pmem_flush(start, length) }
    pmem_drain();
}

/// Returns false: on x86-64, a fence drains.
#[unsafe(no_mangle)]
pub extern "C" fn pmem_has_hw_drain() -> c_int {
    0
}

/// Returns 1 if caches survive a power failure, 0 if not, -1 if the kernel's folder cannot be read.
#[unsafe(no_mangle)]
pub extern "C" fn pmem_has_auto_flush() -> c_int {
    guarded(-1, || {
        let survive = sysfs::caches_survive(Path::new("/"));
        survive.map(c_int::from).map_err(|_| system(format_args!("regions of persistent memory")))
    })
}

/// Makes a range of any mapped file durable, by the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_msync(start: *const c_void, length: usize) -> c_int {
    guarded(-1, || sync(start.addr(), length).map(|()| 0))
}

/// Waits until what was flushed has reached the medium.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_deep_drain(start: *const c_void, length: usize) -> c_int {
    guarded(-1, || drain(start.addr(), length).map(|()| 0))
}

/// Flushes a range in any case, and waits until it has reached the medium.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmem_deep_persist(start: *const c_void, length: usize) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        pmem_deep_flush(start, length);
        pmem_deep_drain(start, length)
    }
}

/// msync of the pages with bytes of the range.
///
/// # Errors
/// Those of msync.
fn sync(start: usize, length: usize) -> Result<(), Failed> {
    let before = start % page_size();
    let pages = std::ptr::with_exposed_provenance_mut(start - before);
    // SAFETY: it changes no memory, and the kernel checks the addresses.
    let result = unsafe { libc::msync(pages, length.wrapping_add(before), libc::MS_SYNC) };
    if result == 0 { Ok(()) } else { Err(system(format_args!("msync"))) }
}

/// Device DAX is flushed through its region, everything else by msync.
///
/// # Errors
/// Those of msync.
fn drain(start: usize, length: usize) -> Result<(), Failed> {
    method::fence();
    let (mut at, end) = (start, start.saturating_add(length));
    while at < end {
        let range = ranges::read().first(at, end);
        let device = range.and_then(|range| match range.kind {
            Kind::Device(region) => Some((range, region)),
            Kind::Synchronous => None,
        });
        match (range, device) {
            (_, Some((range, region))) => {
                if range.start > at {
                    sync(at, range.start - at)?;
                }
                if let Some(region) = region {
                    sysfs::deep_flush(Path::new("/"), region);
                }
                at = range.end;
            }
            (Some(range), None) => {
                let next = range.end.min(end);
                sync(at, next - at)?;
                at = next;
            }
            // The kernel gets the length that the caller gave, also if it reaches past the end of the addresses.
            (None, None) => return sync(at, length.wrapping_sub(at - start)),
        }
    }
    Ok(())
}
