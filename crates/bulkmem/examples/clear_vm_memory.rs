//! Clears a virtual machine's memory before it goes to another guest, in chunks of 2 MiB as page faults bring them.
//!
//! Each chunk alone would fit the cache, and would be cleared through it; the whole never fits. The extent says so.
//!
//! `cargo run --release -p bulkmem --example clear_vm_memory [MiB]`

use std::error::Error;
use std::time::Instant;

use bulkmem::policy::Policy;
use bulkmem::{Intent, Mapping, Operation, Options, Pages};

const CHUNK: usize = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mebibytes: usize = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let mut memory = Mapping::new(mebibytes << 20, Pages::Transparent)?;
    memory.prefault()?;
    bulkmem::fill(&mut memory, 0xA5); // what the last guest left

    let alone = Policy::global().choose(Operation::Clear, CHUNK, Intent::Stream);
    println!("a chunk alone would be cleared by {alone}");

    let bulk = Options::new().total_len(memory.len()).intent(Intent::Stream);
    let part = Policy::global().choose_part(Operation::Clear, CHUNK, memory.len(), Intent::Stream);
    let start = Instant::now();
    for chunk in memory.chunks_mut(CHUNK) {
        bulk.clear(chunk);
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(memory.iter().all(|&byte| byte == 0));

    let rate = memory.len() as f64 / seconds / 1e9;
    let pages = memory.backing_page_size()?;
    println!("{mebibytes} MiB in pages of {pages} bytes, cleared by {part}: {rate:.1} GB/s");

    // A fault brought in a page that the guest touches next at one place: that place last, and into the cache.
    let hot = 0x4_2000..0x4_3000;
    bulk.clear_hot(&mut memory[..CHUNK.min(mebibytes << 20)], hot)?;
    Ok(())
}
