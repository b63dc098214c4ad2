//! The cost of letting the policy choose: the public interface against the chosen method called directly, at a length
//! short enough for a nanosecond to show.

use std::hint::black_box;

use bulkmem::policy::Policy;
use bulkmem::{Intent, Operation};

use crate::engine::clock::time;
use crate::engine::implementation::Work;
use crate::engine::units::bytes;
use crate::engine::{
    CacheState, Candidate, Config, FILL_BYTE, Implementation, Kind, Metric, Result, Row, Run, Sampler,
};
use crate::measurements::participants::{participant, sampler};

pub(super) const LENGTH: usize = 4096;
const CALLS: usize = 1000;
const SAMPLES: usize = 100;
/// The name of the candidate that only chooses.
const CHOOSING: &str = "Policy::choose alone";

/// Calls on the same range again and again; returns nanoseconds per call.
struct Calls<'m>(&'m mut [u8], &'m [u8]);

impl Work for Calls<'_> {
    type Output = f64;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> f64 {
        let (dst, src) = (self.0.as_mut_ptr(), self.1.as_ptr());
        per_call(|| call(black_box(dst), black_box(src), black_box(LENGTH)))
    }
}

fn per_call(call: impl Fn()) -> f64 {
    time(|| (0..CALLS).for_each(|_| call())) / CALLS as f64
}

/// The policy's choice as programs call it. `plain` says that the process-wide policy chooses alike: then they call the
/// plain functions.
pub(super) fn by_policy(policy: &Policy, intent: Intent, length: usize, plain: bool) -> Implementation<'_> {
    match intent {
        Intent::Throughput if plain => Implementation::PlainFunctions,
        _ => Implementation::policy(policy, intent, length),
    }
}

pub(super) fn measure(run: &mut Run<'_>, operation: Operation, plain: bool) -> Result<()> {
    let policy = run.policy;
    let wanted = matches!(operation, Operation::Clear | Operation::Copy) && !run.stopped();
    let choice = policy.choose(operation, LENGTH, Intent::Throughput).filter(|_| wanted);
    let Some(choice) = choice else { return Ok(()) };
    let chosen = by_policy(policy, Intent::Throughput, LENGTH, plain);
    let config = Config {
        operation: Some(operation),
        size: Some(LENGTH as u64),
        threads: Some(1),
        cache: Some(CacheState::Warm),
        source: (operation == Operation::Copy).then_some(CacheState::Warm),
        intent: Some(Intent::Throughput),
        ..Config::default()
    };
    let calls = [Implementation::Dispatched(choice), chosen].map(|implementation| {
        let (mut dst, src) = (vec![1u8; LENGTH], vec![2u8; LENGTH]);
        participant(&implementation, &config, LENGTH, false, move || {
            let calls = Calls(&mut dst, &src);
            // SAFETY: the two vectors are valid for the length, and lie apart.
            Ok(unsafe { implementation.run(1, operation, FILL_BYTE, calls) }.into())
        })
    });
    let alone = sampler(Candidate::named(Kind::Control, CHOOSING), &config, false, move || {
        let choose = || _ = black_box(policy.choose(operation, black_box(LENGTH), Intent::Throughput));
        Ok(per_call(choose).into())
    });
    let mut samplers: Vec<Sampler<'_>> = calls.into_iter().chain([alone]).collect();
    let what = format!("the cost of choosing for {operation}");
    run.interleave(&what, Metric::Nanoseconds, SAMPLES, &mut samplers)
}

/// The median time of the first of some candidates, nanoseconds.
fn median(rows: &[&Row], wanted: impl Fn(&Candidate) -> bool) -> Option<f64> {
    let mut costs = rows.iter().filter(|row| row.metric == Metric::Nanoseconds && wanted(&row.candidate));
    costs.next().map(|row| row.stats.median)
}

/// Returns by how much the interface of the policy takes longer than the chosen method called directly, nanoseconds.
pub(super) fn overhead_ns(rows: &[&Row]) -> Option<f64> {
    let chosen = median(rows, |it| it.kind == Kind::Policy)?;
    Some(chosen - median(rows, |it| matches!(it.kind, Kind::Method | Kind::Peer))?)
}

pub(super) fn text(rows: &[&Row]) -> Option<String> {
    let (overhead, alone) = (overhead_ns(rows)?, median(rows, |it| it.name == CHOOSING)?);
    let length = bytes(LENGTH as u64);
    Some(format!("Choosing costs {overhead:.1} ns at {length}; {CHOOSING} takes {alone:.1} ns."))
}
