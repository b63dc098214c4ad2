//! The error of this crate.

use std::io;
use std::path::PathBuf;

use bulkmem::Pages;

use crate::abi::{ABI, Attribute};

/// An error of the module, of its device, or of its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The module is not loaded.
    #[error(
        "the kernel module `bulkmem` is not loaded ({} is not there): `modprobe bulkmem` as root loads it; \
         docs/kernel/README.md says how to build and install it", .path.display()
    )]
    NotLoaded {
        /// The file or folder that does not exist.
        path: PathBuf,
    },
    /// The module was loaded without the device.
    #[error(
        "there is no {}: the kernel module `bulkmem` was loaded with {parameter}=0; load it again without that \
         (/etc/modprobe.d may contain it)", .path.display()
    )]
    Disabled {
        /// The device.
        path: PathBuf,
        /// The parameter that disables it.
        parameter: &'static str,
    },
    /// The module provides the device, but its file does not exist.
    #[error(
        "{} does not exist, although the kernel module `bulkmem` is loaded: in a container, pass it with `--device {}`; \
         elsewhere, check that /dev is a devtmpfs", .path.display(), .path.display()
    )]
    NoDevice {
        /// The device.
        path: PathBuf,
    },
    /// This user may not open the device.
    #[error(
        "{} is for root only: run as root, or have root give you access to it (`chown`, or a udev rule; memory also needs \
         the module's parameter memory_unprivileged=1)",
        .path.display()
    )]
    Denied {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The loaded module has another version of the interface.
    #[error(
        "the module has version {found} of its interface and this library version {ABI}: install both from the \
         same release of bulkmem"
    )]
    Abi {
        /// The module's version.
        found: u32,
    },
    /// The loaded module has the same interface, but was built before the request existed.
    #[error(
        "the loaded module is too old to {doing}: install the module of this release of bulkmem, and load it again"
    )]
    TooOld {
        /// The action.
        doing: &'static str,
    },
    /// The user has, or all users together have, as many hinted programs as the module allows.
    #[error(
        "this user has 64 hinted programs, or all users have 1024: wait for one to end; root may have more than 64"
    )]
    TooManyHinted {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The capability for what affects other processes is missing.
    #[error("hinting control groups affects other processes and needs CAP_SYS_ADMIN: run as root")]
    NotAdmin,
    /// A folder that is not a control group's.
    #[error(
        "{} is not the folder of a control group of version 2, as those in /sys/fs/cgroup are (or in          /sys/fs/cgroup/unified, if version 1 is used too)",
        .path.display()
    )]
    NotACgroup {
        /// The folder.
        path: PathBuf,
    },
    /// The hint of a control group that has none.
    #[error("{} is not hinted: `bulkmem kmod status` lists what is", .path.display())]
    CgroupNotHinted {
        /// The folder.
        path: PathBuf,
    },
    /// A length of 0.
    #[error("the length is 0: ask for at least one byte")]
    Empty,
    /// More bytes than an address space holds.
    #[error("{bytes} bytes, in whole pages, are more than an address space holds: ask for less")]
    TooLong {
        /// The requested length in bytes.
        bytes: usize,
    },
    /// Pages of a kind that the device does not provide.
    #[error("the device has no {pages} pages: ask for base pages (Pages::Base) or explicit ones of 2 MiB")]
    PageSize {
        /// The requested pages.
        pages: Pages,
    },
    /// A cache attribute that the kernel cannot map memory with.
    #[error("this kernel cannot map memory {} ({attribute}): ask for wb, wc or uc", .attribute.long_name())]
    NoAttribute {
        /// The requested attribute.
        attribute: Attribute,
    },
    /// A NUMA node that does not exist or has no memory.
    #[error("there is no NUMA node {node} with memory: /sys/devices/system/node lists the nodes")]
    NoNode {
        /// The requested node.
        node: u32,
    },
    /// Not enough memory.
    #[error(
        "the device has no memory for {bytes} bytes in {pages} pages: ask for less or for base pages, raise the limit \
         of locked memory (ulimit -l) or the control group's (memory.max), or free some"
    )]
    OutOfMemory {
        /// The requested length in bytes.
        bytes: usize,
        /// The requested pages.
        pages: Pages,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// More memory retyped within a short time than a user without CAP_SYS_ADMIN may retype.
    #[error(
        "changing the cache attribute of {bytes} bytes is more than a user may do at a time: wait some seconds, ask for at \
         most 256 MiB at a time, or run as root"
    )]
    TooFast {
        /// The requested length in bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a parameter; every parameter has its previous value.
    #[error("the module refused {name}={value}: {meaning}; nothing was changed")]
    Refused {
        /// The parameter.
        name: &'static str,
        /// The value that was written.
        value: String,
        /// The meaning of the kernel's error for this parameter.
        meaning: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a parameter, and then the previous value of another one.
    #[error(
        "the module refused {name}={value}: {meaning}; and {stuck} could not be restored: `bulkmem kmod status` shows \
         what is in force"
    )]
    Stuck {
        /// The parameter that was refused.
        name: &'static str,
        /// The value that was written.
        value: String,
        /// The meaning of the kernel's error for this parameter.
        meaning: &'static str,
        /// The parameter that keeps its new value.
        stuck: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file of the module contains something that this version does not know.
    #[error(
        "{} says `{found}`, which this version of bulkmem does not know: install both from the same release",
        .path.display()
    )]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Its text.
        found: String,
    },
    /// A file of the module cannot be read.
    #[error("{} cannot be read; `dmesg` may say more", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file could not be written; an existing one is unchanged.
    #[error("{} cannot be written; check the folder, its permissions and the space left", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Any other error of a system call.
    #[error("the kernel refused to {doing}; `dmesg` may say more")]
    System {
        /// The action.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
