//! The walk over every row of the table, and over each row's parameters and lengths.

use std::collections::HashSet;

use bulkmem::Operation;
use bulkmem::machine::{Features, features};
use bulkmem::method::{self, Method, Parameters, Tunable};

use crate::guard::LINE;

/// Every row of the table with every operation it can do.
pub fn rows() -> impl Iterator<Item = (&'static Method, Operation)> {
    method::all().flat_map(|method| {
        Operation::ALL.into_iter().filter(|operation| method.does(*operation)).map(move |it| (method, it))
    })
}

/// What a row needs that this machine neither has nor can have emulated; empty where it can run.
pub fn missing(method: &Method) -> Features {
    method.requires.difference(features()).difference(dispensable())
}

/// What a row runs without where the processor lacks it: what [`crate::x86_64::emulate`] stands in for; PREFETCHW,
/// which such a processor takes for a no-op; and what only tells how fast a string instruction is.
fn dispensable() -> Features {
    #[cfg(target_arch = "x86_64")]
    return crate::x86_64::emulate::EMULATED | Features::PREFETCHW | Features::ERMS | Features::FSRM;
    #[cfg(not(target_arch = "x86_64"))]
    Features::empty()
}

/// The values of a tunable worth testing: both ends of its range and their neighbours, the middle, the default, and
/// all that calibration searches. Sorted, each once.
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

/// The parameters to test a row with, each once and the defaults first: every tunable's every value beside the other
/// tunables' defaults; every pair of tunables at the ends and the middle of their ranges; all tunables at an end.
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

/// Lengths up to `most` at which a method with these parameters may change its ways: one to three times each of
/// its units (a page, a page in every stream, a block, a prefetch distance), and a little less and more. Sorted,
/// each once.
pub fn unit_lengths(parameters: &Parameters, most: usize) -> Vec<usize> {
    const PAGE: usize = 4096;
    let streams = parameters.streams.max(1) as usize;
    let block = parameters.block as usize;
    let units = [
        PAGE,
        PAGE * streams,
        block,
        block * streams,
        parameters.read_distance as usize,
        parameters.write_distance as usize,
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
    fn sets_fit_start_with_the_defaults_and_hold_every_value_and_pair_of_ends() {
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
    fn every_row_has_an_operation_and_is_walked() {
        for method in method::all() {
            assert!(rows().any(|(row, _)| row == method), "{} can do nothing", method.name);
        }
    }
}
