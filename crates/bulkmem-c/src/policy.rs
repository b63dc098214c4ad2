//! Policies that a program loads.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bulkmem::Options;
use bulkmem::machine::Machine;
use bulkmem::policy;

use crate::error::{
    Causes, Error, FOR_A_POLICY, Failed, check_memory, fail, keeping_errno, outcome, slow_outcome,
};
use crate::{numbers, range, text};

/// Selects the method of an operation by its length. Several threads can use the same policy.
#[derive(Debug)]
pub struct Policy(policy::Policy);

impl Policy {
    pub(crate) fn apply<'p>(&'p self, options: Options<'p>) -> Result<Options<'p>, Failed> {
        options.policy(&self.0).map_err(|error| fail(Error::Policy, format_args!("{error}")))
    }
}

/// Loads a policy file, and stores the policy in `*policy`, for the member of that name of options. Environment variables do
/// not change it, and what the file says about durability counts. Fails with BULKMEM_ERROR_POLICY if the file cannot be
/// used.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_policy_load(path: *const c_char, policy: *mut *mut Policy) -> c_int {
    slow_outcome(|| {
        range::not_null(path, "path")?;
        // SAFETY: not null; the caller vouches for a string that ends with a 0.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let load = || {
            policy::Policy::from_file(path).map_err(|error| {
                fail(Error::Policy, format_args!("the policy file cannot be used: {error} ({path:?})"))
            })
        };
        // SAFETY: passed on from the caller.
        unsafe { store(policy, load) }
    })
}

/// Stores in `*policy` the defaults for this machine, which operations use if there is no policy file.
///
/// Not async-signal-safe.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_policy_defaults(policy: *mut *mut Policy) -> c_int {
    // SAFETY: passed on from the caller.
    slow_outcome(|| unsafe { store(policy, || Ok(policy::Policy::defaults(Machine::current()))) })
}

/// Forces methods for every length and intent: "clear:movnti,copy:rep_movsb", as BULKMEM_METHOD does. Fails with
/// BULKMEM_ERROR_METHOD and changes nothing if one cannot be used.
///
/// Not async-signal-safe. No other thread may use the policy during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_policy_force(policy: *mut Policy, methods: *const c_char) -> c_int {
    slow_outcome(|| {
        range::not_null(policy, "policy")?;
        range::not_null(methods, "methods")?;
        check_memory(FOR_A_POLICY)?;
        let unusable = |why: &dyn std::error::Error| {
            fail(Error::Method, format_args!("methods to force: {}", Causes(why)))
        };
        // SAFETY: not null; the caller vouches for a string that ends with a 0.
        let methods = unsafe { CStr::from_ptr(methods) }.to_str().map_err(|error| unusable(&error))?;
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { &mut (*policy).0 }.force(methods).map_err(|error| unusable(&error))
    })
}

/// Writes the method that a policy chooses for an operation (an enum bulkmem_operation), a total length in bytes and an enum
/// bulkmem_intent to `text`, for example "write_prefetch_avx[write_distance=4096]". A null pointer stands for the policy of
/// the process. Looks at the cache state may lead to another method. Writes at most `size` bytes, with a 0 at the end, and
/// returns the length of the whole text, as snprintf does.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_policy_choose(
    policy: *const Policy,
    operation: u32,
    length: usize,
    intent: u32,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let choose = || {
        let (operation, intent) = (numbers::operation(operation)?, numbers::intent(intent)?);
        check_memory(FOR_A_POLICY)?;
        // SAFETY: the caller vouches for a null pointer or a policy.
        let policy = unsafe { policy.as_ref() }.map_or_else(policy::Policy::global, |policy| &policy.0);
        let choice = policy.choose(operation, length, intent);
        let choice = choice.ok_or_else(|| {
            fail(Error::NotDurable, format_args!("this machine has no method for {operation}"))
        })?;
        Ok(choice.to_string())
    };
    // SAFETY: passed on from the caller.
    unsafe { text::outcome(text, size, choose) }
}

/// Releases a policy. No call may use it any more. `policy` may be a null pointer.
///
/// Not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkmem_policy_free(policy: *mut Policy) {
    if !policy.is_null() {
        // SAFETY: the caller vouches for the origin, and does not use it again.
        let policy = unsafe { Box::from_raw(policy) };
        keeping_errno(|| {
            outcome(|| {
                drop(policy);
                Ok(())
            })
        });
    }
}

/// # Safety
/// `place` is null or writable.
unsafe fn store(
    place: *mut *mut Policy,
    load: impl FnOnce() -> Result<policy::Policy, Failed>,
) -> Result<(), Failed> {
    range::not_null(place, "policy")?;
    check_memory(FOR_A_POLICY)?;
    let policy = Box::new(Policy(load()?));
    // Starts looks now, which takes a system call, and not in the first operation.
    policy.apply(Options::new())?;
    // SAFETY: not null; passed on from the caller.
    unsafe { place.write(Box::into_raw(policy)) };
    Ok(())
}
