//! io_uring and userfaultfd.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, opcode, squeue};
use rustix::fs::{MemfdFlags, memfd_create};

use super::holds::Hold;
use crate::pool::{Mapping, full_of, read_file, unit};

/// Returns why io_uring cannot be used here.
pub(super) fn missing() -> Option<String> {
    let error = IoUring::new(1).err()?;
    Some(format!("the kernel refuses io_uring: {error} (/proc/sys/kernel/io_uring_disabled)"))
}

/// Runs one operation.
fn run(ring: &RefCell<IoUring>, entry: squeue::Entry) -> i32 {
    let mut ring = ring.borrow_mut();
    // SAFETY: the buffers of the entry are registered, or live until the operation has ended below.
    unsafe { ring.submission().push(&entry) }.expect("an empty queue");
    ring.submit_and_wait(1).expect("the operation ends");
    ring.completion().next().expect("it has ended").result()
}

/// Keeps the pages of a unit as a registered buffer, without a mapping or a descriptor.
pub(super) fn registered(file: OwnedFd) -> Hold {
    let mapping = Mapping::of(&file).expect("the unit is hers");
    let ring = IoUring::new(1).expect("checked before");
    let buffer = libc::iovec { iov_base: mapping.start.cast(), iov_len: mapping.len };
    // SAFETY: the buffer is the mapping; the kernel keeps its pages.
    unsafe { ring.submitter().register_buffers(&[buffer]) }.expect("RLIMIT_MEMLOCK allows it");
    mapping.unmap();
    let ring = Rc::new(RefCell::new(ring));
    let len = u32::try_from(unit()).expect("small");
    let other = Rc::clone(&ring);
    let read = move || {
        let copy = memfd_create("copy", MemfdFlags::CLOEXEC).expect("a memory file");
        let entry = opcode::WriteFixed::new(Fd(copy.as_raw_fd()), mapping.start, len, 0).build();
        assert_eq!(run(&other, entry), i32::try_from(len).expect("small"));
        read_file(&copy)
    };
    let write = move |bytes: &[u8]| {
        let copy = memfd_create("copy", MemfdFlags::CLOEXEC).expect("a memory file");
        rustix::io::pwrite(&copy, bytes, 0).expect("a memory file");
        let entry = opcode::ReadFixed::new(Fd(copy.as_raw_fd()), mapping.start, len, 0).build();
        assert_eq!(run(&ring, entry), i32::try_from(len).expect("small"));
    };
    Hold::new(read, write)
}

/// Keeps the file of a unit as a registered file, without a descriptor.
pub(super) fn registered_file(file: OwnedFd) -> Hold {
    let ring = IoUring::new(1).expect("checked before");
    ring.submitter().register_files(&[file.as_raw_fd()]).expect("one file can be registered");
    drop(file);
    let ring = Rc::new(RefCell::new(ring));
    let len = u32::try_from(unit()).expect("small");
    let other = Rc::clone(&ring);
    let read = move || {
        let mut bytes = full_of(&[0; 16]);
        run(&other, opcode::Read::new(Fixed(0), bytes.as_mut_ptr(), len).build());
        bytes
    };
    let write = move |bytes: &[u8]| {
        run(&ring, opcode::Write::new(Fixed(0), bytes.as_ptr(), len).build());
    };
    Hold::new(read, write)
}

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

fn control<const WORDS: usize>(handler: &File, request: libc::c_ulong, mut words: [u64; WORDS]) {
    // SAFETY: each request reads and writes as many words as its number says, which the callers pass.
    let result = unsafe { libc::ioctl(handler.as_raw_fd(), request, words.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Handles the page faults of a mapping.
pub(super) fn userfaultfd(mapping: &Mapping) -> File {
    // SAFETY: creates a descriptor, which becomes ours.
    let handler = unsafe {
        let raw = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY);
        assert!(raw >= 0, "{}", io::Error::last_os_error());
        File::from_raw_fd(i32::try_from(raw).expect("a descriptor"))
    };
    control(&handler, UFFDIO_API, [UFFD_API, 0, 0]);
    let range = [mapping.start as u64, mapping.len as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
    control(&handler, UFFDIO_REGISTER, range);
    handler
}

/// Puts pages into a hole of a mapping.
pub(super) fn fill_hole(handler: &File, mapping: &Mapping, bytes: &[u8]) {
    let words = [mapping.start as u64, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0];
    control(handler, UFFDIO_COPY, words);
}
