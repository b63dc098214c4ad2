//! Opening the module's devices and their requests.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Setter, ioctl};

use crate::abi::{self, ABI};
use crate::{KernelError, Module};

/// The path of the device that accepts hints.
pub const HINT_PATH: &str = "/dev/bulkmem";

/// The path of the device that provides memory.
pub const MEMORY_PATH: &str = "/dev/bulkmem-memory";

/// An open file of a device: a set of hints, or the description of the next mapping.
#[derive(Debug)]
pub(crate) struct Device(pub(crate) OwnedFd);

impl Device {
    /// Opens a device and checks the version of its interface.
    pub(crate) fn open(path: impl AsRef<Path>) -> Result<Device, KernelError> {
        let path = || path.as_ref().to_owned();
        let file =
            open(path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
                // ENXIO and ENODEV: a device node that outlived its module.
                Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {
                    Module::running().no_device(path())
                }
                Errno::ACCESS | Errno::PERM => KernelError::Denied { path: path(), source: error.into() },
                error => KernelError::System { doing: "open the device", source: error.into() },
            })?;
        // SAFETY: the request writes one u32 and nothing else. Other drivers refuse it, because they do not know its
        // group.
        let found = unsafe { ioctl(&file, Getter::<{ abi::IOC_ABI }, u32>::new()) };
        match found {
            Ok(ABI) => Ok(Device(file)),
            Ok(found) => Err(KernelError::Abi { found }),
            Err(Errno::NOTTY) => Err(KernelError::Abi { found: 0 }),
            Err(error) => Err(KernelError::System {
                doing: "report the version of its interface",
                source: error.into(),
            }),
        }
    }

    /// Declares a range until the file is closed.
    pub(crate) fn hint(&self, range: abi::Range) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_hint`, which `abi::Range` is (a test compares the two). It does not
        // change this process's memory: the module only compares the addresses with those of page faults.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_HINT }, abi::Range>::new(range)) }
    }

    /// Removes what was declared through this file.
    pub(crate) fn unhint(&self) -> Result<(), Errno> {
        // SAFETY: the request takes no argument.
        unsafe { ioctl(&self.0, NoArg::<{ abi::IOC_UNHINT }>::new()) }
    }

    /// Hints this process, and the children that it has from now on, as a whole.
    pub(crate) fn hint_process(&self) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_hint_process`, which `abi::Process` is, and does not change this
        // process's memory.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_HINT_PROCESS }, abi::Process>::new(abi::Process::new())) }
    }

    /// Hints the processes of a control group, or withdraws that.
    pub(crate) fn hint_cgroup(&self, cgroup: abi::Cgroup) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_hint_cgroup`, which `abi::Cgroup` is, and does not change this process's
        // memory. It looks up the descriptor and does not keep it.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_HINT_CGROUP }, abi::Cgroup>::new(cgroup)) }
    }

    /// Describes the memory of the next mapping.
    pub(crate) fn describe(&self, memory: abi::Memory) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_memory`, which `abi::Memory` is, and does not change this process's
        // memory.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_MEMORY }, abi::Memory>::new(memory)) }
    }

    /// Allocates and maps the memory of a range of the device's mappings.
    pub(crate) fn populate(&self, range: abi::Range) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_populate`, which `abi::Range` is. It only maps what an access to the
        // range would map, and refuses ranges of other memory.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_POPULATE }, abi::Range>::new(range)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Device::open(folder.path().join("bulkmem")).unwrap_err();
        if Module::running().is_loaded() {
            assert!(matches!(missing, KernelError::NoDevice { .. }), "{missing}");
        } else {
            assert!(matches!(missing, KernelError::NotLoaded { .. }), "{missing}");
            for word in ["modprobe bulkmem", "docs/kernel/README.md", "bulkmem is not there"] {
                assert!(missing.to_string().contains(word), "{word}: {missing}");
            }
        }
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let other = Device::open(&path).unwrap_err();
        assert!(matches!(other, KernelError::Abi { found: 0 }), "{other}");
        assert!(other.to_string().contains("same release"), "{other}");
        let folder = Device::open(folder.path()).unwrap_err();
        assert!(matches!(folder, KernelError::System { .. }), "{folder}");
    }
}
