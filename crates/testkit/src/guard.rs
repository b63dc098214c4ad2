//! Memory between two inaccessible pages, so that an access one byte before or after it faults.

use std::ops::Range;
use std::ptr::NonNull;

use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};

pub use bulkmem::machine::CACHE_LINE as LINE;

/// Returns the size of a base page in bytes.
pub fn page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("sysconf(_SC_PAGESIZE) is positive on every Unix")
}

/// The guard page that a range is next to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one before it. The distance is the offset of the range, less than a cache line.
    Start,
    /// The one after it. The distance is less than a cache line.
    End,
}

/// Readable and writable pages between two inaccessible ones.
#[derive(Debug)]
pub struct Guarded {
    start: NonNull<u8>,
    len: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Maps at least `len` bytes, rounded up to whole pages and filled with zeros.
    pub fn new(len: usize) -> Guarded {
        Guarded::map(len, 0)
    }

    /// Like [`Guarded::new`], at an address that fits into 31 bits, for instructions with 32-bit addresses.
    #[cfg(target_arch = "x86_64")]
    pub fn low(len: usize) -> Guarded {
        Guarded::map(len, libc::MAP_32BIT)
    }

    fn map(len: usize, flags: libc::c_int) -> Guarded {
        let page = page_size();
        let len = len.max(1).next_multiple_of(page);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len + 2 * page,
                PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        assert!(base != MAP_FAILED, "mapping {len} guarded bytes: {}", std::io::Error::last_os_error());
        // SAFETY: `page` is within the new mapping.
        let start = unsafe { base.cast::<u8>().add(page) };
        // SAFETY: start..start+len are whole pages within the new mapping.
        let result = unsafe { libc::mprotect(start.cast(), len, PROT_READ | PROT_WRITE) };
        assert!(result == 0, "opening {len} guarded bytes: {}", std::io::Error::last_os_error());
        Guarded { start: NonNull::new(start).expect("mmap does not return null"), len, page }
    }

    /// Returns the number of bytes between the guards.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to the first byte after the guard.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns all bytes between the guards.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are mapped, initialized by the kernel, and belong to this value; `&self` excludes
        // writers.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// Returns all bytes between the guards.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// Returns the addresses between the guards.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.as_ptr() as usize;
        start..start + self.len
    }

    /// Returns a range of `length` indices into [`Guarded::bytes`] whose first byte is `offset` bytes into a cache
    /// line.
    ///
    /// # Panics
    /// If the range does not fit, or `offset` is a cache line or more.
    pub fn place(&self, place: Place, offset: usize, length: usize) -> Range<usize> {
        assert!(offset < LINE, "an offset of {offset} bytes is not within a line");
        assert!(
            length + LINE <= self.len,
            "{length} bytes at any offset do not fit into {} guarded bytes",
            self.len
        );
        let start = match place {
            Place::Start => offset,
            // Pages start at a cache line, so index and address have the same offset into a line.
            Place::End => {
                let last = self.len - length;
                last - (last - offset) % LINE
            }
        };
        start..start + length
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with its guards, and nothing borrows from it any more.
        unsafe {
            libc::munmap(self.as_ptr().sub(self.page).cast(), self.len + 2 * self.page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_the_offset_asked_for_and_is_less_than_a_line_from_its_guard() {
        let guarded = Guarded::new(1);
        for offset in 0..LINE {
            for length in 0..=4 * LINE {
                let start = guarded.place(Place::Start, offset, length);
                let end = guarded.place(Place::End, offset, length);
                for range in [&start, &end] {
                    assert_eq!(range.len(), length);
                    assert_eq!((guarded.as_ptr() as usize + range.start) % LINE, offset);
                }
                assert!(start.start < LINE);
                assert!(end.end <= guarded.len() && guarded.len() - end.end < LINE);
            }
        }
    }

    #[test]
    fn one_byte_beyond_either_guard_is_a_fault() {
        for before in [true, false] {
            let guarded = Guarded::new(1);
            let beyond = if before {
                guarded.as_ptr().wrapping_sub(1)
            } else {
                guarded.as_ptr().wrapping_add(guarded.len())
            };
            // SAFETY: the child only writes a byte and exits; it takes no lock and allocates nothing.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the write is meant to fault; where it does not, the exit status says so.
                unsafe {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    beyond.write_volatile(1);
                    libc::_exit(0);
                }
            }
            let mut status = 0;
            // SAFETY: `child` is ours and `status` is valid for writes.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
                "before {before}: status {status}"
            );
        }
    }
}
