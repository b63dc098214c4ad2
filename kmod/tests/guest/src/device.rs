//! The devices through raw system calls, as in `kmod/bulkmem_ioctl.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// The device of hints.
pub(crate) const HINTS: &str = "/dev/bulkmem";
/// The device of memory.
pub(crate) const MEMORY: &str = "/dev/bulkmem-memory";

const ABI: u64 = 0x8004_c400;
pub(crate) const HINT: u64 = 0xc401;
const UNHINT: u64 = 0xc402;
pub(crate) const HINT_PROCESS: u64 = 0xc405;
const HINT_CGROUP: u64 = 0xc406;

/// An open file of a device.
#[derive(Debug)]
pub(crate) struct Device(pub(crate) File);

/// `struct bulkmem_hint`, and a member that a later version might have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) later: u64,
}

impl Hint {
    pub(crate) const SIZE: u32 = 24;

    pub(crate) fn new(address: usize, length: u64) -> Hint {
        Hint { size: Hint::SIZE, flags: 0, address: address as u64, length, later: 0 }
    }
}

/// `struct bulkmem_hint_process`, and a member that a later version might have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HintProcess {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) later: u64,
}

/// `struct bulkmem_hint_cgroup`, and a member that a later version might have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HintCgroup {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) fd: i32,
    pub(crate) reserved: u32,
    pub(crate) later: u64,
}

impl HintCgroup {
    pub(crate) const SIZE: u32 = 16;
    pub(crate) const REMOVE: u32 = 1;
}

impl HintProcess {
    pub(crate) const SIZE: u32 = 8;
}

impl Device {
    /// Opens the device of hints.
    pub(crate) fn open() -> io::Result<Device> {
        Device::open_at(HINTS)
    }

    /// Opens a device.
    pub(crate) fn open_at(path: &str) -> io::Result<Device> {
        Ok(Device(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Returns the version of the interface.
    pub(crate) fn abi(&self) -> io::Result<u32> {
        let mut version = 0_u32;
        self.ioctl(ABI, &raw mut version as usize)?;
        Ok(version)
    }

    /// Declares a range of this process's addresses.
    pub(crate) fn hint(&self, address: usize, length: u64) -> io::Result<()> {
        self.hint_as(&Hint::new(address, length))
    }

    /// Makes the request with any structure.
    pub(crate) fn hint_as(&self, hint: &Hint) -> io::Result<()> {
        self.ioctl(HINT, std::ptr::from_ref(hint).addr())
    }

    /// Removes every hint of this file.
    pub(crate) fn unhint(&self) -> io::Result<()> {
        self.ioctl(UNHINT, 0)
    }

    /// Hints this process as a whole.
    pub(crate) fn hint_process(&self) -> io::Result<()> {
        self.hint_process_as(&HintProcess { size: HintProcess::SIZE, flags: 0, later: 0 })
    }

    /// As [`Device::hint_process`], with any structure.
    pub(crate) fn hint_process_as(&self, asked: &HintProcess) -> io::Result<()> {
        self.ioctl(HINT_PROCESS, std::ptr::from_ref(asked).addr())
    }

    /// Hints the processes of a cgroup, or withdraws that, with any structure.
    pub(crate) fn hint_cgroup_as(&self, asked: &HintCgroup) -> io::Result<()> {
        self.ioctl(HINT_CGROUP, std::ptr::from_ref(asked).addr())
    }

    /// Makes any request with any argument.
    pub(crate) fn ioctl(&self, request: u64, argument: usize) -> io::Result<()> {
        // SAFETY: an open file of a driver that accesses the argument by functions that fail for unmapped addresses, and
        // writes at most four bytes; the callers pass locals of the size that their structure states.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Declares a hint that is read from any address.
    pub(crate) fn hint_at(&self, argument: usize) -> io::Result<()> {
        self.ioctl(HINT, argument)
    }
}
