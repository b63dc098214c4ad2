//! Works on memory that another thread writes concurrently, as a guest's processors do.
//!
//! A `&mut [u8]` promises the compiler that no other thread accesses the bytes, which is not true of a guest's memory. Raw
//! operations take pointers instead; see `bulkmem::raw_memory`.
//!
//! `cargo run --release -p bulkmem --example guest_memory`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bulkmem::{Mapping, Options, Pages};

const SIZE: usize = 64 << 20;
/// The guest counts in its first 8 bytes.
const COUNTER: usize = 8;

/// The address of a guest's memory.
#[derive(Clone, Copy)]
struct Guest(*mut u8);

// SAFETY: an address; it is used only through atomics and raw operations.
unsafe impl Send for Guest {}

impl Guest {
    fn counter(&self) -> &AtomicU64 {
        // SAFETY: the first 8 bytes of the mapping, which outlives all use, aligned to a page and used as this only.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut mapping = Mapping::new(SIZE, Pages::Transparent)?;
    mapping.prefault()?;
    let guest = Guest(mapping.as_mut_ptr());
    let stop = AtomicBool::new(false);

    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                guest.counter().fetch_add(1, Ordering::Relaxed);
            }
        });

        let options = Options::new().total_len(SIZE);
        let rest = SIZE - COUNTER;
        let mut snapshot = vec![0_u8; rest];
        // SAFETY: the mapping is writable for the whole time. The guest writes only its counter; if it wrote elsewhere, the
        // copied bytes would be a mixture, which is harmless. No other thread uses the snapshot.
        unsafe {
            options.fill_raw(guest.0.add(COUNTER), rest, 0xA5);
            options.copy_raw(snapshot.as_mut_ptr(), guest.0.add(COUNTER), rest);
            // Ranges may overlap, as for memmove.
            options.copy_raw(guest.0.add(4096), guest.0.add(8192), 1 << 20);
            options.clear_raw(guest.0.add(COUNTER), rest);
        }
        assert!(snapshot.iter().all(|&byte| byte == 0xA5));
        stop.store(true, Ordering::Relaxed);
    });

    println!("concurrently, the guest counted to {}", guest.counter().load(Ordering::Relaxed));
    assert!(mapping[COUNTER..].iter().all(|&byte| byte == 0));
    Ok(())
}
