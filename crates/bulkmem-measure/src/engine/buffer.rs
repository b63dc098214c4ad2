//! Memory to measure in, of one page size, allocated once and touched before anything is timed.

use std::io;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkmem::machine::Machine;
use bulkmem::{Mapping, Pages};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::engine::arena::{touch, write_something};
pub(crate) use crate::engine::error::fits;
use crate::engine::threads::split;
use crate::engine::{MeasureError, PageSize, RawRange, Reservation, Result, Run, go_on};

/// Bytes per thread between two checks of the stop flag.
pub(crate) const PIECE: usize = 256 << 20;

/// Memory in pages of one size, every byte written.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Mapping,
    /// Huge pages that were reserved for it.
    _reservation: Option<Reservation>,
}

/// Content of memory before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Bytes of which no line is like the next.
    Mixed,
    /// Zeros, which some processors move faster.
    Zeros,
}

impl Buffer {
    /// Allocates and touches `bytes`. Reserves missing huge pages, and releases them when it is dropped. Refuses more than
    /// three quarters of the available memory, and pages that the machine does not have.
    pub(crate) fn new(bytes: u64, pages: PageSize, content: Content) -> Result<Buffer> {
        Buffer::touched(bytes, pages, content, |_| true)
    }

    /// The same for a run, which reports the progress and records the size of the pages that back the memory.
    /// [`MeasureError::Interrupted`] if the user stopped the run.
    pub(crate) fn of_run(run: &mut Run<'_>, bytes: u64, pages: PageSize, content: Content) -> Result<Buffer> {
        run.say("getting memory ready", 0.0);
        let buffer = Buffer::touched(bytes, pages, content, |ready| {
            let percent = ready as f64 / bytes as f64 * 100.0;
            run.say(&format!("getting memory ready: {percent:.0} %"), 0.0);
            !run.stopped()
        })?;
        run.backed_by(buffer.backing_page_size());
        Ok(buffer)
    }

    /// Allocates memory and writes to all of it. [`MeasureError::Interrupted`] if `go_on`, which receives how many bytes
    /// are ready, returns false.
    fn touched(
        bytes: u64,
        pages: PageSize,
        content: Content,
        go_on: impl FnMut(usize) -> bool,
    ) -> Result<Buffer> {
        Reservation::check(bytes, pages)?;
        let _reservation = Reservation::of(bytes, pages)?;
        let mut region = map(usize::try_from(bytes).unwrap_or(usize::MAX), pages.0)?;
        let write = |part: &mut [u8]| match content {
            Content::Mixed => write_something(part),
            Content::Zeros => part.fill(0),
        };
        let ready = touch(&mut region, write, go_on);
        if ready < region.len() {
            Err(MeasureError::Interrupted)
        } else {
            Ok(Buffer { region, _reservation })
        }
    }

    /// Returns its range, which is valid as long as the buffer lives. No references to it exist.
    pub(crate) fn raw_range(&mut self) -> RawRange {
        RawRange { start: self.region.as_mut_ptr(), length: self.region.len() }
    }

    pub(crate) fn backing_page_size(&self) -> Option<usize> {
        self.region.backing_page_size().ok()
    }
}

/// Maps memory that has no pages yet.
pub(crate) fn map(length: usize, pages: Pages) -> Result<Mapping> {
    Mapping::new(length, pages).map_err(|source| MeasureError::Mapping { bytes: length as u64, source })
}

/// Has the kernel allocate and clear every page, by several threads with a part each.
pub(crate) fn prefault(region: &mut Mapping, threads: usize, stop: &AtomicBool) -> Result<()> {
    let failed = OnceLock::new();
    split(threads, region.as_mut_ptr(), null(), region.len(), |start, _, length| {
        for at in (0..length).step_by(PIECE).take_while(|_| !stop.load(Ordering::Relaxed)) {
            // SAFETY: the piece lies in the region, which is borrowed exclusively, and no other thread gets it.
            if let Err(error) = unsafe { populate(start.wrapping_add(at), PIECE.min(length - at)) } {
                _ = failed.set(error);
                return;
            }
        }
    });
    match failed.into_inner() {
        Some(source) => Err(MeasureError::System { doing: "have the kernel prepare memory", source }),
        None => go_on(stop),
    }
}

/// Has the kernel allocate and clear the pages of a range.
///
/// # Safety
/// The range is mapped, readable and writable, starts on a page, and no other thread writes to it.
pub(crate) unsafe fn populate(start: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: passed on from the caller; populating changes no contents.
    match unsafe { madvise(start.cast(), length, Advice::LinuxPopulateWrite) } {
        // Kernels before 5.14 do not support this: touches a byte of every page instead.
        Err(Errno::INVAL) => {
            for at in (0..length).step_by(Machine::current().page_size) {
                // SAFETY: within the range.
                unsafe {
                    let byte = start.add(at);
                    byte.write_volatile(byte.read_volatile());
                }
            }
            Ok(())
        }
        outcome => Ok(outcome?),
    }
}
