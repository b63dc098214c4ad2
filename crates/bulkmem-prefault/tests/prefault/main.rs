//! Prefaults memory and files of every kind, and meets every limit.
//!
//! Each test runs with `MADV_POPULATE_WRITE` and with touching, the fallback for older kernels.

mod bookkeeping;
mod child;
mod huge;
mod limits;
mod memory;
mod refused;

use std::fs::File;
use std::os::fd::FromRawFd;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags};

const MIB: usize = 1 << 20;
/// True for touching.
const WAYS: [bool; 2] = [false, true];

/// A mapping of any kind, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    pub(crate) fn anonymous(length: usize, flags: MapFlags) -> Map {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping replaces nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(null_mut(), length, access, flags) }.unwrap();
        Map { start: start.cast(), length }
    }

    pub(crate) fn of(file: &File, length: usize, flags: MapFlags) -> Map {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping replaces nothing.
        let start = unsafe { rustix::mm::mmap(null_mut(), length, access, flags, file, 0) }.unwrap();
        Map { start: start.cast(), length }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, initialized by the kernel, and borrowed with `self`; no test shares it with others.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    pub(crate) fn prefault(
        &self,
        options: &bulkmem_prefault::Options<'_>,
    ) -> Result<bulkmem_prefault::Ready, bulkmem_prefault::Error> {
        // SAFETY: the mapping lives as long as `self`.
        unsafe { bulkmem_prefault::prefault_range(self.start, self.length, options) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping.
        unsafe { rustix::mm::munmap(self.start.cast(), self.length) }.unwrap();
    }
}

/// A memfd of this length.
pub(crate) fn memfd(length: u64, flags: libc::c_uint) -> std::io::Result<File> {
    // SAFETY: the name is a string that ends with a 0.
    let descriptor = unsafe { libc::memfd_create(c"bulkmem test".as_ptr(), flags | libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor, which nothing else owns.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(length)?;
    Ok(file)
}

/// Page faults of this thread so far.
pub(crate) fn faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_minflt + usage.ru_majflt
}
