//! Compares clears that look at the cache state with the C library's, if what happens between the calls has evicted their code from
//! the caches.
//!
//! Prints the times of calls on cached memory, microseconds: medians and quartiles, interleaved. Before each call, it writes to so
//! many MiB of other memory, then to the memory of the call.
//!
//! `cargo run --release -p bulkmem --example cold_code`

use std::error::Error;
use std::time::Instant;

use bulkmem::policy::{Choice, Policy};
use bulkmem::{Mapping, Operation, Options, Pages, look, method};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LENGTHS: [usize; 4] = [64 * KIB, 256 * KIB, MIB, 7 * MIB / 2];
const BETWEEN: [usize; 3] = [0, 16 * MIB, 64 * MIB];
const CALLS: usize = 201;

/// Writes to each line.
fn touch(memory: &mut [u8]) {
    for line in memory.chunks_mut(64) {
        line[0] = line[0].wrapping_add(1);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if Policy::global().look(Operation::Clear).is_none() || !look::is_on() {
        return Err(
            "clears do not look by the policy of this machine, or none was measured: run `bulkmem calibrate`"
                .into(),
        );
    }
    let c_library =
        Options::new().method(Operation::Clear, Choice::of(method::c_library(), Operation::Clear))?;
    println!(
        "length, KiB   between, MiB   memset: µs (quartiles)   with a look: µs (quartiles)   difference"
    );
    for length in LENGTHS {
        let mut memory = Mapping::new(length, Pages::Transparent)?;
        for between in BETWEEN {
            let mut other = Mapping::new(between.max(1), Pages::Transparent)?;
            let mut times = [Vec::new(), Vec::new()];
            for call in 0..2 * CALLS {
                touch(&mut other[..between]);
                // Twice, so that all of it is cached.
                touch(&mut memory);
                touch(&mut memory);
                let options = [c_library, Options::new()][call % 2];
                let start = Instant::now();
                options.clear(&mut memory);
                times[call % 2].push(start.elapsed().as_secs_f64() * 1e6);
            }
            let [without, with] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                [CALLS / 4, CALLS / 2, CALLS * 3 / 4].map(|at| times[at])
            });
            let text = |[low, middle, high]: [f64; 3]| format!("{middle:.2} ({low:.2}–{high:.2})");
            let (length, between) = (length / KIB, between / MIB);
            let difference = with[1] - without[1];
            println!(
                "{length:11}   {between:12}   {:>22}   {:>27}   {difference:10.2}",
                text(without),
                text(with)
            );
        }
    }
    Ok(())
}
