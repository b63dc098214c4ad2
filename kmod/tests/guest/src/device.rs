//! `/dev/bulkmem` through raw system calls, as in `kmod/bulkmem_ioctl.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

const ABI: u64 = 0x8004_b700;
pub(crate) const HINT: u64 = 0x4010_b701;
const UNHINT: u64 = 0xb702;

/// An open file of the device.
#[derive(Debug)]
pub(crate) struct Device(pub(crate) File);

impl Device {
    /// Opens the device.
    pub(crate) fn open() -> io::Result<Device> {
        Ok(Device(OpenOptions::new().read(true).write(true).open("/dev/bulkmem")?))
    }

    /// Returns the version of the interface.
    pub(crate) fn abi(&self) -> io::Result<u32> {
        let mut version = 0_u32;
        self.ioctl(ABI, &raw mut version as usize)?;
        Ok(version)
    }

    /// Declares a range of this process's addresses.
    pub(crate) fn hint(&self, address: usize, length: u64) -> io::Result<()> {
        let hint = [address as u64, length];
        self.ioctl(HINT, hint.as_ptr().addr())
    }

    /// Removes every hint of this file.
    pub(crate) fn unhint(&self) -> io::Result<()> {
        self.ioctl(UNHINT, 0)
    }

    /// Makes any request with any argument.
    pub(crate) fn ioctl(&self, request: u64, argument: usize) -> io::Result<()> {
        // SAFETY: an open file of a driver that reads and writes at most 16 bytes at the argument, by functions that
        // fail for unmapped addresses; the callers above pass locals of that size.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Declares a hint that is read from any address.
    pub(crate) fn hint_at(&self, argument: usize) -> io::Result<()> {
        self.ioctl(HINT, argument)
    }
}
