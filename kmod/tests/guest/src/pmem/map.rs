//! Mappings of files, with MAP_SYNC or without.

use std::fs::File;
use std::slice;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of the start of a file; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    /// Maps with MAP_SYNC: a page can only be written after the file system's records of it are durable.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file is not on DAX.
    pub(crate) fn synchronous(file: &File, length: usize) -> Result<Map, Errno> {
        Map::new(file, length, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }

    /// Maps without MAP_SYNC: the file system's records become durable at any later time, or by `fsync`, on DAX too.
    pub(crate) fn ordinary(file: &File, length: usize) -> Result<Map, Errno> {
        Map::new(file, length, MapFlags::SHARED)
    }

    fn new(file: &File, length: usize, flags: MapFlags) -> Result<Map, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        Ok(Map { start: start.cast(), length })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, readable and writable while this lives; only the tests use their files.
        unsafe { slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the value's own mapping, and references to it have ended.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
