//! Runs when the program, or the shared library that this is part of, is loaded: finds the C library's functions and
//! copies the environment variables that count, both while there usually is one thread.

use crate::{c_functions, policy};

/// The dynamic linker, or the start-up code of a static program, calls every function in this section.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    c_functions::resolve();
    policy::read_environment();
}
