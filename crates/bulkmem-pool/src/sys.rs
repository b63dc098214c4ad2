//! The system calls that need `unsafe`: mapping a file to reserve its pages, memory policy, and inherited descriptors.

use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a whole file that no code here reads or writes.
struct Window {
    start: NonNull<std::ffi::c_void>,
    len: usize,
}

impl Window {
    fn map(file: impl AsFd, len: u64) -> io::Result<Window> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces none.
        let start =
            unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?;
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

/// Reserves the huge pages of a whole file. The reservation belongs to the file and outlives the mapping. For files of
/// base pages, only sets the node. With a node, pages that are allocated later come from it.
pub(crate) fn reserve(file: impl AsFd, len: u64, node: Option<u32>) -> io::Result<()> {
    let window = Window::map(file, len)?;
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
    std::mem::forget(Window::map(file, len)?);
    Ok(())
}

/// Clears a file in place, by a mapping: files of huge pages have no write(2).
#[cfg(feature = "test-hooks")]
pub(crate) fn clear(file: impl AsFd, len: u64) -> io::Result<()> {
    let window = Window::map(file, len)?;
    // SAFETY: the range is exactly the mapping. Tenants may write to it at the same time, which the attacks of tests do.
    let populated = unsafe {
        rustix::mm::madvise(window.start.as_ptr(), window.len, rustix::mm::Advice::LinuxPopulateWrite)
    };
    // A truncated file would end the daemon by SIGBUS below. Linux before 5.14 cannot tell.
    if populated != Err(rustix::io::Errno::INVAL) {
        populated?;
    }
    for at in 0..window.len / size_of::<u64>() {
        // SAFETY: each word is within the mapping, and aligned; volatile, because others may write.
        unsafe { window.start.cast::<u64>().add(at).write_volatile(0) };
    }
    Ok(())
}

/// Sets a write lease on a file. Returns false if the kernel does not grant it.
#[cfg(feature = "test-hooks")]
pub(crate) fn set_write_lease(file: impl AsFd) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open; the call changes no memory.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}
