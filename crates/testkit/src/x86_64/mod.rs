//! Test code for x86-64: an emulator, a tracer, and a reader of compiled code.

pub mod calls;
pub mod emulate;
pub mod flow;
pub mod instruction;
pub mod store_tracker;
pub mod trace;
