//! What only x86-64 needs: an emulator, a tracer, and a reader of compiled code.

pub mod calls;
pub mod emulate;
pub mod flow;
pub mod image;
pub mod instruction;
pub mod memory;
pub mod trace;
