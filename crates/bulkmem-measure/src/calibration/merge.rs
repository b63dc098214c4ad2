//! Merges a calibration into an earlier profile: an operation's rules are replaced only by better ones.

use std::thread::sleep;
use std::time::Duration;

use crate::calibration::{Load, OperationProvenance, Profile};
use bulkmem::Operation;

use crate::engine::quality::host::{Snapshot, is_heavier};

/// A calibration, merged into an earlier profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The better measurements of both.
    pub profile: Profile,
    /// The operations whose earlier measurements were kept, with the reason.
    pub kept: Vec<(Operation, Kept)>,
    /// True if the profile differs from the earlier one.
    pub changed: bool,
}

/// Reason for keeping the earlier measurements of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The new ones were not finished.
    Unfinished,
    /// The new ones were taken under a heavier load.
    Quieter,
    /// There was no time for such lengths as the earlier ones have, or no memory.
    Longer,
}

/// Measurements that end before this length do not replace those that went further. Those that reach it do, however far the others went:
/// calibrations on one machine differ in how many of the longest ranges they have time for.
const FAR: u64 = 64 << 20;

/// Merges a calibration into an earlier one of the same machine.
///
/// Replaces the rules, figures and numbers of threads of an operation if it was measured to the end and, unless `force`,
/// not under a heavier load than before, nor only at far shorter lengths. For an operation that neither finished, keeps the one with more
/// samples.
pub fn merge(old: &Profile, new: &Profile, force: bool) -> Merged {
    let durability = new.durability.or(old.durability);
    let (rules, looks, threads, figures, module) = Default::default();
    let mut profile =
        Profile { durability, rules, looks, threads, figures, module, aliasing: None, ..new.clone() };
    profile.coverage.operations.clear();
    let mut kept = Vec::new();
    let mut changed = durability != old.durability;
    for operation in Operation::ALL {
        let (before, now) = (provenance_of(old, operation), provenance_of(new, operation));
        let nothing_new = now.is_none() && samples(new, operation) == 0;
        let why_kept = match (before, now) {
            (_, None) => {
                let less = before.is_some() || samples(old, operation) > samples(new, operation);
                less.then_some(Kept::Unfinished)
            }
            (None, Some(_)) => None,
            _ if force => None,
            _ if longest(new, operation) < longest(old, operation).min(FAR) => Some(Kept::Longer),
            (Some(before), Some(now)) => {
                is_heavier(now.load.as_ref(), before.load.as_ref()).then_some(Kept::Quieter)
            }
        };
        kept.extend(why_kept.filter(|_| !nothing_new).map(|why| (operation, why)));
        let keeps_old = why_kept.is_some() || nothing_new;
        changed |= !keeps_old;
        let (better, provenance) = if keeps_old { (old, before) } else { (new, now) };
        profile.coverage.operations.extend(provenance.cloned());
        profile.rules.extend(better.rules.iter().filter(|it| it.operation == operation).cloned());
        profile.looks.extend(better.looks.iter().filter(|it| it.operation == operation).cloned());
        profile.threads.extend(better.threads.iter().filter(|it| it.operation == operation).cloned());
        if operation == Operation::Clear {
            profile.module.clone_from(&better.module);
        }
        if operation == Operation::Copy {
            profile.aliasing.clone_from(&better.aliasing);
        }
        profile.figures.extend(better.figures.iter().filter(|it| it.operation == operation).cloned());
    }
    profile.coverage.complete = profile.coverage.operations.len() == Operation::ALL.len();
    Merged { profile, kept, changed }
}

/// Returns when and how an operation was measured; `None` if it was not measured to the end.
fn provenance_of(profile: &Profile, operation: Operation) -> Option<&OperationProvenance> {
    profile.coverage.operations.iter().find(|it| it.operation == operation)
}

fn longest(profile: &Profile, operation: Operation) -> u64 {
    let figures = profile.figures.iter().filter(|figure| figure.operation == operation);
    figures.map(|figure| figure.length).max().unwrap_or_default()
}

fn samples(profile: &Profile, operation: Operation) -> u64 {
    let figures = profile.figures.iter().filter(|figure| figure.operation == operation);
    figures.map(|figure| u64::from(figure.samples)).sum()
}

/// Measures the load on the machine for a while; `None` if it cannot be read.
pub fn load_during(time: Duration) -> Option<Load> {
    let before = Snapshot::here();
    sleep(time);
    before?.load()
}

/// True if other processes used clearly more of the processors than on an idle machine.
pub fn is_heavy(load: &Load) -> bool {
    is_heavier(Some(load), None)
}

/// True if a load is heavier than the one under which a profile's rules for each of these operations were measured, so
/// that none of them would be replaced.
pub fn is_heavier_than(load: &Load, profile: &Profile, operations: &[Operation]) -> bool {
    operations.iter().all(|operation| {
        provenance_of(profile, *operation).is_some_and(|before| is_heavier(Some(load), before.load.as_ref()))
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use crate::calibration::{
        Condition, Cost, Coverage, FORMAT, Figure, Mode, ModuleFigure, Rule, Saturation, VERSION,
    };
    use bulkmem::Durability;
    use bulkmem::method::Parameters;
    use bulkmem::policy::Situation;

    use super::*;
    use crate::Provenance;

    /// A profile with so many samples of each operation, of which some were measured to the end.
    fn profile(reason: &str, measured: &[(Operation, u32)], finished: &[(Operation, f64)]) -> Profile {
        let finished: Vec<_> = finished
            .iter()
            .map(|(operation, others)| {
                let load =
                    Load { others: *others, processors: 2, stolen: 0.0, throttled: 0.0, busiest: Vec::new() };
                (*operation, SystemTime::now(), Some(load))
            })
            .collect();
        let mode = if reason == "old" { Mode::Thorough } else { Mode::Quick };
        let of = |operation: &Operation, samples: u32| Figure {
            operation: *operation,
            cost: Cost::Throughput,
            method: "portable".to_owned(),
            parameters: Parameters::default(),
            length: 64,
            condition: Condition::new(true, false, 1),
            median_ns: 1.0,
            quartiles_ns: [1.0, 1.0],
            samples,
            disturbance_ns: None,
        };
        Profile {
            format: FORMAT.to_owned(),
            version: VERSION,
            provenance: Provenance::default(),
            coverage: Coverage::new(&Provenance::default(), mode, &finished),
            durability: None,
            looks: Vec::new(),
            aliasing: None,
            rules: measured
                .iter()
                .map(|(operation, _)| Rule {
                    operation: *operation,
                    situation: Situation::Throughput,
                    from: 0,
                    method: "portable".to_owned(),
                    parameters: Parameters::default(),
                    reason: reason.to_owned(),
                })
                .collect(),
            threads: measured
                .iter()
                .map(|(operation, samples)| Saturation {
                    operation: *operation,
                    from: 0,
                    threads: *samples as usize,
                })
                .collect(),
            figures: measured.iter().map(|(operation, samples)| of(operation, *samples)).collect(),
            module: vec![ModuleFigure {
                method: "movnti".to_owned(),
                prefetch_distance: None,
                extent: 64,
                chunk: 64,
                median_ns: 1.0,
                quartiles_ns: [1.0, 1.0],
                samples: if reason == "old" { 1 } else { 2 },
            }],
        }
    }

    /// So much of every operation.
    fn all<T: Copy>(each: T) -> [(Operation, T); Operation::ALL.len()] {
        Operation::ALL.map(|operation| (operation, each))
    }

    /// Whose rules an operation has.
    fn whose(profile: &Profile, operation: Operation) -> &str {
        let rules: Vec<_> = profile.rules.iter().filter(|rule| rule.operation == operation).collect();
        assert_eq!(rules.len(), 1, "{operation}");
        assert_eq!(profile.threads.iter().filter(|it| it.operation == operation).count(), 1);
        assert_eq!(profile.figures.iter().filter(|it| it.operation == operation).count(), 1);
        &rules[0].reason
    }

    #[test]
    fn an_operation_that_was_measured_replaces_its_rules_and_leaves_the_others() {
        let (measured, finished) = (all(100), all(0.0));
        let old = profile("old", &measured, &finished);
        let new = profile("new", &[(Operation::Persist, 5)], &[(Operation::Persist, 0.0)]);
        assert!(!new.coverage.complete, "one operation is not all");
        let merged = merge(&old, &new, false);
        assert!(merged.changed && merged.kept.is_empty() && merged.profile.coverage.complete);
        assert_eq!(merged.profile.module, old.module);
        for operation in Operation::ALL {
            let (reason, mode) = match operation {
                Operation::Persist => ("new", Mode::Quick),
                _ => ("old", Mode::Thorough),
            };
            assert_eq!(whose(&merged.profile, operation), reason);
            assert_eq!(provenance_of(&merged.profile, operation).unwrap().mode, mode);
        }
    }

    #[test]
    fn an_unfinished_operation_never_replaces_a_finished_one() {
        let (measured, finished) = (all(100), all(0.0));
        let old = profile("old", &measured, &finished);
        let new =
            profile("new", &[(Operation::Clear, 900), (Operation::Fill, 900)], &[(Operation::Clear, 0.0)]);
        for force in [false, true] {
            let merged = merge(&old, &new, force);
            assert_eq!(merged.kept, [(Operation::Fill, Kept::Unfinished)]);
            assert_eq!(whose(&merged.profile, Operation::Clear), "new");
            assert_eq!(merged.profile.module, new.module, "the module clears");
            assert_eq!(whose(&merged.profile, Operation::Fill), "old");
            assert!(merged.changed && merged.profile.coverage.complete);
        }
        let nothing = merge(&old, &profile("new", &[(Operation::Clear, 900)], &[]), true);
        assert!(!nothing.changed);
        assert_eq!(nothing.profile.rules, old.rules);
        assert_eq!(nothing.profile.coverage.operations, old.coverage.operations);
    }

    #[test]
    fn of_two_unfinished_measurements_the_larger_stays() {
        let old = profile("old", &[(Operation::Clear, 100), (Operation::Fill, 10)], &[]);
        let new = profile("new", &[(Operation::Clear, 99), (Operation::Fill, 11), (Operation::Copy, 1)], &[]);
        let merged = merge(&old, &new, false);
        let found = [Operation::Clear, Operation::Fill, Operation::Copy].map(|it| whose(&merged.profile, it));
        assert_eq!(found, ["old", "new", "new"]);
        assert!(!merged.profile.coverage.complete && merged.profile.coverage.operations.is_empty());
    }

    #[test]
    fn durability_is_kept_until_a_calibration_sets_it() {
        let (included, flush) = (Some(Durability::CachesIncluded), Some(Durability::FlushToMemory));
        let plain = profile("old", &all(100), &all(0.0));
        let old = Profile { durability: included, ..plain.clone() };
        assert_eq!(merge(&old, &plain, false).profile.durability, included);
        assert_eq!(merge(&plain, &plain, false).profile.durability, None);
        let set = Profile { durability: flush, ..profile("new", &[], &[]) };
        let merged = merge(&old, &set, false);
        assert_eq!((merged.profile.durability, merged.changed), (flush, true));
        assert_eq!(merged.profile.rules, old.rules);
    }

    #[test]
    fn what_had_no_time_for_long_ranges_replaces_nothing_that_had_unless_forced() {
        let up_to = |reason, length| {
            let mut profile = profile(reason, &all(100), &all(0.0));
            profile.figures[0].length = length;
            profile
        };
        let operation = Operation::ALL[0];
        let old = up_to("old", 1 << 30);
        for (length, keeper) in [(256, "old"), (FAR - 1, "old"), (FAR, "new"), (2 << 30, "new")] {
            let merged = merge(&old, &up_to("new", length), false);
            assert_eq!(whose(&merged.profile, operation), keeper, "{length}");
            assert_eq!(merged.kept, Vec::from_iter((keeper == "old").then_some((operation, Kept::Longer))));
            assert_eq!(whose(&merged.profile, Operation::ALL[1]), "new");
        }
        assert_eq!(whose(&merge(&old, &up_to("new", 256), true).profile, operation), "new");
        assert_eq!(whose(&merge(&up_to("old", 4096), &up_to("new", 4096), false).profile, operation), "new");
    }

    #[test]
    fn a_heavier_load_replaces_nothing_unless_forced() {
        let (measured, quiet) = (all(100), all(0.1));
        let old = profile("old", &measured, &quiet);
        let mut finished = all(0.15);
        finished[1].1 = 1.5;
        let new = profile("new", &measured, &finished);
        let merged = merge(&old, &new, false);
        assert_eq!(merged.kept, [(Operation::ALL[1], Kept::Quieter)]);
        assert_eq!(whose(&merged.profile, Operation::ALL[1]), "old");
        assert_eq!(whose(&merged.profile, Operation::ALL[0]), "new");
        assert_eq!(merge(&old, &new, true).kept, []);
        let load = new.coverage.operations[1].load.clone().unwrap();
        assert!(is_heavier_than(&load, &old, &Operation::ALL));
        let part = profile("old", &measured[..1], &quiet[..1]);
        assert!(is_heavier_than(&load, &part, &Operation::ALL[..1]));
        assert!(!is_heavier_than(&load, &part, &Operation::ALL), "the others would be new");
    }
}
