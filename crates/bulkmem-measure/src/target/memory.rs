//! Memory of a target: ordinary memory, memory of the kernel module's device, or a mapped file or device.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ptr::null_mut;

use bulkmem::Options;
use bulkmem::machine::Machine;
use bulkmem_kmod::DeviceMemory;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::engine::arena::write_something;
use crate::engine::{Buffer, PageSize, RawRange, Result};

/// Bytes that are touched between two checks of the stop flag.
const PIECE: usize = 4 << 20;

/// Receives the share of a target that is prepared. An error from it ends the preparation.
pub(crate) type Step<'s> = &'s mut dyn FnMut(f64) -> Result<()>;

#[derive(Debug)]
pub(crate) enum Memory {
    Ram(Buffer),
    Module(DeviceMemory),
    Mapped(Mapping),
}

impl Memory {
    /// Returns the range, valid as long as this lives.
    pub(crate) fn raw_range(&mut self) -> RawRange {
        match self {
            Memory::Ram(buffer) => buffer.raw_range(),
            Memory::Module(memory) => RawRange { start: memory.as_ptr(), length: memory.len() },
            Memory::Mapped(mapping) => mapping.range,
        }
    }

    /// Returns the page size, for ordinary memory as the kernel reports it; `None` for files.
    pub(crate) fn backing_page_size(&self) -> Option<usize> {
        match self {
            Memory::Ram(buffer) => buffer.backing_page_size(),
            Memory::Module(memory) => Some(PageSize(memory.options().pages).bytes() as usize),
            Memory::Mapped(_) => None,
        }
    }

    /// Touches every page: with `fill`, which needs writable memory, writes lines that all differ, by the widest copies,
    /// since uncached memory is slow; otherwise reads.
    pub(crate) fn touch(&mut self, fill: bool, step: Step<'_>) -> Result<()> {
        let mut content = vec![0; PIECE];
        write_something(&mut content);
        let RawRange { start, length } = self.raw_range();
        for from in (0..length).step_by(PIECE) {
            step(from as f64 / length as f64)?;
            let (start, part) = (start.wrapping_add(from), PIECE.min(length - from));
            if fill {
                // SAFETY: the part lies in the memory, which was made writable for this; the content is as long and apart
                // from it. Raw copies are as volatile ones: other processes may use a mapped file.
                unsafe { Options::new().total_len(length).copy_raw(start, content.as_ptr(), part) }
                continue;
            }
            for page in (0..part).step_by(Machine::current().page_size) {
                // SAFETY: within the memory, which is readable; other processes may write to it, hence volatile.
                unsafe { start.add(page).read_volatile() };
            }
        }
        Ok(())
    }
}

/// A mapped file or device, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    range: RawRange,
}

impl Mapping {
    /// Maps the first `bytes`, shared, with MAP_SYNC if possible. Also returns whether that holds: then persisted bytes are
    /// durable, including the file system's metadata.
    pub(super) fn new(file: &File, bytes: u64, writes: bool) -> io::Result<(Mapping, bool)> {
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
        Ok((Mapping { range: RawRange { start: start.cast(), length } }, synchronous))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and the users of its range are gone, as `raw_range` requires.
        let unmapped = unsafe { munmap(self.range.start.cast(), self.range.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

/// Allocates the first `bytes` of a regular file, so that no write to the mapping can fail. Extends shorter files.
pub(super) fn allocate(mut file: &File, bytes: u64) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // File systems without fallocate.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let missing = bytes.saturating_sub(file.seek(SeekFrom::End(0))?);
            io::copy(&mut io::repeat(0).take(missing), &mut file).map(drop)
        }
        done => Ok(done?),
    }
}
