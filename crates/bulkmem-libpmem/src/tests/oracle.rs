//! Every byte between two guard pages, after every function with every combination of flags, for ranges apart and
//! overlapping in both directions.

use std::ptr::null_mut;

use testkit::guard::Guarded;

use crate::copy::*;
use crate::methods::{Methods, Stores};
use crate::settings::Settings;

/// Lengths around those of words, vectors and lines, and some pages.
const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 15, 63, 64, 65, 130, 255, 1000, 4096, 9001];
const FLAGS: u32 = 1 << 6;

/// Memory whose contents are known before each call.
struct Bench {
    memory: Guarded,
    before: Vec<u8>,
    expected: Vec<u8>,
}

impl Bench {
    fn new(most: usize) -> Bench {
        let memory = Guarded::new(most);
        let before: Vec<u8> = (0..memory.len()).map(|at| (at * 7 + at / 251) as u8).collect();
        Bench { memory, expected: before.clone(), before }
    }

    /// Calls a function, by the start of the memory, and compares every byte with what it had to do.
    fn check(&mut self, case: &str, expect: impl FnOnce(&mut [u8]), call: impl FnOnce(*mut u8)) {
        self.memory.bytes_mut().copy_from_slice(&self.before);
        self.expected.copy_from_slice(&self.before);
        expect(&mut self.expected);
        call(self.memory.as_ptr());
        let differs = self.memory.bytes().iter().zip(&self.expected).position(|(is, should)| is != should);
        assert_eq!(differs, None, "{case}");
    }

    /// Copies between all pairs of places of interest, `copy` by destination, source and length.
    fn copies(&mut self, case: &str, lengths: &[usize], copy: impl Fn(*mut u8, *const u8, usize)) {
        for &length in lengths {
            let distances =
                [0, 1, 3, 8, 63, 64, 65, length / 2, length.saturating_sub(1), length, length + 13];
            for distance in distances {
                let last = self.memory.len() - length - distance;
                // Next to the guard before and to the one after it, in both directions.
                for (low, high) in [(0, distance), (last, last + distance)] {
                    for (to, from) in [(low, high), (high, low)] {
                        let case = format!("{case}: {length} bytes from {from} to {to}");
                        self.check(
                            &case,
                            |bytes| bytes.copy_within(from..from + length, to),
                            |start| copy(start.wrapping_add(to), start.wrapping_add(from), length),
                        );
                    }
                }
            }
        }
    }

    /// Fills next to both guards, `fill` by destination and length, with 0xa5.
    fn fills(&mut self, case: &str, lengths: &[usize], fill: impl Fn(*mut u8, usize)) {
        for &length in lengths {
            let last = self.memory.len() - length;
            for at in [0, 1, 63, last] {
                let at = at.min(last);
                let case = format!("{case}: {length} bytes at {at}");
                self.check(
                    &case,
                    |bytes| bytes[at..at + length].fill(0xa5),
                    |start| fill(start.wrapping_add(at), length),
                );
            }
        }
    }
}

/// The fill byte: only the lowest eight bits count.
const BYTE: i32 = -0x5b;

#[test]
fn every_combination_of_flags() {
    let mut bench = Bench::new(20_000);
    for flags in (0..FLAGS).chain([1 << 6, u32::MAX]) {
        for function in [pmem_memmove, pmem_memcpy] {
            bench.copies(&format!("flags {flags:#b}"), &LENGTHS, |to, from, length| {
                // SAFETY: both ranges are within the memory of the test.
                let returned = unsafe { function(to.cast(), from.cast(), length, flags) };
                assert_eq!(returned, to.cast());
            });
        }
        bench.fills(&format!("flags {flags:#b}"), &LENGTHS, |to, length| {
            // SAFETY: the range is within the memory of the test.
            let returned = unsafe { pmem_memset(to.cast(), BYTE, length, flags) };
            assert_eq!(returned, to.cast());
        });
    }
}

#[test]
fn functions_without_flags() {
    let mut bench = Bench::new(20_000);
    for function in [pmem_memmove_persist, pmem_memcpy_persist, pmem_memmove_nodrain, pmem_memcpy_nodrain] {
        bench.copies("no flags", &LENGTHS, |to, from, length| {
            // SAFETY: both ranges are within the memory of the test.
            assert_eq!(unsafe { function(to.cast(), from.cast(), length) }, to.cast());
        });
    }
    for function in [pmem_memset_persist, pmem_memset_nodrain] {
        bench.fills("no flags", &LENGTHS, |to, length| {
            // SAFETY: the range is within the memory of the test.
            assert_eq!(unsafe { function(to.cast(), BYTE, length) }, to.cast());
        });
    }
}

/// Lengths for which other methods are chosen than for short ones.
#[test]
fn long_ranges() {
    let mut bench = Bench::new(5 << 20);
    let lengths = [(2 << 20) + 77];
    for flags in [0, PMEM_F_MEM_NONTEMPORAL, PMEM_F_MEM_WB, PMEM_F_MEM_NOFLUSH] {
        bench.copies(&format!("flags {flags:#b}"), &lengths, |to, from, length| {
            // SAFETY: both ranges are within the memory of the test.
            unsafe { pmem_memmove(to.cast(), from.cast(), length, flags) };
        });
        bench.fills(&format!("flags {flags:#b}"), &lengths, |to, length| {
            // SAFETY: the range is within the memory of the test.
            unsafe { pmem_memset(to.cast(), BYTE, length, flags) };
        });
    }
}

#[test]
fn every_combination_of_variables() {
    let mut bench = Bench::new(20_000);
    for (name, methods) in all_methods() {
        for stores in [Stores::ByPolicy, Stores::Temporal, Stores::NonTemporal] {
            let case = format!("{name} {stores:?}");
            bench.copies(&case, &[1, 64, 300, 4096], |to, from, length| {
                // SAFETY: both ranges are within the memory of the test.
                unsafe { methods.copy(to, from, length, stores) }
            });
            bench.fills(&case, &[1, 64, 300, 4096], |to, length| {
                // SAFETY: the range is within the memory of the test.
                unsafe { methods.fill(to, 0xa5, length, stores) }
            });
        }
    }
}

/// The methods for every combination of the variables that choose them.
pub(super) fn all_methods() -> impl Iterator<Item = (String, Methods)> {
    (0..32_u32).map(|bits| {
        let bit = |at: u32| bits >> at & 1 == 1;
        let settings = Settings {
            no_clwb: bit(0),
            no_clflushopt: bit(1),
            no_movnt: bit(2),
            movnt_threshold: bit(3).then_some(256),
            ..Settings::default()
        };
        let survive = bit(4);
        (format!("{settings:?}, caches survive: {survive}"), Methods::new(&settings, survive))
    })
}

#[test]
fn no_bytes_at_any_address() {
    for flags in 0..FLAGS {
        // SAFETY: nothing is accessed.
        unsafe {
            assert_eq!(pmem_memmove(null_mut(), null_mut(), 0, flags), null_mut());
            assert_eq!(pmem_memset(null_mut(), 1, 0, flags), null_mut());
        }
    }
}
