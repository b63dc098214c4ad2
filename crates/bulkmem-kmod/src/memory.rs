//! Memory of a chosen cache attribute.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::KernelError;
use crate::abi::{self, Attribute};
use crate::device::Device;
use bulkmem::Pages;

/// What memory of the device is to be like; by default ordinary, in base pages, on any node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// How the processor may cache it.
    pub attribute: Attribute,
    /// The pages it is made of: [`Pages::Base`], or [`Pages::Explicit`] of 2 MiB. None of them are reserved before.
    pub pages: Pages,
    /// The NUMA node whose memory it is; `None`: wherever there is room.
    pub node: Option<u32>,
}

/// Zeroed memory from `/dev/bulkmem` with a cache attribute, all of it there at once, unmapped when dropped.
///
/// It is shared with processes that this one forks, and stores to memory that is not write-back are not ordered as Rust
/// takes stores to be; so no references to its bytes are given out. Work on it with the raw forms
/// ([`Options::clear_raw`](crate::Options::clear_raw), [`Options::copy_raw`](crate::Options::copy_raw)), which fence, or with volatile
/// accesses, and fence (`SFENCE`) after stores to write-combining memory that another thread is to see.
///
/// Uncached memory takes hundreds of nanoseconds for each access, however small: a megabyte cleared byte by byte takes a
/// tenth of a second and more.
#[derive(Debug)]
pub struct DeviceMemory {
    start: NonNull<c_void>,
    /// Bytes in whole pages.
    whole: usize,
    length: usize,
    options: MemoryOptions,
}

// SAFETY: the mapping is this value's own; nothing in it belongs to one thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: a shared reference gives nothing but numbers and a raw pointer.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Takes `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// Where the device cannot be opened, does not have such memory, or not as much of it as this user may lock.
    pub fn new(bytes: usize, options: MemoryOptions) -> Result<DeviceMemory, KernelError> {
        let MemoryOptions { attribute, pages, node } = options;
        if bytes == 0 {
            return Err(KernelError::Empty);
        }
        let page = match pages {
            Pages::Base => rustix::param::page_size(),
            Pages::Explicit(size) if size == 2 << 20 => 2 << 20,
            pages => return Err(KernelError::PageSize { pages }),
        };
        let whole = bytes.checked_next_multiple_of(page).filter(|whole| *whole <= isize::MAX as usize);
        let whole = whole.ok_or(KernelError::TooLong { bytes })?;
        let wanted_node = match node.map(i32::try_from) {
            None => -1,
            Some(Ok(node)) => node,
            Some(Err(_)) => return Err(KernelError::NoNode { node: node.unwrap_or_default() }),
        };
        let device = Device::open()?;
        let memory = abi::Memory {
            attribute: attribute as u32,
            page_shift: page.trailing_zeros(),
            node: wanted_node,
            flags: 0,
        };
        device.describe(memory).map_err(|error| match (error, node) {
            (Errno::OPNOTSUPP, _) => KernelError::NoAttribute { attribute },
            (Errno::INVAL | Errno::NODEV | Errno::NXIO, Some(node)) => KernelError::NoNode { node },
            (error, _) => KernelError::System { doing: "describe the device's memory", source: error.into() },
        })?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing. The file may be closed
        // afterwards: a mapping keeps what it needs.
        let start = unsafe { rustix::mm::mmap(null_mut(), whole, access, MapFlags::SHARED, &device.0, 0) };
        let start = start.map_err(|error| match error {
            Errno::NOMEM | Errno::AGAIN => KernelError::OutOfMemory { bytes, pages, source: error.into() },
            Errno::OPNOTSUPP => KernelError::NoAttribute { attribute },
            error => KernelError::System { doing: "map the device's memory", source: error.into() },
        })?;
        let start = NonNull::new(start).expect("the kernel maps nothing at address 0 unasked");
        Ok(DeviceMemory { start, whole, length: bytes, options })
    }

    /// The first byte. Valid for `len` bytes of reads and writes as long as this value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Bytes asked for.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// What was asked for.
    pub fn options(&self) -> MemoryOptions {
        self.options
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; whoever uses its pointer vouches that this one lives.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.whole) };
        // Only a wrong range can be refused, and this is the range that was mapped.
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkmem::Options;

    fn new(bytes: usize, options: MemoryOptions) -> Result<DeviceMemory, KernelError> {
        DeviceMemory::new(bytes, options)
    }

    #[test]
    fn nonsense_is_refused_before_the_device_is_looked_for() {
        let usual = MemoryOptions::default();
        assert!(matches!(new(0, usual), Err(KernelError::Empty)));
        assert!(matches!(new(usize::MAX, usual), Err(KernelError::TooLong { .. })));
        assert!(matches!(new(isize::MAX as usize, usual), Err(KernelError::TooLong { .. })));
        for pages in [Pages::Transparent, Pages::Explicit(1 << 30), Pages::Explicit(0)] {
            let refused = new(1, MemoryOptions { pages, ..usual });
            assert!(matches!(refused, Err(KernelError::PageSize { .. })), "{refused:?}");
        }
        let nowhere = new(1, MemoryOptions { node: Some(u32::MAX), ..usual });
        assert!(matches!(nowhere, Err(KernelError::NoNode { node: u32::MAX })), "{nowhere:?}");
    }

    #[test]
    fn memory_of_every_attribute_holds_what_is_written() {
        for attribute in Attribute::ALL {
            let memory = match new(10_000, MemoryOptions { attribute, ..MemoryOptions::default() }) {
                Ok(memory) => memory,
                Err(error @ KernelError::NoAttribute { .. }) => {
                    println!("skipped: memory mapped {attribute}: {error}");
                    continue;
                }
                Err(error) => {
                    println!("skipped: memory of the device: {error}");
                    return;
                }
            };
            assert_eq!((memory.len(), memory.options().attribute), (10_000, attribute));
            // SAFETY: within the memory, which nobody else uses; bytes and copies are as long as it.
            unsafe {
                for at in [0, 4095, 4096, 9_999] {
                    assert_eq!(memory.as_ptr().add(at).read_volatile(), 0, "{attribute}: byte {at}");
                }
                Options::new().total_len(10_000).fill_raw(memory.as_ptr(), 10_000, 0x5a);
                let mut copy = vec![0u8; 10_000];
                Options::new().total_len(10_000).copy_raw(copy.as_mut_ptr(), memory.as_ptr(), 10_000);
                assert!(copy.iter().all(|byte| *byte == 0x5a), "{attribute}");
            }
        }
    }
}
