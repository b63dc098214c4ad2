//! Measures the methods of the Linux module by the library's equivalents: the same instructions, chunk by chunk, with one fence
//! after each extent.

use std::time::Duration;

use bulkmem::machine::{Features, Machine};
use bulkmem::method::{self, Parameters};
use bulkmem::policy::Choice;
use bulkmem_kmod::Method;

use crate::MeasureError;
use crate::calibration::plan::Setting;
use crate::calibration::session::{Meter, Session};
use crate::calibration::{Mode, ModuleFigure};
use crate::engine::cell::Extent;
use crate::engine::interleave::{Source, StopRule, interleave};
use crate::engine::stats::Summary;

const HUGE_PAGE: u64 = 2 << 20;
/// Bytes that the kernel clears in one piece without the module.
const PAGE: u64 = 4096;
const MOST_SAMPLES: usize = 31;

/// Measures all methods that this machine has until a deadline, interleaved.
pub(super) fn measure<M: Meter>(
    session: &mut Session<'_, M>,
    setting: &Setting,
    deadline: Duration,
) -> Vec<ModuleFigure> {
    let trials: Vec<(Method, Extent)> = trials(setting.mode)
        .into_iter()
        .filter(|(_, extent)| extent.length as u64 <= setting.max_length)
        .collect();
    session.report("clear, methods of the Linux module", None);
    let (most, deadline) = (MOST_SAMPLES, Some(deadline));
    let rule = StopRule { warm_up: false, most, until_separated: None, deadline, least: 0 };
    let samples = interleave(&mut Extents { session, trials: &trials }, trials.len(), rule).0;
    let figure = |((method, extent), samples): (&(Method, Extent), Vec<f64>)| {
        let summary = Summary::of_one_or_two_speeds(&samples)?;
        let distance = extent.choice.parameters.write_distance;
        Some(ModuleFigure {
            method: method.name().to_owned(),
            prefetch_distance: (distance > 0).then_some(distance.into()),
            extent: extent.length as u64,
            chunk: extent.chunk as u64,
            median_ns: summary.median,
            quartiles_ns: summary.quartiles,
            samples: summary.samples,
        })
    };
    trials.iter().zip(samples).filter_map(figure).collect()
}

/// Returns each method with what it clears: a huge page, and more; in chunks of a huge page, and for string instructions,
/// whose speed depends on it, in longer ones.
fn trials(mode: Mode) -> Vec<(Method, Extent)> {
    let (lengths, distances): (&[u64], &[u32]) = match mode {
        Mode::Quick => (&[HUGE_PAGE, 32 << 20], &[4096]),
        _ => (&[HUGE_PAGE, 8 << 20, 32 << 20], &[2048, 4096, 8192]),
    };
    let mut trials = Vec::new();
    for method in Method::ALL {
        let Some(choice) = equivalent(method) else { continue };
        let chunks = match method {
            Method::Stock => &[PAGE],
            Method::RepStosb | Method::RepStosq => lengths,
            _ => &lengths[..1],
        };
        let distances = if method == Method::Prefetchw { distances } else { &[0] };
        for length in lengths {
            for chunk in chunks.iter().filter(|chunk| *chunk <= length) {
                trials.extend(distances.iter().map(|&write_distance| {
                    let choice =
                        Choice { parameters: Parameters { write_distance, ..choice.parameters }, ..choice };
                    (method, Extent { choice, length: *length as usize, chunk: *chunk as usize })
                }));
            }
        }
    }
    trials
}

/// Returns the library's method with the same instructions, without parameters; `None` if this machine does not have it.
fn equivalent(method: Method) -> Option<Choice> {
    let name = match method {
        Method::Stock if !Machine::current().features.contains(Features::ERMS) => "rep_stosq",
        Method::Stock | Method::RepStosb => "rep_stosb",
        Method::RepStosq => "rep_stosq",
        Method::Movnti => "movnti",
        Method::Clzero => "clzero",
        Method::Prefetchw => "write_prefetch_8",
        _ => return None,
    };
    let method = method::by_name(name).filter(|method| method.available())?;
    Some(Choice { method, parameters: Parameters::default() })
}

struct Extents<'t, 's, 'a, M> {
    session: &'s mut Session<'a, M>,
    trials: &'t [(Method, Extent)],
}

impl<M: Meter> Source for Extents<'_, '_, '_, M> {
    type Sample = f64;

    fn take(&mut self, candidate: usize, _done: f64) -> Result<f64, MeasureError> {
        self.session.extent(&self.trials[candidate].1).ok_or(MeasureError::Interrupted)
    }

    fn cost(&self, sample: &f64) -> f64 {
        *sample
    }

    fn elapsed(&self) -> Duration {
        self.session.elapsed()
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_method_of_the_machine_clears_each_length_and_only_string_instructions_in_several_chunks() {
        for (mode, lengths) in [(Mode::Quick, 2), (Mode::Default, 3)] {
            let trials = trials(mode);
            for method in Method::ALL.into_iter().filter(|method| equivalent(*method).is_some()) {
                let own = || trials.iter().filter(|(it, _)| *it == method).map(|(_, extent)| extent);
                let found: BTreeSet<usize> = own().map(|extent| extent.length).collect();
                assert_eq!(found.len(), lengths, "{method}");
                let chunks: BTreeSet<usize> = own().map(|extent| extent.chunk).collect();
                let is_string = [Method::RepStosb, Method::RepStosq].contains(&method);
                assert_eq!(chunks.len(), if is_string { lengths } else { 1 }, "{method}");
                assert!(own().all(|extent| {
                    extent
                        .choice
                        .parameters
                        .is_valid_for(extent.choice.method.tunables(bulkmem::Operation::Clear).unwrap())
                }));
            }
        }
    }
}
