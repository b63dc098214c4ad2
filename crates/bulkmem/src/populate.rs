//! Mapping the pages of a range by a system call for many pages, instead of by a page fault for each.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use crate::errno;

/// The most bytes to map at a time. The kernel clears them, so they should still be in the second-level cache when the operation
/// writes to them. Of a huge page, all but the first portion are already mapped, so that smaller ones cost more there.
pub(crate) const PORTION: usize = 512 << 10;

/// Set once the kernel has refused: it is older than Linux 5.14, or a filter of system calls forbids it.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// False once the kernel has refused to map pages in advance.
#[inline]
pub(crate) fn is_possible() -> bool {
    // Miri has neither pages nor this system call.
    !cfg!(miri) && !REFUSED.load(Relaxed)
}

/// Has the kernel map, for writing, the pages that hold a byte of the range. Returns false if it did not map all of them, which
/// is no error: the stores of the operation will. Keeps `errno`.
///
/// # Safety
/// The range is valid for writes.
pub(crate) unsafe fn pages(start: *mut u8, length: usize) -> bool {
    if !is_possible() {
        return false;
    }
    let before = start.addr() % page_size();
    let first = start.wrapping_sub(before).cast();
    errno::kept(|| {
        // SAFETY: every page holds a byte that the caller may write to, and populating changes no contents.
        let outcome = unsafe { madvise(first, length + before, Advice::LinuxPopulateWrite) };
        let refused = match outcome {
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => true,
            // Also the answer for this memory alone, such as a device's.
            Err(Errno::INVAL) => !is_known(),
            _ => false,
        };
        if refused {
            REFUSED.store(true, Relaxed);
        }
        outcome.is_ok()
    })
}

/// True if the kernel can map pages in advance.
fn is_known() -> bool {
    // SAFETY: a range of no bytes changes nothing.
    unsafe { madvise(std::ptr::null_mut(), 0, Advice::LinuxPopulateWrite) }.is_ok()
}

/// For tests: the same; prints that something is skipped if it cannot.
#[cfg(all(test, not(miri)))]
pub(crate) fn kernel_can() -> bool {
    let can = is_known();
    if !can {
        println!("skipped: Linux before 5.14 maps no pages in advance");
    }
    can
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::*;

    #[test]
    fn the_pages_of_a_range_are_mapped_and_no_others_and_keep_their_contents() {
        if !kernel_can() {
            return;
        }
        let page = page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, of which only its own pages are used; unmapped at the end.
        unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), 8 * page, protection, flags).unwrap();
            madvise(start, 8 * page, Advice::LinuxNoHugepage).unwrap();
            let bytes = start.cast::<u8>();
            bytes.add(2 * page + 5).write(7);
            assert!(pages(bytes.add(2 * page - 1), 2 * page + 2));
            let mut resident = [0_u8; 8];
            assert_eq!(libc::mincore(start, 8 * page, resident.as_mut_ptr()), 0);
            assert_eq!(resident.map(|page| page & 1), [0, 1, 1, 1, 1, 0, 0, 0]);
            assert_eq!((bytes.add(2 * page + 5).read(), bytes.add(3 * page).read()), (7, 0));
            // What cannot be written stays unmapped, and says nothing about other memory.
            mprotect(start, page, MprotectFlags::READ).unwrap();
            assert!(!pages(bytes, 1));
            assert!(pages(bytes.add(7 * page), page));
            assert!(is_possible());
            munmap(start, 8 * page).unwrap();
        }
    }
}
