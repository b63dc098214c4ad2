//! The system's allocator, and a static reserve for when that has no memory.
//!
//! Rust's standard library ends the process if an allocation fails. The functions of the C libraries check before larger
//! allocations that there is memory ([`system_has`]), and fail if there is none; what they allocate otherwise comes from the reserve.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::fmt;
use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the reserve. A policy, which takes the most, has 200 KB. Zero-initialized, so that it takes no memory until it is used.
const RESERVE: usize = 1 << 20;

/// An allocator for `#[global_allocator]`.
pub struct Allocator(Reserve<RESERVE>);

impl Allocator {
    /// One whose reserve has not been used.
    #[must_use]
    pub const fn new() -> Allocator {
        Allocator(Reserve::new())
    }
}

impl Default for Allocator {
    fn default() -> Allocator {
        Allocator::new()
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Allocator").finish_non_exhaustive()
    }
}

// SAFETY: memory comes from the system's allocator or from the reserve, and goes back to the one that it came from. Both
// keep the contract. Nothing unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the same function.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { self.0.take(layout) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        self.0.take_zeroed(layout)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if self.0.has(memory) {
            self.0.put_back(memory, layout);
        } else {
            // SAFETY: the caller keeps the contract of the same function; the memory is not the reserve's.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.0.has(memory) {
            if size <= layout.size() {
                return memory;
            }
        } else {
            // SAFETY: as above.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller vouches that the size, rounded up to the alignment, does not exceed `isize::MAX`.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller vouches that the size is not 0.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both have at least so many bytes and belong to this call. They do not overlap, since neither has been
            // freed.
            unsafe { ptr::copy_nonoverlapping(memory, moved, layout.size().min(size)) };
            // SAFETY: the caller vouches for the memory and its layout, and does not use it again.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

/// Memory that is given out from its start to its end. The last allocation can be given out again when it has been freed, and all of
/// the memory when all allocations have.
struct Reserve<const BYTES: usize> {
    memory: UnsafeCell<[u8; BYTES]>,
    /// Allocations that have not been freed, in the upper half, and the end of those that were given out.
    state: AtomicU64,
}

// SAFETY: no two allocations overlap (`take`), and only their owners use the memory.
unsafe impl<const BYTES: usize> Sync for Reserve<BYTES> {}

impl<const BYTES: usize> Reserve<BYTES> {
    const fn new() -> Reserve<BYTES> {
        assert!(BYTES < u32::MAX as usize, "the state has 32 bits for it");
        Reserve { memory: UnsafeCell::new([0; BYTES]), state: AtomicU64::new(0) }
    }

    fn start(&self) -> *mut u8 {
        self.memory.get().cast()
    }

    fn has(&self, memory: *mut u8) -> bool {
        memory.addr().wrapping_sub(self.start().addr()) < BYTES
    }

    /// Returns memory of that layout, or null if too little is left.
    fn take(&self, layout: Layout) -> *mut u8 {
        let address = self.start().addr();
        let place = |state: u64| {
            let end = (state as u32) as usize;
            let from = (address + end).checked_next_multiple_of(layout.align())? - address;
            let to = from.checked_add(layout.size())?;
            (to <= BYTES).then_some((from, to))
        };
        let counted = |state: u64| place(state).map(|(_, to)| ((state >> 32) + 1) << 32 | to as u64);
        // Acquire: the thread that used the memory before has finished. Release: for `put_back`, which others may do next.
        match self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, counted) {
            Ok(before) => place(before).map_or(ptr::null_mut(), |(from, _)| self.start().wrapping_add(from)),
            Err(_) => ptr::null_mut(),
        }
    }

    /// As [`Reserve::take`], of zeros.
    fn take_zeroed(&self, layout: Layout) -> *mut u8 {
        let memory = self.take(layout);
        if !memory.is_null() {
            // Others may have used it before.
            // SAFETY: it has so many bytes, and no other thread uses it.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    /// Takes memory of that layout back.
    fn put_back(&self, memory: *mut u8, layout: Layout) {
        let from = memory.addr() - self.start().addr();
        let counted = |state: u64| {
            let (left, end) = ((state >> 32) - 1, (state as u32) as usize);
            let end = if end == from + layout.size() { from } else { end };
            Some(if left == 0 { 0 } else { left << 32 | end as u64 })
        };
        _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, counted);
    }
}

/// True if the system's allocator has so many bytes, for functions that fail otherwise.
#[must_use]
pub fn system_has(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 1) else { return false };
    // SAFETY: the size is not 0, and the memory is freed once, with the same layout.
    unsafe {
        // The compiler would remove an allocation that is not used.
        let memory = hint::black_box(System.alloc(layout));
        if !memory.is_null() {
            System.dealloc(memory, layout);
        }
        !memory.is_null()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn allocations_are_aligned_and_do_not_overlap() {
        let reserve = Reserve::<4096>::new();
        let mut end = 0;
        for (size, align) in [(1, 1), (1, 1), (3, 2), (8, 8), (1, 64), (100, 16), (7, 512)] {
            let memory = reserve.take(layout(size, align));
            assert!(reserve.has(memory) && memory.addr().is_multiple_of(align));
            assert!(memory.addr() >= end && memory.addr() + size <= reserve.start().addr() + 4096);
            end = memory.addr() + size;
        }
    }

    #[test]
    fn it_is_used_up_and_free_again_when_memory_has_come_back() {
        let reserve = Reserve::<128>::new();
        let [most, rest] = [100, 28].map(|size| layout(size, 1));
        let first = reserve.take(most);
        assert!(reserve.take(layout(29, 1)).is_null());
        let last = reserve.take(rest);
        assert!(!last.is_null() && reserve.take(layout(1, 1)).is_null());
        reserve.put_back(first, most);
        assert!(reserve.take(layout(1, 1)).is_null(), "the last one is in use");
        reserve.put_back(last, rest);
        assert_eq!(reserve.take(layout(128, 1)), first);
        for huge in [layout(isize::MAX as usize, 1), layout(1, 1 << 62)] {
            assert!(Reserve::<128>::new().take(huge).is_null());
        }
    }

    #[test]
    fn what_is_taken_and_put_back_again_and_again_uses_nothing_up() {
        let reserve = Reserve::<128>::new();
        let kept = reserve.take(layout(10, 1));
        for size in (1..=118).cycle().take(1000) {
            let memory = reserve.take(layout(size, 1));
            assert_eq!(memory, kept.wrapping_add(10));
            reserve.put_back(memory, layout(size, 1));
        }
    }

    #[test]
    fn zeroed_memory_is_zero_although_it_was_used() {
        let reserve = Reserve::<64>::new();
        let all = layout(64, 1);
        for _ in 0..2 {
            let memory = reserve.take_zeroed(all);
            // SAFETY: so many bytes, and no other thread has them.
            unsafe {
                assert!((0..64).all(|byte| memory.add(byte).read() == 0));
                memory.write_bytes(7, 64);
            }
            reserve.put_back(memory, all);
        }
    }

    #[test]
    fn addresses_next_to_it_are_not_in_it() {
        let reserve = Reserve::<128>::new();
        let start = reserve.start();
        assert!(reserve.has(start) && reserve.has(start.wrapping_add(127)));
        assert!(!reserve.has(start.wrapping_sub(1)) && !reserve.has(start.wrapping_add(128)));
    }

    #[test]
    fn memory_of_the_reserve_grows_and_shrinks() {
        let allocator = Allocator::new();
        // Too large for any system, so that it must be the reserve that refuses.
        // SAFETY: the layouts have sizes, and memory is freed with that of its last allocation.
        unsafe {
            assert!(allocator.alloc(layout(isize::MAX as usize - 4096, 1)).is_null());
            let old = allocator.0.take(layout(5, 1));
            old.copy_from(c"abcd".as_ptr().cast(), 5);
            let new = allocator.realloc(old, layout(5, 1), 5000);
            assert!(!allocator.0.has(new), "the system has memory");
            assert_eq!(new.cast::<[u8; 5]>().read(), *b"abcd\0");
            assert!(allocator.realloc(new, layout(5000, 1), isize::MAX as usize - 4096).is_null());
            assert_eq!(new.cast::<[u8; 5]>().read(), *b"abcd\0", "a failure leaves the old memory");
            allocator.dealloc(new, layout(5000, 1));
            let shrunk = allocator.0.take(layout(5, 1));
            assert_eq!(shrunk, old, "all came back");
            assert_eq!(allocator.realloc(shrunk, layout(5, 1), 3), shrunk);
        }
    }

    #[test]
    fn threads_take_and_put_back_at_the_same_time() {
        let reserve = &Reserve::<4096>::new();
        thread::scope(|scope| {
            for number in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..2000 {
                        let size = 1 + round % 200;
                        let memory = reserve.take(layout(size, 8));
                        if memory.is_null() {
                            continue;
                        }
                        // SAFETY: so many bytes, which no other thread has until they are put back.
                        unsafe {
                            memory.write_bytes(number, size);
                            assert!((0..size).all(|byte| memory.add(byte).read() == number));
                        }
                        reserve.put_back(memory, layout(size, 8));
                    }
                });
            }
        });
        assert_eq!(reserve.state.load(Ordering::Relaxed), 0);
    }
}
