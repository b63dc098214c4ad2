//! Memory prepared by the kernel: mapped, and every page allocated and cleared.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::Mapping;
use bulkmem_kmod::BulkHint;

use crate::MeasureError;
use crate::engine::PageSize;
use crate::engine::threads::split;
use crate::measurements::vm::PIECE;

/// Times of the steps of preparing memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phases {
    /// Mapping the memory: addresses and, if requested, reserved huge pages.
    pub(super) reserve: Duration,
    /// Allocating and clearing every page.
    pub(super) prefault: Duration,
    /// Creating the virtual machine and registering the memory.
    pub(super) register: Option<Duration>,
    /// Creating its processor.
    pub(super) processor: Option<Duration>,
    /// The guest's check of its memory; not part of preparing it.
    pub(super) guest: Option<Duration>,
    /// Releasing everything; not part of preparing the memory.
    pub(super) release: Duration,
    /// Page size in bytes that the kernel used, if it was queried.
    pub(super) backing: Option<usize>,
}

impl Phases {
    /// Returns the seconds until the memory was ready.
    pub(super) fn ready(&self) -> f64 {
        let parts = [Some(self.reserve), Some(self.prefault), self.register, self.processor];
        parts.into_iter().flatten().sum::<Duration>().as_secs_f64()
    }

    /// Returns the times by name, in seconds.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let parts = [
            ("reserve_s", Some(self.reserve)),
            ("prefault_s", Some(self.prefault)),
            ("register_s", self.register),
            ("vcpu_s", self.processor),
            ("guest_s", self.guest),
            ("release_s", Some(self.release)),
        ];
        parts.into_iter().filter_map(|(name, time)| Some((name, time?.as_secs_f64())))
    }
}

/// Memory to prepare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) size: usize,
    pub(super) pages: PageSize,
    pub(super) threads: usize,
    /// True to declare the memory to the kernel module.
    pub(super) hint: bool,
}

/// Allocates memory, prepares it, and releases it. With `look`, queries its page size.
pub(super) fn prefaulted(job: Job, look: bool, stop: &AtomicBool) -> Result<Phases, MeasureError> {
    let (mut region, mut phases) = ready(job, stop)?;
    phases.backing = look.then(|| region.backing_page_size().ok()).flatten();
    // One read of each piece checks that it is mapped and zero.
    if let Some(at) = (0..job.size).step_by(PIECE).find(|at| region[*at] != 0) {
        let message = format!("byte {at} of fresh memory is not zero");
        return Err(MeasureError::System { doing: "trust the kernel", source: io::Error::other(message) });
    }
    region[job.size - 1] = 1;
    let start = Instant::now();
    drop(region);
    phases.release = start.elapsed();
    Ok(phases)
}

/// Allocates and prepares memory. The time of declaring it to the kernel module is included.
pub(super) fn ready(job: Job, stop: &AtomicBool) -> Result<(Mapping, Phases), MeasureError> {
    let Job { size, pages, threads, hint } = job;
    let start = Instant::now();
    let mut region =
        Mapping::new(size, pages.0).map_err(|source| MeasureError::Mapping { bytes: size as u64, source })?;
    let reserve = start.elapsed();
    let start = Instant::now();
    let hint = if hint { Some(BulkHint::of(&region).map_err(MeasureError::Kernel)?) } else { None };
    prefault(&mut region, threads, stop)?;
    drop(hint);
    Ok((region, Phases { reserve, prefault: start.elapsed(), ..Phases::default() }))
}

/// Has the kernel allocate and clear every page, by several threads with a part each.
fn prefault(region: &mut Mapping, threads: usize, stop: &AtomicBool) -> Result<(), MeasureError> {
    let failed: Mutex<Option<io::Error>> = Mutex::new(None);
    split(threads, region.as_mut_ptr(), std::ptr::null(), region.len(), |start, _, length| {
        for at in (0..length).step_by(PIECE) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the piece lies in the region, which is borrowed exclusively, and no other thread gets it.
            if let Err(error) = unsafe { populate(start.wrapping_add(at), PIECE.min(length - at)) } {
                *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                return;
            }
        }
    });
    match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(source) => Err(MeasureError::System { doing: "have the kernel prepare memory", source }),
        None if stop.load(Ordering::Relaxed) => Err(MeasureError::Interrupted),
        None => Ok(()),
    }
}

/// Has the kernel allocate and clear the pages of a range.
///
/// # Safety
/// The range is mapped, readable and writable, starts on a page, and no other thread writes to it.
unsafe fn populate(start: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: passed on from the caller; populating changes no contents.
    if unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Kernels before 5.14 do not support this: touches a byte of every page instead.
        error if error.raw_os_error() == Some(libc::EINVAL) => {
            for at in (0..length).step_by(bulkmem::machine::Machine::current().page_size) {
                // SAFETY: within the range.
                unsafe {
                    let byte = start.add(at);
                    byte.write_volatile(byte.read_volatile());
                }
            }
            Ok(())
        }
        error => Err(error),
    }
}
