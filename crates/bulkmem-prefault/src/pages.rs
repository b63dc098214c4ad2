//! System calls that map pages, find missing ones, and lock them.

use std::ffi::{c_long, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::mm::{Advice, MlockFlags, madvise, mlock_with, munlock};
use rustix::param::page_size;

/// Returns true if the kernel has `MADV_POPULATE_WRITE` (Linux 5.14). Asked for each job: the child of a fork could wait forever for a
/// value that another thread was storing.
pub(crate) fn can_populate() -> bool {
    // SAFETY: a range of no bytes changes nothing; the kernel checks the advice first.
    unsafe { madvise(null_mut(), 0, Advice::LinuxPopulateWrite) }.is_ok()
}

/// Maps every page of a range for writing, and changes no contents. Touches a word every `stride` bytes if `touch`.
///
/// # Errors
/// `EFAULT` if the kernel cannot provide a page, `ENOMEM` if memory runs out or nothing is mapped there.
///
/// # Safety
/// The range starts on a page. It may be mapped or not, and others may read and write it, but what is mapped there belongs
/// to the caller.
pub(crate) unsafe fn populate(
    start: *mut u8,
    length: usize,
    touch: bool,
    stride: usize,
) -> Result<(), Errno> {
    if touch {
        // SAFETY: passed on from the caller.
        return (0..length).step_by(stride).try_for_each(|at| unsafe { touch_word(start.wrapping_add(at)) });
    }
    loop {
        // SAFETY: passed on from the caller; populating changes no contents.
        match unsafe { madvise(start.cast(), length, Advice::LinuxPopulateWrite) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            outcome => return outcome,
        }
    }
}

/// Maps the page of an aligned word for writing: has the kernel combine the word with 0 by OR (`FUTEX_WAKE_OP`). That is
/// one atomic access, so that concurrent writes are kept, and a page that the kernel cannot provide is an error in place
/// of a SIGBUS. It may wake a thread that waits at this word, which any waiter must expect.
///
/// # Safety
/// What is mapped at the word belongs to the caller.
unsafe fn touch_word(word: *mut u8) -> Result<(), Errno> {
    /// Nothing waits here.
    static IDLE: AtomicU32 = AtomicU32::new(0);
    const OR_ZERO: c_long = (libc::FUTEX_OP_OR as c_long) << 28;
    // A comparison with a number of 12 bits that is true for the fewest words: less than -2048.
    const WAKE_IF: c_long = (libc::FUTEX_OP_CMP_LT as c_long) << 24 | 0x800;
    let (operation, none) = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG, 0_usize);
    // SAFETY: the first word is a static one. The kernel checks the second; combining it with 0 changes nothing.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, IDLE.as_ptr(), operation, none, none, word, OR_ZERO | WAKE_IF)
    };
    if woken < 0 { Err(last_error()) } else { Ok(()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Counts the bytes of a range whose pages need new memory when they are written: of shared memory those that are not in
/// memory, of private memory those without a page of their own. All of them if that cannot be found out.
///
/// # Safety
/// The range starts on a page, and what is mapped there belongs to the caller.
pub(crate) unsafe fn missing(start: *mut u8, length: usize, shared: bool) -> usize {
    let page = page_size();
    let pages = length.div_ceil(page);
    let present = if shared {
        let mut residency = vec![0_u8; pages];
        // SAFETY: the kernel writes a byte for each page.
        let known = unsafe { libc::mincore(start.cast(), length, residency.as_mut_ptr()) } == 0;
        residency.iter().filter(|byte| known && **byte & 1 == 1).count()
    } else {
        // Present (bit 63), and mapped by this process alone (56): not the zero page, nor one shared since a fork.
        const OWN: u64 = 1 << 63 | 1 << 56;
        let mut entries = vec![0; pages * size_of::<u64>()];
        let at = (start.addr() / page * size_of::<u64>()) as u64;
        let read = File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut entries, at));
        let entries = entries.chunks_exact(size_of::<u64>());
        let owned = entries
            .filter(|entry| u64::from_ne_bytes((*entry).try_into().expect("eight bytes")) & OWN == OWN);
        if read.is_ok() { owned.count() } else { 0 }
    };
    length.saturating_sub(present * page)
}

/// Locks the present pages of a range, and others when they are mapped.
///
/// # Errors
/// `ENOMEM` or `EPERM` if the limit forbids it.
///
/// # Safety
/// What is mapped there belongs to the caller.
pub(crate) unsafe fn lock(start: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: passed on from the caller; locking changes no contents.
    unsafe { mlock_with(start.cast(), length, MlockFlags::ONFAULT) }
}

/// Unlocks a range.
///
/// # Safety
/// As for [`lock`].
pub(crate) unsafe fn unlock(start: *mut u8, length: usize) {
    // SAFETY: passed on from the caller. The kernel refuses only ranges with gaps, which have no pages to unlock.
    _ = unsafe { munlock(start.cast::<c_void>(), length) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use bulkmem::{Mapping, Pages};

    use super::*;

    #[test]
    fn a_touch_keeps_the_contents_and_needs_no_signal() {
        let mut mapping = Mapping::new(4 * page_size(), Pages::Base).unwrap();
        let start = mapping.as_mut_ptr();
        for (at, value) in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX].into_iter().enumerate() {
            mapping[at * 4..][..4].copy_from_slice(&value.to_ne_bytes());
            // SAFETY: within the mapping.
            unsafe { touch_word(start.wrapping_add(at * 4)) }.unwrap();
            assert_eq!(mapping[at * 4..][..4], value.to_ne_bytes());
        }
        // SAFETY: a guard page of the mapping, and an address that is never mapped.
        unsafe {
            assert_eq!(touch_word(start.wrapping_sub(4)), Err(Errno::FAULT));
            assert_eq!(touch_word(4096 as *mut u8), Err(Errno::FAULT));
        }
    }

    #[test]
    fn a_touch_loses_no_concurrent_write() {
        let mut mapping = Mapping::new(page_size(), Pages::Base).unwrap();
        let word = mapping.as_mut_ptr().addr();
        let ended = AtomicBool::new(false);
        let counter = || {
            // SAFETY: within the mapping, aligned, and only used by atomic accesses.
            unsafe { AtomicU32::from_ptr(word as *mut u32) }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    // SAFETY: within the mapping.
                    unsafe { touch_word(word as *mut u8) }.unwrap();
                }
            });
            (0..200_000).for_each(|_| {
                counter().fetch_add(1, Relaxed);
            });
            ended.store(true, Relaxed);
        });
        assert_eq!(counter().load(Relaxed), 200_000);
    }

    #[test]
    fn only_pages_that_need_memory_are_missing() {
        let (page, mut mapping) = (page_size(), Mapping::new(8 * page_size(), Pages::Base).unwrap());
        let start = mapping.as_mut_ptr();
        // SAFETY: within the mapping.
        let count = |first: usize| unsafe { missing(start.wrapping_add(first * page), 4 * page, false) };
        assert_eq!((count(0), count(4)), (4 * page, 4 * page));
        // Reads map the zero page.
        assert_eq!(mapping[0], 0);
        mapping[page] = 1;
        mapping[5 * page] = 1;
        assert_eq!((count(0), count(4)), (3 * page, 3 * page));
    }
}
