//! Hints: the total length that page faults are parts of.

use bulkmem::{Mapping, MappingError};

use crate::KernelError;
use crate::abi;
use crate::device::{Device, HINT_PATH};

/// A declaration that a range of this process's memory is about to be faulted in as a whole.
///
/// While it lives, the module clears each huge page of the range as a part of the whole range instead of as 2 MiB of its
/// own, so that it uses the method for that total length, which leaves the caches alone if the range is large.
///
/// Create the hint before the memory is touched, prefault, and drop the hint. The hint does not touch the memory and does
/// not keep it alive: the memory may be unmapped before the hint is dropped. Pages that are already present are not
/// affected. A hint costs a few system calls, which pays off from a few huge pages on. A forked child does not inherit
/// the hint; but if the child drops its copy of this value, the parent's hint ends too.
#[derive(Debug)]
pub struct BulkHint {
    device: Device,
    length: usize,
}

impl BulkHint {
    /// Declares `length` bytes from `start` on, extended to whole pages.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`], [`KernelError::Disabled`], [`KernelError::NoDevice`] and [`KernelError::Denied`] if the
    /// device cannot be opened, [`KernelError::Empty`] and [`KernelError::TooLong`] if the range is not valid, and
    /// [`KernelError::System`] if the module refuses the hint, as it does when the process has too many.
    pub fn new(start: *const u8, length: usize) -> Result<BulkHint, KernelError> {
        if length == 0 {
            return Err(KernelError::Empty);
        }
        let page = rustix::param::page_size();
        let first = start.addr() / page * page;
        let end = start.addr().checked_add(length).and_then(|end| end.checked_next_multiple_of(page));
        let whole = end.ok_or(KernelError::TooLong { bytes: length })? - first;
        let device = Device::open(HINT_PATH)?;
        device
            .hint(abi::Range::new(first, whole))
            .map_err(|error| KernelError::System { doing: "take a bulk hint", source: error.into() })?;
        Ok(BulkHint { device, length: whole })
    }

    /// Declares a mapping.
    ///
    /// # Errors
    /// As [`BulkHint::new`].
    pub fn of(mapping: &Mapping) -> Result<BulkHint, KernelError> {
        BulkHint::new(mapping.as_ptr(), mapping.len())
    }

    /// Checks that hints can be created: the module is loaded, and this user may use its device.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn available() -> Result<(), KernelError> {
        Device::open(HINT_PATH).map(drop)
    }

    /// Returns the number of bytes declared, in whole pages.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }
}

impl Drop for BulkHint {
    fn drop(&mut self) {
        // Closing the file is not enough: a forked child may hold it open. The module never refuses this request.
        let undone = self.device.unhint();
        debug_assert!(undone.is_ok(), "{undone:?}");
    }
}

/// Prefaults a mapping with a hint for all of it, if the module is loaded and this user may use its device; otherwise
/// prefaults it without one. Returns true if it was hinted.
///
/// Without the module, this costs one more system call than [`Mapping::prefault`].
///
/// ```
/// use bulkmem::{Mapping, Pages};
///
/// let mut mapping = Mapping::new(8 << 20, Pages::Transparent)?;
/// let hinted = bulkmem_kmod::prefault_hinted(&mut mapping)?;
/// println!("the module cleared it as 8 MiB: {hinted}");
/// # Ok::<(), bulkmem::MappingError>(())
/// ```
///
/// # Errors
/// As [`Mapping::prefault`].
pub fn prefault_hinted(mapping: &mut Mapping) -> Result<bool, MappingError> {
    let hint = BulkHint::of(mapping);
    mapping.prefault()?;
    Ok(hint.is_ok())
}

#[cfg(test)]
mod tests {
    use bulkmem::Pages;

    use super::*;

    #[test]
    fn invalid_ranges_are_refused_before_the_device_is_opened() {
        assert!(matches!(BulkHint::new(std::ptr::null(), 0), Err(KernelError::Empty)));
        let last = std::ptr::without_provenance(usize::MAX - 10);
        assert!(matches!(BulkHint::new(last, 11), Err(KernelError::TooLong { bytes: 11 })));
    }

    #[test]
    fn a_mapping_is_declared_or_the_error_says_how_to_get_the_module() {
        let mapping = Mapping::new(3 << 20, Pages::Base).unwrap();
        match BulkHint::of(&mapping) {
            Ok(hint) => assert_eq!(hint.len(), 3 << 20),
            Err(error) => {
                println!("skipped: a hint that the module accepts: {error}");
                assert!(BulkHint::available().is_err());
                assert!(error.to_string().contains(HINT_PATH), "{error}");
            }
        }
    }

    #[test]
    fn prefaulting_works_with_the_module_and_without() {
        let mut mapping = Mapping::new(4 << 20, Pages::Transparent).unwrap();
        let hinted = prefault_hinted(&mut mapping).unwrap();
        assert_eq!(hinted, BulkHint::available().is_ok());
        assert!(mapping.iter().all(|byte| *byte == 0));
    }
}
