//! The project's performance targets, checked on this machine: each is a comparison and a judgement of its rows.
//!
//! Everything is judged by ratios within one run; nothing is compared with a stored figure.

mod judge;

use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::{Intent, Operation};

use crate::engine::options::{bad, check_budget};
use crate::engine::{
    Alignment, CacheState, Check, Measure, MeasureError, Measurement, MethodSet, OptionName, Peers, Row, Run,
};
use crate::measurements::choice::ChoiceOptions;

/// How to check the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetsOptions {
    /// How long it may take.
    pub budget: Duration,
    /// The largest length, bytes, at least 256. Targets for larger ones are not checked.
    pub max_length: u64,
}

impl Default for TargetsOptions {
    /// Five minutes, up to 4 GiB.
    fn default() -> Self {
        TargetsOptions { budget: Duration::from_secs(300), max_length: 4 << 30 }
    }
}

/// Comparisons, and the targets that are judged by their rows.
struct Part {
    comparisons: Vec<ChoiceOptions>,
    judge: fn(&[&Row]) -> Vec<Check>,
    /// Its share of the time.
    weight: f64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Measure for TargetsOptions {
    fn measurement(&self) -> Measurement {
        Measurement::Targets
    }

    fn validate(&self) -> Result<(), MeasureError> {
        if self.max_length < 256 {
            let reason = "less than 256 bytes leaves nothing to check; give more";
            return Err(bad(OptionName::MaxSize, reason));
        }
        check_budget(self.budget)
    }

    fn seconds(&self) -> f64 {
        self.budget.as_secs_f64()
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<(), MeasureError> {
        let parts = parts(self.max_length);
        let end = run.elapsed() + self.budget;
        run.expect_end(end);
        let mut left: f64 = parts.iter().map(|part| part.weight).sum();
        let mut hurried = 0;
        for part in &parts {
            let first_row = run.row_count();
            let weight = part.weight / part.comparisons.len().max(1) as f64;
            for comparison in &part.comparisons {
                if run.stopped() {
                    break;
                }
                let share = (weight / left).clamp(0.0, 1.0);
                let time = end.saturating_sub(run.elapsed()).mul_f64(share).max(Duration::from_millis(200));
                let comparison = ChoiceOptions { budget: time, ..comparison.clone() };
                match comparison.measure_until(run, run.elapsed() + time) {
                    // Too many notes for here; the last one sums them up.
                    Ok(notes) => hurried += usize::from(!notes.is_empty()),
                    Err(error @ MeasureError::Memory { .. }) => run.note(error.to_string()),
                    Err(error) => return Err(error),
                }
                left = (left - weight).max(f64::MIN_POSITIVE);
            }
            let rows: Vec<&Row> = run.rows_from(first_row).collect();
            for check in (part.judge)(&rows) {
                run.add_check(text(&check), check);
            }
        }
        if run.rows().next().is_none() {
            return Err(MeasureError::Interrupted);
        }
        if hurried > 0 {
            let seconds = self.budget.as_secs_f64();
            run.note(format!(
                "in {hurried} of the comparisons there was no time for everything: give more than {seconds:.0} s"
            ));
        }
        Ok(())
    }
}

/// The measurements for one target.
fn parts(max_length: u64) -> Vec<Part> {
    let up_to = |lengths: &[u64]| -> Vec<u64> {
        lengths.iter().copied().filter(|length| *length <= max_length).collect()
    };
    let available = |names: &[&str], operation: Operation| {
        let here =
            |name: &&&str| method::by_name(name).is_some_and(|it| it.does(operation) && it.available());
        MethodSet::Named(names.iter().filter(here).map(|name| (*name).to_owned()).collect())
    };
    let none = || MethodSet::Named(Vec::new());
    let alignments = vec![Alignment::Aligned, Alignment::Unaligned];
    let caches = vec![CacheState::Cold, CacheState::Warm];
    let clear = ChoiceOptions {
        sizes: up_to(&[256 * MIB, GIB]),
        methods: none(),
        ..ChoiceOptions::new(Operation::Clear)
    };
    let copy = ChoiceOptions {
        sizes: up_to(&[256 * MIB, GIB]),
        methods: available(&["nontemporal_sse2", "nontemporal_avx", "nontemporal_avx512"], Operation::Copy),
        ..ChoiceOptions::new(Operation::Copy)
    };
    let persist = ChoiceOptions {
        sizes: up_to(&[64, 128, 256, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB]),
        methods: none(),
        ..ChoiceOptions::new(Operation::CopyPersist)
    };
    let any = |operation| ChoiceOptions {
        sizes: up_to(&[64, 200, KIB, 5000, 32 * KIB, 200_000, MIB, 8 * MIB, 64 * MIB, 512 * MIB, 4 * GIB]),
        alignments: alignments.clone(),
        caches: caches.clone(),
        methods: none(),
        ..ChoiceOptions::new(operation)
    };
    // A choice does not know its condition, so it is judged over all of them.
    let between = |operation| ChoiceOptions {
        sizes: vec![64, max_length.min(256 * MIB)],
        unmeasured: true,
        alignments: alignments.clone(),
        ..ChoiceOptions::new(operation)
    };
    let stream = |operation| ChoiceOptions {
        sizes: up_to(&[MIB, 16 * MIB, 256 * MIB]),
        intents: vec![Intent::Stream],
        peers: Peers::None,
        ..ChoiceOptions::new(operation)
    };
    let choosing = ChoiceOptions {
        sizes: up_to(&[4 * KIB]),
        caches: vec![CacheState::Warm],
        methods: none(),
        ..ChoiceOptions::new(Operation::Clear)
    };
    let most = [Operation::Clear, Operation::Fill, Operation::Copy, Operation::CopyPersist];
    let regret = [Operation::Clear, Operation::Copy, Operation::CopyPersist];
    let two = ChoiceOptions { threads: vec![2], ..clear.clone() };
    let two = if Machine::current().processors < 2 { Vec::new() } else { vec![two] };
    let streams = [Operation::Clear, Operation::Copy].map(stream).to_vec();
    let part = |comparisons, judge, weight| Part { comparisons, judge, weight };
    let mut parts = vec![
        part(vec![clear], judge::clear_one_thread, 1.0),
        part(two, judge::clear_two_threads, 1.0),
        part(vec![copy], judge::copy, 1.0),
        part(vec![persist], judge::persist, 1.0),
        part(most.map(any).to_vec(), judge::never_below, 3.0),
        part(regret.map(between).to_vec(), judge::regret, 4.0),
        part(streams, judge::stream, 2.0),
        part(vec![choosing], judge::choosing, 0.3),
    ];
    // A part whose every length is too large has nothing to compare; its judge reports that.
    for part in &mut parts {
        part.comparisons.retain(|comparison| !comparison.sizes.is_empty());
    }
    parts
}

/// A check in words.
fn text(check: &Check) -> String {
    let Check { what, .. } = check;
    match (check.measured, check.met) {
        (Some(measured), Some(met)) => format!(
            "{what}: {} measured at worst ({}), {} wanted: {}.",
            check.unit.text(measured),
            check.note,
            check.bound.text(check.unit),
            if met { "met" } else { "not met" },
        ),
        _ => format!("{what}: {}.", check.note),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No target is forgotten, however small the lengths are.
    #[test]
    fn every_target_is_judged() {
        for max_length in [256, MIB, 4 * GIB] {
            let parts = parts(max_length);
            let targets: usize = parts.iter().map(|part| (part.judge)(&[]).len()).sum();
            assert_eq!((parts.len(), targets), (8, 15));
            let comparisons = || parts.iter().flat_map(|part| &part.comparisons);
            assert!(comparisons().all(|it| it.sizes.iter().all(|size| *size <= max_length)));
            for comparison in comparisons() {
                comparison.validate().unwrap();
            }
        }
    }

    #[test]
    fn bad_options_are_refused() {
        let refused = |options: TargetsOptions| options.validate().unwrap_err().to_string();
        let small = TargetsOptions { max_length: 100, ..TargetsOptions::default() };
        assert!(refused(small).starts_with("--max-size: less than 256 bytes"));
        let short = TargetsOptions { budget: Duration::ZERO, ..TargetsOptions::default() };
        assert!(refused(short).starts_with("--budget: "));
    }
}
