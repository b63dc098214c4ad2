//! Counting calls by length, for `bulkmem run --histogram`.
//!
//! The file is in memory: the variable names the command's descriptor of it (`/proc/PID/fd/N`), so that nothing has to be
//! removed, and a full disk cannot end the program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bulkmem_histogram::{Call, FILE_BYTES, Histogram, Record};

use crate::c_library;

/// The C library's function below pthread_atfork, which other C libraries do not have.
type RegisterAtFork = unsafe extern "C" fn(
    Option<extern "C" fn()>,
    Option<extern "C" fn()>,
    Option<extern "C" fn()>,
    *mut c_void,
) -> c_int;

/// The mapped file, which is never unmapped.
static HISTOGRAM: AtomicPtr<Histogram> = AtomicPtr::new(null_mut());
/// The record of this process in it.
static RECORD: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// Starts counting if the variable says so and a record is free. Returns true if it does.
pub(crate) fn start() -> bool {
    let Some(histogram) = map() else { return false };
    // SAFETY: no preconditions; the kernel's string is valid as long as the process.
    let (pid, name) = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        (libc::getpid(), if name.is_null() { c"" } else { CStr::from_ptr(name) })
    };
    let name = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let Some(record) = histogram.claim(pid as u32, None, name) else { return false };
    HISTOGRAM.store(from_ref(histogram).cast_mut(), Relaxed);
    RECORD.store(from_ref(record).cast_mut(), Relaxed);
    let register = c_library::next(c"__register_atfork");
    if !register.is_null() {
        // SAFETY: the function has this type. The handler is async-signal-safe, and the library is never unloaded.
        unsafe { transmute::<*mut c_void, RegisterAtFork>(register)(None, None, Some(in_child), null_mut()) };
    }
    true
}

/// Maps the file that the variable names.
fn map() -> Option<&'static Histogram> {
    // SAFETY: no other thread exists yet that could change the environment; the program has no more rights than its caller.
    let path = unsafe {
        let path = libc::getenv(c"BULKMEM_HISTOGRAM".as_ptr());
        if path.is_null() || libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        path
    };
    // SAFETY: the path is a valid string; the descriptor is this function's own; `about` is valid; the mapping is new.
    let address = unsafe {
        let file = libc::open(path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK);
        if file < 0 {
            return None;
        }
        let mut about: libc::stat = std::mem::zeroed();
        let mut address = libc::MAP_FAILED;
        let seals = libc::fcntl(file, libc::F_GET_SEALS);
        let sealed = seals >= 0 && seals & libc::F_SEAL_SHRINK != 0;
        if sealed && libc::fstat(file, &raw mut about) == 0 && about.st_size == FILE_BYTES as libc::off_t {
            let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            address = libc::mmap(null_mut(), FILE_BYTES, access, shared, file, 0);
        }
        libc::close(file);
        address
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is the file's, which is sealed against shrinking, and is never unmapped; every value is a valid
    // `AtomicU64`. It is left out of core dumps, which would otherwise fill it.
    unsafe {
        libc::madvise(address, FILE_BYTES, libc::MADV_DONTDUMP);
        Some(&*address.cast())
    }
}

/// Counts a call, if calls are counted; `above_threshold` if the policy chooses its method.
#[inline(always)]
pub(crate) fn count(call: Call, length: usize, above_threshold: bool) {
    // SAFETY: null, or a record in the mapping, which is never unmapped.
    if let Some(record) = unsafe { RECORD.load(Relaxed).as_ref() } {
        count_in(record, call, length, above_threshold);
    }
}

/// Apart, so that calls which are not counted have less code to read.
#[cold]
#[inline(never)]
fn count_in(record: &Record, call: Call, length: usize, above_threshold: bool) {
    record.count(call, length, above_threshold);
}

/// Counts a copy that the policy executed although it is below the threshold, because page aliasing would slow it down in the
/// C library.
#[inline(always)]
pub(crate) fn count_aliased(length: usize) {
    // SAFETY: as in `count`.
    if let Some(record) = unsafe { RECORD.load(Relaxed).as_ref() } {
        record.count_aliased(length);
    }
}

/// Claims a record in the child of a fork. Makes no system call: the program may have forbidden them to itself.
extern "C" fn in_child() {
    let (histogram, record) = (HISTOGRAM.load(Relaxed), RECORD.load(Relaxed));
    // SAFETY: null, or in the mapping, which is never unmapped.
    let (Some(histogram), Some(parent)) = (unsafe { histogram.as_ref() }, unsafe { record.as_ref() }) else {
        return;
    };
    match histogram.claim(own_pid(), Some(parent), b"") {
        Some(record) => RECORD.store(from_ref(record).cast_mut(), Relaxed),
        None => parent.include_children(),
    }
}

/// Returns the number of the only thread, which is that of the process. Makes no system call: the C library knows it, and
/// returns it as a part of the number of the thread's clock (clock_getcpuclockid in the kernel's posix-timers.h).
fn own_pid() -> u32 {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the calling thread exists, and `clock` is valid.
    let error: c_int = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    if error == 0 { !(clock >> 3) as u32 } else { 0 }
}
