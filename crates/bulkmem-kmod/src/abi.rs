//! The interface of the module's devices: the numbers and structures of `kmod/bulkmem_ioctl.h`. A test compares the two.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::str::FromStr;

use rustix::ioctl::{Opcode, opcode};
use serde::Serialize;

/// The version of the interface that this crate uses.
pub(crate) const ABI: u32 = 2;

/// The ioctl group of all requests.
const GROUP: u8 = 0xc4;

/// Reads the version of the interface.
pub(crate) const IOC_ABI: Opcode = opcode::read::<u32>(GROUP, 0);
/// Declares a range.
pub(crate) const IOC_HINT: Opcode = opcode::none(GROUP, 1);
/// Removes every range that was declared through this file.
pub(crate) const IOC_UNHINT: Opcode = opcode::none(GROUP, 2);
/// Describes the memory of the next mapping.
pub(crate) const IOC_MEMORY: Opcode = opcode::none(GROUP, 3);
/// Allocates and maps the memory of a range.
pub(crate) const IOC_POPULATE: Opcode = opcode::none(GROUP, 4);
/// Hints the calling process and its descendants as a whole.
pub(crate) const IOC_HINT_PROCESS: Opcode = opcode::none(GROUP, 5);
/// Hints the processes of a control group, or withdraws that.
pub(crate) const IOC_HINT_CGROUP: Opcode = opcode::none(GROUP, 6);
/// The flag that withdraws it.
const CGROUP_REMOVE: u32 = 1;

/// `struct bulkmem_hint` and `struct bulkmem_populate`, which have the same members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    size: u32,
    flags: u32,
    addr: u64,
    length: u64,
}

impl Range {
    pub(crate) fn new(addr: usize, length: usize) -> Range {
        Range { size: size_of::<Range>() as u32, flags: 0, addr: addr as u64, length: length as u64 }
    }
}

/// `struct bulkmem_hint_process`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    size: u32,
    flags: u32,
}

impl Process {
    pub(crate) fn new() -> Process {
        Process { size: size_of::<Process>() as u32, flags: 0 }
    }
}

/// `struct bulkmem_hint_cgroup`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cgroup {
    size: u32,
    flags: u32,
    fd: i32,
    reserved: u32,
}

impl Cgroup {
    pub(crate) fn new(folder: BorrowedFd<'_>, remove: bool) -> Cgroup {
        let flags = if remove { CGROUP_REMOVE } else { 0 };
        Cgroup { size: size_of::<Cgroup>() as u32, flags, fd: folder.as_raw_fd(), reserved: 0 }
    }
}

/// `struct bulkmem_memory`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    size: u32,
    flags: u32,
    attribute: u32,
    page_shift: u32,
    node: i32,
    reserved: u32,
}

impl Memory {
    pub(crate) fn new(attribute: Attribute, page_shift: u32, node: i32) -> Memory {
        let size = size_of::<Memory>() as u32;
        Memory { size, flags: 0, attribute: attribute as u32, page_shift, node, reserved: 0 }
    }
}

/// How the processor may cache memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribute {
    /// Write-back: ordinary memory.
    #[default]
    Wb = 0,
    /// Write-combining: reads bypass the caches, writes are gathered in buffers.
    Wc = 1,
    /// Uncached: each access goes to memory, or to the device, separately.
    Uc = 2,
    /// Write-through: reads are cached, writes go to memory immediately.
    Wt = 3,
}

impl Attribute {
    /// All attributes.
    pub const ALL: [Attribute; 4] = [Attribute::Wb, Attribute::Wc, Attribute::Uc, Attribute::Wt];

    /// Returns the name used in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Attribute::Wb => "wb",
            Attribute::Wc => "wc",
            Attribute::Uc => "uc",
            Attribute::Wt => "wt",
        }
    }

    /// Returns the full name, for messages.
    pub(crate) fn long_name(self) -> &'static str {
        match self {
            Attribute::Wb => "write-back",
            Attribute::Wc => "write-combining",
            Attribute::Uc => "uncached",
            Attribute::Wt => "write-through",
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no cache attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cache attribute; write wb, wc, uc or wt")]
pub struct UnknownAttribute(String);

impl FromStr for Attribute {
    type Err = UnknownAttribute;

    fn from_str(text: &str) -> Result<Attribute, UnknownAttribute> {
        let found = Attribute::ALL.into_iter().find(|attribute| attribute.name() == text);
        found.ok_or_else(|| UnknownAttribute(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::process::Command;

    use super::*;

    const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include "bulkmem_ioctl.h"
int main(void)
{
	printf("%u\n", (unsigned int)BULKMEM_ABI);
	printf("%lu %lu %lu %lu %lu %lu %lu\n", (unsigned long)BULKMEM_IOC_ABI, (unsigned long)BULKMEM_IOC_HINT,
	       (unsigned long)BULKMEM_IOC_UNHINT, (unsigned long)BULKMEM_IOC_MEMORY, (unsigned long)BULKMEM_IOC_POPULATE,
	       (unsigned long)BULKMEM_IOC_HINT_PROCESS, (unsigned long)BULKMEM_IOC_HINT_CGROUP);
#define RANGE(type) printf("%zu %zu %zu %zu %zu\n", sizeof(type), offsetof(type, size), offsetof(type, flags), \
			   offsetof(type, addr), offsetof(type, length))
	RANGE(struct bulkmem_hint);
	RANGE(struct bulkmem_populate);
	printf("%zu %zu %zu\n", sizeof(struct bulkmem_hint_process), offsetof(struct bulkmem_hint_process, size),
	       offsetof(struct bulkmem_hint_process, flags));
	printf("%zu %zu %zu %zu %zu %d\n", sizeof(struct bulkmem_hint_cgroup),
	       offsetof(struct bulkmem_hint_cgroup, size), offsetof(struct bulkmem_hint_cgroup, flags),
	       offsetof(struct bulkmem_hint_cgroup, fd), offsetof(struct bulkmem_hint_cgroup, reserved),
	       BULKMEM_CGROUP_REMOVE);
	printf("%zu %zu %zu %zu %zu %zu\n", sizeof(struct bulkmem_memory), offsetof(struct bulkmem_memory, size),
	       offsetof(struct bulkmem_memory, flags), offsetof(struct bulkmem_memory, attribute),
	       offsetof(struct bulkmem_memory, page_shift), offsetof(struct bulkmem_memory, node));
	printf("%d %d %d %d\n", BULKMEM_WB, BULKMEM_WC, BULKMEM_UC, BULKMEM_WT);
	return 0;
}
"#;

    /// Compiles the module's header as C and compares every number and structure.
    #[test]
    fn the_header_of_the_module_agrees() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("abi.c"), folder.path().join("abi"));
        std::fs::write(&source, PROGRAM).unwrap();
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod");
        let compiled = Command::new("cc")
            .args(["-Wall", "-Werror", "-I", header, "-o"])
            .arg(&program)
            .arg(&source)
            .output();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                println!("skipped: comparison with the module's header: no C compiler: {error}");
                return;
            }
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let printed = Command::new(&program).output().unwrap().stdout;
        let range = format!(
            "{} {} {} {} {}\n",
            size_of::<Range>(),
            offset_of!(Range, size),
            offset_of!(Range, flags),
            offset_of!(Range, addr),
            offset_of!(Range, length),
        );
        let expected = format!(
            "{ABI}\n{IOC_ABI} {IOC_HINT} {IOC_UNHINT} {IOC_MEMORY} {IOC_POPULATE} {IOC_HINT_PROCESS} \
             {IOC_HINT_CGROUP}\n\
             {range}{range}{} {} {}\n{} {} {} {} {} {CGROUP_REMOVE}\n{} {} {} {} {} {}\n{}\n",
            size_of::<Process>(),
            offset_of!(Process, size),
            offset_of!(Process, flags),
            size_of::<Cgroup>(),
            offset_of!(Cgroup, size),
            offset_of!(Cgroup, flags),
            offset_of!(Cgroup, fd),
            offset_of!(Cgroup, reserved),
            size_of::<Memory>(),
            offset_of!(Memory, size),
            offset_of!(Memory, flags),
            offset_of!(Memory, attribute),
            offset_of!(Memory, page_shift),
            offset_of!(Memory, node),
            Attribute::ALL.map(|attribute| (attribute as u32).to_string()).join(" "),
        );
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }

    #[test]
    fn attributes_have_names() {
        for attribute in Attribute::ALL {
            assert_eq!(attribute.name().parse(), Ok(attribute));
            assert_eq!(serde_json::to_value(attribute).unwrap(), attribute.name());
        }
        let error = "often".parse::<Attribute>().unwrap_err().to_string();
        assert!(error.contains("`often`") && error.contains("wb, wc, uc or wt"), "{error}");
    }
}
