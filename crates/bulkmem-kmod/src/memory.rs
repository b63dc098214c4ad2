//! Memory with a chosen cache attribute.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use bulkmem::Pages;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::KernelError;
use crate::abi::{self, Attribute};
use crate::device::{Device, MEMORY_PATH};

/// Options for memory of the device. Default: write-back, in base pages, on any node.
///
/// ```
/// use bulkmem_kmod::{Attribute, MemoryOptions};
///
/// let options = MemoryOptions::default().attribute(Attribute::Wc).node(0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// How the processor may cache the memory.
    pub attribute: Attribute,
    /// The kind of pages: [`Pages::Base`], or [`Pages::Explicit`] of 2 MiB, which need no reservation.
    pub pages: Pages,
    /// The NUMA node that provides the memory; `None`: any node.
    pub node: Option<u32>,
}

impl MemoryOptions {
    /// Sets how the processor may cache the memory.
    #[must_use]
    pub fn attribute(self, attribute: Attribute) -> MemoryOptions {
        MemoryOptions { attribute, ..self }
    }

    /// Sets the kind of pages.
    #[must_use]
    pub fn pages(self, pages: Pages) -> MemoryOptions {
        MemoryOptions { pages, ..self }
    }

    /// Sets the NUMA node that provides the memory.
    #[must_use]
    pub fn node(self, node: u32) -> MemoryOptions {
        MemoryOptions { node: Some(node), ..self }
    }
}

/// Zeroed memory from `/dev/bulkmem-memory` with a cache attribute. All of its pages are present from the start; it is unmapped
/// when dropped.
///
/// Forked processes share it, and stores to memory that is not write-back are not ordered as Rust assumes, so this type
/// never creates references to its bytes. Use the raw operations ([`Options::clear_raw`](bulkmem::Options::clear_raw),
/// [`Options::copy_raw`](bulkmem::Options::copy_raw)), which fence, or volatile accesses. After volatile stores to
/// write-combining memory, execute SFENCE before another thread reads it.
///
/// Each access to uncached memory takes hundreds of nanoseconds, however small: clearing a megabyte byte by byte takes a
/// tenth of a second or more.
#[derive(Debug)]
pub struct DeviceMemory {
    start: NonNull<c_void>,
    /// The length in bytes, rounded up to whole pages.
    whole: usize,
    length: usize,
    options: MemoryOptions,
}

// SAFETY: this value owns the mapping, which is not bound to a thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: a shared reference provides only numbers and a raw pointer.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// If the device cannot be opened, does not provide such memory, or the length is more than this user may lock.
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
        let device = Device::open(MEMORY_PATH)?;
        let memory = abi::Memory::new(attribute, page.trailing_zeros(), wanted_node);
        device.describe(memory).map_err(|error| match (error, node) {
            (Errno::OPNOTSUPP, _) => KernelError::NoAttribute { attribute },
            (Errno::INVAL | Errno::NODEV | Errno::NXIO, Some(node)) => KernelError::NoNode { node },
            (error, _) => KernelError::System { doing: "describe the device's memory", source: error.into() },
        })?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other. The mapping stays valid after
        // the file is closed.
        let start = unsafe { rustix::mm::mmap(null_mut(), whole, access, MapFlags::SHARED, &device.0, 0) };
        let refused = |error| match error {
            Errno::NOMEM => KernelError::OutOfMemory { bytes, pages, source: error.into() },
            Errno::AGAIN => KernelError::TooFast { bytes, source: error.into() },
            Errno::PERM => KernelError::Denied { path: MEMORY_PATH.into(), source: error.into() },
            error => KernelError::System { doing: "map the device's memory", source: error.into() },
        };
        let start = NonNull::new(start.map_err(refused)?).expect("the kernel maps address 0 only on request");
        let memory = DeviceMemory { start, whole, length: bytes, options };
        device.populate(abi::Range::new(start.addr().get(), whole)).map_err(refused)?;
        Ok(memory)
    }

    /// Returns a pointer to the first byte, valid for reads and writes of `len` bytes while this value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Returns the requested length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the requested options.
    pub fn options(&self) -> MemoryOptions {
        self.options
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and users of its pointer guarantee that the value lives.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.whole) };
        // The kernel refuses only invalid ranges, and this one was mapped.
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
    fn invalid_requests_are_refused_before_the_device_is_opened() {
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
                    println!("skipped: memory of attribute {attribute}: {error}");
                    continue;
                }
                Err(error) => {
                    println!("skipped: memory of the device: {error}");
                    return;
                }
            };
            assert_eq!((memory.len(), memory.options().attribute), (10_000, attribute));
            // SAFETY: within the memory, which no other thread uses; the copy is as long as it.
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
