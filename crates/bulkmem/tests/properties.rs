//! Compares every method with the oracle in random cases: lengths of up to 4 MiB, all parameters, all alignments.
//!
//! A failure prints the smallest case found and the seed. `PROPTEST_RNG_SEED` runs that seed again, `PROPTEST_CASES`
//! sets the number of cases per method; the other `PROPTEST_` variables work as well.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::SystemTime;

use bulkmem::Operation;
use bulkmem::method::{Method, Parameters};
use libtest_mimic::Failed;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use testkit::case::Case;
use testkit::guard::{LINE, Place};
use testkit::harness::Suite;
use testkit::oracle::Oracle;
use testkit::table;

/// Longest case, as a power of two: 4 MiB.
const LONGEST: u32 = 22;
/// Cases per method and operation if `PROPTEST_CASES` is not set.
const CASES: u32 = 64;

fn main() -> ExitCode {
    let seed = match Config::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
        }
    };
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    for row in table::entries() {
        suite.entry("properties", row, move |method, operation| random_cases(method, operation, seed));
    }
    suite.run()
}

/// Valid parameters of a method.
fn parameters(method: &Method, operation: Operation) -> impl Strategy<Value = Parameters> {
    let tunables = method.tunables(operation).unwrap_or_default();
    let values: Vec<_> = tunables
        .iter()
        .map(|tunable| {
            let step = tunable.step.max(1);
            (tunable.range.0.div_ceil(step)..=tunable.range.1 / step).prop_map(move |steps| steps * step)
        })
        .collect();
    values.prop_map(move |values| {
        let mut parameters = Parameters::default();
        for (tunable, value) in tunables.iter().zip(values) {
            parameters.set(tunable.name, value);
        }
        parameters
    })
}

fn cases(method: &'static Method, operation: Operation) -> impl Strategy<Value = Case> {
    // The logarithm is uniform, so that half of the lengths are below 2 KiB.
    let length = (0..=LONGEST).prop_flat_map(|bits| 0..=1usize << bits);
    let place = prop_oneof![Just(Place::Start), Just(Place::End)];
    (parameters(method, operation), length, 0..LINE, 0..LINE, place, any::<bool>(), any::<u8>()).prop_map(
        move |(parameters, length, offset, source_offset, place, fenced, byte)| Case {
            method,
            operation,
            fenced,
            parameters,
            length,
            offset,
            source_offset,
            place,
            byte,
        },
    )
}

fn random_cases(method: &'static Method, operation: Operation, seed: u64) -> Result<(), Failed> {
    #[cfg(target_arch = "x86_64")]
    testkit::x86_64::emulate::install_handler();
    let mut config =
        Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let oracle = RefCell::new(Oracle::new(1 << LONGEST));
    TestRunner::new(config)
        .run(&cases(method, operation), |case| {
            let result = oracle.borrow_mut().check(&case);
            result.map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))
        })
        .map_err(|error| Failed::from(format!("{error}\nagain: PROPTEST_RNG_SEED={seed}")))
}
