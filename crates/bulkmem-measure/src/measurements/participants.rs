//! The participants of a measurement: the policy's choices, methods and peers, and the samplers made of them.

use bulkmem::{Intent, Operation};

use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::engine::passes::Passes;
use crate::engine::run::{Run, Sample, Sampler};
use crate::engine::selection::Selection;
use crate::engine::{Candidate, Config, Peers};
use crate::{Kind, MeasureError};

/// Returns the policy's choice for each intent and a total length, the methods and the peers. Notes which peers are
/// missing.
///
/// # Errors
/// [`MeasureError::Method`] for a method that cannot be used here.
pub(super) fn participants<'a>(
    run: &mut Run<'a>,
    operation: Operation,
    intents: &[Intent],
    total_len: usize,
    methods: &MethodSet,
    peers: Peers,
) -> Result<Vec<Implementation<'a>>, MeasureError> {
    let policy = run.policy();
    let policies = intents.iter().map(|&intent| Implementation::policy(policy, intent, total_len));
    let methods = implementation::methods(methods, operation)?.into_iter().map(Implementation::Method);
    let mut all: Vec<Implementation<'a>> = policies.chain(methods).collect();
    if peers == Peers::None {
        all.retain(|it| it.candidate().kind != Kind::Peer);
        return Ok(all);
    }
    match implementation::libraries(operation) {
        Ok(libraries) => all.extend(libraries),
        Err(reason) => run.note(reason),
    }
    Ok(all)
}

/// Records the method that the policy chooses for calls of `part` bytes, for each participant that is the policy.
pub(super) fn record_choices(
    run: &mut Run<'_>,
    participants: &[Implementation<'_>],
    config: &Config,
    part: usize,
) {
    for participant in participants {
        let choice = config.operation.and_then(|operation| participant.chosen(operation, part));
        run.chooses(&participant.candidate(), config, choice);
    }
}

/// Returns the sampler of a candidate. `counted`: the work runs in the calling thread, where hardware counters see it.
pub(super) fn sampler<'c>(
    candidate: Candidate,
    config: &Config,
    counted: bool,
    sample: impl FnMut() -> Result<Sample, MeasureError> + 'c,
) -> Sampler<'c> {
    Sampler { candidate, config: config.clone(), sample: Box::new(sample), counted }
}

/// Returns samplers of the policy's choice, of a selection and, with peers, of reading, that work through memory in passes.
/// Records the policy's choice and notes which peers are missing.
///
/// # Safety
/// As for [`Passes::sampler`], as long as the samplers live.
pub(super) unsafe fn pass_samplers<'c>(
    run: &mut Run<'c>,
    selection: Selection,
    peers: Peers,
    passes: Passes,
    config: &Config,
) -> Vec<Sampler<'c>> {
    if let Some(reason) = selection.missing {
        run.note(reason);
    }
    let mut all = vec![Implementation::policy(run.policy(), Intent::Throughput, passes.length)];
    record_choices(run, &all, config, passes.chunk);
    all.extend(match passes.operation {
        Operation::Fill => selection.filling(passes.byte).implementations,
        _ => selection.implementations,
    });
    if peers == Peers::All {
        all.push(Implementation::Read);
    }
    let (stop, counting) = (run.stop_flag(), run.counting());
    let samplers = all.into_iter().map(|implementation| Sampler {
        candidate: implementation.candidate(),
        config: config.clone(),
        // SAFETY: passed on from the caller; the implementations were selected for the operation.
        sample: unsafe { passes.sampler(implementation, stop, counting.clone()) },
        counted: passes.threads == 1,
    });
    samplers.collect()
}
