//! Looks at the cache state read the time stamp counter. A program that forbids that to itself gets no more of them.

use std::ffi::{c_int, c_uint, c_ulong};

use crate::c_library::c_library_prctl;

/// prctl, which stops looks before the instruction becomes fatal.
///
/// # Safety
/// As prctl.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn preload_prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // The upper half of a register that holds an int can be anything.
    let forbids_clock = match option {
        libc::PR_SET_SECCOMP => second as c_uint == libc::SECCOMP_MODE_STRICT,
        libc::PR_SET_TSC => second as c_int == libc::PR_TSC_SIGSEGV,
        _ => false,
    };
    if forbids_clock {
        bulkmem::look::stop();
    }
    // SAFETY: passed on from the caller. Registers that it did not set are not read by the kernel for this option.
    unsafe { c_library_prctl(option, second, third, fourth, fifth) }
}
