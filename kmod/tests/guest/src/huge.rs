//! Mappings of huge pages that are faulted in page by page, dirtied, and checked byte by byte.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

/// The size of a base page.
pub(crate) const SMALL: usize = 4096;
/// The size of a huge page.
pub(crate) const MIDDLE: usize = 2 << 20;
/// The size of a gigantic page.
pub(crate) const GIGANTIC: usize = 1 << 30;

/// A source of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The reserved pool of 2 MiB pages.
    Pool2M,
    /// The reserved pool of 1 GiB pages.
    Pool1G,
    /// Transparent huge pages of 2 MiB, enabled by `madvise`.
    Transparent,
}

impl Source {
    /// Returns the size of one page.
    pub(crate) fn page(self) -> usize {
        if self == Source::Pool1G { GIGANTIC } else { MIDDLE }
    }
}

/// A private or shared mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct HugeMapping {
    reserved: (NonNull<u8>, usize),
    start: NonNull<u8>,
    length: usize,
    page: usize,
    flags: i32,
}

// SAFETY: the value owns the mapping, which is not bound to a thread.
unsafe impl Send for HugeMapping {}
// SAFETY: through shared references, memory is only written by atomic or volatile accesses, which the tests order.
unsafe impl Sync for HugeMapping {}

impl HugeMapping {
    /// Maps `pages` pages, which are faulted in when they are touched.
    pub(crate) fn new(source: Source, pages: usize) -> io::Result<HugeMapping> {
        let huge = match source {
            Source::Pool2M => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            Source::Pool1G => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
            Source::Transparent => 0,
        };
        let mapping = HugeMapping::with(
            pages * source.page(),
            source.page(),
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge,
            None,
        )?;
        if source == Source::Transparent {
            mapping.advise(libc::MADV_HUGEPAGE)?;
        }
        Ok(mapping)
    }

    /// Maps the start of a file, shared.
    pub(crate) fn of_file(file: BorrowedFd<'_>, length: usize, page: usize) -> io::Result<HugeMapping> {
        HugeMapping::with(length, page, libc::MAP_SHARED, Some(file))
    }

    fn with(length: usize, page: usize, flags: i32, file: Option<BorrowedFd<'_>>) -> io::Result<HugeMapping> {
        // The kernel aligns mappings of the pools and of files, but not those of transparent huge pages.
        let aligned = flags & (libc::MAP_HUGETLB | libc::MAP_SHARED) != 0;
        let whole = if aligned { length } else { length + page };
        let descriptor = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: without MAP_FIXED, the mapping replaces no other.
        let address = unsafe {
            libc::mmap(null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let reserved = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let ahead =
            if aligned { 0 } else { reserved.addr().get().next_multiple_of(page) - reserved.addr().get() };
        // SAFETY: at most `page` bytes into a mapping of `length + page`.
        let start = unsafe { reserved.add(ahead) };
        Ok(HugeMapping { reserved: (reserved, whole), start, length, page, flags })
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// Returns its address, for system calls.
    pub(crate) fn pointer(&self) -> *mut libc::c_void {
        self.start.as_ptr().cast()
    }

    /// Returns its length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Calls `madvise` for the whole mapping.
    pub(crate) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the value's own mapping; no references exist to pages that MADV_DONTNEED drops.
        let result = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes the kernel fault every page in.
    pub(crate) fn populate(&self) -> io::Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            // Before Linux 5.14: locked memory is populated.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // SAFETY: the value's own mapping.
                if unsafe { libc::mlock(self.start.as_ptr().cast(), self.length) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: as above.
                unsafe { libc::munlock(self.start.as_ptr().cast(), self.length) };
                Ok(())
            }
            result => result,
        }
    }

    /// Drops every page of private memory, so that it is faulted in again.
    pub(crate) fn discard(&mut self) -> io::Result<()> {
        match self.advise(libc::MADV_DONTNEED) {
            // Pages of the pool before Linux 5.18: new memory in their place.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (start, access) = (self.start.as_ptr().cast(), libc::PROT_READ | libc::PROT_WRITE);
                // SAFETY: replaces the value's own mapping, which no references exist to, by one of the same kind.
                let new =
                    unsafe { libc::mmap(start, self.length, access, self.flags | libc::MAP_FIXED, -1, 0) };
                if new == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
            }
            result => result,
        }
    }

    /// Calls `madvise` for every other piece of this length.
    pub(crate) fn advise_pieces(&self, length: usize, advice: i32) -> io::Result<()> {
        for offset in (0..self.length).step_by(2 * length) {
            // SAFETY: as in `advise`; the length of the mapping is a multiple of that of the pieces.
            let result = unsafe { libc::madvise(self.start.add(offset).as_ptr().cast(), length, advice) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Writes a zero at this offset, which faults the page in and leaves it zero.
    pub(crate) fn touch(&self, offset: usize) {
        assert!(offset < self.length);
        // SAFETY: inside the mapping, as the line above checks.
        unsafe { self.start.add(offset).write_volatile(0) };
    }

    /// Fills the mapping with a byte that is not zero.
    pub(crate) fn dirty(&mut self) {
        self.bytes_mut().fill(0xa5);
    }

    /// Returns the bytes. Reading them faults in missing pages.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and readable for its whole length while `self` lives; writes need `self` mutably, except
        // `touch`, which no test calls while it holds these bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Returns the bytes, mutably.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Returns the offset of the first byte that is not 0.
    pub(crate) fn first_dirt(&self) -> Option<usize> {
        first_dirt(self.bytes())
    }

    /// Returns the physical frames of the huge pages; 0 for those that are not mapped. Base pages are an error.
    pub(crate) fn frames(&self) -> io::Result<Vec<u64>> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let flags = File::open("/proc/kpageflags")?;
        let mut frames = Vec::new();
        for offset in (0..self.length).step_by(self.page) {
            let entry = read_u64(&pagemap, (self.address() + offset) / SMALL)?;
            let frame = if entry >> 63 == 1 { entry & ((1 << 55) - 1) } else { 0 };
            if frame != 0 {
                let flags = read_u64(&flags, frame as usize)?;
                if flags & (1 << HUGE | 1 << THP) == 0 || !(frame as usize).is_multiple_of(self.page / SMALL)
                {
                    return Err(io::Error::other(format!("the page at offset {offset:#x} is no huge page")));
                }
            }
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Bits of /proc/kpageflags.
const HUGE: u32 = 17;
const THP: u32 = 22;

fn read_u64(file: &File, index: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, index as u64 * 8)?;
    Ok(u64::from_ne_bytes(bytes))
}

impl Drop for HugeMapping {
    fn drop(&mut self) {
        let (start, length) = self.reserved;
        // SAFETY: the value's own mapping, and the value ends here.
        unsafe { libc::munmap(start.as_ptr().cast(), length) };
    }
}

/// Returns the offset of the first byte that is not 0.
pub(crate) fn first_dirt(bytes: &[u8]) -> Option<usize> {
    let block = bytes.chunks(SMALL).position(|block| block.iter().fold(0, |sum, byte| sum | byte) != 0)?;
    let inside = bytes[block * SMALL..].iter().position(|byte| *byte != 0)?;
    Some(block * SMALL + inside)
}
