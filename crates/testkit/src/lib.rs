//! What tests share: guard pages, an oracle, a walk over every method, a profile, and (x86-64) an emulator for instructions
//! that this processor lacks, a tracer, and a reader of compiled code.
//!
//! Everything walks [`bulkmem::method::all`]: a new row of the table is a new test.

pub mod case;
pub mod guard;
pub mod harness;
pub mod oracle;
pub mod profile;
pub mod walk;

#[cfg(target_arch = "x86_64")]
pub mod x86_64;
