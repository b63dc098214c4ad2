//! A control: the same program without the flush and the fence, so it acknowledges records that may still be in the cache.
//!
//! It shows whether killing the machine can detect the difference.

use std::error::Error;
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

    fn record(&self, _: u64, to: &mut [u8], from: &[u8]) -> Result<(), Box<dyn Error>> {
        to.copy_from_slice(from);
        Ok(())
    }

    fn count(&self, count: u64, to: &mut [u8]) -> Result<(), Box<dyn Error>> {
        to.copy_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

fn main() -> ExitCode {
    program::run(&mut Unflushed)
}
