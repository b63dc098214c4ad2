//! Keeps a panic from printing.

/// The start-up code of the program, or the dynamic linker, calls every function in this section.
#[cfg(not(test))]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Replaces the hook that prints a panic's message. The C library has a copy of Rust's standard library to itself, so the
/// hook is not that of a program in Rust.
#[cfg(not(test))]
extern "C" fn constructor() {
    std::panic::set_hook(Box::new(|_| ()));
}
