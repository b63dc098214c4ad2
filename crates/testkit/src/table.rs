//! The method table as test cases: every method with every operation that it supports, and the parameters and lengths
//! to test it with.

use std::collections::HashSet;

use bulkmem::Operation;
use bulkmem::machine::{Features, features};
use bulkmem::method::{self, Method, Parameters, Tunable};

use crate::guard::LINE;

/// Returns every method with every operation that it supports.
pub fn entries() -> impl Iterator<Item = (&'static Method, Operation)> {
    method::all().flat_map(|method| {
        Operation::ALL.into_iter().filter(|operation| method.does(*operation)).map(move |it| (method, it))
    })
}

/// Features that the tests of a method can do without, because its code runs and writes the same bytes on a processor
/// that does not have them: hints that such a processor executes as no-operations (PREFETCHW, CLDEMOTE, ZIHINTNTL), and
/// features that only tell how fast an instruction is (ERMS, FSRM).
///
/// The features of an instruction that raises an exception where it is not supported belong into
/// [`EMULATED`](crate::x86_64::emulate::EMULATED) or, if it cannot be emulated, into [`NOT_EMULATED`].
pub const DISPENSABLE: Features = Features::PREFETCHW
    .union(Features::CLDEMOTE)
    .union(Features::ERMS)
    .union(Features::FSRM)
    .union(Features::ZIHINTNTL);

/// Features whose instructions use registers that an emulator cannot provide. On a processor that does not have them,
/// the tests that run such a method are skipped.
pub const NOT_EMULATED: Features = Features::SSE4_1
    .union(Features::AVX)
    .union(Features::AVX2)
    .union(Features::AVX512F)
    .union(OF_OTHER_ARCHITECTURES);

/// Of architectures that the tests run under an emulator, which has all of them (`scripts/test-arch.sh`).
const OF_OTHER_ARCHITECTURES: Features = Features::DC_ZVA
    .union(Features::SVE)
    .union(Features::MOPS)
    .union(Features::DC_CVAP)
    .union(Features::DC_CVADP)
    .union(Features::ZICBOZ)
    .union(Features::ZICBOM)
    .union(Features::RVV);

/// Features that the tests emulate.
#[cfg(target_arch = "x86_64")]
const EMULATED: Features = crate::x86_64::emulate::EMULATED;
#[cfg(not(target_arch = "x86_64"))]
const EMULATED: Features = Features::empty();

/// Returns the features that a method needs in order to run here: those that this machine does not have and that are
/// neither emulated nor dispensable.
pub fn missing(method: &Method) -> Features {
    method
        .requires
        .difference(features())
        .difference(DISPENSABLE)
        .difference(EMULATED)
        .difference(executable())
}

/// Features that the processor has although the operating system does not report them, so that the library does not use
/// them. QEMU 10 does not report Zicbom.
fn executable() -> Features {
    #[cfg(target_arch = "riscv64")]
    return crate::riscv64::executable();
    #[cfg(not(target_arch = "riscv64"))]
    Features::empty()
}

/// Returns an error if a method requires a feature that belongs to none of the sets above: its tests could then be
/// skipped on every machine without a failure.
///
/// # Errors
/// The feature, and the files to edit.
pub fn check_features(method: &Method) -> Result<(), String> {
    let known = Features::SSE2.union(DISPENSABLE).union(NOT_EMULATED).union(EMULATED);
    let unknown = method.requires.difference(known);
    if unknown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} requires {unknown}, and the tests do not know what to do on a processor without it. If the instruction runs \
         there as a no-operation, add it to DISPENSABLE in crates/testkit/src/table.rs. Otherwise add it to EMULATED \
         and MemoryAction in crates/testkit/src/x86_64/emulate.rs, or to NOT_EMULATED in crates/testkit/src/table.rs",
        method.name
    ))
}

/// Returns the values of a tunable to test: both ends of its range and their neighbours, the middle, the default, and
/// all that calibration searches. Sorted, without duplicates.
pub fn values(tunable: &Tunable) -> Vec<u32> {
    let step = tunable.step.max(1);
    let low = tunable.range.0.next_multiple_of(step);
    let high = tunable.range.1 - tunable.range.1 % step;
    let middle = (low + (high - low) / 2) / step * step;
    let mut values = vec![low, low + step, middle, high.saturating_sub(step), high, tunable.default];
    values.extend(tunable.search);
    values.retain(|value| (low..=high).contains(value));
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns the parameters to test a method with, the defaults first and without duplicates: every value of each
/// tunable with the other tunables at their defaults; every pair of tunables at the ends and the middle of their
/// ranges; all tunables at one end, in the middle, and at the other end.
pub fn parameter_sets(tunables: &[Tunable]) -> Vec<Parameters> {
    let mut defaults = Parameters::default();
    for tunable in tunables {
        defaults.set(tunable.name, tunable.default);
    }
    let with = |base: &Parameters, tunable: &Tunable, value: u32| {
        let mut parameters = *base;
        parameters.set(tunable.name, value);
        parameters
    };
    let coarse = |tunable: &Tunable| {
        let values = values(tunable);
        [values[0], values[values.len() / 2], values[values.len() - 1]]
    };

    let mut sets = vec![defaults];
    for tunable in tunables {
        sets.extend(values(tunable).into_iter().map(|value| with(&defaults, tunable, value)));
    }
    for (index, first) in tunables.iter().enumerate() {
        for second in &tunables[index + 1..] {
            for a in coarse(first) {
                sets.extend(coarse(second).map(|b| with(&with(&defaults, first, a), second, b)));
            }
        }
    }
    for end in 0..3 {
        sets.push(tunables.iter().fold(defaults, |set, tunable| with(&set, tunable, coarse(tunable)[end])));
    }
    let mut seen = HashSet::new();
    sets.retain(|set| seen.insert(*set));
    sets
}

/// Returns lengths up to `most` at which a method with these parameters may take another path: one to three times
/// each of its units (a page, a page in every stream, a block, a prefetch distance), and a little less and more.
/// Sorted, without duplicates.
pub fn unit_lengths(parameters: &Parameters, most: usize) -> Vec<usize> {
    const PAGE: usize = 4096;
    /// The lines that a copy loads before it stores them.
    const BATCH: usize = 16 * LINE;
    let streams = parameters.streams.max(1) as usize;
    let block = parameters.block as usize;
    // The first batch that is prefetched.
    let ahead = |distance: u32| if distance == 0 { 0 } else { distance as usize + BATCH };
    let units = [
        BATCH,
        PAGE,
        PAGE * streams,
        block,
        block * streams,
        parameters.read_distance as usize,
        parameters.write_distance as usize,
        ahead(parameters.read_distance.max(parameters.write_distance)),
    ];
    let mut lengths: Vec<usize> = units
        .iter()
        .filter(|unit| **unit > 0)
        .flat_map(|unit| (1..=3).map(move |times| unit * times))
        .flat_map(|length| {
            let less = [LINE + 1, LINE, 1, 0].map(|less| length.saturating_sub(less));
            less.into_iter().chain([1, LINE, LINE + 1].map(|more| length + more))
        })
        .filter(|length| *length <= most)
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCE: Tunable =
        Tunable { name: "write_distance", range: (0, 1000), step: 64, default: 256, search: &[0, 128, 512] };
    const STREAMS: Tunable =
        Tunable { name: "streams", range: (1, 8), step: 1, default: 4, search: &[1, 2, 3, 4, 5, 6, 7, 8] };

    #[test]
    fn values_cover_the_range_and_keep_to_the_step() {
        assert_eq!(values(&DISTANCE), [0, 64, 128, 256, 448, 512, 896, 960]);
        assert_eq!(values(&STREAMS), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn sets_are_valid_start_with_the_defaults_and_hold_every_value_and_pair_of_ends() {
        let tunables = [DISTANCE, STREAMS];
        let sets = parameter_sets(&tunables);
        assert!(sets.iter().all(|set| set.is_valid_for(&tunables)));
        assert_eq!((sets[0].write_distance, sets[0].streams), (256, 4));
        for tunable in &tunables {
            for value in values(tunable) {
                assert!(
                    sets.iter().any(|set| set.get(tunable.name) == Some(value)),
                    "{} {value}",
                    tunable.name
                );
            }
        }
        for pair in [(0, 1), (0, 8), (960, 1), (960, 8)] {
            assert!(sets.iter().any(|set| (set.write_distance, set.streams) == pair), "{pair:?}");
        }
        assert_eq!(parameter_sets(&[]), [Parameters::default()]);
    }

    #[test]
    fn unit_lengths_surround_pages_in_every_stream() {
        let parameters = Parameters { streams: 4, ..Parameters::default() };
        let lengths = unit_lengths(&parameters, 1 << 20);
        for length in [4096, 4 * 4096 - 64, 4 * 4096 - 1, 4 * 4096, 4 * 4096 + 1, 12 * 4096 + 64] {
            assert!(lengths.contains(&length), "{length}");
        }
        assert!(unit_lengths(&parameters, 5000).iter().all(|length| *length <= 5000));
    }

    #[test]
    fn every_method_supports_an_operation() {
        for method in method::all() {
            assert!(entries().any(|(other, _)| other == method), "{} supports no operation", method.name);
        }
    }

    #[test]
    fn every_method_requires_known_features() {
        for method in method::all() {
            check_features(method).unwrap();
        }
    }

    #[test]
    fn no_feature_is_in_two_sets() {
        assert!(!DISPENSABLE.intersects(NOT_EMULATED.union(EMULATED)));
        assert!(!NOT_EMULATED.intersects(EMULATED));
    }
}
