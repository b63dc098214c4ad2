//! Clears, fills, copies and persists large memory at the limit of the machine, and leaves the cache alone when that is
//! better.
//!
//! ```
//! use bulkmem::{Intent, Options};
//!
//! let mut memory = vec![1; 8 << 20];
//! let source = vec![7; 8 << 20];
//! bulkmem::clear(&mut memory); // by the fastest method on this machine
//! bulkmem::copy(&mut memory, &source)?;
//! bulkmem::copy_persist(&mut memory[..4096], &source[..4096])?; // durable when it returns
//!
//! // One large clear in small calls, not read soon.
//! let options = Options::new().total_len(memory.len()).intent(Intent::Stream);
//! memory.chunks_mut(2 << 20).for_each(|chunk| options.clear(chunk));
//! # assert!(memory.iter().all(|&byte| byte == 0));
//! # Ok::<(), bulkmem::Error>(())
//! ```
//!
//! | task | items |
//! |---|---|
//! | clear, fill, copy | [`clear`], [`fill`], [`copy`] |
//! | make memory durable | [`copy_persist`], [`fill_persist`], [`clear_persist`], [`persist`] |
//! | state the total length, the intent, the number of threads | [`Options`] |
//! | keep threads ready for many calls | [`Workers`] |
//! | fence once after many operations | [`fence_scope`] |
//! | work on memory that others access concurrently | [`raw_memory`] |
//! | work on pointers, as `memset` and `memcpy` do | [`pointers`] |
//! | map huge pages | [`Mapping`] |
//! | see which method is chosen, and why | [`policy`] |
//! | load the policy at a time of your choice | [`init`] |
//! | list all methods | [`mod@method`] |
//!
//! ```text
//! caller ──▶ operation (clear, copy, …) ──▶ policy ──▶ method ──▶ memory
//!                                             ▲
//!   machine (features, caches, pages) ──▶ `bulkmem calibrate` ──▶ policy file
//! ```
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `BULKMEM_METHOD` | forces methods: `clear:movnti,copy:rep_movsb`; see [`policy::Policy::force`] |
//! | `BULKMEM_PROFILE` | path of the policy file to use instead of the user's or the system's |
//!
//! The library reads them once, when the program is loaded; a later `setenv` has no effect. A process with more rights
//! than its caller (set-user-ID and the like) ignores them, and `HOME` and `XDG_CONFIG_HOME` too. An invalid value
//! changes nothing. [`init`] and [`policy::problems`] return such problems, and the [`log`] facade receives them as
//! warnings. The library prints nothing.
//!
//! # First use
//!
//! The first operation loads the policy: it executes CPUID, reads a file of a few kilobytes if there is one, and takes
//! about 50 to 150 µs. [`init`] does the same at a time of your choice. Operations never wait for the policy: one that
//! runs at that moment in another thread, in a signal handler that interrupted the first, or in the child of a fork
//! uses a built-in method (REP STOSB and REP MOVSB on x86-64). So operations on one thread are async-signal-safe, and
//! can be used in a memory allocator or in a replacement of `memset` itself.
//!
//! # Guarantees
//!
//! - When an operation returns, its stores are ordered before all later stores of the thread. Only in a [`fence_scope`]
//!   is that left to [`Unfenced::fence`] and to the end of the scope.
//! - The library starts threads only if [`Options::threads`] requests it, and none outlives the call; or if you create
//!   [`Workers`], and none outlives them. They block every signal except those of their own faults, so that the program's
//!   signal handlers run on the program's threads.
//! - An instruction is used only if the processor has it and the operating system has enabled it. Safe code cannot
//!   circumvent that.
//! - Operations on one thread do not allocate, take no lock, keep `errno`, and make no system call except in the first
//!   call of a process, and with [`Options::populate`]. Starting threads allocates.
//! - The compiler does not remove a [`clear`] of memory that the program never reads again. Copies of a secret in
//!   registers, on the stack or in swap space are not cleared.
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `serde` | implements `Serialize` and `Deserialize` for operations, choices and descriptions of machines |
//! | `schemars` | implements `JsonSchema` for the same types |
//! | `unstable-internals` | for bulkmem's own measuring crate and tests: exposes the functions behind the method table, and makes types that may grow exhaustive; not covered by semantic versioning |

mod built_in;
mod bypassed;
mod c_functions;
mod carried;
#[cfg(feature = "unstable-internals")]
pub mod clock;
#[cfg(not(feature = "unstable-internals"))]
mod clock;
#[cfg(doctest)]
mod doctests;
mod durability;
mod errno;
mod error;
mod kernel;
mod load_time;
pub mod look;
mod look_switch;
mod looking;
pub mod machine;
#[cfg(target_os = "linux")]
mod mapping;
pub mod method;
mod once;
mod operation;
mod operations;
mod options;
mod plan;
pub mod pointers;
pub mod policy;
mod populate;
#[cfg(feature = "unstable-internals")]
pub mod probe;
#[cfg(not(feature = "unstable-internals"))]
mod probe;
pub mod raw_memory;
mod short_calls;
mod signals;
mod text;
mod threads;
mod unfenced;
mod volatile;
mod workers;

#[cfg(feature = "unstable-internals")]
pub use carried::forget_verdicts;
pub use durability::Durability;
pub use error::Error;
#[cfg(target_os = "linux")]
pub use mapping::{Mapping, MappingError, Pages};
pub use operation::{Intent, Operation, UnknownName};
pub use operations::{clear, clear_persist, copy, copy_persist, fill, fill_persist, persist};
pub use options::Options;
#[doc(hidden)]
pub use signals::without_signals;
pub use threads::Threads;
pub use unfenced::{FenceScope, Unfenced, fence_scope};
pub use workers::Workers;

/// Loads the policy now instead of at the first operation, and reports problems with the environment variables.
///
/// Calling it is optional. After it has returned, operations on one thread make no system call, but for those with
/// [`Options::populate`], so a program can install a seccomp filter. Unlike operations, it may allocate and wait, so do not
/// call it in a signal handler or an allocator.
///
/// # Errors
/// If `BULKMEM_PROFILE` or `BULKMEM_METHOD` has an invalid value. The library is ready nevertheless: it uses the valid
/// ones, and the defaults for the rest. [`policy::problems`] returns all problems.
pub fn init() -> Result<(), policy::PolicyError> {
    policy::init()
}
