//! Faults on the threads that an operation starts. In a separate file, because a handler belongs to the whole
//! process.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::{mem, ptr, slice};

use bulkmem::{Options, Threads};

const LENGTH: usize = 1 << 20;

/// The thread that calls the operation.
static CALLER: AtomicI32 = AtomicI32::new(0);
/// Number of faults on that thread, and on others.
static FAULTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Maps new memory in place of a page that the file no longer has.
extern "C" fn on_bus_error(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid record; only the test's mapping faults, and one page of it is replaced. All
    // functions called are safe in a handler.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = (*info).si_addr().map_addr(|at| at & !(page - 1));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        if libc::mmap(start, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == libc::MAP_FAILED {
            libc::abort();
        }
        let elsewhere = libc::gettid() != CALLER.load(Ordering::Relaxed);
        FAULTS[usize::from(elsewhere)].fetch_add(1, Ordering::Relaxed);
    }
}

/// A program that repairs faults in its handler, such as a virtual machine monitor with guest memory in a file, can
/// do so on every thread.
#[test]
fn a_fault_on_a_new_thread_reaches_the_handler() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(LENGTH as u64).unwrap();
    // SAFETY: a new mapping, which nothing else uses; it stays until the process ends.
    let start = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), LENGTH, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    file.set_len(0).unwrap();

    // SAFETY: the handler has the signature that SA_SIGINFO asks for. This process has this one test.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()), 0);
        CALLER.store(libc::gettid(), Ordering::Relaxed);
    }
    let threads = Threads::Exactly(NonZeroUsize::new(2).unwrap());
    // SAFETY: the range is mapped, and the handler keeps it writable.
    let bytes = unsafe {
        Options::new().threads(threads).fill_raw(start.cast(), LENGTH, 7);
        slice::from_raw_parts(start.cast::<u8>(), LENGTH)
    };
    assert!(bytes.iter().all(|&byte| byte == 7));
    let [caller, others] = FAULTS.each_ref().map(|faults| faults.load(Ordering::Relaxed));
    assert!(caller > 0 && others > 0, "{caller} faults on the caller, {others} on the other thread");
}
