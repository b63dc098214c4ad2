//! The Linux module `bulkmem` from user space: huge-page clearing and copies, hints, and memory with a chosen cache attribute.
//!
//! While the module is loaded, it clears the huge pages of page faults by the method that its parameters name. This crate
//! talks to it:
//!
//! | to | use |
//! |---|---|
//! | read its state, parameters and counters | [`Module::status`], [`Status::prometheus`] |
//! | set its parameters, all or none | [`Module::set`] with [`Settings`] |
//! | derive its parameters from a policy that was measured | [`Plan::derive`] |
//! | keep its parameters for later loads | [`Settings::save`] |
//! | declare memory that is about to be faulted in as one large range | [`BulkHint`], [`prefault_hinted`] |
//! | hint a whole process, and a program that it executes | [`hint_process`] |
//! | hint the processes of a control group | [`hint_cgroup`], [`unhint_cgroup`] |
//! | allocate memory with a cache attribute from `/dev/bulkmem-memory` | [`DeviceMemory`] |
//!
//! The crate `bulkmem` does not need the module and never opens its devices. `bulkmem kmod apply` and `bulkmem kmod status`
//! are the same functions on the command line.
//!
//! ```
//! use bulkmem::{Mapping, Pages};
//! use bulkmem_kmod::BulkHint;
//!
//! let mut mapping = Mapping::new(8 << 20, Pages::Transparent)?;
//! match BulkHint::of(&mapping) {
//!     // While the hint lives, the kernel clears each huge page of the mapping as a part of 8 MiB.
//!     Ok(_hint) => mapping.prefault()?,
//!     Err(error) => {
//!         println!("{error}");
//!         mapping.prefault()?;
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A process can hint only for its own address space, or with [`hint_process`] for itself and the processes that it starts.

#[cfg(doctest)]
mod doctests;

mod abi;
mod copies;
mod device;
mod error;
mod flushcache;
mod hint;
mod memory;
mod module;
mod plan;
mod prometheus;
mod settings;
mod status;

pub use abi::{Attribute, UnknownAttribute};
pub use copies::{CopyCounters, CopyMethodCounters};
pub use device::{HINT_PATH, MEMORY_PATH};
pub use error::KernelError;
pub use flushcache::{Flushcache, FlushcacheCounters};
pub use hint::{BulkHint, hint_cgroup, hint_process, prefault_hinted, unhint_cgroup};
pub use memory::{DeviceMemory, MemoryOptions};
pub use module::{Module, PreviousValues};
pub use plan::{ClearTime, Plan, PlanError, Reason};
pub use settings::{CopyMethod, Method, Settings, UnknownMethod};
pub use status::{Counters, DeviceState, HintedCgroup, Livepatch, MethodCounters, Status};
