//! The system's allocator, with an error message when no memory is left, and room for the stack.
//!
//! Rust would abort the process. Sizes of files are checked before they are read; this handles all other allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::mem::MaybeUninit;

use rustix::process::{Resource, getrlimit};

use crate::failure::FAILED;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

// SAFETY: forwards every call to the system's allocator, which keeps the contract; if that has no memory, the process
// ends instead of returning.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the same function.
        or_exit(unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_exit(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        or_exit(unsafe { System.realloc(pointer, layout, size) })
    }
}

/// Makes all threads share one heap. glibc reserves 64 MiB of address space for each further one, all of which counts
/// against a limit on the address space; nothing here allocates often enough to gain from several.
/// Other C libraries have one heap, or reserve little.
pub(crate) fn share_one_heap() {
    // SAFETY: no other thread exists yet. If the value is refused, nothing changes.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Maps so much of the stack, where the address space is limited, that it need not grow later: if the heap has taken what the limit leaves,
/// a stack that must grow ends the process by a signal. A policy, which has 200 KB, is on the stack for a moment. Where the stack itself
/// may not become twice as large, it maps nothing.
pub(crate) fn reserve_stack() {
    let space = getrlimit(Resource::As).current;
    let stack = getrlimit(Resource::Stack).current;
    if space.is_some() && stack.is_none_or(|bytes| bytes >= 2 * RESERVED as u64) {
        map_stack();
    }
}

const RESERVED: usize = 512 << 10;

#[inline(never)]
fn map_stack() {
    // All of it, since the compiler cannot know which bytes are used.
    black_box(MaybeUninit::<[u8; RESERVED]>::uninit().as_mut_ptr());
}

/// Returns a pointer, or ends the process if it is null, without allocating or running destructors.
fn or_exit(pointer: *mut u8) -> *mut u8 {
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
