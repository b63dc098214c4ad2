//! Runs when the library is loaded: reads the environment, and keeps a panic from printing.

use crate::methods;

/// The dynamic linker calls every function in this section.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // The shared library has a copy of Rust's standard library to itself, so the hook is not that of a program in Rust.
    #[cfg(not(test))]
    std::panic::set_hook(Box::new(|_| ()));
    // A panic must not leave this function.
    _ = std::panic::catch_unwind(|| {
        // Now, so that no later call reads a file: the program may forbid that. Problems of the profile leave the defaults.
        _ = bulkmem::init();
        methods::methods();
    });
}
