//! `/dev/bulkmem`, open.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Setter, ioctl};

use crate::KernelError;
use crate::abi::{self, ABI};

/// Where the device is.
pub const PATH: &str = "/dev/bulkmem";

/// An open file of the device: one set of hints, and one description of the memory to come.
#[derive(Debug)]
pub(super) struct Device(pub(super) OwnedFd);

impl Device {
    /// Opens the device, and makes sure that both speak the same version.
    pub(super) fn open() -> Result<Device, KernelError> {
        Device::open_at(Path::new(PATH))
    }

    fn open_at(path: &Path) -> Result<Device, KernelError> {
        let path = || PathBuf::from(path);
        let file =
            open(path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
                // The last two: a node that outlived its module.
                Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {
                    KernelError::NotLoaded { path: path() }
                }
                Errno::ACCESS | Errno::PERM => KernelError::Denied { path: path(), source: error.into() },
                error => KernelError::System { doing: "open /dev/bulkmem", source: error.into() },
            })?;
        // SAFETY: the request writes one u32 and nothing else, in the module; other drivers' files refuse it, as its
        // group is the module's.
        let found = unsafe { ioctl(&file, Getter::<{ abi::IOC_ABI }, u32>::new()) };
        match found {
            Ok(ABI) => Ok(Device(file)),
            Ok(found) => Err(KernelError::Abi { found }),
            Err(Errno::NOTTY) => Err(KernelError::Abi { found: 0 }),
            Err(error) => Err(KernelError::System { doing: "tell its version", source: error.into() }),
        }
    }

    /// Declares a stretch; gone with the file.
    pub(super) fn hint(&self, hint: abi::Hint) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_hint`, which this is (a test compares the two), and changes nothing in
        // this process's memory: the addresses are only compared with those of page faults.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_HINT }, abi::Hint>::new(hint)) }
    }

    /// Takes back what was declared by this file.
    pub(super) fn unhint(&self) -> Result<(), Errno> {
        // SAFETY: the request takes no argument.
        unsafe { ioctl(&self.0, NoArg::<{ abi::IOC_UNHINT }>::new()) }
    }

    /// Says what the next mapping is given.
    pub(super) fn describe(&self, memory: abi::Memory) -> Result<(), Errno> {
        // SAFETY: the request reads one `bulkmem_memory`, which this is, and changes nothing in this process's memory.
        unsafe { ioctl(&self.0, Setter::<{ abi::IOC_MEMORY }, abi::Memory>::new(memory)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_device_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Device::open_at(&folder.path().join("bulkmem")).unwrap_err();
        assert!(matches!(missing, KernelError::NotLoaded { .. }), "{missing}");
        for word in ["modprobe bulkmem", "docs/kernel/README.md", "bulkmem is not there"] {
            assert!(missing.to_string().contains(word), "{word}: {missing}");
        }
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let other = Device::open_at(&path).unwrap_err();
        assert!(matches!(other, KernelError::Abi { found: 0 }), "{other}");
        assert!(other.to_string().contains("same release"), "{other}");
        let folder = Device::open_at(folder.path()).unwrap_err();
        assert!(matches!(folder, KernelError::System { .. }), "{folder}");
    }
}
