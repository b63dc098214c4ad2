//! The ranges that operations use, and the length of samples.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use bulkmem::policy::Choice;

use super::*;
use crate::engine::{CacheState, Kind};

fn test() -> Candidate {
    Candidate::named(Kind::Control, "test")
}

fn workloads() -> Workloads {
    let arena = Arena::new(16 << 20, 1 << 20, Pages::Transparent, Duration::from_secs(60)).unwrap();
    Workloads::new(Instant::now(), arena, Rc::default())
}

fn cell(operation: Operation, cost: Cost, length: u64, aligned: bool, warm: bool) -> Cell {
    Cell::new(operation, cost, length, Condition::new(aligned, warm, 1))
}

const SAMPLES: usize = 5;

/// The ranges of several samples: destinations and sources, as addresses.
fn visited(workloads: &mut Workloads, cell: &Cell) -> Vec<(usize, usize)> {
    let visited = RefCell::new(Vec::new());
    for _ in 0..SAMPLES {
        let taken = workloads.run(cell, test(), |dst, src, length| {
            assert_eq!(length as u64, cell.length);
            visited.borrow_mut().push((dst.addr(), src.addr()));
            // As long as a real call: otherwise a sample would have thousands of them.
            if length > WARMED_EACH {
                std::thread::sleep(Duration::from_nanos(SAMPLE_NS as u64));
            }
        });
        taken.unwrap();
    }
    visited.into_inner()
}

fn distinct(addresses: impl Iterator<Item = usize>) -> usize {
    addresses.collect::<BTreeSet<_>>().len()
}

#[test]
fn ranges_lie_in_the_arena_apart_and_aligned_as_asked() {
    let mut workloads = workloads();
    let (destination, source) = (workloads.arena.destination, workloads.arena.source);
    for operation in Operation::ALL {
        for length in [1, 64, 1000, 5 << 20] {
            for aligned in [true, false] {
                for warm in [true, false] {
                    let cell = cell(operation, Cost::Throughput, length, aligned, warm);
                    for (dst, src) in visited(&mut workloads, &cell) {
                        for (at, raw_range) in [(dst, destination), (src, source)] {
                            let start = raw_range.start.addr();
                            assert!(
                                at >= start && at + length as usize <= start + raw_range.length,
                                "{cell:?}"
                            );
                        }
                        assert_eq!(dst % LINE == 0, aligned, "{cell:?}");
                        assert_eq!(src % LINE == dst % LINE, aligned, "unaligned ones differ: {cell:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn cells_in_base_pages_have_an_arena_of_their_own() {
    let mut workloads = workloads();
    let in_base_pages = Arena::new(16 << 20, 1 << 20, Pages::Base, Duration::from_secs(60)).unwrap();
    let page = bulkmem::machine::Machine::current().page_size;
    assert_eq!(in_base_pages.backing_page_size(), page);
    let sides = |arena: &Arena| [arena.destination, arena.source];
    let arenas = [sides(&workloads.arena), sides(&in_base_pages)];
    workloads.in_base_pages = Some(in_base_pages);
    for base_pages in [true, false] {
        let operations = [Operation::Clear, Operation::Copy, Operation::CopyPersist, Operation::Persist];
        let cells = operations.into_iter().flat_map(|operation| {
            [(true, 100), (false, 100), (true, 1 << 20), (false, 1 << 20)].map(|(warm, length)| {
                let condition = Condition { base_pages, ..Condition::new(false, warm, 1) };
                Cell::new(operation, Cost::Throughput, length, condition)
            })
        });
        for cell in cells {
            let length = cell.length;
            for (dst, src) in visited(&mut workloads, &cell) {
                for (at, side) in [dst, src].into_iter().zip(arenas[usize::from(base_pages)]) {
                    let start = side.start.addr();
                    assert!(at >= start && at + length as usize <= start + side.length, "{cell:?}");
                }
            }
        }
    }
}

#[test]
fn warm_stays_for_a_sample_cold_wanders_and_persist_reads_what_is_cached() {
    let mut workloads = workloads();
    let mut configs = |operation, warm| {
        let cell = cell(operation, Cost::Throughput, 4096, true, warm);
        let visited = visited(&mut workloads, &cell);
        let (dst, src) = (visited.iter().map(|it| it.0), visited.iter().map(|it| it.1));
        (distinct(dst), distinct(src), visited.len())
    };
    let (dst, src, all) = configs(Operation::Copy, true);
    assert!((2..=SAMPLES).contains(&dst) && src == dst && all > 100, "{dst} {src} of {all}");
    let (dst, src, all) = configs(Operation::Copy, false);
    assert!(dst > 100.min(all / 4) && src > 100.min(all / 4), "{dst} {src} of {all}");
    let (dst, src, all) = configs(Operation::CopyPersist, false);
    assert!(dst > 100.min(all / 4) && (2..=SAMPLES).contains(&src), "{dst} {src} of {all}");
    let (dst, _, _) = configs(Operation::Persist, true);
    assert!(dst > 1, "a line flushed already has nothing to write back");
}

/// Otherwise warm memory would be cold for a method that bypasses the cache, which leaves none of its ranges in it.
#[test]
fn long_warm_ranges_are_touched_before_each_call() {
    let mut workloads = workloads();
    for (operation, length) in [(Operation::Clear, WARMED_EACH), (Operation::Copy, 300_000)] {
        let cell = cell(operation, Cost::Throughput, length as u64, false, true);
        for _ in 0..3 {
            let taken = workloads.run(&cell, test(), |dst, _, length| {
                // SAFETY: the range lies in the arena.
                let bytes = unsafe { std::slice::from_raw_parts_mut(dst, length) };
                assert!(bytes.iter().step_by(LINE).all(|byte| *byte == 1), "{cell:?}");
                bytes.fill(0);
            });
            let taken = taken.unwrap();
            assert!(taken.ns > 0.0 && taken.operations >= 1);
        }
    }
}

/// Some methods evict their source, so that the next call with it is slower.
#[test]
fn a_warm_source_is_as_the_call_before_left_it() {
    let mut workloads = workloads();
    for (operation, warm) in
        [(Operation::Copy, false), (Operation::Copy, true), (Operation::CopyPersist, false)]
    {
        let condition = Condition { source: Some(CacheState::Warm), ..Condition::new(false, warm, 1) };
        let cell = Cell::new(operation, Cost::Throughput, WARMED_EACH as u64, condition);
        let visited = RefCell::new(Vec::new());
        let taken = workloads.run(&cell, test(), |dst, src, _| {
            visited.borrow_mut().push((dst.addr(), src.addr()));
            spin(SAMPLE_NS);
        });
        let taken = taken.unwrap();
        assert_eq!((taken.operations, taken.calls), (1, 2));
        let [(dst, src), (next_dst, next_src)] = visited.into_inner()[..] else {
            panic!("a call that is not timed, and one that is")
        };
        assert_eq!((src, dst == next_dst), (next_src, warm), "{cell:?}");
        assert_eq!(dst % LINE, next_dst % LINE);
    }
}

/// The time and the number of operations belong together, also in the first sample, which finds out how many fit.
#[test]
fn operations_are_those_that_were_timed() {
    let mut workloads = workloads();
    for (length, warm) in [(64, true), (WARMED_EACH as u64, true), (100_000, true), (64 << 10, false)] {
        let cell = cell(Operation::Clear, Cost::Throughput, length, true, warm);
        let each = Duration::from_micros(2);
        for _ in 0..3 {
            let taken = workloads.run(&cell, test(), |_, _, _| {
                let start = Instant::now();
                while start.elapsed() < each {}
            });
            let ns = taken.unwrap().ns;
            assert!(ns >= each.as_nanos() as f64, "{cell:?}: {ns} ns");
        }
    }
}

#[test]
fn source_and_destination_may_be_in_different_states() {
    let mut workloads = workloads();
    for (warm, source) in [(false, CacheState::Warm), (true, CacheState::Cold)] {
        let condition = Condition { source: Some(source), ..Condition::new(true, warm, 1) };
        let visited = visited(&mut workloads, &Cell::new(Operation::Copy, Cost::Throughput, 4096, condition));
        let (dst, src) = (distinct(visited.iter().map(|it| it.0)), distinct(visited.iter().map(|it| it.1)));
        let [stays, wanders] = if warm { [dst, src] } else { [src, dst] };
        assert!(stays <= SAMPLES && wanders > 100.min(visited.len() / 4), "{dst} {src} of {}", visited.len());
    }
}

/// Pages of a range that are mapped.
fn mapped(start: *mut u8, length: usize) -> usize {
    let page = Machine::current().page_size;
    let first = start.wrapping_sub(start.addr() % page);
    let length = start.addr() + length - first.addr();
    let mut pages = vec![0u8; length.div_ceil(page)];
    // SAFETY: the range is part of a mapping, and the vector has a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(first.cast(), length, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn no_page_of_a_fresh_destination_is_mapped_before_it_is_written() {
    let mut workloads = workloads();
    for pages in [Pages::Base, Pages::Transparent] {
        for (cost, length, aligned) in
            [(Cost::Throughput, 64 << 10, true), (Cost::Reuse, 3 << 20, false), (Cost::Stream, 100_000, true)]
        {
            let cell = cell(Operation::Copy, cost, length, aligned, false);
            let cell = Cell { fresh: Some(pages), ..cell };
            let calls = RefCell::new(0);
            for _ in 0..3 {
                let taken = workloads.run(&cell, test(), |dst, _, length| {
                    assert_eq!(mapped(dst, length), 0, "{cell:?}");
                    // SAFETY: the range is a destination for this call.
                    unsafe { dst.write_bytes(1, length) };
                    assert!(mapped(dst, length) >= length / Machine::current().page_size, "{cell:?}");
                    *calls.borrow_mut() += 1;
                });
                assert!(taken.unwrap().ns > 0.0);
            }
            assert!(calls.into_inner() >= 3);
            let short = cost == Cost::Throughput;
            assert!(
                !short || workloads.fresh.kept() > 1,
                "the next destination gets pages that left the caches"
            );
        }
    }
}

#[test]
fn what_is_flushed_was_written_just_before() {
    let mut workloads = workloads();
    let cell = cell(Operation::Persist, Cost::Throughput, 200, false, true);
    let written = RefCell::new(true);
    let taken = workloads.run(&cell, test(), |dst, _, length| {
        // SAFETY: the range lies in the arena.
        let lines = unsafe { std::slice::from_raw_parts(dst, length) };
        *written.borrow_mut() &= lines.iter().step_by(LINE).all(|byte| *byte == 1);
    });
    taken.unwrap();
    assert!(written.into_inner());
}

#[test]
fn a_batch_that_was_measured_too_small_grows() {
    let mut workloads = workloads();
    let cell = cell(Operation::Clear, Cost::Throughput, 64, true, true);
    let key = (cell, test());
    workloads.batches.insert(key.clone(), 1);
    let calls = RefCell::new(0u64);
    // On a busy machine, an interruption may last as long as a sample should.
    for _ in 0..10 {
        workloads.run(&cell, test(), |_, _, _| *calls.borrow_mut() += 1).unwrap();
        if workloads.batches[&key] > 1 {
            break;
        }
    }
    assert!(workloads.batches[&key] > 1);
    assert!(calls.into_inner() > 100, "nearly nothing has to be done very often to span a sample");
}

#[test]
fn every_cost_calls_the_operation_and_only_stream_has_a_disturbance() {
    let mut workloads = workloads();
    for cost in [Cost::Throughput, Cost::Reuse, Cost::Stream] {
        let cell = cell(Operation::Copy, cost, 4096, true, false);
        let calls = RefCell::new(0);
        let sample = workloads.run(&cell, test(), |_, _, _| *calls.borrow_mut() += 1).unwrap();
        assert!(calls.into_inner() > 0);
        assert!(sample.ns > 0.0);
        assert_eq!(sample.disturbance_ns.is_some(), cost == Cost::Stream);
    }
}

#[test]
fn an_extent_is_cleared_whole_and_only_where_other_bytes_were() {
    let mut workloads = workloads();
    let RawRange { start, length } = workloads.arena.destination;
    // SAFETY: the range lies in the arena, which lives as long as the test.
    let contents = |from, to| unsafe { std::slice::from_raw_parts(start.wrapping_add(from), to - from) };
    let part = length / 5 * 2;
    for name in ["portable", "movnti", "rep_stosb"] {
        let Some(method) = bulkmem::method::by_name(name) else { continue };
        let choice = Choice::of(method, Operation::Clear);
        workloads.cleared = length;
        for (chunk, end) in [(4096, part), (2 << 20, 2 * part), (part, part)] {
            assert!(workloads.extent(&Extent { choice, length: part, chunk }) > 0.0);
            assert_eq!(workloads.cleared, end, "the third does not fit and starts over");
            assert!(contents(0, end).iter().all(|byte| *byte == 0), "{name}");
            assert!(contents(end, length).iter().all(|byte| *byte != 0), "{name}");
        }
    }
}

#[test]
fn candidates_take_turns_in_the_same_parts_of_memory() {
    let mut workloads = workloads();
    let cell = cell(Operation::Clear, Cost::Throughput, 64 << 10, true, false);
    // A first sample that is taken again, and rounds in any order.
    let names = ["a", "a", "b", "c", "c", "b", "a", "b", "a", "c"];
    let turns = names.map(|name| workloads.turn(&cell, &Candidate::named(Kind::Method, name)));
    assert_eq!(turns, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

#[test]
fn warm_ranges_of_a_turn_are_the_same_for_all_candidates() {
    let mut workloads = workloads();
    let mut starts = |cell: &Cell| {
        let mut of_a_sample = |(name, ns): (&str, f64)| {
            let pages = RefCell::new(BTreeSet::new());
            let candidate = Candidate::named(Kind::Method, name);
            let note = |dst: *mut u8, src: *const u8, _| {
                pages.borrow_mut().insert((dst.addr() / HUGE, src.addr() / HUGE));
                spin(ns);
            };
            workloads.run(cell, candidate, note).unwrap();
            let [pages] = pages.into_inner().into_iter().collect::<Vec<_>>()[..] else {
                panic!("{name} used other pages in its repeats")
            };
            pages
        };
        // The slower a candidate, the fewer repeats.
        [0; SAMPLES].map(|_| [("a", 0.0), ("b", 3000.0), ("c", SAMPLE_NS)].map(&mut of_a_sample))
    };
    for length in [4096, 64 << 10, 1 << 20] {
        let starts = starts(&cell(Operation::Copy, Cost::Throughput, length, true, true));
        assert!(starts.iter().all(|turn| turn[0] == turn[1] && turn[1] == turn[2]), "{starts:?}");
        assert!(starts.iter().collect::<BTreeSet<_>>().len() > 2, "{length}: {starts:?}");
    }
}

#[test]
fn methods_do_their_operation_directly_and_through_the_interface() {
    let mut workloads = workloads();
    for operation in Operation::ALL {
        for method in bulkmem::method::all().filter(|method| method.does(operation) && method.available()) {
            let choice = Choice::of(method, operation);
            let ways = [Implementation::Method(choice), Implementation::Dispatched(choice)];
            for (implementation, threads) in ways.iter().flat_map(|it| [(it, 1), (it, 2)]) {
                let mut cell = cell(operation, Cost::Throughput, 256 << 10, true, true);
                cell.condition.threads = threads;
                let sample = workloads.sample(&cell, implementation).unwrap();
                assert!(sample.ns > 0.0 && sample.ns.is_finite(), "{operation} {}", method.name);
                let (dst, src) = workloads.ranges[0];
                // SAFETY: both ranges lie in the arena.
                let (dst, src) = unsafe {
                    (std::slice::from_raw_parts(dst, 256 << 10), std::slice::from_raw_parts(src, 256 << 10))
                };
                match operation {
                    Operation::Clear => assert!(dst.iter().all(|byte| *byte == 0), "{}", method.name),
                    Operation::Fill | Operation::FillPersist => {
                        assert!(dst.iter().all(|byte| *byte == FILL_BYTE), "{}", method.name)
                    }
                    Operation::Copy | Operation::CopyPersist => assert!(dst == src, "{}", method.name),
                    Operation::Persist => {}
                }
            }
        }
    }
}
