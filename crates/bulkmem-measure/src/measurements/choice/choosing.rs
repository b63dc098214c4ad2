//! What it costs to let the policy choose: the public interface against the chosen method called directly, at a
//! length short enough for a nanosecond to show.

use std::hint::black_box;

use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation, Options};

use crate::engine::clock::Clock;
use crate::engine::stats::Summary;
use crate::measurements::choice::report::ChoosingCost;

const LENGTH: usize = 4096;
/// Calls a sample.
const CALLS: usize = 1000;
/// Samples of each of the three.
const SAMPLES: usize = 101;

/// Measures it, for clear and copy; `None` for the other operations. `global` says that the process's own policy answers
/// as this one: then it goes through the plain functions.
pub(crate) fn cost(
    clock: &Clock,
    policy: &Policy,
    global: bool,
    operation: Operation,
) -> Option<ChoosingCost> {
    let bulk = Options::new().policy(policy).ok()?;
    let choice = policy.choose(operation, LENGTH, Intent::Throughput)?;
    let parameters = choice.parameters;
    let mut dst = vec![1u8; LENGTH];
    let src = vec![2u8; LENGTH];
    let choose = || {
        black_box(policy.choose(operation, black_box(LENGTH), Intent::Throughput));
    };
    match operation {
        Operation::Clear => {
            let kernel = choice.method.code().clear?.fenced;
            // SAFETY: the slice is valid for its length, and the policy's choices can run here.
            let direct = |dst: &mut [u8]| unsafe {
                black_box(kernel)(dst.as_mut_ptr(), black_box(LENGTH), 0, &parameters);
            };
            if global {
                alternate(
                    clock,
                    &mut dst,
                    direct,
                    |dst| bulkmem::clear(&mut dst[..black_box(LENGTH)]),
                    choose,
                )
            } else {
                alternate(clock, &mut dst, direct, |dst| bulk.clear(&mut dst[..black_box(LENGTH)]), choose)
            }
        }
        Operation::Copy => {
            let kernel = choice.method.code().copy?.fenced;
            // SAFETY: as above; two vectors lie apart.
            let direct = |dst: &mut [u8]| unsafe {
                black_box(kernel)(dst.as_mut_ptr(), src.as_ptr(), black_box(LENGTH), &parameters);
            };
            let equal = "equal lengths";
            if global {
                let chosen =
                    |dst: &mut [u8]| bulkmem::copy(&mut dst[..black_box(LENGTH)], &src).expect(equal);
                alternate(clock, &mut dst, direct, chosen, choose)
            } else {
                let chosen = |dst: &mut [u8]| bulk.copy(&mut dst[..black_box(LENGTH)], &src).expect(equal);
                alternate(clock, &mut dst, direct, chosen, choose)
            }
        }
        _ => None,
    }
}

/// Samples the three in turn.
fn alternate(
    clock: &Clock,
    dst: &mut [u8],
    mut direct: impl FnMut(&mut [u8]),
    mut chosen: impl FnMut(&mut [u8]),
    mut choose: impl FnMut(),
) -> Option<ChoosingCost> {
    let mut times = [const { Vec::new() }; 3];
    for sample in 0..SAMPLES {
        let directly = clock.time(|| (0..CALLS).for_each(|_| direct(black_box(&mut *dst))));
        let by_policy = clock.time(|| (0..CALLS).for_each(|_| chosen(black_box(&mut *dst))));
        let choice = clock.time(|| (0..CALLS).for_each(|_| choose()));
        // The first warms up.
        if sample > 0 {
            for (times, ns) in times.iter_mut().zip([directly, by_policy, choice]) {
                times.push(ns / CALLS as f64);
            }
        }
    }
    let [direct, chosen, choose] = times.map(|times| Summary::of(&times));
    Some(ChoosingCost {
        length: LENGTH as u64,
        direct_ns: direct?.median,
        chosen_ns: chosen?.median,
        choose_ns: choose?.median,
    })
}

#[cfg(test)]
mod tests {
    use bulkmem::machine::Machine;

    use super::*;

    #[test]
    fn it_is_measured_for_clear_and_copy() {
        let policy = Policy::defaults(Machine::current());
        for (operation, global) in [Operation::Clear, Operation::Copy].into_iter().zip([true, false]) {
            let cost = cost(&Clock::new(), &policy, global, operation).unwrap();
            assert!(cost.direct_ns > 0.0 && cost.chosen_ns > 0.0 && cost.choose_ns > 0.0, "{cost:?}");
            // No claim on time: only that a choice is not as long as a clear of megabytes.
            assert!(cost.choose_ns < 100_000.0, "{cost:?}");
        }
        assert!(
            crate::measurements::choice::choosing::cost(&Clock::new(), &policy, false, Operation::Persist)
                .is_none()
        );
    }
}
