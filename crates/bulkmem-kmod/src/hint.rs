//! Telling the kernel how large the whole is.

use crate::KernelError;
use crate::abi;
use crate::device::Device;
use bulkmem::Mapping;

/// Says that a stretch of this process's memory is about to be faulted in as a whole: while it lives, the kernel module
/// clears each huge page in it as a part of that extent rather than as 2 MiB of its own, so that a method for large
/// extents clears it, which leaves the caches alone.
///
/// Declare before the memory is touched, prefault, and drop. It does not touch the memory and does not keep it: it may
/// be unmapped meanwhile, and a hint for memory that is there already does nothing. Declaring costs some system calls;
/// for less than a few huge pages it is not worth it. A child of a fork has no hint of its own; where it drops its copy of
/// this value, the parent's hint ends too.
#[derive(Debug)]
pub struct BulkHint {
    device: Device,
    length: usize,
}

impl BulkHint {
    /// Declares `length` bytes from `start` on, extended to whole pages.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`] and [`KernelError::Denied`] where the device cannot be opened; others where the module
    /// refuses, as it does for a stretch of no bytes, or when it has too many hints.
    pub fn new(start: *const u8, length: usize) -> Result<BulkHint, KernelError> {
        if length == 0 {
            return Err(KernelError::Empty);
        }
        let page = rustix::param::page_size();
        let first = start.addr() / page * page;
        let end = start.addr().checked_add(length).and_then(|end| end.checked_next_multiple_of(page));
        let whole = end.ok_or(KernelError::TooLong { bytes: length })? - first;
        let device = Device::open()?;
        device
            .hint(abi::Hint { addr: first as u64, length: whole as u64 })
            .map_err(|error| KernelError::System { doing: "take a bulk hint", source: error.into() })?;
        Ok(BulkHint { device, length: whole })
    }

    /// Declares a region.
    ///
    /// # Errors
    /// As [`BulkHint::new`].
    pub fn of(region: &Mapping) -> Result<BulkHint, KernelError> {
        BulkHint::new(region.as_ptr(), region.len())
    }

    /// Whether hints can be given: the module is there, and this user may use its device. A fork or a program that is
    /// started does not inherit a hint.
    ///
    /// # Errors
    /// Why not.
    pub fn available() -> Result<(), KernelError> {
        Device::open().map(drop)
    }

    /// Bytes declared, in whole pages.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }
}

impl Drop for BulkHint {
    fn drop(&mut self) {
        // Said, not left to the closing of the file: a process that was forked meanwhile may hold that open. An open
        // file of the module always takes it.
        let undone = self.device.unhint();
        debug_assert!(undone.is_ok(), "{undone:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PATH;
    use bulkmem::Pages;

    #[test]
    fn nonsense_is_refused_before_the_device_is_looked_for() {
        assert!(matches!(BulkHint::new(std::ptr::null(), 0), Err(KernelError::Empty)));
        let last = std::ptr::without_provenance(usize::MAX - 10);
        assert!(matches!(BulkHint::new(last, 11), Err(KernelError::TooLong { bytes: 11 })));
    }

    #[test]
    fn a_region_is_declared_or_the_error_says_how_to_get_the_module() {
        let region = Mapping::new(3 << 20, Pages::Base).unwrap();
        match BulkHint::of(&region) {
            Ok(hint) => assert_eq!(hint.len(), 3 << 20),
            Err(error) => {
                println!("skipped: a hint that is taken: {error}");
                assert!(BulkHint::available().is_err());
                assert!(error.to_string().contains(PATH), "{error}");
            }
        }
    }
}
