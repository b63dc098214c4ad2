//! Why the module could not be asked, or would not.

use std::io;
use std::path::PathBuf;

use crate::Attribute;
use crate::abi::ABI;
use bulkmem::Pages;

/// Why the module `bulkmem`, or its device, did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The module is not there.
    #[error(
        "the kernel module `bulkmem` is not loaded ({} is not there): `modprobe bulkmem` as root loads it; \
         docs/kernel/README.md says how to build and install it", .path.display()
    )]
    NotLoaded {
        /// What was looked for.
        path: PathBuf,
    },
    /// This user may not.
    #[error("{} is for root alone: run as root, or have root give it to you (`chown`, or a udev rule)", .path.display())]
    Denied {
        /// What was to be used.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another version of the module.
    #[error(
        "the module speaks version {found} of its interface and this library version {ABI}: install both from the \
         same release of bulkmem"
    )]
    Abi {
        /// What the module speaks.
        found: u32,
    },
    /// Memory of no bytes was asked for.
    #[error("at least one byte of the device's memory can be had: ask for more than 0")]
    Empty,
    /// More than an address space holds.
    #[error("{bytes} bytes, in whole pages, are more than an address space holds: ask for less")]
    TooLong {
        /// What was asked for.
        bytes: usize,
    },
    /// Pages that the device does not give.
    #[error("the device gives no {pages} pages: ask for base pages (Pages::Base) or explicit ones of 2 MiB")]
    PageSize {
        /// What was asked for.
        pages: Pages,
    },
    /// The kernel has no way to map memory so.
    #[error("this kernel cannot map memory {} ({attribute}): ask for wb, wc or uc", .attribute.words())]
    NoAttribute {
        /// What was asked for.
        attribute: Attribute,
    },
    /// There is no such node, or it has no memory.
    #[error("there is no NUMA node {node} with memory: /sys/devices/system/node lists those that there are")]
    NoNode {
        /// What was asked for.
        node: u32,
    },
    /// There is not that much memory.
    #[error(
        "the device has no memory for {bytes} bytes in {pages} pages: ask for less or for base pages, raise the limit \
         of locked memory (ulimit -l) or the control group's (memory.max), or free some"
    )]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
        /// In which pages.
        pages: Pages,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A parameter was refused; everything is as it was before.
    #[error("the module refused {name}={value}: {meaning}; nothing was changed")]
    Refused {
        /// The parameter.
        name: &'static str,
        /// What it was to become.
        value: String,
        /// What the kernel's answer means here.
        meaning: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A parameter was refused, and one that had been set could not be set back.
    #[error(
        "the module refused {name}={value}: {meaning}; and {stuck} could not be set back: `bulkmem kmod status` shows \
         what is in force"
    )]
    Stuck {
        /// The parameter that was refused.
        name: &'static str,
        /// What it was to become.
        value: String,
        /// What the kernel's answer means here.
        meaning: &'static str,
        /// The parameter that is not as it was.
        stuck: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file of the module says what this library does not understand.
    #[error("{} says `{found}`, which this version of bulkmem does not know: install both from the same release", .path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// A file of the module cannot be read.
    #[error("{} cannot be read; `dmesg` may say more", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file could not be written; what was there before still is.
    #[error("{} cannot be written; check the folder, its permissions and the space left", .path.display())]
    Unwritable {
        /// Where to.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("the kernel refused to {doing}; `dmesg` may say more")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
