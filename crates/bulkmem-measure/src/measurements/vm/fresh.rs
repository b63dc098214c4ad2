//! Fresh memory, made ready by the kernel.

use std::cell::Cell;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkmem::{Mapping, Pages};
use bulkmem_kmod::BulkHint;

use crate::MeasureError;
use crate::engine::threads::split;
use crate::measurements::vm::{
    GUEST, HINTED, HINTED_GUEST, Memory, Metric, PIECE, PREFAULT, PageSize, Run, VmOptions, kernel, kvm,
};

/// How long each step of making memory ready took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phases {
    /// Mapping the memory: addresses, and reserved huge pages where asked for.
    pub(super) reserve: Duration,
    /// Having every page found and cleared.
    pub(super) prefault: Duration,
    /// Creating the virtual machine, and handing the memory to it.
    pub(super) register: Option<Duration>,
    /// Creating its processor.
    pub(super) processor: Option<Duration>,
    /// What the guest took to look at its memory; not part of getting it ready.
    pub(super) guest: Option<Duration>,
    /// Giving everything back; not part of getting it ready.
    pub(super) release: Duration,
    /// The pages that the kernel really took, bytes, where somebody looked.
    pub(super) backing: Option<usize>,
}

impl Phases {
    /// Seconds until the memory was ready.
    pub(super) fn ready(&self) -> f64 {
        let parts = [Some(self.reserve), Some(self.prefault), self.register, self.processor];
        parts.into_iter().flatten().sum::<Duration>().as_secs_f64()
    }

    /// By name, seconds.
    fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
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

impl VmOptions {
    /// Memory made ready by so many threads; as the memory of a virtual machine where `guest` is given, which looks at
    /// its memory where that is true. With `hint`, beside each the same with the memory declared to the kernel module.
    pub(super) fn fresh(
        &self,
        run: &mut Run<'_>,
        pages: PageSize,
        guest: Option<bool>,
        hint: bool,
    ) -> Result<(), MeasureError> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let stop = run.stop_flag();
        let backing = Cell::new(None);
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            let config = self.config(pages, threads, Memory::Fresh);
            let backing = &backing;
            let hints: &[bool] = if hint { &[false, true] } else { &[false] };
            for &hint in hints {
                let mut first = None;
                let job = Job { size, pages, threads, hint };
                let name = if hint { HINTED } else { PREFAULT };
                samplers.push(kernel(name, config.clone(), move || {
                    // Asking what pages they are takes time: once is enough, after the first.
                    let phases = prefaulted(job, first.is_none(), stop)?;
                    backing.set(phases.backing.or(backing.get()));
                    let first = *first.get_or_insert(phases.ready());
                    let also: Vec<_> = phases.named().chain([("first_s", first)]).collect();
                    Ok(self.sample(phases.ready(), &also))
                }));
                if let Some(look) = guest {
                    let name = if hint { HINTED_GUEST } else { GUEST };
                    samplers.push(kernel(name, config.clone(), move || {
                        let phases = kvm::create(job, look, stop)?;
                        let also: Vec<_> = phases.named().collect();
                        Ok(self.sample(phases.ready(), &also))
                    }));
                }
            }
        }
        let what = format!("fresh, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.runs, &mut samplers)?;
        drop(samplers);
        run.backed_by(backing.get());
        if let (Pages::Transparent, Some(page)) = (pages.0, backing.get())
            && page == bulkmem::machine::Machine::current().page_size
        {
            run.note(format!(
                "transparent huge pages were asked for, and the kernel gave pages of {page} bytes: memory is in fragments \
                 (as root: echo 1 > /proc/sys/vm/compact_memory)"
            ));
        }
        Ok(())
    }
}

/// Memory that is to be made ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) size: usize,
    pub(super) pages: PageSize,
    pub(super) threads: usize,
    /// Whether the kernel module is told how large it is.
    pub(super) hint: bool,
}

/// Takes memory, has it made ready, and gives it back.
fn prefaulted(job: Job, look: bool, stop: &AtomicBool) -> Result<Phases, MeasureError> {
    let (mut region, mut phases) = ready(job, stop)?;
    phases.backing = look.then(|| region.backing_page_size().ok()).flatten();
    // One read of each piece: it is there, and it is zero.
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

/// Takes memory and has it made ready. Declaring it is part of that.
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

/// Has the kernel find and clear every page, so many threads a part each.
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
        Some(source) => Err(MeasureError::System { doing: "have the kernel make memory ready", source }),
        None if stop.load(Ordering::Relaxed) => Err(MeasureError::Interrupted),
        None => Ok(()),
    }
}

/// Has the kernel find and clear the pages of a range.
///
/// # Safety
/// The range is mapped, readable and writable, starts on a page, and nobody else writes to it.
unsafe fn populate(start: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: passed on from the caller; populating changes no contents.
    if unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // A kernel before 5.14 cannot be asked: a byte of every page is touched.
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
