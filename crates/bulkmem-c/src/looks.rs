//! Looks at the cache state: the switch and the counts.

use std::ffi::c_int;
use std::mem::size_of;

use bulkmem::look;

use crate::error::outcome;
use crate::{numbers, options, range};

/// How often operations of a kind have found memory in each state, since the process started. Initialize it with
/// BULKMEM_LOOKS_INIT.
#[repr(C)]
#[derive(Debug)]
pub struct LookCounts {
    /// sizeof(struct bulkmem_looks). Later versions of the library add members at the end. A library that does not
    /// know a member sets it to 0.
    pub size: usize,
    /// Cached memory.
    pub cached: u64,
    /// Uncached memory.
    pub uncached: u64,
    /// Memory whose pages were not mapped yet.
    pub unmapped: u64,
}

/// Stops looks at the cache state in this process for good: operations choose by length alone. For programs that forbid
/// themselves the instruction RDTSC.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_stop_looking() {
    look::stop();
}

/// Returns 1 if operations may look at the cache state, else 0: no policy with looks has been loaded, looks have been stopped,
/// or the clock cannot be used.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_is_looking() -> c_int {
    c_int::from(look::is_on())
}

/// Stores in `*counts` how often operations of a kind, an enum bulkmem_operation, have found memory in each state, over all
/// threads and policies.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_look_counts(operation: u32, counts: *mut LookCounts) -> c_int {
    outcome(|| {
        range::not_null(counts, "counts")?;
        let known = size_of::<LookCounts>();
        // SAFETY: not null; the caller vouches for the rest.
        let size =
            unsafe { options::size(counts.cast(), known, &[], "counts of looks", "BULKMEM_LOOKS_INIT")? };
        let look::Counts { cached, uncached, unmapped, .. } = look::counts(numbers::operation(operation)?);
        // SAFETY: the caller vouches for that size, which is large enough.
        unsafe {
            counts.write_unaligned(LookCounts { size, cached, uncached, unmapped });
            counts.cast::<u8>().add(known).write_bytes(0, size - known);
        }
        Ok(())
    })
}
