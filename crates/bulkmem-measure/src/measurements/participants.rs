//! The participants of a measurement: the policy's choices, methods and peers, and the samplers made of them.

use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation, machine, method};

use crate::engine::memory_state::MemoryState;
use crate::engine::stats::ENOUGH;
use crate::engine::{
    Candidate, Config, Implementation, Kind, MethodSet, Passes, Peers, Result, Run, Sample, Sampler,
    distinct, implementation,
};
use crate::measurements::checks::invalid;

pub(super) const FIRST_TOUCH: &str = "first touch";

/// The candidates of a measurement besides the policy, and the number of samples.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The methods.
    pub methods: MethodSet,
    /// The other candidates.
    pub peers: Peers,
    /// Samples of each.
    pub runs: usize,
}

impl Default for Candidates {
    /// Representative methods, all peers, and the fewest samples that can be compared: five.
    fn default() -> Candidates {
        Candidates { methods: MethodSet::Representative, peers: Peers::All, runs: ENOUGH as usize }
    }
}

impl Candidates {
    /// Selects the named methods that this machine supports, without peers.
    pub(crate) fn named<'n>(names: impl IntoIterator<Item = &'n str>, operation: Operation) -> Candidates {
        let able = |name: &&str| {
            method::by_name(name).is_some_and(|method| method.does(operation) && method.available())
        };
        let methods = MethodSet::Named(names.into_iter().filter(able).map(str::to_owned).collect());
        Candidates { methods, peers: Peers::None, ..Candidates::default() }
    }

    /// Checks that the methods can be used here. [`MeasureError::Method`] names one that cannot.
    pub(super) fn check(&self, operation: Operation) -> Result<()> {
        implementation::methods(&self.methods, operation).map(drop)
    }

    /// Returns the policy's choice for each intent and a total length, the methods and the peers. Notes which peers are
    /// missing, and refuses a method that cannot be used here.
    pub(super) fn implementations<'a>(
        &self,
        run: &mut Run<'a>,
        operation: Operation,
        intents: &[Intent],
        total_len: usize,
    ) -> Result<Vec<Implementation<'a>>> {
        let policy = run.policy;
        let policies = intents.iter().map(|&intent| Implementation::policy(policy, intent, total_len));
        let methods = implementation::methods(&self.methods, operation)?;
        let mut all: Vec<_> = policies.chain(methods.into_iter().map(Implementation::Method)).collect();
        if self.peers == Peers::None {
            all.retain(|it| it.candidate().kind != Kind::Peer);
        }
        let (libraries, missing) = implementation::libraries(operation, self.peers);
        missing.into_iter().for_each(|reason| run.note(reason));
        all.extend(libraries);
        Ok(all)
    }

    /// Selects the methods, the baseline and, if wanted, the C library and other libraries.
    /// [`MeasureError::Method`] refuses a method that cannot be used here; [`MeasureError::Option`] a baseline that
    /// takes no part, with the names of those who do.
    pub(super) fn selection(
        &self,
        operation: Operation,
        baseline: Option<&str>,
        others: &[&str],
    ) -> Result<Vec<Implementation<'static>>> {
        let mut methods = implementation::methods(&self.methods, operation)?;
        let c_library = Choice::of(method::c_library(), operation);
        match self.peers {
            Peers::All if !methods.contains(&c_library) => methods.push(c_library),
            // Who asks for it by name gets it.
            Peers::None if !matches!(self.methods, MethodSet::Named(_)) => {
                methods.retain(|it| *it != c_library);
            }
            _ => {}
        }
        let (libraries, _) = implementation::libraries(operation, self.peers);
        let library_names = libraries.iter().map(|library| library.candidate().name);
        let mut names: Vec<String> = others.iter().map(ToString::to_string).chain(library_names).collect();
        let named = |text: &str, choice: &Choice| choice.to_string() == text || choice.method.name == text;
        if let Some(baseline) = baseline
            && !names.iter().any(|name| name == baseline)
            && !methods.iter().any(|choice| named(baseline, choice))
        {
            match Choice::parse(baseline, operation, machine::features()) {
                Ok(choice) => methods.push(choice),
                Err(error) => {
                    names.extend(methods.iter().map(Choice::to_string));
                    let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                    // Of a method that there is, why not; of others, all that there are would be said.
                    let known = baseline.split('[').next().and_then(method::by_name);
                    let why = known.map(|_| format!(" ({error})")).unwrap_or_default();
                    let reason =
                        format!("`{baseline}` takes no part{why}; name another method, or one of {names}");
                    return invalid("--baseline", reason);
                }
            }
        }
        Ok(distinct(methods).into_iter().map(Implementation::Method).chain(libraries).collect())
    }

    /// Returns samplers of the policy's choice, of a selection and, with peers, of reading, that work through memory in
    /// passes. Notes which peers are missing.
    ///
    /// # Safety
    /// As for [`Passes::sampler`], as long as the samplers live.
    pub(super) unsafe fn pass_samplers<'c>(
        &self,
        run: &mut Run<'c>,
        selection: Vec<Implementation<'static>>,
        passes: Passes,
        config: &Config,
    ) -> Vec<Sampler<'c>> {
        let (_, missing) = implementation::libraries(passes.operation, self.peers);
        missing.into_iter().for_each(|reason| run.note(reason));
        let policy = Implementation::policy(run.policy, Intent::Throughput, passes.length);
        let read = (self.peers == Peers::All).then_some(Implementation::Read);
        let (stop, counting) = (run.observer.stop, run.counting.clone());
        let samplers = [policy].into_iter().chain(selection).chain(read).map(|implementation| {
            // SAFETY: passed on from the caller; the implementations were selected for the operation.
            let sample = unsafe { passes.sampler(implementation, stop, counting.clone()) };
            participant(&implementation, config, passes.chunk, passes.threads == 1, sample)
        });
        samplers.collect()
    }
}

/// Returns the sampler of a candidate. `counted`: the work runs in the calling thread, where hardware counters see it.
pub(super) fn sampler<'c>(
    candidate: Candidate,
    config: &Config,
    counted: bool,
    mut sample: impl FnMut() -> Result<Sample> + 'c,
) -> Sampler<'c> {
    Sampler { candidate, config: config.clone(), sample: Box::new(move |_| sample()), counted, chosen: None }
}

/// The same for an implementation that is called with `part` bytes at a time: also records the method that a policy chooses
/// for that, in memory of the configured cache state.
pub(super) fn participant<'c>(
    implementation: &Implementation<'_>,
    config: &Config,
    part: usize,
    counted: bool,
    sample: impl FnMut() -> Result<Sample> + 'c,
) -> Sampler<'c> {
    let threads = config.threads.unwrap_or(1);
    let pages = config.page_size.map(|pages| pages.0);
    let state = config.cache.map(|cache| MemoryState::of(cache, pages));
    let chosen =
        config.operation.and_then(|operation| implementation.chosen(operation, part, state, threads));
    Sampler { chosen, ..sampler(implementation.candidate(), config, counted, sample) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The candidates of small measurements.
    pub(crate) fn named(names: &[&str], peers: Peers, runs: usize) -> Candidates {
        let methods = MethodSet::Named(names.iter().map(ToString::to_string).collect());
        Candidates { methods, peers, runs }
    }

    fn names(wanted: &[&str], peers: Peers, baseline: Option<&str>) -> Result<Vec<String>, String> {
        let selection = named(wanted, peers, 1).selection(Operation::Fill, baseline, &["policy", "read"]);
        let names = |all: Vec<Implementation<'_>>| all.iter().map(|it| it.candidate().name).collect();
        selection.map(names).map_err(|error| error.to_string())
    }

    #[test]
    fn everybody_takes_part_once() {
        assert_eq!(names(&["portable", "portable"], Peers::None, None).unwrap(), ["portable"]);
        assert_eq!(names(&["c_library"], Peers::None, None).unwrap(), ["c_library"]);
        let all = names(&["portable"], Peers::All, None).unwrap();
        assert_eq!(all[..2], ["portable", "c_library"]);
        let none = Candidates { peers: Peers::None, ..Candidates::default() };
        let none = none.selection(Operation::Clear, None, &[]).unwrap();
        assert!(none.iter().all(|it| it.candidate().kind == Kind::Method), "{none:?}");
    }

    #[test]
    fn a_baseline_takes_part_or_is_refused_with_those_who_do() {
        let with = names(&["portable"], Peers::None, Some("c_library")).unwrap();
        assert_eq!(with, ["portable", "c_library"]);
        assert_eq!(names(&["portable"], Peers::None, Some("policy")).unwrap(), ["portable"]);
        assert_eq!(names(&["portable"], Peers::None, Some("portable")).unwrap(), ["portable"]);
        let refused = names(&["portable"], Peers::None, Some("nosuch")).unwrap_err();
        for word in ["--baseline: ", "`nosuch` takes no part", "`policy`, `read`, `portable`"] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        let refused = names(&["portable"], Peers::None, Some("rep_movsb")).unwrap_err();
        assert!(refused.contains("takes no part (") && refused.contains("`rep_movsb`"), "{refused}");
    }
}
