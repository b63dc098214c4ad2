//! The library as a whole.

use std::ffi::{c_char, c_int};

use crate::error::{Causes, Error, check_memory, fail, slow_outcome};

/// Version of this header.
pub const BULKMEM_VERSION_MAJOR: c_int = 0;
/// Version of this header.
pub const BULKMEM_VERSION_MINOR: c_int = 1;
/// Version of this header.
pub const BULKMEM_VERSION_PATCH: c_int = 0;

/// Returns the version of the library that is in use, for example "0.1.0". The string is static.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Loads the policy now instead of at the first operation. Optional. Afterwards, operations on one thread make no system
/// call. Fails with BULKMEM_ERROR_ENVIRONMENT if BULKMEM_PROFILE or BULKMEM_METHOD has an invalid value; the library is
/// ready nevertheless and uses the defaults instead.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_init() -> c_int {
    slow_outcome(|| {
        check_memory()?;
        bulkmem::init().map_err(|error| fail(Error::Environment, format_args!("{}", Causes(&error))))
    })
}

/// Stops looks at the cache state in this process for good: operations choose by length alone. For programs that forbid
/// themselves the instruction RDTSC.
///
/// Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_stop_looking() {
    bulkmem::look::stop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_crate() {
        let version = format!("{BULKMEM_VERSION_MAJOR}.{BULKMEM_VERSION_MINOR}.{BULKMEM_VERSION_PATCH}");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
