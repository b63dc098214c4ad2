//! What it costs to let the policy choose: the public interface against the chosen method called directly, at a
//! length short enough for a nanosecond to show.

use std::hint::black_box;

use bulkmem::policy::Policy;
use bulkmem::{Bulk, Intent, Operation};

use crate::clock::Clock;
use crate::report::ChoosingCost;
use crate::stats::Summary;

const LENGTH: usize = 4096;
/// Calls a sample.
const CALLS: usize = 1000;
/// Samples of each of the three.
const SAMPLES: usize = 101;

/// Measures it, for clear and copy; `None` for the other operations.
pub(crate) fn cost(clock: &Clock, policy: &Policy, operation: Operation) -> Option<ChoosingCost> {
    let bulk = Bulk::new().policy(policy).ok()?;
    let choice = policy.choose(operation, LENGTH, Intent::Throughput);
    let parameters = choice.parameters;
    let mut dst = vec![1u8; LENGTH];
    let src = vec![2u8; LENGTH];
    let choose = || {
        black_box(policy.choose(operation, black_box(LENGTH), Intent::Throughput));
    };
    match operation {
        Operation::Clear => {
            let kernel = choice.method.code.clear?.fenced;
            alternate(
                clock,
                &mut dst,
                // SAFETY: the slice is valid for its length, and the policy's choices can run here.
                |dst| unsafe { black_box(kernel)(dst.as_mut_ptr(), black_box(LENGTH), 0, &parameters) },
                |dst| bulk.clear(&mut dst[..black_box(LENGTH)]),
                choose,
            )
        }
        Operation::Copy => {
            let kernel = choice.method.code.copy?.fenced;
            alternate(
                clock,
                &mut dst,
                // SAFETY: as above; two vectors lie apart.
                |dst| unsafe {
                    black_box(kernel)(dst.as_mut_ptr(), src.as_ptr(), black_box(LENGTH), &parameters)
                },
                |dst| bulk.copy(&mut dst[..black_box(LENGTH)], &src).expect("equal lengths"),
                choose,
            )
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
        let directly = clock.time(|| (0..CALLS).for_each(|_| direct(dst)));
        let by_policy = clock.time(|| (0..CALLS).for_each(|_| chosen(dst)));
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
        for operation in [Operation::Clear, Operation::Copy] {
            let cost = cost(&Clock::new(), &policy, operation).unwrap();
            assert!(cost.direct_ns > 0.0 && cost.chosen_ns > 0.0 && cost.choose_ns > 0.0, "{cost:?}");
            // No claim on time: only that a choice is not as long as a clear of megabytes.
            assert!(cost.choose_ns < 100_000.0, "{cost:?}");
        }
        assert!(super::cost(&Clock::new(), &policy, Operation::Flush).is_none());
    }
}
