//! The measurements that the published tables are compared with.

use std::time::Duration;

use bulkmem::machine::Machine;
use bulkmem::method;
use bulkmem::{Operation, Pages};
use bulkmem_kmod::Attribute;

use super::published::published;
use crate::engine::stats::ENOUGH;
use crate::engine::{Direction, Measure, MethodSet, PageSize, Pattern, Peers};
use crate::measurements::{
    Attributes, ChunksOptions, ForkOptions, IopsOptions, PersistOptions, PollutionOptions, ReuseOptions,
    SizesOptions,
};
use crate::memory_left;

const MIB: u64 = 1 << 20;

/// Returns the measurements to compare the published tables with. They take a few minutes; `quick` ones, of smaller
/// extents, about one. All take five samples, the fewest that can be compared. Sizes that memory does not suffice for
/// are left out.
pub fn measurements(quick: bool) -> Vec<Box<dyn Measure>> {
    let facts = published();
    let runs = ENOUGH as usize;
    let most = memory_left().bytes / 2;
    let largest = if quick { 1 << 30 } else { u64::MAX };
    let sizes = facts.memset_by_size.sizes_mib.iter().map(|mib| mib * MIB);
    let sizes = sizes.filter(|size| *size <= most.min(largest)).collect();
    let base = PageSize(Pages::Base);
    let clear = SizesOptions {
        sizes,
        // As in `perf bench mem`: memory from malloc, cleared in one call.
        page_sizes: vec![base],
        loops: Some(1),
        methods: named(&["rep_stosb", "rep_stosq", "movnti"], Operation::Clear),
        peers: Peers::None,
        runs,
        ..SizesOptions::new(Operation::Clear)
    };
    let chunks = ChunksOptions {
        page_sizes: vec![base],
        methods: named(&["rep_stosb", "movnti", "clzero"], Operation::Clear),
        peers: Peers::None,
        runs,
        ..ChunksOptions::of(ChunksOptions::new().extent.min(largest))
    };
    let pollution = PollutionOptions {
        lists: vec![Machine::current().caches.sane().l1d / 2],
        methods: named(&["movnti", "store_8_clflushopt", "store_8_clwb"], Operation::CopyPersist),
        peers: Peers::None,
        ..PollutionOptions::new(Operation::CopyPersist)
    };
    let widths: Vec<&str> = facts.persist_by_width.rows.iter().map(|row| row.method.as_str()).collect();
    let others = facts.persist_throughput.rows.iter().map(|row| row.method.as_str());
    let mut persisted: Vec<&str> = widths.into_iter().chain(others).collect();
    persisted.sort_unstable();
    persisted.dedup();
    let persist = PersistOptions {
        patterns: vec![Pattern::Sequential],
        methods: named(&persisted, Operation::CopyPersist),
        peers: Peers::None,
        runs,
        ..PersistOptions::new()
    };
    let iops = IopsOptions {
        directions: vec![Direction::Read, Direction::Write],
        threads: vec![1],
        time: Duration::from_millis(if quick { 30 } else { 200 }),
        runs,
        ..IopsOptions::new()
    };
    let by_attribute = IopsOptions {
        attributes: Attributes::Named(vec![Attribute::Wb, Attribute::Wc, Attribute::Uc]),
        peers: Peers::None,
        ..iops.clone()
    };
    let mut fork = ForkOptions { runs, peers: Peers::None, ..ForkOptions::default() };
    if quick {
        fork.sizes.retain(|size| size.is_power_of_two());
    }
    let mut all: Vec<Box<dyn Measure>> = vec![
        Box::new(clear),
        Box::new(chunks),
        Box::new(persist),
        Box::new(pollution),
        Box::new(fork),
        Box::new(iops),
    ];
    // Needs the kernel module.
    if by_attribute.validate().is_ok() {
        all.push(Box::new(by_attribute));
    }
    for row in &facts.zero_then_read.rows {
        all.push(Box::new(ReuseOptions {
            operations: vec![Operation::Clear],
            sizes: vec![row.length],
            shares: vec![0.0, 100.0],
            // The same memory again and again, as in the source.
            footprint: Some(row.length),
            peers: Peers::None,
            runs,
            ..ReuseOptions::default()
        }));
    }
    all
}

/// Selects the named methods that this machine supports.
fn named(names: &[&str], operation: Operation) -> MethodSet {
    let able = |name: &&&str| {
        method::by_name(name).is_some_and(|method| method.does(operation) && method.available())
    };
    MethodSet::Named(names.iter().filter(able).map(|name| (*name).to_owned()).collect())
}
