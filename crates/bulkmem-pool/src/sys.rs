//! The system calls that need `unsafe`: mapping a window of a file to fill or reserve it, memory policy, and inherited
//! descriptors.

use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A shared mapping of a range of a file that no code here reads or writes.
struct Window {
    start: NonNull<std::ffi::c_void>,
    len: usize,
}

impl Window {
    fn map(file: impl AsFd, offset: u64, len: usize) -> io::Result<Window> {
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces none.
        let start = unsafe {
            mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, offset)
        }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Window { start, len })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, which this value owns, and nothing refers to its memory.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Makes the kernel allocate and clear the pages of a range of a file: maps it, populates it and unmaps it. Returns false
/// if the kernel is older than Linux 5.14 and cannot.
pub(crate) fn populate(file: impl AsFd, offset: u64, len: usize) -> io::Result<bool> {
    let window = Window::map(file, offset, len)?;
    // SAFETY: the range is exactly the mapping. Populating changes no bytes, and nothing refers to them.
    match unsafe { madvise(window.start.as_ptr(), window.len, Advice::LinuxPopulateWrite) } {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        // No page: the memory is exhausted, where a store would raise SIGBUS.
        Err(Errno::FAULT) => Err(io::ErrorKind::OutOfMemory.into()),
        Err(error) => Err(error.into()),
    }
}

/// Reserves the huge pages of a whole file. The reservation belongs to the file and outlives the mapping. For files of
/// base pages, only sets the node. With a node, pages that are allocated later come from it.
pub(crate) fn reserve(file: impl AsFd, len: u64, node: Option<u32>) -> io::Result<()> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let window = Window::map(file, 0, len)?;
    let Some(node) = node else { return Ok(()) };
    let mask = NodeMask::of(node)?;
    // SAFETY: the range is exactly the mapping; the mask is valid for its number of bits.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            window.start.as_ptr(),
            window.len,
            libc::MPOL_BIND,
            mask.0.as_ptr(),
            NodeMask::BITS,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the calling thread allocate memory from one node only, or from any.
pub(crate) fn bind_thread(node: Option<u32>) -> io::Result<()> {
    let mask = node.map(NodeMask::of).transpose()?;
    let (mode, words, bits) = match &mask {
        Some(mask) => (libc::MPOL_BIND, mask.0.as_ptr(), NodeMask::BITS),
        None => (libc::MPOL_DEFAULT, std::ptr::null(), 0),
    };
    // SAFETY: the mask, if there is one, is valid for its number of bits.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, words, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

struct NodeMask([c_ulong; 1024 / c_ulong::BITS as usize]);

impl NodeMask {
    /// The kernel ignores the last bit of those that it is given.
    const BITS: c_ulong = 1025;

    fn of(node: u32) -> io::Result<NodeMask> {
        let mut mask = NodeMask([0; 1024 / c_ulong::BITS as usize]);
        let word = mask.0.get_mut((node / c_ulong::BITS) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % c_ulong::BITS);
        Ok(mask)
    }
}

/// Takes ownership of a descriptor that the service manager has passed to this process.
///
/// # Safety
/// The descriptor is open and nothing else in the process uses it.
pub(crate) unsafe fn adopt(raw: RawFd) -> OwnedFd {
    // SAFETY: the caller's contract is that of this function.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Maps a file and never unmaps it.
#[cfg(feature = "test-hooks")]
pub(crate) fn keep_mapping(file: impl AsFd, len: u64) -> io::Result<()> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    std::mem::forget(Window::map(file, 0, len)?);
    Ok(())
}

/// Sets a write lease on a file. Returns false if the kernel does not grant it.
#[cfg(feature = "test-hooks")]
pub(crate) fn set_write_lease(file: impl AsFd) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open; the call changes no memory.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}
