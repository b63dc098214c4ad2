//! The options of an operation, as C passes them.

use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, offset_of};
use std::num::NonZeroUsize;
use std::ptr;

use bulkmem::machine;
use bulkmem::policy::{Choice, PolicyError};
use bulkmem::{Durability, Operation, Threads};

use crate::error::{Causes, Error, Failed, SOME, fail};
use crate::numbers::{intent, unknown_value};
use crate::policy::Policy;
use crate::workers::Workers;

/// Flag: the operation may leave the fence to a later bulkmem_fence() of the same thread. Until then, other threads may
/// see later stores of the thread before those of the operation, and the bytes are not durable.
pub const BULKMEM_NO_FENCE: u64 = 1;
/// Flag: do not look at the cache state of the memory. The same arguments always lead to the same method.
pub const BULKMEM_NO_LOOK: u64 = 2;
/// Flag: use as many threads as saturate memory, if the length of the call is worth starting them.
pub const BULKMEM_AUTO_THREADS: u64 = 4;
/// Flag: if the operation looks at the cache state and finds that the pages of the memory are not mapped yet, have the kernel map
/// many of them by one system call, madvise(), instead of one page fault for each.
pub const BULKMEM_POPULATE: u64 = 8;

/// All flags that this version knows.
const FLAGS: u64 = BULKMEM_NO_FENCE | BULKMEM_NO_LOOK | BULKMEM_AUTO_THREADS | BULKMEM_POPULATE;

/// Options of an operation. Initialize them with BULKMEM_OPTIONS_INIT, or set all bytes to 0 and then `size`. A member
/// that is 0 has its default.
#[repr(C)]
#[derive(Debug)]
pub struct COptions {
    /// sizeof(struct bulkmem_options). Later versions of the library add members at the end. A library that does not know
    /// a member accepts it if it is 0.
    pub size: usize,
    /// BULKMEM_NO_FENCE, BULKMEM_NO_LOOK, BULKMEM_AUTO_THREADS, BULKMEM_POPULATE.
    pub flags: u64,
    /// An enum bulkmem_intent.
    pub intent: u32,
    /// An enum bulkmem_durability. Only operations that persist use it.
    pub durability: u32,
    /// Length in bytes of the whole job that the call is part of, if that is longer than the call.
    pub total_len: usize,
    /// Threads that the call may use, with the calling one, but at most one for each whole page. 0 is one thread, or all
    /// workers if there are some. Without workers, the call starts the threads, and they end before it returns.
    pub threads: usize,
    /// Threads that are kept for many calls; see bulkmem_workers_new.
    pub workers: *const Workers,
    /// Method to use instead of the one that the policy chooses: "rep_movsb", or with tunables
    /// "write_prefetch_avx[write_distance=512]". `bulkmem methods` lists them. For tests and experiments.
    pub method: *const c_char,
    /// Policy to use instead of the one of the process; see bulkmem_policy_load.
    pub policy: *const Policy,
}

/// Structs of a later version that are longer than this are not structs of this library.
const LONGEST: usize = 4096;

/// Options that have been checked.
#[derive(Debug)]
pub(crate) struct Checked<'w> {
    pub(crate) options: bulkmem::Options<'w>,
    /// True if the caller issues the fence.
    pub(crate) unfenced: bool,
}

impl Checked<'_> {
    /// Reads the options of a call. A null pointer stands for the default ones.
    ///
    /// # Errors
    /// [`Error::Argument`], [`Error::Method`], [`Error::Policy`].
    ///
    /// # Safety
    /// `given` is null, or points to as many readable bytes as its `size` says, and the workers, the method and the
    /// policy in it are null or valid.
    pub(crate) unsafe fn read<'w>(
        given: *const COptions,
        operation: Operation,
    ) -> Result<Checked<'w>, Failed> {
        let options = bulkmem::Options::new();
        if given.is_null() {
            return Ok(Checked { options, unfenced: false });
        }
        // SAFETY: passed on from the caller.
        let given = unsafe { read_known(given, &OLDER, "BULKMEM_OPTIONS_INIT")? };
        let unknown = given.flags & !FLAGS;
        if unknown != 0 {
            return Err(fail(Error::Argument, format_args!("unknown flags {unknown:#x} in the options")));
        }
        let options = options.intent(intent(given.intent)?).total_len(given.total_len);
        let options = options.look(given.flags & BULKMEM_NO_LOOK == 0);
        let options = options.populate(given.flags & BULKMEM_POPULATE != 0);
        let options = match given.durability {
            0 => options,
            1 => options.durability(Durability::FlushToMemory),
            2 => options.durability(Durability::CachesIncluded),
            other => return Err(unknown_value("durability", other)),
        };
        // SAFETY: passed on from the caller.
        let workers = unsafe { given.workers.as_ref() };
        let options = match threads(&given)? {
            // If memory has run out, the calling thread does everything.
            threads if (threads.is_some() || workers.is_some()) && !bulkmem_reserve::system_has(SOME) => {
                options
            }
            threads => {
                let options = workers.map_or(options, |workers| options.workers(workers.get()));
                threads.map_or(options, |threads| options.threads(threads))
            }
        };
        // SAFETY: passed on from the caller.
        let options = match unsafe { given.policy.as_ref() } {
            Some(policy) => policy.apply(options)?,
            None => options,
        };
        let options = if given.method.is_null() {
            options
        } else {
            // SAFETY: passed on from the caller: a string that ends with a 0.
            let method = unsafe { CStr::from_ptr(given.method) };
            let choice = method.to_str().map_err(|error| unusable(&error))?;
            let choice =
                Choice::parse(choice, operation, machine::features()).map_err(|error| match error {
                    // Its text is about a list of methods for operations.
                    PolicyError::Grammar { given } => fail(
                        Error::Method,
                        format_args!(
                            "the method in the options: `{given}` is not of the form method or method[tunable=value,…]"
                        ),
                    ),
                    error => unusable(&error),
                })?;
            options.method(operation, choice).map_err(|error| unusable(&error))?
        };
        Ok(Checked { options, unfenced: given.flags & BULKMEM_NO_FENCE != 0 })
    }
}

/// The sizes of the options of older programs: `policy` came later.
const OLDER: [usize; 1] = [offset_of!(COptions, policy)];

/// Copies the members that both the program and this version know, and checks that the program's others are 0. Those that only
/// this version knows are 0. `older` are the sizes of older versions, `remedy` is the macro that initializes the struct.
///
/// # Safety
/// `given` points to as many readable bytes as its `size` says. `T` starts with a `usize`, and every bit pattern is valid.
pub(crate) unsafe fn read_known<T>(given: *const T, older: &[usize], remedy: &str) -> Result<T, Failed> {
    let known = size_of::<T>();
    // SAFETY: passed on from the caller.
    let size = unsafe { size(given.cast(), known, older, "options", remedy)? };
    // SAFETY: the range is within the size.
    let is_zero = |at| unsafe { given.cast::<u8>().add(at).read() } == 0;
    if !(known..size).all(is_zero) {
        let text =
            format_args!("the options have members of a later version of the library, which are not 0");
        return Err(fail(Error::Argument, text));
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: the given options have that size, and the copy at least that; every bit pattern is valid.
    unsafe {
        given.cast::<u8>().copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(known));
        Ok(options.assume_init())
    }
}

/// The size that a struct starts with: the one that this version knows, that of an older version, or more.
///
/// # Safety
/// `given` points to a `size_t`.
pub(crate) unsafe fn size(
    given: *const usize,
    known: usize,
    older: &[usize],
    name: &str,
    remedy: &str,
) -> Result<usize, Failed> {
    // SAFETY: passed on from the caller.
    let size = unsafe { ptr::read_unaligned(given) };
    if older.contains(&size) || (known..=LONGEST).contains(&size) {
        return Ok(size);
    }
    Err(fail(Error::Argument, format_args!("the {name} have a size of {size}: use {remedy}")))
}

/// The threads that a call may use; `None` if the options do not say.
fn threads(given: &COptions) -> Result<Option<Threads>, Failed> {
    match (given.flags & BULKMEM_AUTO_THREADS != 0, NonZeroUsize::new(given.threads)) {
        (true, Some(_)) => Err(fail(
            Error::Argument,
            format_args!("the options have a number of threads and BULKMEM_AUTO_THREADS: use one of them"),
        )),
        (true, None) => Ok(Some(Threads::Auto)),
        (false, Some(NonZeroUsize::MIN)) => Ok(Some(Threads::One)),
        (false, number) => Ok(number.map(Threads::Exactly)),
    }
}

fn unusable(why: &dyn std::error::Error) -> Failed {
    fail(Error::Method, format_args!("the method in the options: {}", Causes(why)))
}
