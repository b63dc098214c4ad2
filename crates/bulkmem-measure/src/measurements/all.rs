//! Every measurement, at sizes that suit this machine.

use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::{Operation, method};

use crate::engine::{Measure, MeasureError, MethodSet, Peers, Share, memory_left};
use crate::measurements::{
    ApplicationOptions, BlocksOptions, Candidates, ChunksOptions, CorunOptions, ForkOptions, IopsOptions,
    NumaOptions, PersistOptions, PollutionOptions, ReuseOptions, SizesOptions, TargetOptions,
    ThresholdOptions, Victim, VmOptions, numa,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns every measurement, in the usual order. They take some minutes; `quick` ones, of fewer and smaller sizes, about
/// one. If the memory of this process is limited, measurements that need more are left out.
pub fn all(quick: bool) -> Vec<Box<dyn Measure>> {
    // Copies need twice as much, and others need some too.
    let most = (memory_left().bytes / 4).max(16 * MIB);
    let mut sizes = vec![64 << 10, 2 * MIB, 64 * MIB];
    if !quick {
        // From 4 KiB to 1 GiB.
        sizes = (0..10).map(|step| 4096 << (2 * step)).collect();
    }
    sizes.retain(|size| *size <= most);
    let by_size = |operation| SizesOptions { sizes: sizes.clone(), ..SizesOptions::new(operation) };
    // Ten minutes are the limit of everything.
    let mut chunks = ChunksOptions::of(ChunksOptions::default().extent.min(GIB));
    let mut vm = VmOptions::default();
    let mut persist = PersistOptions::default();
    let mut reuse = ReuseOptions::default();
    let mut fork = ForkOptions::default();
    let mut iops = IopsOptions { time: Duration::from_millis(200), ..IopsOptions::default() };
    let mut pollution = PollutionOptions::new(Operation::Clear);
    let application = |options| ApplicationOptions {
        time: Duration::from_millis(if quick { 5 } else { 20 }),
        target: TargetOptions { size: quick.then_some(128 * MIB), ..TargetOptions::ram() },
        ..options
    };
    let mut corun = CorunOptions::new(Victim::Walk);
    let mut threshold = ThresholdOptions::default();
    // The policy's choice and the C library; on a machine with one node, only for the report to say so.
    let methods = MethodSet::Named(vec![method::c_library().name.to_owned()]);
    let mut numa = NumaOptions {
        operations: vec![Operation::Clear, Operation::Copy],
        candidates: Candidates { methods, peers: Peers::None, ..Candidates::default() },
        optional: true,
        ..NumaOptions::default()
    };
    if quick || numa::all_is_local() {
        numa.operations.truncate(1);
    }
    if quick {
        chunks = ChunksOptions::of(chunks.extent.min(128 * MIB));
        vm.size = vm.size.min(128 * MIB);
        vm.page_sizes.truncate(1);
        persist.targets = vec![TargetOptions { size: Some(64 * MIB), ..TargetOptions::ram() }];
        reuse.sizes = vec![32 << 10, MIB, 16 * MIB];
        reuse.shares = vec![0.0, 25.0, 100.0];
        fork.sizes = vec![4 << 10, 64 << 10, 256 << 10];
        iops.time = Duration::from_millis(15);
        threshold.longest = 64 * MIB;
        iops.target = TargetOptions { size: Some(256 * MIB), ..TargetOptions::ram() };
        // Walks in the last level, which other processes share, take longest.
        let l2 = Machine::current().caches.sane().l2;
        pollution.lists.retain(|list| *list <= l2);
        corun.candidates = Candidates::named(["rep_stosb", "movnti", "clzero"], Operation::Clear);
    }
    let blocks = BlocksOptions::after(&persist);
    let mut all: Vec<Box<dyn Measure>> = vec![
        Box::new(by_size(Operation::Clear)),
        Box::new(by_size(Operation::Fill)),
        Box::new(by_size(Operation::Copy)),
        Box::new(chunks),
        Box::new(vm),
        Box::new(persist),
        Box::new(blocks),
        Box::new(pollution),
        Box::new(corun),
        Box::new(reuse),
        Box::new(fork),
        Box::new(iops),
        Box::new(application(ApplicationOptions::write_cache())),
        Box::new(application(ApplicationOptions::log())),
        Box::new(threshold),
        Box::new(numa),
    ];
    if memory_left().note().is_some() {
        all.retain(|it| !matches!(it.validate(), Err(MeasureError::TooLarge { .. })));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Measurement;

    #[test]
    fn nothing_is_left_out_and_quick_is_quicker() {
        let seconds = |quick| -> f64 { all(quick).iter().map(|it| it.seconds()).sum() };
        for quick in [false, true] {
            let measurements = all(quick).iter().map(|it| it.measurement()).collect::<Vec<_>>();
            // These have their own commands and time limits.
            let expected = Measurement::ALL.into_iter().filter(|it| {
                !matches!(it, Measurement::Choice | Measurement::Targets | Measurement::Tunables)
            });
            assert_eq!(measurements, expected.collect::<Vec<_>>());
            for it in all(quick) {
                it.validate().unwrap_or_else(|error| panic!("{}: {error}", it.measurement()));
            }
        }
        assert!(seconds(true) < seconds(false) / 2.0, "{} {}", seconds(true), seconds(false));
    }
}
