//! Ways to have memory ready for a guest: bulkmem's prefault, fallocate, QEMU's preallocation, and independent processes as
//! the control of how far the kernel's own clearing scales.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bulkmem::Pages;
use bulkmem_prefault::{Options, prefault_mapping};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::Phases;
use crate::engine::buffer::map;
use crate::engine::{MeasureError, PageSize, Result, go_on};

pub(super) const BULKMEM: &str = "bulkmem prefault";
pub(super) const FALLOCATE: &str = "fallocate";
pub(super) const QEMU: &str = "QEMU prealloc";
/// The control: as many processes as threads, with a part each.
pub(super) const PROCESSES: &str = "independent processes";

/// The program that is measured.
pub(super) const QEMU_PROGRAM: &str = "qemu-system-x86_64";
/// The least memory for QEMU's preallocation, bytes: less takes no longer than its start varies.
pub(super) const QEMU_LEAST: u64 = 256 << 20;

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> MeasureError {
    move |source| MeasureError::System { doing, source }
}

/// Maps memory and prefaults it with bulkmem.
pub(super) fn bulkmem(size: usize, pages: PageSize, threads: usize, stop: &AtomicBool) -> Result<Phases> {
    let mut phases = Phases(Vec::new(), Instant::now());
    let mut memory = map(size, pages.0)?;
    phases.end("reserve_s");
    let ready = prefault_mapping(&mut memory, &Options::new().threads(threads).cancel(stop));
    go_on(stop)?;
    ready.map_err(|error| failed("prefault memory")(io::Error::other(with_cause(&error))))?;
    phases.end("prefault_s");
    drop(memory);
    phases.end("release_s");
    Ok(phases)
}

fn with_cause(error: &bulkmem_prefault::Error) -> String {
    format!("{error}: {}", error.cause)
}

/// Allocates a memfd of such pages.
pub(super) fn allocated(size: u64, pages: PageSize) -> Result<Phases> {
    let mut phases = Phases(Vec::new(), Instant::now());
    let mut flags = MemfdFlags::CLOEXEC;
    if let Pages::Explicit(bytes) = pages.0 {
        // The logarithm of the page size stands in the flags from this bit on.
        let size = bytes.trailing_zeros() << libc::MFD_HUGE_SHIFT;
        flags |= MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size);
    }
    let file = memfd_create("bulkmem bench vm", flags).map_err(io::Error::from);
    let file = file.map_err(failed("create a memfd"))?;
    ftruncate(&file, size).map_err(io::Error::from).map_err(failed("extend a memfd"))?;
    phases.end("reserve_s");
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, size).map_err(io::Error::from);
    allocated.map_err(failed("allocate a memfd's pages (fallocate)"))?;
    phases.end("prefault_s");
    drop(file);
    phases.end("release_s");
    Ok(phases)
}

/// Starts processes that map and populate a part of `size` bytes each, and waits for all.
pub(super) fn processes(size: usize, pages: PageSize, count: usize) -> Result<Phases> {
    let mut phases = Phases(Vec::new(), Instant::now());
    // Whole pages; the last part is the longest.
    let page = pages.bytes() as usize;
    let part = size / count / page * page;
    let parts = (0..count).map(|index| if index + 1 < count { part } else { size - part * index });
    let children: Vec<_> = parts.filter(|part| *part > 0).map(|part| child(part, pages)).collect();
    let mut outcome = Ok(());
    for child in children {
        let ended = child.and_then(|child| {
            let ended = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()))?;
            match ended.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                _ => Err(io::Error::other("a process could not populate its memory")),
            }
        });
        outcome = outcome.and(ended);
    }
    outcome.map_err(failed("prefault memory in processes"))?;
    phases.end("prefault_s");
    Ok(phases)
}

/// Forks a process that maps and populates memory, and ends. It only makes system calls, because another thread may hold
/// the allocator's lock at the moment of the fork.
fn child(bytes: usize, pages: PageSize) -> io::Result<Pid> {
    // SAFETY: as described.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let populated = populated(bytes, pages.0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if populated.is_ok() { 0 } else { 1 }) }
        }
        _ => Ok(Pid::from_raw(child).expect("a process other than 0")),
    }
}

fn populated(bytes: usize, pages: Pages) -> rustix::io::Result<()> {
    let flags = match pages {
        Pages::Explicit(size) => {
            let size = size.trailing_zeros() << libc::MAP_HUGE_SHIFT;
            MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::from_bits_retain(size)
        }
        _ => MapFlags::PRIVATE,
    };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let advice = match pages {
        Pages::Transparent => Some(Advice::LinuxHugepage),
        Pages::Base => Some(Advice::LinuxNoHugepage),
        Pages::Explicit(_) => None,
    };
    // SAFETY: a fresh mapping at a place of the kernel's choosing replaces nothing; advice and populating change no
    // contents.
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)?;
        if let Some(advice) = advice {
            // A kernel without transparent huge pages gives base pages in any case.
            _ = madvise(start, bytes, advice);
        }
        madvise(start, bytes, Advice::LinuxPopulateWrite)
    }
}

/// Starts QEMU twice, with and without preallocation, and returns the difference as the time of `prefault_s`.
pub(super) fn preallocated(program: &OsStr, size: u64, pages: PageSize, threads: usize) -> Result<Phases> {
    let backend = match pages.0 {
        Pages::Explicit(bytes) => {
            format!("memory-backend-memfd,id=memory,size={size},hugetlb=on,hugetlbsize={bytes}")
        }
        _ => format!("memory-backend-ram,id=memory,size={size}"),
    };
    let alone = start(program, &backend)?;
    let with = start(program, &format!("{backend},prealloc=on,prealloc-threads={threads}"))?;
    let took = with.saturating_sub(alone).max(Duration::from_micros(1));
    Ok(Phases(vec![("prefault_s", took.as_secs_f64()), ("start_s", alone.as_secs_f64())], Instant::now()))
}

/// A process that ends when dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts QEMU with a memory backend, and returns the time until it answers: its monitor greets after the preallocation.
pub(super) fn start(program: &OsStr, backend: &str) -> Result<Duration> {
    let doing = "start QEMU";
    let mut command = Command::new(program);
    command.args([
        "-accel",
        "tcg",
        "-machine",
        "none",
        "-nodefaults",
        "-display",
        "none",
        "-S",
        "-qmp",
        "stdio",
    ]);
    command.args(["-object", backend]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    // Ctrl-C stops the measurement, which then ends it.
    let mut child = Ends(command.process_group(0).spawn().map_err(failed(doing))?);
    let mut greeting = String::new();
    if let Some(answers) = child.0.stdout.take() {
        BufReader::new(answers).read_line(&mut greeting).map_err(failed(doing))?;
    }
    let took = begun.elapsed();
    if greeting.starts_with("{\"QMP\"") {
        return Ok(took);
    }
    let mut said = String::new();
    if let Some(mut errors) = child.0.stderr.take() {
        _ = errors.read_to_string(&mut said);
    }
    Err(failed(doing)(io::Error::other(said.trim().to_owned())))
}
