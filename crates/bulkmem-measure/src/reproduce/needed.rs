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
        candidates: named(["rep_stosb", "rep_stosq", "movnti"], Operation::Clear),
        ..SizesOptions::new(Operation::Clear)
    };
    let chunks = ChunksOptions {
        page_sizes,
        candidates: named(["rep_stosb", "movnti", "clzero"], Operation::Clear),
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
        candidates: named(persisted, Operation::CopyPersist),
        ..PersistOptions::default()
    };
    let pollution = PollutionOptions {
        lists: vec![Machine::current().caches.sane().l1d / 2],
        targets: blocks.targets.clone(),
        candidates: named(["movnti", "store_8_clflushopt", "store_8_clwb"], Operation::CopyPersist),
        ..PollutionOptions::new(Operation::CopyPersist)
    };
    let time = Duration::from_millis(if quick { 30 } else { 200 });
    let write_cache = ApplicationOptions {
        // As dm-writecache commits on its own.
        groups: vec![64],
        time,
        candidates: named(["movnti", "store_8_clflushopt"], Operation::CopyPersist),
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
    let copy = SizesOptions {
        sizes: vec![COPIES],
        candidates: Candidates { methods: MethodSet::Named(copies()), ..no_peers() },
        ..SizesOptions::new(Operation::Copy)
    };
    let vm = VmOptions {
        threads: vec![1],
        candidates: named([], Operation::Clear),
        hint: BulkHint::available().is_ok(),
        ..VmOptions::default()
    };
    let vm = VmOptions { size: vm.size.min(largest), ..vm };
    let corun = CorunOptions {
        candidates: named(["rep_stosb", "movnti"], Operation::Clear),
        ..CorunOptions::new(Victim::Walk)
    };
    let threshold = ThresholdOptions { operations: vec![Operation::Copy], ..ThresholdOptions::default() };
    let threshold = ThresholdOptions { longest: threshold.longest.min(largest / 4), ..threshold };
    let mut all: Vec<Box<dyn Measure>> = vec![
        Box::new(clear),
        Box::new(copy),
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
    all.extend(facts.zero_then_read.rows.iter().map(|row| -> Box<dyn Measure> {
        Box::new(ReuseOptions {
            operations: vec![Operation::Clear],
            sizes: vec![row.length],
            shares: vec![0.0, 100.0],
            // The same memory again and again, as in the source.
            footprint: Some(row.length),
            candidates: no_peers(),
            ..ReuseOptions::default()
        })
    }));
    all
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

/// Selects the named methods that this machine supports, without peers.
fn named<'n>(names: impl IntoIterator<Item = &'n str>, operation: Operation) -> Candidates {
    let able = |name: &&str| {
        method::by_name(name).is_some_and(|method| method.does(operation) && method.available())
    };
    let methods = MethodSet::Named(names.into_iter().filter(able).map(str::to_owned).collect());
    Candidates { methods, ..no_peers() }
}
