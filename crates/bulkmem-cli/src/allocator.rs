//! The system's allocator, and a message when it has no memory left.
//!
//! Without it, a command that meets a limit on memory is aborted. Sizes of files are checked against the limit before
//! they are read; this is for what no check foresees.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::failure::FAILED;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

// SAFETY: passes every call on to the system's allocator, which keeps the contract; where that has no memory, the
// process ends instead of returning.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this very function.
        there(unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; what is returned here came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        there(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        there(unsafe { System.realloc(pointer, layout, size) })
    }
}

/// Has all threads share one heap. glibc reserves 64 MiB of address space for each further one, which a limit on the
/// address space counts as if it were used; nothing here allocates often enough to gain from several.
#[cfg(target_env = "gnu")]
pub(crate) fn share_one_heap() {
    // SAFETY: no other thread is there yet. Where the value is refused, the heaps stay as they were.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have one heap, or reserve little.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn share_one_heap() {}

/// Ends the process where there is no memory. Allocates nothing and runs no destructors: either could need memory.
fn there(pointer: *mut u8) -> *mut u8 {
    const MESSAGE: &[u8] = b"\nerror: out of memory\n\
        help: raise the limit that this process has (ulimit -v, ulimit -d, the control group's memory.max), or free memory\n";
    if pointer.is_null() {
        // SAFETY: the message is valid for its length; both calls are safe in any state of the process.
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(i32::from(FAILED));
        }
    }
    pointer
}
