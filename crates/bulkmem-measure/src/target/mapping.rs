//! A file or a device in memory, and files that are made for a measurement.

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

/// Bytes that are touched between two looks at whether to stop.
const PIECE: usize = 64 << 20;
/// Bytes of the content that files are filled with, over and over.
const CONTENT: usize = 1 << 20;

/// An open file; where it was made for the measurement, it is gone in the end.
#[derive(Debug)]
pub(super) struct Made {
    file: File,
    /// What is still to be removed.
    path: Option<PathBuf>,
}

impl Made {
    /// Makes a file. Unless it may have to be kept, it loses its name at once: whatever becomes of the process, nothing
    /// stays behind.
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

    /// Sees to it that the first `bytes` of a regular file have their place, so that no write to the mapping can fail. Content stays as it
    /// is; a file that is shorter becomes that long.
    pub(super) fn allocate(&self, bytes: u64) -> io::Result<()> {
        if !self.file.metadata()?.is_file() {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.lengthen(bytes),
            done => Ok(done?),
        }
    }

    /// As [`Made::allocate`] on file systems that cannot: by writing what is missing.
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

    /// It is ready: from here on it stays, if that is wanted.
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
        // Where it went away meanwhile, it is as it should be.
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
    /// Maps the first `bytes`, shared: with MAP_SYNC where that is possible.
    pub(super) fn new(file: &File, bytes: u64, writes: bool) -> io::Result<Mapping> {
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let access = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let map = |flags| {
            // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing.
            unsafe { mmap(null_mut(), length, access, flags, file, 0) }
        };
        let (start, synchronous) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(start) => (start, true),
            // Refused by file systems that cannot, and by kernels before 4.15.
            Err(_) => (map(MapFlags::SHARED)?, false),
        };
        Ok(Mapping { start: start.cast(), length, synchronous })
    }

    /// Whether what was persisted is durable, the file system's own records included.
    pub(super) fn synchronous(&self) -> bool {
        self.synchronous
    }

    /// Where it is.
    pub(super) fn raw_range(&self) -> RawRange {
        RawRange { start: self.start, length: self.length }
    }

    /// Touches every page: writes bytes of which no line is like the next, or only reads.
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
                    // SAFETY: within the mapping, which is readable; others may write to it, hence volatile.
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
        // SAFETY: the mapping is this one's own; whoever used its range is gone, as `range` asks for.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
