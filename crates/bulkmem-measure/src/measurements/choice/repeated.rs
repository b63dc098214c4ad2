//! Calls that write the same memory again and again. Only here does a call find what the policy's own calls have left in the cache:
//! one that keeps its memory out of it is slow without end.

use std::ptr::null;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::policy::Choice;
use bulkmem::{Intent, Mapping, Operation, Pages, method};

use crate::engine::arena::write_something;
use crate::engine::interleave::StopRule;
use crate::engine::units::bytes;
use crate::engine::workload::{Repeated, second_level};
use crate::engine::{
    CacheState, Config, FILL_BYTE, Implementation, MeasureError, Memory, Metric, Result, Run, distinct,
};
use crate::measurements::choice::judge::OBSERVABLE;
use crate::measurements::participants::participant;

/// So many calls that the few which find the memory uncached hardly count.
const CALLS: usize = 100;
const SAMPLES: usize = 11;

/// From the length on at which operations look, to the size of the second-level cache: whether more stays cached depends on the other
/// users of the last-level one.
pub(super) fn lengths() -> Vec<u64> {
    let l2 = second_level(Machine::current());
    let mut lengths = distinct([OBSERVABLE, l2 / 4, l2 / 2, l2]);
    lengths.retain(|length| *length >= OBSERVABLE);
    lengths.sort_unstable();
    lengths
}

/// Compares the policy with the C library, up to a length, until the run's clock shows `end`.
pub(super) fn measure(run: &mut Run<'_>, max_length: u64, end: Duration) -> Result<()> {
    for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
        for length in lengths().into_iter().filter(|length| *length <= max_length) {
            if run.stopped() || run.elapsed() >= end {
                return Ok(());
            }
            compare(run, operation, length as usize, end)?;
        }
    }
    Ok(())
}

fn compare(run: &mut Run<'_>, operation: Operation, length: usize, end: Duration) -> Result<()> {
    bulkmem::forget_verdicts();
    let map = || {
        let failed = |source| MeasureError::Mapping { bytes: length as u64, source };
        let mut mapping = Mapping::new(length, Pages::Transparent).map_err(failed)?;
        write_something(&mut mapping);
        Ok::<Mapping, MeasureError>(mapping)
    };
    let (mut destination, source) = (map()?, map()?);
    let (dst, src) = (destination.as_mut_ptr(), source.as_ptr());
    let config = Config {
        operation: Some(operation),
        size: Some(length as u64),
        threads: Some(1),
        memory: Some(Memory::Reused),
        cache: Some(CacheState::Warm),
        source: (operation == Operation::Copy).then_some(CacheState::Warm),
        intent: Some(Intent::Throughput),
        ..Config::default()
    };
    let evict =
        method::by_name("clflush").map(|it| Implementation::Method(Choice::of(it, Operation::Persist)));
    let c_library = Implementation::Method(Choice::of(method::c_library(), operation));
    let implementations = [Implementation::policy(run.policy, Intent::Throughput, length), c_library];
    let mut samplers = implementations.map(|implementation| {
        let evict = &evict;
        participant(&implementation, &config, length, false, move || {
            // SAFETY: both mappings have the length, lie apart and outlive the samplers; nothing else uses them. Every x86-64
            // processor has CLFLUSH.
            let ns = unsafe {
                if let Some(evict) = evict {
                    evict.run(1, Operation::Persist, 0, (dst, null(), length));
                }
                implementation.run(1, operation, FILL_BYTE, Repeated { dst, src, length, calls: CALLS })
            };
            Ok((length as f64 / ns).into())
        })
    });
    let rule = StopRule { deadline: Some(end), ..StopRule::fixed(SAMPLES) };
    let what = format!("{operation} of the same {} again and again", bytes(length as u64));
    run.interleave_by(&what, Metric::Bandwidth, rule, &mut samplers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_rise_from_the_first_that_looks() {
        let lengths = lengths();
        assert!(lengths.is_sorted() && lengths[0] == OBSERVABLE && lengths.len() <= 4, "{lengths:?}");
    }
}
