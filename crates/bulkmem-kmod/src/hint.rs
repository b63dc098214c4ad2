//! Hints: the total length that page faults are parts of.

use std::os::fd::AsFd;
use std::path::Path;

use bulkmem::{Mapping, MappingError};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

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

/// Hints this process as a whole: from now on, the kernel clears all its huge pages of 2 MiB and more as parts of large
/// ranges.
///
/// The hint holds across `exec`, and is inherited by the processes that this one starts from now on, so that it can be given
/// for a program that does not know of it. It ends with each process, and cannot be withdrawn. A process that is hinted
/// already stays so. `bulkmem run --bulk-hint` is this function on the command line.
///
/// At most 1024 processes inherit one hint at a time; further children work without it, and
/// [`Counters::unhinted_processes`](crate::Counters::unhinted_processes) counts them.
///
/// # Errors
/// [`KernelError::NotLoaded`], [`KernelError::NoDevice`] and [`KernelError::Denied`] if the device cannot be opened,
/// [`KernelError::TooOld`] if the module does not know the request, [`KernelError::TooManyHinted`] beyond the user's limit, and [`KernelError::System`].
pub fn hint_process() -> Result<(), KernelError> {
    Device::open(HINT_PATH)?.hint_process().map_err(|error| match error {
        Errno::NOTTY => KernelError::TooOld { doing: "hint a process as a whole" },
        Errno::NOSPC => KernelError::TooManyHinted { source: error.into() },
        error => KernelError::System { doing: "hint this process as a whole", source: error.into() },
    })
}

/// Hints the processes in a control group (version 2) and in those below it: from now on, the kernel clears their huge pages
/// of 2 MiB and more as parts of large ranges. `folder` is that of the control group, as
/// `/sys/fs/cgroup/machine.slice`.
///
/// The hint ends with the control group, by [`unhint_cgroup`], or when the module is unloaded, and does not need this process.
/// [`Status::hinted_cgroups`](crate::Status::hinted_cgroups) lists what is hinted. Hinting it again changes nothing.
///
/// # Errors
/// As [`hint_process`]; [`KernelError::NotAdmin`] without `CAP_SYS_ADMIN`, [`KernelError::NotACgroup`], and
/// [`KernelError::System`] beyond 64 control groups.
pub fn hint_cgroup(folder: impl AsRef<Path>) -> Result<(), KernelError> {
    change_cgroup(folder.as_ref(), false)
}

/// Withdraws the hint of [`hint_cgroup`]. Those of control groups above and below stay.
///
/// # Errors
/// As [`hint_cgroup`]; [`KernelError::CgroupNotHinted`].
pub fn unhint_cgroup(folder: impl AsRef<Path>) -> Result<(), KernelError> {
    change_cgroup(folder.as_ref(), true)
}

fn change_cgroup(path: &Path, remove: bool) -> Result<(), KernelError> {
    let device = Device::open(HINT_PATH)?;
    let folder = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| KernelError::Unreadable { path: path.to_owned(), source: error.into() })?;
    device.hint_cgroup(abi::Cgroup::new(folder.as_fd(), remove)).map_err(|error| match error {
        Errno::NOTTY => KernelError::TooOld { doing: "hint control groups" },
        Errno::PERM => KernelError::NotAdmin,
        Errno::BADF => KernelError::NotACgroup { path: path.to_owned() },
        Errno::SRCH => KernelError::CgroupNotHinted { path: path.to_owned() },
        error => KernelError::System {
            doing: "hint the control group (64 at most can be hinted)",
            source: error.into(),
        },
    })
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
    fn without_the_device_nothing_is_hinted() {
        for result in [hint_cgroup("/proc"), unhint_cgroup("/proc")] {
            let error = result.unwrap_err();
            assert!(BulkHint::available().is_ok() || error.to_string().contains(HINT_PATH), "{error}");
        }
        // With the module, this would hint the test's process, which changes no result.
        if let Err(error) = hint_process() {
            assert!(BulkHint::available().is_err());
            assert!(error.to_string().contains(HINT_PATH), "{error}");
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
