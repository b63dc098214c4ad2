//! Mapped files and devices, and files that are created for a measurement.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::null_mut;

use bulkmem::Options;
use bulkmem::machine::Machine;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::MeasureError;
use crate::engine::arena::{RawRange, write_something};

/// Bytes that are touched between two checks of the stop flag.
const PIECE: usize = 64 << 20;
/// Bytes of the content that files are filled with repeatedly.
const CONTENT: usize = 1 << 20;

/// An open file. If it was created for the measurement, dropping this removes it.
#[derive(Debug)]
pub(super) struct Made {
    file: File,
    /// The path to remove.
    path: Option<PathBuf>,
}

impl Made {
    /// Creates a file. Unless it may be kept, removes its name immediately, so that nothing remains even if the process is
    /// killed.
    pub(super) fn new(path: PathBuf, keep: bool) -> io::Result<Made> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let mut made = Made { file, path: Some(path) };
        if !keep {
            made.remove()?;
        }
        Ok(made)
    }

    /// A file that was there before.
    pub(super) fn existing(file: File) -> Made {
        Made { file, path: None }
    }

    /// Allocates the first `bytes` of a regular file, so that no write to the mapping can fail. Keeps the content; extends a
    /// shorter file.
    pub(super) fn allocate(&self, bytes: u64) -> io::Result<()> {
        if !self.file.metadata()?.is_file() {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.lengthen(bytes),
            done => Ok(done?),
        }
    }

    /// As [`Made::allocate`], by writing, on file systems without fallocate.
    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; CONTENT];
        let mut at = self.file.metadata()?.len();
        while at < bytes {
            let part = (bytes - at).min(CONTENT as u64);
            self.file.write_all_at(&zeros[..part as usize], at)?;
            at += part;
        }
        Ok(())
    }

    /// Keeps the file from now on, if `keep`.
    pub(super) fn keep(mut self, keep: bool) {
        if keep {
            self.path = None;
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        self.path.take().map_or(Ok(()), fs::remove_file)
    }
}

impl Deref for Made {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // An error means that it was removed in the meantime.
        _ = self.remove();
    }
}

/// A mapped file or device, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut u8,
    length: usize,
    synchronous: bool,
}

impl Mapping {
    /// Maps the first `bytes`, shared, with MAP_SYNC if possible.
    pub(super) fn new(file: &File, bytes: u64, writes: bool) -> io::Result<Mapping> {
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let access = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let map = |flags| {
            // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
            unsafe { mmap(null_mut(), length, access, flags, file, 0) }
        };
        let (start, synchronous) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(start) => (start, true),
            // Refused by file systems without DAX, and by kernels before 4.15.
            Err(_) => (map(MapFlags::SHARED)?, false),
        };
        Ok(Mapping { start: start.cast(), length, synchronous })
    }

    /// True if persisted bytes are durable, including the file system's metadata.
    pub(super) fn synchronous(&self) -> bool {
        self.synchronous
    }

    /// Returns its memory.
    pub(super) fn raw_range(&self) -> RawRange {
        RawRange { start: self.start, length: self.length }
    }

    /// Touches every page: with `fill`, writes lines that all differ; otherwise reads.
    pub(super) fn touch(
        &self,
        fill: bool,
        step: &mut dyn FnMut(f64) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let mut content = vec![0; CONTENT];
        write_something(&mut content);
        for from in (0..self.length).step_by(PIECE) {
            step(from as f64 / self.length as f64)?;
            let piece = PIECE.min(self.length - from);
            if !fill {
                for page in (from..from + piece).step_by(Machine::current().page_size) {
                    // SAFETY: within the mapping, which is readable; other processes may write to it, hence volatile.
                    unsafe { self.start.add(page).read_volatile() };
                }
                continue;
            }
            for at in (from..from + piece).step_by(CONTENT) {
                let part = CONTENT.min(from + piece - at);
                // SAFETY: within the mapping, which was made writable for this; the content is as long and apart from
                // it. Raw copies are as volatile ones: others may use the memory.
                unsafe {
                    Options::new().total_len(self.length).copy_raw(self.start.add(at), content.as_ptr(), part)
                }
            }
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and the users of its range are gone, as `raw_range` requires.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
