//! Looks at the cache state read the time stamp counter. A program that forbids that to itself gets no more of them.

use std::ffi::{c_int, c_ulong};

use crate::c_library::c_library_prctl;

const STRICT: c_ulong = libc::SECCOMP_MODE_STRICT as c_ulong;
const FORBIDDEN: c_ulong = libc::PR_TSC_SIGSEGV as c_ulong;

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
    if matches!((option, second), (libc::PR_SET_SECCOMP, STRICT) | (libc::PR_SET_TSC, FORBIDDEN)) {
        bulkmem::look::stop();
    }
    // SAFETY: passed on from the caller. Registers that it did not set are not read by the kernel for this option.
    unsafe { c_library_prctl(option, second, third, fourth, fifth) }
}
