//! Tests of recovery after a power failure and of the order of stores.

use std::collections::HashMap;

use bulkmem::machine::Machine;
use bulkmem::policy::Policy;
use testkit::x86_64::store_tracker::{State, StoreTracker};

use super::*;
use crate::engine::{Content, PageSize};
use crate::measurements::applications::tests::{
    at, durable_at_the_end, durable_before, everybody, range, traced,
};

/// Bytes of a block and of memory for a cache, and a cache in it.
const BLOCK: usize = 128;
const MEMORY: usize = 16 << 10;

fn cache(memory: &mut [u64]) -> Cache {
    let memory = range(memory);
    let bytes = (Cache::slots_in(memory.length, BLOCK) * BLOCK) as u64;
    let origin = Buffer::new(bytes, PageSize(Pages::Base), Content::Mixed).unwrap();
    // SAFETY: the caller keeps the memory as long as the cache, and only reads it.
    unsafe { Cache::new(memory, BLOCK, 30, origin).unwrap() }
}

/// Returns the blocks that a reader finds in memory, as after a power failure, or else in the origin.
fn found(cache: &Cache) -> Vec<Vec<u8>> {
    let count = cache.order.len();
    // SAFETY: within the memory, aligned, and nothing writes at the same time.
    let word = |at: *mut u8| unsafe { at.cast::<u64>().read_volatile() };
    // SAFETY: a whole slot or block of the origin.
    let bytes = |at: *mut u8| unsafe { std::slice::from_raw_parts(at, BLOCK) }.to_vec();
    let committed = word(cache.superblock);
    let mut newest: HashMap<u64, (u64, usize)> = HashMap::new();
    for slot in 0..count {
        let entry = cache.entries.wrapping_add(slot * ENTRY);
        let (block, commit) = (word(entry), word(entry.wrapping_add(8)));
        if commit < committed {
            let known = newest.entry(block).or_insert((commit, slot));
            *known = (*known).max((commit, slot));
        }
    }
    let of = |block: usize| match newest.get(&(block as u64)) {
        Some((_, slot)) => bytes(cache.slots.wrapping_add(slot * BLOCK)),
        None => bytes(cache.original(block)),
    };
    (0..count).map(of).collect()
}

/// At any time, a reader finds each block as it was at the last commit, and the program as it was written last.
#[test]
fn a_reader_of_the_slots_finds_what_was_committed() {
    let policy = Policy::defaults(Machine::current());
    for (name, by) in everybody(&policy) {
        for group in [1, 2, 7] {
            let mut memory = vec![0u64; MEMORY / 8];
            let mut cache = cache(&mut memory);
            let mut committed = found(&cache);
            let mut latest = committed.clone();
            let mut random = fastrand::Rng::with_seed(group);
            for step in 0..600 {
                // Some blocks are written far more often than others.
                let most = if random.bool() { 4 } else { latest.len() };
                let block = random.usize(..most);
                if random.u8(..4) == 0 {
                    cache.read(block);
                    assert_eq!(cache.read[..], latest[block], "{name}, {group}: block {block} at {step}");
                } else {
                    random.fill(&mut cache.written);
                    cache.write(block, &by, group);
                    latest[block] = cache.written.to_vec();
                    if cache.writes == 0 {
                        committed.clone_from(&latest);
                    }
                }
                assert!(found(&cache) == committed, "{name}, {group}: step {step}");
            }
            assert!(cache.oldest > cache.order.len(), "{name}: every slot was taken again");
        }
    }
}

#[test]
fn blocks_and_entries_are_durable_before_the_commit_and_that_before_older_ones_are_dropped() {
    let policy = Policy::defaults(Machine::current());
    for (name, by) in everybody(&policy) {
        let mut memory = vec![0u64; MEMORY / 8];
        let mut cache = cache(&mut memory);
        // What is done once per process.
        cache.read(0);
        cache.write(0, &by, 1);
        let superblock = at(cache.superblock, 8);
        // Nothing is written back: the oldest block is written again.
        let oldest = cache.oldest;
        assert_eq!(cache.newest[1], Some(oldest));
        let trace = traced(|| cache.write(1, &by, 1));
        let entry = at(cache.entries.wrapping_add(cache.slot(oldest) * ENTRY), ENTRY);
        durable_before(&trace, superblock.clone(), entry.clone(), &name);
        durable_at_the_end(&trace, entry, &name);
        let (free, oldest) = (cache.free, cache.oldest);
        // One that has a slot, and one that only the origin has.
        let again = 9;
        let last = cache.newest.len() - 1;
        assert!(cache.newest[again].is_some() && cache.newest[last].is_none());
        let superseded = cache.newest[again].unwrap();
        let trace = traced(|| {
            cache.write(again, &by, 2);
            cache.write(last, &by, 2);
        });
        assert_eq!((cache.free, cache.writes), (free + 2, 0));
        assert!(cache.oldest > oldest, "blocks were written back");
        let entry = |place| at(cache.entries.wrapping_add(cache.slot(place) * ENTRY), ENTRY);
        for place in [free, free + 1] {
            durable_before(&trace, at(cache.data(place), BLOCK), superblock.clone(), &name);
            durable_before(&trace, entry(place), superblock.clone(), &name);
        }
        for place in (oldest..cache.oldest).chain([superseded]) {
            durable_before(&trace, superblock.clone(), entry(place), &name);
            // An entry is empty before its slot is free.
            durable_at_the_end(&trace, entry(place), &name);
        }
        // The first places hold the blocks of their numbers.
        for place in oldest..cache.oldest {
            let original = at(cache.original(place), BLOCK);
            let origin =
                StoreTracker::before_store(&trace, original, State::Untouched, entry(place)).unwrap();
            assert_eq!(
                origin.worst().unwrap().1,
                State::Cached,
                "{name}: block {place} was copied to the origin"
            );
            assert_eq!(origin.stores_pending, 0, "{name}: and a fence came afterwards");
        }
    }
}
