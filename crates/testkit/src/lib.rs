//! Shared test code: guard pages, calls of the public operations, an oracle, the table of methods as test cases, a policy
//! file, huge pages, readers of compiled code and recorders of executed instructions, and for x86-64 an emulator of missing
//! instructions.
//!
//! Tests iterate over [`bulkmem::method::all`], so a new method is tested without a new test.

pub mod archive;
pub mod calls;
pub mod case;
pub mod guard;
pub mod harness;
pub mod huge_pages;
pub mod oracle;
pub mod profile;
pub mod program;
pub mod prometheus;
pub mod state;
pub mod table;

#[cfg(target_arch = "aarch64")]
pub mod aarch64;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub mod breakpoints;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64"))]
pub mod image;
#[cfg(target_arch = "riscv64")]
pub mod riscv64;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub mod step;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub mod store_tracker;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub mod walk;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::store_tracker;
