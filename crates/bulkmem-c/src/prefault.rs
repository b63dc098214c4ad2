//! Mapping every page of memory or of a file in advance.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use bulkmem_prefault::numa::NumberList;
use bulkmem_prefault::{Cause, Options, Placement, Progress, Ready};

use crate::error::{Causes, Error, Failed, SOME, check_memory, fail, slow_outcome};
use crate::options::read_known;
use crate::range;

/// Flag: lock the memory (mlock): all of it or nothing. Not for files.
pub const BULKMEM_PREFAULT_LOCK: u64 = 1;
/// Flag: use a thread for each processor that the process may use.
pub const BULKMEM_PREFAULT_ALL_PROCESSORS: u64 = 2;
/// Flag: take the pages from the nodes in turn, page by page; without `nodes`, from all.
pub const BULKMEM_PREFAULT_INTERLEAVE: u64 = 4;

/// A state of a prefault.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrefaultProgress {
    /// Bytes that are ready.
    pub ready: u64,
    /// Bytes to prefault.
    pub total: u64,
    /// Time since the start, nanoseconds.
    pub elapsed_ns: u64,
    /// Remaining time at the average rate, nanoseconds; UINT64_MAX if unknown.
    pub remaining_ns: u64,
}

/// A function that receives the progress of a prefault. A result that is not 0 cancels.
pub type PrefaultCallback =
    Option<unsafe extern "C" fn(progress: *const PrefaultProgress, context: *mut c_void) -> c_int>;

/// Options of a prefault. Initialize them with BULKMEM_PREFAULT_OPTIONS_INIT, or set all bytes to 0 and then `size`. A
/// member that is 0 has its default.
#[repr(C)]
#[derive(Debug)]
pub struct PrefaultOptions {
    /// sizeof(struct bulkmem_prefault_options). Later versions of the library add members at the end. A library that does
    /// not know a member accepts it if it is 0.
    pub size: usize,
    /// BULKMEM_PREFAULT_LOCK, BULKMEM_PREFAULT_ALL_PROCESSORS, BULKMEM_PREFAULT_INTERLEAVE.
    pub flags: u64,
    /// Threads that divide the work; 0 is one. The calling thread waits and calls `progress`.
    pub threads: usize,
    /// NUMA nodes that new pages come from, as "0-3,8". Each thread runs on the node of its piece. By default, the memory's
    /// own policy decides.
    pub nodes: *const c_char,
    /// Highest rate of all threads together, bytes per second; 0 is no limit.
    pub rate: u64,
    /// Highest share of its processor that each thread uses, in percent, 1 to 100; 0 is 100.
    pub cpu_percent: u64,
    /// Bytes that stay free below every memory limit; 0 is 16 MiB, and none of huge pages.
    pub keep_free: u64,
    /// Called by the calling thread about every five milliseconds and at the end, with `context`. A result that is not 0
    /// cancels. It must return.
    pub progress: PrefaultCallback,
    /// Passed to `progress`.
    pub context: *mut c_void,
}

/// Maps every page that `length` bytes from `start` touch, for writing, so that later accesses take no page faults. Keeps the
/// contents, also those that others write at the same time. A page that the kernel cannot provide is an error and no
/// SIGBUS. Stores in `*ready`, if that is not a null pointer, how many bytes are ready, also after an error:
/// BULKMEM_ERROR_MEMORY if memory or huge pages run out, or a limit is near; BULKMEM_ERROR_LENGTH if a file is too short;
/// BULKMEM_ERROR_CANCELLED. A null pointer stands for the default options.
///
/// Not async-signal-safe. The range must stay mapped during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_prefault(
    start: *mut c_void,
    length: usize,
    options: *const PrefaultOptions,
    ready: *mut u64,
) -> c_int {
    slow_outcome(|| {
        // SAFETY: passed on from the caller.
        unsafe { store(ready, 0) };
        range::check("start", start, length)?;
        check_memory(SOME)?;
        // SAFETY: passed on from the caller.
        unsafe {
            with_options(options, ready, |options| {
                bulkmem_prefault::prefault_range(start.cast(), length, options)
            })
        }
    })
}

/// Allocates the pages of `length` bytes from `offset` of a regular file: on hugetlbfs, a tmpfs, a disk or DAX, or a memfd.
/// `fd` must be open for reading and writing. Keeps the contents and the length of the file. Otherwise as bulkmem_prefault.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_prefault_file(
    fd: c_int,
    offset: u64,
    length: u64,
    options: *const PrefaultOptions,
    ready: *mut u64,
) -> c_int {
    slow_outcome(|| {
        // SAFETY: passed on from the caller.
        unsafe { store(ready, 0) };
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| {
            fail(Error::Length, format_args!("{length} bytes from {offset} are more than a file holds"))
        })?;
        if fd < 0 {
            return Err(fail(Error::Argument, format_args!("{fd} is not a descriptor")));
        }
        check_memory(SOME)?;
        // SAFETY: not negative. One that is not open leads to an error of the kernel.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: passed on from the caller.
        unsafe {
            with_options(options, ready, |options| {
                bulkmem_prefault::prefault_file(file, offset..end, options)
            })
        }
    })
}

/// # Safety
/// `ready` is null or writable.
unsafe fn store(ready: *mut u64, bytes: u64) {
    if !ready.is_null() {
        // SAFETY: not null; passed on from the caller.
        unsafe { ready.write(bytes) };
    }
}

/// Translates options, and the result of a prefault.
///
/// # Safety
/// `given` is null, or points to as many readable bytes as its `size` says, with members that are null or valid; `ready`
/// is null or writable.
unsafe fn with_options(
    given: *const PrefaultOptions,
    ready: *mut u64,
    prefault: impl FnOnce(&Options<'_>) -> Result<Ready, bulkmem_prefault::Error>,
) -> Result<(), Failed> {
    let report;
    let mut options = Options::new();
    if !given.is_null() {
        // SAFETY: passed on from the caller. Of a function pointer, 0 is `None`, and the caller vouches for others.
        let given = unsafe { read_known(given, &[], "BULKMEM_PREFAULT_OPTIONS_INIT")? };
        // SAFETY: passed on from the caller.
        options = unsafe { translate(&given, options)? };
        if let Some(progress) = given.progress {
            report = move |state: &Progress| {
                let state = PrefaultProgress {
                    ready: state.ready,
                    total: state.total,
                    elapsed_ns: u64::try_from(state.elapsed.as_nanos()).unwrap_or(u64::MAX),
                    remaining_ns: state
                        .remaining
                        .map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
                };
                // SAFETY: the caller vouches for the function and its context.
                match unsafe { progress(&raw const state, given.context) } {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            };
            options = options.progress(&report);
        }
    }
    let (bytes, result) = match prefault(&options) {
        Ok(done) => (done.bytes, Ok(())),
        Err(error) => (error.ready, Err(failed(&error))),
    };
    // SAFETY: passed on from the caller.
    unsafe { store(ready, bytes) };
    result
}

/// # Safety
/// `nodes` is null or a string that ends with a 0.
unsafe fn translate<'a>(given: &PrefaultOptions, options: Options<'a>) -> Result<Options<'a>, Failed> {
    let known = BULKMEM_PREFAULT_LOCK | BULKMEM_PREFAULT_ALL_PROCESSORS | BULKMEM_PREFAULT_INTERLEAVE;
    let has = |flag| given.flags & flag != 0;
    if has(!known) {
        return Err(fail(
            Error::Argument,
            format_args!("unknown flags {:#x} in the options", given.flags & !known),
        ));
    }
    if given.cpu_percent > 100 {
        return Err(fail(
            Error::Argument,
            format_args!("the options have {} % of a processor: write 1 to 100", given.cpu_percent),
        ));
    }
    let threads = match (has(BULKMEM_PREFAULT_ALL_PROCESSORS), given.threads) {
        (true, 0) => 0,
        (false, number) => number.max(1),
        (true, _) => {
            let text =
                "the options have a number of threads and BULKMEM_PREFAULT_ALL_PROCESSORS: use one of them";
            return Err(fail(Error::Argument, format_args!("{text}")));
        }
    };
    let nodes = if given.nodes.is_null() {
        None
    } else {
        // SAFETY: passed on from the caller.
        let text = unsafe { CStr::from_ptr(given.nodes) }.to_string_lossy();
        let list: Result<NumberList, _> = text.parse();
        Some(list.map_err(|why| fail(Error::Argument, format_args!("the nodes in the options: {why}")))?)
    };
    let placement = match (nodes, has(BULKMEM_PREFAULT_INTERLEAVE)) {
        (nodes, true) => Placement::Interleave(nodes.unwrap_or_default()),
        (Some(nodes), false) => Placement::Nodes(nodes),
        (None, false) => Placement::Default,
    };
    let options =
        options.threads(threads).placement(placement).rate(given.rate).lock(has(BULKMEM_PREFAULT_LOCK));
    let options = match given.cpu_percent {
        0 => options,
        percent => options.cpu_share(percent as f64 / 100.0),
    };
    Ok(if given.keep_free == 0 { options } else { options.keep_free(given.keep_free) })
}

fn failed(error: &bulkmem_prefault::Error) -> Failed {
    let code = match error.cause {
        Cause::Cancelled => Error::Cancelled,
        Cause::HugePages { .. }
        | Cause::Limit { .. }
        | Cause::LockLimit { .. }
        | Cause::NoSpace { .. }
        | Cause::OutOfMemory(_) => Error::Memory,
        Cause::TooShort { .. } => Error::Length,
        Cause::Unsupported { .. } => Error::Argument,
        _ => Error::System,
    };
    fail(code, format_args!("{}", Causes(error)))
}
