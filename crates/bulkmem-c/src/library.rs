//! The library as a whole.

use std::ffi::{c_char, c_int};

use bulkmem::policy::{self, Policy, PolicyError};

use crate::error::{Causes, Error, FOR_A_POLICY, check_memory, fail, slow_outcome};
use crate::text;

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
/// call. Fails with BULKMEM_ERROR_ENVIRONMENT if BULKMEM_PROFILE, BULKMEM_METHOD or BULKMEM_LOOK has an invalid value; the library
/// is ready nevertheless and uses the defaults instead. bulkmem_problems returns all problems.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn bulkmem_init() -> c_int {
    slow_outcome(|| {
        check_memory(FOR_A_POLICY)?;
        bulkmem::init().map_err(|error| fail(Error::Environment, format_args!("{}", Causes(&error))))
    })
}

/// Writes the problems found while loading the policy to `text`: environment variables with an invalid value, and policy
/// files that were found and not used. Each is a line with the reason and the remedy. Writes at most `size` bytes, with a 0
/// at the end, and returns the length of the whole text, as snprintf does. 0: there are no problems.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_problems(text: *mut c_char, size: usize) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        text::outcome(text, size, || {
            check_memory(FOR_A_POLICY)?;
            let refused = Policy::global().origin().refused.iter();
            let refused =
                refused.map(|file| format!("{} is not used: {}\n", file.path.display(), file.reason));
            let errors = policy::problems().into_iter();
            // Those of a file that a variable names are among the refused ones.
            let errors = errors.filter(|error| !matches!(error, PolicyError::Profile { .. }));
            Ok(refused.chain(errors.map(|error| format!("{}\n", Causes(&error)))).collect())
        })
    }
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
