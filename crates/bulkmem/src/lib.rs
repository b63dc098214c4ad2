//! Clears, fills, copies and persists large memory at the limit of the machine, and leaves the cache
//! alone when that is better.
//!
//! ```
//! use bulkmem::{Options, Intent};
//!
//! let mut memory = vec![1; 8 << 20];
//! let source = vec![7; 8 << 20];
//! bulkmem::clear(&mut memory); // by the method that this machine does it fastest with
//! bulkmem::copy(&mut memory, &source)?;
//! bulkmem::copy_persist(&mut memory[..4096], &source[..4096])?; // durable when it returns
//!
//! let bulk = Options::new().total_len(memory.len()).intent(Intent::Stream); // one large clear, not read soon,
//! memory.chunks_mut(2 << 20).for_each(|chunk| bulk.clear(chunk)); // in small calls
//! # assert!(memory.iter().all(|&byte| byte == 0));
//! # Ok::<(), bulkmem::Error>(())
//! ```
//!
//! | to | see |
//! |---|---|
//! | clear, fill, copy, persist, flush | [`clear`], [`fill`], [`copy`], [`persist`], [`flush`] |
//! | say how much there is in all, what comes next, how many threads may work | [`Options`] |
//! | fence once after many operations | [`fence_scope`] |
//! | work on memory that others write meanwhile | [`Options::clear_raw`], [`Options::copy_raw`] and the like |
//! | take huge pages from the operating system | [`Mapping`] |
//! | have the kernel clear huge pages as this library would, or take memory of another cache attribute | [`kernel`] |
//! | know which method is chosen, and why | [`policy`] |
//! | load the policy at a moment of your choice | [`init`] |
//! | know every method there is | [`method`] |
//!
//! ```text
//! caller ──▶ operation (clear, copy, persist) ──▶ policy ──▶ method ──▶ memory
//!                                                   ▲
//! machine (features, caches, pages) ──▶ measure ──▶ profile
//! ```
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `BULKMEM_METHOD` | forces methods: `clear:movnti,copy:rep_movsb`; see [`policy::Policy::force`] |
//! | `BULKMEM_PROFILE` | the policy file to use, instead of the user's or the system's |
//!
//! The library reads them once, when the program is loaded; a later `setenv` has no effect. A process with more rights
//! than its caller (set-user-ID and the like) ignores them, and `HOME` and `XDG_CONFIG_HOME` too. A value that cannot be
//! followed changes nothing: [`init`] and [`policy::problems`] report it. The library itself prints nothing.
//!
//! # First use
//!
//! The first operation loads the policy: it executes CPUID, reads a file of a few kilobytes if there is one, and takes
//! some 50 to 150 µs. [`init`] does so at a moment of your choice. Operations never wait for it: one that runs in another
//! thread, in a signal handler that interrupted it, or in the child of a fork at that moment uses a built-in method (REP
//! STOSB and REP MOVSB on x86-64). So clear, fill, copy, persist and flush on one thread are async-signal-safe, and can be
//! used in a memory allocator or in a replacement of `memset` itself.
//!
//! # What to rely on
//!
//! - Every function that gives plain bytes back has fenced.
//! - No thread is made unless [`Options::threads`] asks for it, and none outlives the call. Such a thread blocks every
//!   signal but those of its own faults, so that the program's handlers run on the program's threads.
//! - Instructions are used only where the processor has them and the operating system has enabled them; safe code
//!   cannot make it otherwise.
//! - Operations on one thread allocate nothing, take no lock, keep `errno`, and make no system call except in the first
//!   call of a process. Starting threads allocates.
//! - The compiler does not remove a [`clear`] because the program never reads the memory again. Copies of a secret in
//!   registers, on the stack or in swap space are another matter.

#[cfg(doctest)]
mod book;
mod built_in;
mod c_functions;
mod durability;
mod error;
mod load_time;
pub mod machine;
#[cfg(target_os = "linux")]
mod mapping;
pub mod method;
mod operation;
mod operations;
mod options;
mod plan;
pub mod policy;
pub mod raw_memory;
mod short_calls;
mod signals;
mod text;
mod threads;
mod unfenced;

pub use durability::Durability;
pub use error::Error;
#[cfg(target_os = "linux")]
pub use mapping::{Mapping, MappingError, Pages};
pub use operation::{Intent, Operation, UnknownName};
pub use operations::{clear, clear_persist, copy, copy_persist, fill, fill_persist, persist};
pub use options::Options;
pub use threads::Threads;
pub use unfenced::{FenceScope, Unfenced, fence_scope};

/// Loads the policy now instead of at the first operation, and reports what of the environment cannot be followed.
///
/// Calling it is optional. After it has returned, operations on one thread make no system call, so a program can install
/// a seccomp filter. Unlike operations, it may allocate and wait, so do not call it in a signal handler or an allocator.
///
/// # Errors
/// If `BULKMEM_PROFILE` or `BULKMEM_METHOD` cannot be followed. The library is ready nevertheless: it
/// uses what it could follow, and the defaults for the rest.
pub fn init() -> Result<(), policy::PolicyError> {
    policy::init()
}
