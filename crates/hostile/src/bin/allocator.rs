//! A program with an allocator that is built on bulkmem, so that an allocation before `main` makes the first call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;

struct Bulky;

// SAFETY: every method does what System's does, and clears or copies by other code.
unsafe impl GlobalAlloc for Bulky {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on from the caller; fresh memory of that size is ours alone.
        unsafe {
            let start = System.alloc(layout);
            if !start.is_null() {
                bulkmem::clear(std::slice::from_raw_parts_mut(start, layout.size()));
            }
            start
        }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller; the new block overlaps no other, and both are as long as what is copied.
        unsafe {
            let new = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                let kept = layout.size().min(size);
                let (to, from) =
                    (std::slice::from_raw_parts_mut(new, kept), std::slice::from_raw_parts(old, kept));
                if bulkmem::copy(to, from).is_err() {
                    std::process::abort();
                }
                System.dealloc(old, layout);
            }
            new
        }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Bulky = Bulky;

fn main() -> ExitCode {
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(grows)).collect();
    let right = grows() && threads.into_iter().all(|thread| thread.join().is_ok_and(|right| right));
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Allocates zeroed memory of many sizes, and a vector that grows.
fn grows() -> bool {
    let zeroed = (0..21).all(|power| vec![0_u8; 1 << power].iter().all(|&byte| byte == 0));
    let mut grown = Vec::new();
    (0..1_000_000_u32).for_each(|number| grown.push(number));
    zeroed && grown.iter().zip(0..).all(|(found, expected)| *found == expected)
}
