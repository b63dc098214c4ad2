//! Clears a virtual machine's memory before it goes to another guest, in chunks of 2 MiB as page faults bring them.
//!
//! Each chunk would fit in the cache and be cleared through it, but all of them together do not: `total_len` says so.
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
    if let Some(alone) = alone {
        println!("method for a chunk alone: {alone}");
    }

    let options = Options::new().total_len(memory.len()).intent(Intent::Stream);
    let part = Policy::global().choose_part(Operation::Clear, CHUNK, memory.len(), Intent::Stream);
    let start = Instant::now();
    for chunk in memory.chunks_mut(CHUNK) {
        options.clear(chunk);
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(memory.iter().all(|&byte| byte == 0));

    let rate = memory.len() as f64 / seconds / 1e9;
    let pages = memory.backing_page_size()?;
    println!("{mebibytes} MiB in pages of {pages} bytes: {rate:.1} GB/s");
    if let Some(part) = part {
        println!("method for a chunk of them: {part}");
    }

    // The guest touches one part of the page next: clear that part last, into the cache.
    let hot = 0x4_2000..0x4_3000;
    options.clear_hot(&mut memory[..CHUNK.min(mebibytes << 20)], hot)?;
    Ok(())
}
