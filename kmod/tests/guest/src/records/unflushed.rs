//! The same program with the flush and the fence left out, on purpose: acknowledges what may still be in the cache.
//!
//! It is there to learn what the machine that is killed can tell apart; nothing else may be built like it.

use std::process::ExitCode;

use program::Store;

#[path = "../pmem/map.rs"]
mod map;
mod program;
mod record;

struct Unflushed;

impl Store for Unflushed {
    fn ways(&self) -> Vec<&'static str> {
        vec!["stores, neither flushed nor fenced"]
    }

    fn record(&self, _: u64, to: &mut [u8], from: &[u8]) -> Result<(), bulkmem::Error> {
        to.copy_from_slice(from);
        Ok(())
    }

    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), bulkmem::Error> {
        to.copy_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

fn main() -> ExitCode {
    program::run(&Unflushed)
}
