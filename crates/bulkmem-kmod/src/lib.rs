//! The Linux module `bulkmem`: what the kernel clears huge pages with, and memory of a chosen cache attribute.
//!
//! Loaded, the module clears the huge pages of page faults by the method that it is told; [`Module`] reads and sets that,
//! and `bulkmem kmod apply` derives it from a profile. `/dev/bulkmem` takes hints ([`BulkHint`]) and gives memory ([`DeviceMemory`]).
//! Everything else in this library works the same with the module and without it, and without it nothing here costs
//! anything: no call opens the device unasked.
//!
//! ```
//! use bulkmem_kmod::{BulkHint, KernelError};
//! use bulkmem::{Pages, Mapping};
//!
//! let mut region = Mapping::new(8 << 20, Pages::Transparent)?;
//! match BulkHint::of(&region) {
//!     // The kernel clears every huge page of it as a part of 8 MiB, for as long as the hint lives.
//!     Ok(_hint) => region.prefault()?,
//!     Err(error @ (KernelError::NotLoaded { .. } | KernelError::Denied { .. })) => {
//!         println!("{error}");
//!         region.prefault()?;
//!     }
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A process can hint for itself only: a hint is of the address space of whoever gives it, and ends with it.

mod abi;
mod device;
mod error;
mod hint;
mod memory;
mod module;
mod settings;
mod status;

pub use abi::{Attribute, BadAttribute};
pub use device::PATH;
pub use error::KernelError;
pub use hint::BulkHint;
pub use memory::{DeviceMemory, MemoryOptions};
pub use module::{Before, Module};
pub use settings::{Method, Settings, UnknownMethod};
pub use status::{Counters, Done, Livepatch, Status};
