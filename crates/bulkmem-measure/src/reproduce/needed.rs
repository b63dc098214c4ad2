//! The measurements that the published tables are compared with.

use std::collections::BTreeSet;
use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::{Operation, Pages};
use bulkmem_kmod::{Attribute, BulkHint};

use super::conclusions::{LOOPS, NONTEMPORAL};
use super::ours::COPIES;
use super::published::published;
use crate::engine::{Direction, Measure, MethodSet, PageSize, Pattern, Peers};
use crate::measurements::{
    ApplicationOptions, Attributes, BlocksOptions, Candidates, ChunksOptions, CorunOptions, ForkOptions,
    IopsOptions, PersistOptions, PollutionOptions, ReuseOptions, SizesOptions, TargetOptions,
    ThresholdOptions, Victim, VmOptions,
};
use crate::memory_left;

/// Returns the measurements to compare the published tables with. They take a few minutes; `quick` ones, of smaller extents,
/// about one. All take five samples, the fewest that can be compared. Sizes that do not fit memory are left out. Persistent
/// writes go to the targets.
pub fn measurements(quick: bool, targets: &[TargetOptions]) -> Vec<Box<dyn Measure>> {
    let facts = published();
    let most = memory_left().bytes / 2;
    let largest = if quick { 1 << 30 } else { u64::MAX };
    let sizes = facts.memset_by_size.lengths.iter().map(|mib| mib << 20);
    // As in `perf bench mem`: memory from malloc, cleared in one call.
    let page_sizes = vec![PageSize(Pages::Base)];
    let clear = SizesOptions {
        sizes: sizes.filter(|size| *size <= most.min(largest)).collect(),
        page_sizes: page_sizes.clone(),
        loops: Some(1),
        candidates: Candidates::named(["rep_stosb", "rep_stosq", "movnti"], Operation::Clear),
        ..SizesOptions::new(Operation::Clear)
    };
    let chunks = ChunksOptions {
        page_sizes,
        candidates: Candidates::named(["rep_stosb", "movnti", "clzero"], Operation::Clear),
        ..ChunksOptions::of(ChunksOptions::default().extent.min(largest))
    };
    let persisted = facts.persist_by_width.rows.iter().map(|row| &row.method);
    let persisted = persisted.chain(facts.persist_throughput.rows.iter().map(|row| &row.method));
    let persisted: BTreeSet<&str> = persisted.map(String::as_str).collect();
    let blocks = BlocksOptions::after(&PersistOptions {
        targets: targets.to_vec(),
        patterns: vec![Pattern::Sequential],
        ..PersistOptions::default()
    });
    let persist = PersistOptions {
        targets: targets.to_vec(),
        patterns: vec![Pattern::Sequential],
        candidates: Candidates::named(persisted, Operation::CopyPersist),
        ..PersistOptions::default()
    };
    let pollution = PollutionOptions { targets: blocks.targets.clone(), ..pollution() };
    let time = Duration::from_millis(if quick { 30 } else { 200 });
    let write_cache = ApplicationOptions {
        // As dm-writecache commits on its own.
        groups: vec![64],
        time,
        candidates: Candidates::named(["movnti", "store_8_clflushopt"], Operation::CopyPersist),
        ..ApplicationOptions::write_cache()
    };
    let mut fork = ForkOptions { candidates: no_peers(), ..ForkOptions::default() };
    if quick {
        fork.sizes.retain(|size| size.is_power_of_two());
    }
    let iops = IopsOptions {
        directions: vec![Direction::Read, Direction::Write],
        threads: vec![1],
        time,
        ..IopsOptions::default()
    };
    let attributes = Attributes::Named(vec![Attribute::Wb, Attribute::Wc, Attribute::Uc]);
    let by_attribute = IopsOptions { attributes, candidates: no_peers(), ..iops.clone() };
    let vm = VmOptions {
        threads: vec![1],
        candidates: Candidates::named([], Operation::Clear),
        hint: BulkHint::available().is_ok(),
        ..VmOptions::default()
    };
    let vm = VmOptions { size: vm.size.min(largest), ..vm };
    let corun = CorunOptions {
        candidates: Candidates::named(["rep_stosb", "movnti"], Operation::Clear),
        ..CorunOptions::new(Victim::Walk)
    };
    let threshold = ThresholdOptions { operations: vec![Operation::Copy], ..ThresholdOptions::default() };
    let threshold = ThresholdOptions { longest: threshold.longest.min(largest / 4), ..threshold };
    let mut all: Vec<Box<dyn Measure>> = vec![
        Box::new(clear),
        Box::new(copy()),
        Box::new(chunks),
        Box::new(vm),
        Box::new(corun),
        Box::new(persist),
        Box::new(blocks),
        Box::new(pollution),
        Box::new(write_cache),
        Box::new(fork),
        Box::new(iops),
        Box::new(threshold),
    ];
    // Needs the kernel module.
    if by_attribute.validate().is_ok() {
        all.push(Box::new(by_attribute));
    }
    all.extend(reuse());
    all
}

/// Returns what the conclusions need besides [`all`](crate::measurements::all): other sizes and methods. Its `quick` extents are
/// not far beyond the last-level cache.
pub fn besides_all(quick: bool) -> Vec<Box<dyn Measure>> {
    let mut all: Vec<Box<dyn Measure>> = vec![Box::new(copy()), Box::new(pollution())];
    all.extend(reuse());
    if quick && memory_left().bytes / 4 >= 1 << 30 {
        all.push(Box::new(SizesOptions {
            sizes: vec![16 << 20, 1 << 30],
            candidates: Candidates::named(["rep_stosb", "movnti"], Operation::Clear),
            ..SizesOptions::new(Operation::Clear)
        }));
        all.push(Box::new(ChunksOptions {
            chunks: vec![4 << 10, 2 << 20, 1 << 30],
            candidates: Candidates::named(["rep_stosb", "movnti", "clzero"], Operation::Clear),
            ..ChunksOptions::of(1 << 30)
        }));
    }
    all
}

fn copy() -> SizesOptions {
    SizesOptions {
        sizes: vec![COPIES],
        candidates: Candidates { methods: MethodSet::Named(copies()), ..no_peers() },
        ..SizesOptions::new(Operation::Copy)
    }
}

fn pollution() -> PollutionOptions {
    PollutionOptions {
        lists: vec![Machine::current().caches.sane().l1d / 2],
        candidates: Candidates::named(
            ["movnti", "store_8_clflushopt", "store_8_clwb"],
            Operation::CopyPersist,
        ),
        ..PollutionOptions::new(Operation::CopyPersist)
    }
}

fn reuse() -> impl Iterator<Item = Box<dyn Measure>> {
    published().zero_then_read.rows.iter().map(|row| -> Box<dyn Measure> {
        Box::new(ReuseOptions {
            operations: vec![Operation::Clear],
            sizes: vec![row.length],
            shares: vec![0.0, 100.0],
            // The same memory again and again, as in the source.
            footprint: Some(row.length),
            candidates: no_peers(),
            ..ReuseOptions::default()
        })
    })
}

/// The copies that conclusions are about: by the string instruction, by loops at two places in the code, without and with
/// prefetches, and by non-temporal stores.
fn copies() -> Vec<String> {
    let prefetching = LOOPS.map(|name| format!("{name}[read_distance=512]"));
    let others = ["rep_movsd", "loop_aligned_sse2", "loop_unaligned_sse2", LOOPS[0]];
    let all = NONTEMPORAL.into_iter().chain(others).chain(prefetching.iter().map(String::as_str));
    let available = |text: &&str| {
        let name = text.split('[').next().unwrap_or_default();
        method::by_name(name).is_some_and(|method| method.does(Operation::Copy) && method.available())
    };
    all.filter(available).map(str::to_owned).collect()
}

fn no_peers() -> Candidates {
    Candidates { peers: Peers::None, ..Candidates::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_too_small_for_a_measurement_is_refused_before_any() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("small");
        let target = TargetOptions { target, size: Some(64 << 10), keep: true, ..TargetOptions::ram() };
        let all = measurements(true, &[target]);
        let refused: Vec<String> =
            all.iter().filter_map(|it| Some(it.validate().err()?.to_string())).collect();
        assert!(refused.iter().any(|it| it.contains("65536 bytes are too small")), "{refused:?}");
    }
}
