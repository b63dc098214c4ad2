//! The fork and its child.
//!
//! The process may have threads, one of which may hold the allocator's lock at the moment of the fork. So the child only
//! reads and writes mapped memory, makes system calls, and ends.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::engine::RawRange;
use crate::measurements::fork::pages::Ledger;

/// The work on every page of the buffer after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    ChildWrites,
    /// While the child waits.
    ParentWrites,
    ChildReads,
    Nothing,
}

/// Writes to every page of a buffer, each of `page` bytes, forks, performs the work, and waits until the child has ended.
/// Returns the time since the fork. With a ledger, the child records its memory there after the work.
///
/// # Safety
/// The buffer is mapped, readable and writable, and no other code uses it.
///
/// # Errors
/// If the fork fails, or the child does not exit with status 0.
pub(super) unsafe fn fork(
    buffer: RawRange,
    page: usize,
    work: Work,
    ledger: Option<&Ledger>,
) -> io::Result<Duration> {
    let pages = || (0..buffer.length).step_by(page).map(|at| buffer.start.wrapping_add(at));
    // SAFETY: within the buffer, for which the caller vouches.
    let write = |byte| pages().for_each(|page| unsafe { page.write_volatile(byte) });
    write(1);
    if let Some(ledger) = ledger {
        ledger.enter(false)?;
    }
    let pipe = io::pipe().map_err(|error| io::Error::new(error.kind(), format!("no pipe: {error}")));
    let (mut reader, writer) = pipe?;
    let start = Instant::now();
    // SAFETY: the child makes only system calls, and ends without running destructors or handlers.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            match work {
                Work::ChildWrites => write(3),
                Work::ParentWrites => {
                    // The pipe ends when the parent closes it or dies, as no other process has it open for writing.
                    drop(writer);
                    while reader.read(&mut [0]).is_err() {}
                }
                // SAFETY: as above.
                Work::ChildReads => pages().for_each(|page| _ = unsafe { page.read_volatile() }),
                Work::Nothing => {}
            }
            let entered = ledger.is_none_or(|ledger| ledger.enter(true).is_ok());
            // SAFETY: ends the child.
            unsafe { libc::_exit(if entered { 0 } else { 1 }) }
        }
        _ if work == Work::ParentWrites => {
            write(2);
            drop(writer);
        }
        _ => {}
    }
    let ended = rustix::io::retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()))?;
    let took = start.elapsed();
    match ended.map(|(_, status)| (status.exit_status(), status.terminating_signal())) {
        Some((Some(0), _)) => Ok(took),
        Some((_, Some(signal))) => Err(io::Error::other(format!("the child was ended by signal {signal}"))),
        _ => Err(io::Error::other("the child could not read /proc/self/pagemap and /proc/self/status")),
    }
}
