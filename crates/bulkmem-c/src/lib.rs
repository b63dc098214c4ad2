//! The C interface of bulkmem: `bulkmem.h`, which a test generates from this crate.
//!
//! It checks arguments, translates them, and calls the Rust library; it contains no algorithms. `scripts/link-c.sh` makes
//! the shared and the static library from it.
//!
//! - Every function returns an error instead of crashing where it can recognize a bad argument (`range`, [`options`]).
//! - None unwinds: `error::outcome` catches panics, of which none is known, and `silence` keeps them from printing.
//! - None changes `errno`: `error::keeping_errno`.
//! - The operations without options touch no thread-local memory unless they fail, so that they are async-signal-safe.

#![allow(
    clippy::missing_safety_doc,
    reason = "the documentation is the header's; it says what pointers point to"
)]

pub mod error;
pub mod library;
pub mod looks;
pub mod mapping;
pub mod numbers;
pub mod operations;
pub mod options;
pub mod policy;
pub mod pool;
pub mod prefault;
mod range;
mod silence;
mod text;
pub mod workers;

#[global_allocator]
static ALLOCATOR: bulkmem_reserve::Allocator = bulkmem_reserve::Allocator::new();
