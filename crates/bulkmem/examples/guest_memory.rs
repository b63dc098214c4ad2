//! Works on memory that another thread writes meanwhile, as a guest's processors do, through the raw forms.
//!
//! A `&mut [u8]` would promise the compiler that nobody else touches the bytes; for a guest's memory that is a lie,
//! and so are the safe forms. The raw forms take pointers and promise nothing.
//!
//! `cargo run --release -p bulkmem --example guest_memory`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bulkmem::{Mapping, Options, Pages};

const SIZE: usize = 64 << 20;
/// The guest counts in its first 8 bytes.
const COUNTER: usize = 8;

/// The address of a guest's memory; whoever has it may read and write there.
#[derive(Clone, Copy)]
struct Guest(*mut u8);

// SAFETY: an address; it is used through atomics and the raw forms only.
unsafe impl Send for Guest {}

impl Guest {
    fn counter(&self) -> &AtomicU64 {
        // SAFETY: the first 8 bytes of the region, which outlives all use, aligned to a page and used as this only.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut region = Mapping::new(SIZE, Pages::Transparent)?;
    region.prefault()?;
    let guest = Guest(region.as_mut_ptr());
    let stop = AtomicBool::new(false);

    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                guest.counter().fetch_add(1, Ordering::Relaxed);
            }
        });

        let bulk = Options::new().total_len(SIZE);
        let rest = SIZE - COUNTER;
        let mut snapshot = vec![0_u8; rest];
        // SAFETY: the region is mapped and writable for the whole time; the guest does not write past its counter, and
        // if it did, the bytes would be a mixture and nothing worse. The snapshot is this thread's own.
        unsafe {
            bulk.fill_raw(guest.0.add(COUNTER), rest, 0xA5);
            bulk.copy_raw(snapshot.as_mut_ptr(), guest.0.add(COUNTER), rest);
            // A balloon's pages move within the guest: overlapping ranges are copied as by memmove.
            bulk.copy_raw(guest.0.add(4096), guest.0.add(8192), 1 << 20);
            bulk.clear_raw(guest.0.add(COUNTER), rest);
        }
        assert!(snapshot.iter().all(|&byte| byte == 0xA5));
        stop.store(true, Ordering::Relaxed);
    });

    println!("the guest counted to {} meanwhile", guest.counter().load(Ordering::Relaxed));
    assert!(region[COUNTER..].iter().all(|&byte| byte == 0));
    Ok(())
}
