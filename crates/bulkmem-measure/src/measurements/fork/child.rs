//! The fork and its child.
//!
//! The process may have threads, one of which may hold the allocator's lock at the moment of the fork. So the child only
//! reads and writes mapped memory, calls functions that POSIX calls async-signal-safe, and ends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::engine::arena::RawRange;
use crate::measurements::fork::pages::Ledger;

/// The work on the buffer after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The child writes to every page.
    ChildWrites,
    /// The parent writes to every page while the child waits.
    ParentWrites,
    /// The child reads from every page.
    ChildReads,
    /// The child ends immediately.
    Nothing,
}

/// A parent that forks, with the measured buffer.
#[derive(Debug)]
pub(super) struct Parent {
    buffer: RawRange,
    page: usize,
    /// The child waits at the reading end.
    pipe: (OwnedFd, OwnedFd),
}

impl Parent {
    /// Creates a parent with a buffer of whole pages that were touched before.
    pub(super) fn new(buffer: RawRange, page: usize) -> io::Result<Parent> {
        let (reader, writer) = io::pipe()?;
        Ok(Parent { buffer, page, pipe: (reader.into(), writer.into()) })
    }

    /// Writes to every page, forks, performs the work, and waits until the child has ended. Returns the time since the
    /// fork. With a ledger, the child records its memory there after the work.
    ///
    /// # Safety
    /// The buffer is mapped, readable and writable, and no other code uses it.
    ///
    /// # Errors
    /// If the fork fails, or the child does not exit with status 0.
    pub(super) unsafe fn fork(&self, work: Work, ledger: Option<&Ledger>) -> io::Result<Duration> {
        // SAFETY: passed on from the caller.
        unsafe { write(self.buffer, self.page, 1) }
        if let Some(ledger) = ledger {
            ledger.enter_before()?;
        }
        let (reader, writer) = (self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd());
        let start = Instant::now();
        // SAFETY: the child calls nothing that is not async-signal-safe, and ends without running destructors or handlers.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: this is the child; the buffer is as mapped as it was in the parent.
            0 => unsafe { self.child(work, ledger, reader, writer) },
            _ => {}
        }
        if work == Work::ParentWrites {
            // SAFETY: passed on from the caller.
            unsafe { write(self.buffer, self.page, 2) }
            let go = [1u8];
            // SAFETY: a byte, and our own pipe; an empty pipe takes it immediately.
            if unsafe { libc::write(writer, go.as_ptr().cast(), 1) } != 1 {
                let error = io::Error::last_os_error();
                // SAFETY: our own child, not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
                _ = wait(child);
                return Err(error);
            }
        }
        let status = wait(child)?;
        let took = start.elapsed();
        if status == 0 { Ok(took) } else { Err(ended(status)) }
    }

    /// Runs the child.
    ///
    /// # Safety
    /// Only in a child of `fork`; the buffer is mapped, readable and writable.
    unsafe fn child(&self, work: Work, ledger: Option<&Ledger>, reader: RawFd, writer: RawFd) -> ! {
        // SAFETY: passed on from the caller; of the C library, only functions that are async-signal-safe are called, on
        // memory of this function's own and descriptors that the parent had open.
        unsafe {
            match work {
                Work::ChildWrites => write(self.buffer, self.page, 3),
                Work::ChildReads => read(self.buffer, self.page),
                Work::ParentWrites => {
                    // If the parent dies, the pipe ends, as no other process has it open for writing.
                    libc::close(writer);
                    let mut go = 0u8;
                    while libc::read(reader, (&raw mut go).cast(), 1) == -1 {}
                }
                Work::Nothing => {}
            }
            let entered = ledger.is_none_or(|ledger| ledger.enter_after());
            libc::_exit(if entered { 0 } else { 1 })
        }
    }
}

/// Writes to every page.
///
/// # Safety
/// The buffer is mapped and writable, and no other code uses it.
unsafe fn write(buffer: RawRange, page: usize, byte: u8) {
    let mut at = 0;
    while at < buffer.length {
        // SAFETY: within the buffer.
        unsafe { buffer.start.wrapping_add(at).write_volatile(byte) }
        at = at.wrapping_add(page);
    }
}

/// Reads from every page.
///
/// # Safety
/// The buffer is mapped and readable, and no other code writes to it.
unsafe fn read(buffer: RawRange, page: usize) {
    let mut at = 0;
    while at < buffer.length {
        // SAFETY: within the buffer.
        unsafe { buffer.start.wrapping_add(at).read_volatile() };
        at = at.wrapping_add(page);
    }
}

/// Waits until a child has ended.
fn wait(child: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: a place for the status.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            return Ok(status);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Returns the error for a child that failed.
fn ended(status: i32) -> io::Error {
    io::Error::other(if libc::WIFSIGNALED(status) {
        format!("the child was ended by signal {}", libc::WTERMSIG(status))
    } else {
        "the child could not read /proc/self/pagemap and /proc/self/status".to_owned()
    })
}
