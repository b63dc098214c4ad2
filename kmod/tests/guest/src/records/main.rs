//! Writes records that are durable before they are acknowledged, and checks after a restart that they are there.
//!
//! `kmod/tests/pmem.sh` kills the machine while this runs.

use std::process::ExitCode;

mod flushed;
#[path = "../pmem/map.rs"]
mod map;
#[path = "../pmem/methods.rs"]
mod methods;
mod program;
mod record;

fn main() -> ExitCode {
    program::run(&mut flushed::Flushed::new())
}
