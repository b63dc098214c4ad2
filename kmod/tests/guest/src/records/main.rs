//! Writes records that are durable before they are acknowledged, and checks after a restart that they are there.
//!
//! `kmod/tests/pmem.sh` kills the machine meanwhile.

use std::process::ExitCode;

mod flushed;
#[path = "../pmem/map.rs"]
mod map;
mod program;
mod record;
#[path = "../pmem/rows.rs"]
mod rows;

fn main() -> ExitCode {
    program::run(&flushed::Flushed::new())
}
