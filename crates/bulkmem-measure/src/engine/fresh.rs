//! Destinations whose pages are not mapped yet: new memory, or, for operations that persist, pages of a file in memory.

use std::collections::VecDeque;
use std::io;
use std::ptr::null_mut;

use bulkmem::{Mapping, Operation, Pages};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::engine::arena::HUGE;
use crate::engine::buffer::{map, populate};
use crate::engine::{LINE, MeasureError, Result};

pub(crate) struct Fresh {
    /// Bytes of the latest destinations that are kept.
    spread: usize,
    /// Bytes that new destinations have touched together, so that the host of a virtual machine backs them.
    backed: usize,
    new: VecDeque<Mapping>,
    file: Option<FilePages>,
}

impl Fresh {
    /// Keeps the latest destinations of `spread` bytes together.
    pub(crate) fn new(spread: usize) -> Fresh {
        Fresh { spread, backed: 0, new: VecDeque::new(), file: None }
    }

    /// Returns `bytes`, a multiple of the page size, of memory whose pages are not mapped yet. Operations that persist get base
    /// pages. It is valid until the next call of this or of [`Fresh::prepare`].
    ///
    /// The kernel first hands out the pages that were released last. So destinations are kept until the caches hold none of
    /// their pages: what the candidate before left there would make the page faults of the next one faster or slower. For the same
    /// reason, a file's pages are used in turn.
    pub(crate) fn memory(&mut self, operation: Operation, bytes: usize, pages: Pages) -> Result<*mut u8> {
        while self.new.front().is_some_and(|front| {
            let all: usize = self.new.iter().map(|mapping| mapping.len()).sum();
            all - self.one_more(front.len()) > self.spread
        }) {
            self.new.pop_front();
        }
        self.prepare(operation, bytes, pages)?;
        if let Some(file) = self.file.as_mut().filter(|_| operation.persists()) {
            return file.unmapped(bytes).map_err(failed("unmap pages of shared memory"));
        }
        let mut mapping = map(bytes, pages)?;
        let start = mapping.as_mut_ptr();
        self.new.push_back(mapping);
        Ok(start)
    }

    /// Has the host of a virtual machine back as much memory as destinations of so many bytes may take together. That
    /// takes long where the caches are large: a caller that knows the longest does it before it takes samples.
    pub(crate) fn prepare(&mut self, operation: Operation, bytes: usize, pages: Pages) -> Result<()> {
        // An unaligned destination needs a page more.
        let needed = self.spread + self.one_more(bytes) + (bytes + LINE).next_multiple_of(HUGE);
        if operation.persists() {
            if self.file.as_ref().is_none_or(|file| file.length < self.spread + bytes) {
                self.file = None;
                self.file = Some(FilePages::new(needed).map_err(failed("map shared memory"))?);
            }
        } else if self.backed < self.spread + bytes {
            self.new.clear();
            self.backed = needed;
            let prefaulted = map(needed, pages)?.prefault();
            prefaulted.map_err(|source| MeasureError::Mapping { bytes: needed as u64, source })?;
        }
        Ok(())
    }

    /// Bytes of a destination that is kept beyond the spread, so that even the next one after a long one gets other pages. Of one that is
    /// far longer than the caches, they hold little, and the memory may not suffice for two of the longest.
    fn one_more(&self, bytes: usize) -> usize {
        const MOST: usize = 256 << 20;
        if bytes <= self.spread.saturating_mul(4).min(MOST) { bytes } else { 0 }
    }

    /// The number of new destinations that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.new.len()
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> MeasureError {
    move |source| MeasureError::System { doing, source }
}

/// Pages of shared memory, which Linux keeps in a file in memory. They hold bytes already and are mapped at the first access, as
/// those of a file in persistent memory.
struct FilePages {
    start: *mut u8,
    length: usize,
    /// Offset of the next memory to use.
    next: usize,
}

impl FilePages {
    fn new(length: usize) -> io::Result<FilePages> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(null_mut(), length, access, MapFlags::SHARED) }?;
        let pages = FilePages { start: start.cast(), length, next: 0 };
        // SAFETY: all of the mapping, which no other code knows; this advice changes no contents.
        match unsafe { madvise(start, length, Advice::LinuxNoHugepage) } {
            // A kernel without transparent huge pages gives base pages in any case.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        // SAFETY: as above.
        unsafe { populate(pages.start, length) }?;
        Ok(pages)
    }

    /// Unmaps the pages of the next `bytes`, a multiple of the page size, at most the length; the file keeps them.
    fn unmapped(&mut self, bytes: usize) -> io::Result<*mut u8> {
        assert!(bytes <= self.length, "the file is prepared for so many bytes");
        if self.length - self.next < bytes {
            self.next = 0;
        }
        let start = self.start.wrapping_add(self.next);
        self.next += bytes;
        // SAFETY: within the mapping, which is shared, so that its file keeps the bytes.
        unsafe { madvise(start.cast(), bytes, Advice::LinuxDontNeed) }?;
        Ok(start)
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        // SAFETY: the mapping was created in `new`, and nothing uses its memory any more.
        _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use bulkmem::machine::Machine;

    use super::*;

    /// Counts the pages that this process has mapped.
    fn mapped(start: *mut u8, length: usize) -> usize {
        let page = Machine::current().page_size;
        let mut entries = vec![0; length / page * 8];
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entries, (start.addr() / page * 8) as u64).unwrap();
        // Little-endian; the highest bit says that the page is present.
        entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count()
    }

    #[test]
    fn the_next_destination_after_a_long_one_gets_other_pages() {
        const SPREAD: usize = 3 << 20;
        let mut fresh = Fresh::new(SPREAD);
        let mut kept = |bytes: usize| {
            fresh.memory(Operation::Clear, bytes, Pages::Base).unwrap();
            fresh.kept()
        };
        assert_eq!([(); 4].map(|()| kept(2 * SPREAD)), [1, 2, 2, 2], "the last one, and one before it");
        assert_eq!([(); 3].map(|()| kept(5 * SPREAD)), [1; 3], "far longer than the caches");
    }

    #[test]
    fn operations_that_persist_get_pages_of_a_file_which_hold_bytes_and_are_not_mapped() {
        const LENGTH: usize = 256 << 10;
        let mut fresh = Fresh::new(3 << 20);
        let (mut seen, mut again) = (Vec::new(), 0);
        for _ in 0..50 {
            let start = fresh.memory(Operation::FillPersist, LENGTH, Pages::Base).unwrap();
            assert_eq!(mapped(start, LENGTH), 0);
            // SAFETY: the memory is this test's, until as much was requested as is kept.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, LENGTH) };
            let old = u8::from(seen.contains(&start.addr()));
            bytes[0] = old;
            assert_eq!(mapped(start, LENGTH), 1, "base pages, of which a store maps one");
            assert!(bytes.iter().all(|byte| *byte == old), "the file keeps its bytes");
            again += usize::from(old);
            bytes.fill(1);
            assert_eq!(mapped(start, LENGTH), LENGTH / Machine::current().page_size);
            seen.push(start.addr());
        }
        assert!((12..=38).contains(&again), "{again} of 50: 3 MiB are kept, and the file is not much longer");
        assert_eq!(fresh.kept(), 0);
        // A longer one gets a longer file.
        let start = fresh.memory(Operation::CopyPersist, 8 << 20, Pages::Base).unwrap();
        assert_eq!(mapped(start, 8 << 20), 0);
        // SAFETY: as above.
        unsafe { start.write_bytes(2, 8 << 20) };
        // Other operations get new memory.
        let start = fresh.memory(Operation::Clear, LENGTH, Pages::Base).unwrap();
        assert_eq!((mapped(start, LENGTH), fresh.kept()), (0, 1));
    }
}
