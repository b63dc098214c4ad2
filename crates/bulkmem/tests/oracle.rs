//! Compares every method with the oracle: every length from 0 to 4 lines at every offset into a line, next to a guard
//! page on either side, and lengths around every page, stream, block and prefetch distance of its parameters.

use std::process::ExitCode;

use bulkmem::Operation;
use bulkmem::method::Method;
use libtest_mimic::Failed;
use testkit::case::Case;
use testkit::guard::{LINE, Place};
use testkit::harness::Suite;
use testkit::oracle::{self, Oracle};
use testkit::table;

/// Bytes that fills write: no bits, all bits, some.
const BYTES: [u8; 3] = [0x00, 0xff, 0xa5];
const PLACES: [Place; 2] = [Place::Start, Place::End];
/// Longest of the short cases: 4 lines.
const SHORT: usize = 4 * LINE;
/// Longest case.
const LONGEST: usize = 4 << 20;
/// Limit of the bytes that the long cases of one method write, which limits the time of methods with many parameters.
const BUDGET: usize = 96 << 20;

/// Tests every so many offsets, others for each length: 1 if `BULKMEM_TEST_STRIDE` is not set. Under an emulator all of them
/// would take an hour.
fn stride() -> usize {
    let set = std::env::var("BULKMEM_TEST_STRIDE").ok();
    set.map_or(1, |it| {
        it.parse().ok().filter(|stride| (1..=LINE).contains(stride)).expect("BULKMEM_TEST_STRIDE: 1 to 64")
    })
}

/// Returns the offsets into a line to test a length with: multiples of a step, and others for other lengths.
fn offsets(length: usize, step: usize) -> impl Iterator<Item = usize> {
    let step = step.min(LINE);
    (length % step..LINE).step_by(step)
}

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    for row in table::entries() {
        suite.entry("oracle", row, every_length_and_offset);
        suite.entry("parameters", row, every_parameter_set);
        suite.entry("units", row, about_every_unit);
        suite.entry("zero_length", row, nothing_at_all);
        if row.1.has_source() {
            suite.entry("source_offsets", row, every_source_offset);
        }
    }
    suite.run()
}

/// Returns the bytes to test an operation with.
fn bytes(operation: Operation) -> &'static [u8] {
    if matches!(operation, Operation::Fill | Operation::FillPersist) { &BYTES } else { &BYTES[..1] }
}

/// Returns an offset into a line that differs from case to case. 37 and 64 have no common factor, so all offsets
/// occur.
fn wander(count: usize) -> usize {
    count * 37 % LINE
}

fn every_length_and_offset(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let mut oracle = Oracle::new(SHORT);
    let mut case = Case::new(method, operation);
    let stride = stride();
    ran(method, || {
        for length in 0..=SHORT {
            for offset in offsets(length, stride) {
                for place in PLACES {
                    for fenced in [true, false] {
                        for byte in bytes(operation) {
                            let source_offset = wander(length + case.source_offset);
                            case = Case { length, offset, source_offset, place, fenced, byte: *byte, ..case };
                            oracle.check(&case)?;
                        }
                    }
                }
            }
        }
        Ok(())
    })
}

fn every_source_offset(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let mut oracle = Oracle::new(SHORT);
    let mut case = Case::new(method, operation);
    let stride = stride();
    ran(method, || {
        for length in
            [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256]
        {
            for source_offset in offsets(length, stride) {
                for offset in 0..LINE {
                    let place = PLACES[(offset + source_offset) % 2];
                    case = Case { length, offset, source_offset, place, fenced: !case.fenced, ..case };
                    oracle.check(&case)?;
                }
            }
        }
        Ok(())
    })
}

fn every_parameter_set(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let mut oracle = Oracle::new(SHORT);
    let mut case = Case::new(method, operation);
    let mut count = 0;
    let stride = stride();
    ran(method, || {
        for parameters in table::parameter_sets(method.tunables(operation).unwrap_or_default()) {
            for length in 0..=SHORT {
                // A quarter of the offsets for each length, and another quarter for the next.
                for offset in offsets(length, 4 * stride) {
                    count += 1;
                    let source_offset = wander(count);
                    let (place, fenced) = (PLACES[count / LINE % 2], count / 2 % 2 == 0);
                    let byte = bytes(operation)[count % bytes(operation).len()];
                    case = Case { parameters, length, offset, source_offset, place, fenced, byte, ..case };
                    oracle.check(&case)?;
                }
            }
        }
        Ok(())
    })
}

fn about_every_unit(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let sets = table::parameter_sets(method.tunables(operation).unwrap_or_default());
    let longest = sets.iter().flat_map(|set| table::unit_lengths(set, LONGEST)).max().unwrap_or(0);
    let mut oracle = Oracle::new(longest);
    let mut case = Case::new(method, operation);
    let mut count = 0;
    ran(method, || {
        for parameters in &sets {
            let lengths = table::unit_lengths(parameters, LONGEST);
            let once: usize = lengths.iter().sum();
            let times = (BUDGET / stride() / sets.len() / once.max(1)).clamp(1, LINE);
            for time in 0..times {
                for length in &lengths {
                    count += 1;
                    case = Case {
                        parameters: *parameters,
                        length: *length,
                        // At the start of a line first, where most large ranges start.
                        offset: wander(time),
                        source_offset: if time % 2 == 0 { wander(time) } else { wander(count) },
                        place: PLACES[count % 2],
                        fenced: count / 2 % 2 == 0,
                        byte: bytes(operation)[count % bytes(operation).len()],
                        ..case
                    };
                    oracle.check(&case)?;
                }
            }
        }
        Ok(())
    })
}

/// Calls with a length of 0 must not touch any address: null, dangling, and one past a guard page.
fn nothing_at_all(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let guarded = testkit::guard::Guarded::new(1);
    let mut case = Case::new(method, operation);
    for parameters in table::parameter_sets(method.tunables(operation).unwrap_or_default()) {
        for fenced in [true, false] {
            for address in [0, 1, 63, 64, usize::MAX, guarded.addresses().start - 1, guarded.addresses().end]
            {
                case = Case { parameters, fenced, ..case };
                let function = case.function();
                testkit::case::running(&case, address..address, 0..0, || {
                    // SAFETY: any address is valid for 0 bytes; the suite runs only rows that this machine can.
                    unsafe { function.call(&case, address as *mut u8, address as *const u8) }
                });
            }
        }
    }
    Ok(())
}

/// Runs the cases with missing instructions emulated, and asserts that the emulator was called.
#[cfg(target_arch = "x86_64")]
fn ran(method: &Method, cases: impl FnOnce() -> Result<(), oracle::Mismatch>) -> Result<(), Failed> {
    use testkit::x86_64::emulate;
    let lacking = emulate::lacking(method.requires);
    let counts = || lacking.iter().map(emulate::count).collect::<Vec<_>>();
    let before = counts();
    cases()?;
    for ((name, _), (before, after)) in lacking.iter_names().zip(before.into_iter().zip(counts())) {
        if after == before {
            return Err(format!("{}: {name} was never executed", method.name).into());
        }
    }
    Ok(())
}

/// Runs the cases.
#[cfg(not(target_arch = "x86_64"))]
fn ran(_: &Method, cases: impl FnOnce() -> Result<(), oracle::Mismatch>) -> Result<(), Failed> {
    Ok(cases()?)
}
