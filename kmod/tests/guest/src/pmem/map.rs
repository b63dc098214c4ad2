//! A file's bytes, mapped: with MAP_SYNC, or as everybody maps files.

use std::fs::File;
use std::slice;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The first bytes of a file, mapped to be shared; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    /// With MAP_SYNC: a page can only be written once the file system's own records of it are durable.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file is not on DAX.
    pub(crate) fn synchronous(file: &File, length: usize) -> Result<Map, Errno> {
        Map::new(file, length, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }

    /// Without: on DAX too, the file system's records become durable when it pleases, or by `fsync`.
    pub(crate) fn ordinary(file: &File, length: usize) -> Result<Map, Errno> {
        Map::new(file, length, MapFlags::SHARED)
    }

    fn new(file: &File, length: usize, flags: MapFlags) -> Result<Map, Errno> {
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        Ok(Map { start: start.cast(), length })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, readable and writable, as long as this lives; the tests alone use their files.
        unsafe { slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and what it lent is gone.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
