//! Makes its first call in `.preinit_array`, which runs before every constructor and before the C library knows the
//! environment. Later calls must use the environment.

use std::process::ExitCode;

/// The dynamic linker calls every function in this section before the constructors.
#[used]
#[unsafe(link_section = ".preinit_array")]
static EARLY: extern "C" fn() = early;

extern "C" fn early() {
    let mut memory = [1; 5000];
    bulkmem::clear(&mut memory);
    if memory.iter().any(|byte| *byte != 0) {
        // Printing is not possible here.
        std::process::abort();
    }
}

fn main() -> ExitCode {
    if let Err(error) = bulkmem::init() {
        println!("{error}");
        return ExitCode::FAILURE;
    }
    for (operation, choice) in &bulkmem::policy::Policy::global().origin().forced {
        println!("{operation}:{choice}");
    }
    ExitCode::SUCCESS
}
