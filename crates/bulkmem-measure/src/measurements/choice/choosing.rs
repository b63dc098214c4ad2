//! The cost of letting the policy choose: the public interface against the chosen method called directly, at a length
//! short enough for a nanosecond to show.

use std::hint::black_box;

use bulkmem::{Intent, Operation};

use crate::engine::FILL_BYTE;
use crate::engine::clock::Clock;
use crate::engine::implementation::{Implementation, Work};
use crate::engine::run::Sampler;
use crate::engine::units::bytes;
use crate::engine::{CacheState, Candidate, Config, Kind, MeasureError, Metric, Row, Run};

const LENGTH: usize = 4096;
/// Calls in a sample.
const CALLS: usize = 1000;
/// Samples of each candidate.
const SAMPLES: usize = 100;
/// The name of the candidate that only chooses.
const CHOOSING: &str = "Policy::choose alone";

/// Calls on the same range again and again; returns nanoseconds per call.
struct Calls<'m> {
    dst: &'m mut [u8],
    src: &'m [u8],
}

impl Work for Calls<'_> {
    type Output = f64;

    fn run(self, call: impl Fn(*mut u8, *const u8, usize)) -> f64 {
        let (dst, src) = (self.dst.as_mut_ptr(), self.src.as_ptr());
        per_call(|| call(black_box(dst), black_box(src), black_box(LENGTH)))
    }
}

fn per_call(call: impl Fn()) -> f64 {
    Clock::new().time(|| (0..CALLS).for_each(|_| call())) / CALLS as f64
}

/// Measures the cost for clear and copy. `plain` says that the process-wide policy chooses alike: then programs call the
/// plain functions.
pub(super) fn measure(run: &mut Run<'_>, operation: Operation, plain: bool) -> Result<(), MeasureError> {
    let policy = run.policy();
    let Some(choice) = policy.choose(operation, LENGTH, Intent::Throughput) else { return Ok(()) };
    if !matches!(operation, Operation::Clear | Operation::Copy) || run.stopped() {
        return Ok(());
    }
    let chosen = if plain {
        Implementation::PlainFunctions
    } else {
        Implementation::policy(policy, Intent::Throughput, LENGTH)
    };
    let config = Config {
        operation: Some(operation),
        size: Some(LENGTH as u64),
        threads: Some(1),
        cache: Some(CacheState::Warm),
        intent: Some(Intent::Throughput),
        ..Config::default()
    };
    run.chooses(&chosen.candidate(), &config, Some(choice));
    let mut samplers: Vec<Sampler<'_>> = Vec::new();
    for implementation in [Implementation::Dispatched(choice), chosen] {
        let (mut dst, src) = (vec![1u8; LENGTH], vec![2u8; LENGTH]);
        let sample = move || {
            let calls = Calls { dst: &mut dst, src: &src };
            // SAFETY: the two vectors are valid for the length, and lie apart.
            Ok(unsafe { implementation.compile(1, operation, FILL_BYTE, calls) }.into())
        };
        let (candidate, config) = (implementation.candidate(), config.clone());
        samplers.push(Sampler { candidate, config, sample: Box::new(sample), counted: false });
    }
    let alone = move || {
        let choose = || _ = black_box(policy.choose(operation, black_box(LENGTH), Intent::Throughput));
        Ok(per_call(choose).into())
    };
    let candidate = Candidate::named(Kind::Control, CHOOSING);
    samplers.push(Sampler { candidate, config, sample: Box::new(alone), counted: false });
    run.interleave(
        &format!("the cost of choosing for {operation}"),
        Metric::Nanoseconds,
        SAMPLES,
        &mut samplers,
    )
}

/// Returns by how much the interface of the policy takes longer than the chosen method called directly, nanoseconds, and
/// the length.
pub(super) fn overhead_ns(rows: &[&Row]) -> Option<(f64, u64)> {
    let median = |kinds: &[Kind]| {
        let mut costs = rows.iter().filter(|row| row.metric == Metric::Nanoseconds);
        costs.find(|row| kinds.contains(&row.candidate.kind)).map(|row| (row.stats.median, row.config.size))
    };
    let (chosen, length) = median(&[Kind::Policy])?;
    let (direct, _) = median(&[Kind::Method, Kind::Peer])?;
    Some((chosen - direct, length?))
}

/// The finding.
pub(super) fn text(rows: &[&Row]) -> Option<String> {
    let (overhead, length) = overhead_ns(rows)?;
    let alone = rows.iter().find(|row| row.candidate.name == CHOOSING)?.stats.median;
    Some(format!("Choosing costs {overhead:.1} ns at {}; {CHOOSING} takes {alone:.1} ns.", bytes(length)))
}
