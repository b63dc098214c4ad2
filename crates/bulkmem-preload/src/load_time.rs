//! Runs when the library is loaded: finds the C library's functions and reads the policy.

use std::panic::catch_unwind;

use crate::{c_library, histogram};

/// The dynamic linker calls every function in this section.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // SAFETY: it always points to this thread's variable.
    let errno = unsafe { &raw mut *libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // The shared library has a copy of Rust's standard library to itself, so the hook is not that of a program in Rust.
    std::panic::set_hook(Box::new(|_| ()));
    // A panic must not leave this function. Until the policy is read, the C library does all calls.
    _ = catch_unwind(|| {
        if c_library::find() {
            c_library::use_policy();
            if histogram::start() {
                c_library::call_for_every_length();
            }
        }
    });
    // SAFETY: as above.
    unsafe { errno.write(before) };
}
