//! Calibration on planted times.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::calibration::{Condition, Rule};

use super::*;
use bulkmem::policy::{Choice, Situation};

use crate::calibration::fake::{
    CACHED_TICKS, FASTEST_UNMAPPED, HUGE_TICKS, LIBPMEM_GB_PER_S, Planted, REACHING_TICKS, UNCACHED_TICKS,
    UNMAPPED_TICKS,
};
use crate::engine::LIBPMEM;
use crate::engine::cell::Cell;
use crate::engine::memory_state::MemoryState;

pub(super) const SETTING: Setting = Setting {
    mode: Mode::Default,
    second_level: 1 << 20,
    max_length: 1 << 30,
    last_level: 32 << 20,
    threads: 2,
    longest_in_base_pages: 0,
};

/// A simple machine: a cached method that is fast while the range fits the last-level cache, one that bypasses it
/// and is fast beyond, everything else slower than both.
fn machine(cell: &Cell, choice: &Choice) -> f64 {
    let length = cell.length as f64;
    let fits = cell.length <= 16 << 20;
    let gb_per_s = match (choice.method.name, fits) {
        ("c_library", true) => 20.0,
        ("c_library", false) => 8.0,
        ("portable", true) => 30.0,
        ("portable", false) => 7.0,
        ("movnti", _) => 12.0,
        _ => 5.0,
    };
    let threads = cell.condition.threads;
    let spawn = if threads > 1 { 40_000.0 } else { 0.0 };
    20.0 + spawn + length / gb_per_s / (threads as f64).sqrt()
}

fn calibrated(
    operations: &[Operation],
    budget: Duration,
    stop_after: Option<u64>,
) -> (Ledger, bool, Duration, Vec<usize>, u64) {
    calibrated_in(&SETTING, operations, budget, stop_after)
}

fn calibrated_in(
    setting: &Setting,
    operations: &[Operation],
    budget: Duration,
    stop_after: Option<u64>,
) -> (Ledger, bool, Duration, Vec<usize>, u64) {
    let stop = AtomicBool::new(false);
    let mut samples = 0;
    let mut saved = Vec::new();
    let mut ledger = Ledger::default();
    let mut quiet = |_: &Progress| {};
    let answer = |cell: &Cell, choice: &Choice| {
        samples += 1;
        if Some(samples) == stop_after {
            stop.store(true, Ordering::Relaxed);
        }
        machine(cell, choice)
    };
    let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut quiet, budget);
    run(&mut session, setting, operations, &mut ledger, &mut |_, ledger| {
        saved.push(ledger.finished.len());
    });
    let complete = !session.stopped();
    let elapsed = session.elapsed();
    (ledger, complete, elapsed, saved, samples)
}

fn rules(ledger: &Ledger, intent: bulkmem::Intent) -> Vec<Rule> {
    let rules = derive::derive_policy(&ledger.figures).rules;
    rules
        .into_iter()
        .filter(|rule| rule.situation == intent.into() && rule.operation == Operation::Clear)
        .collect()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_planted_machine_is_found_out() {
    let (ledger, complete, elapsed, saved, _) =
        calibrated(&[Operation::Clear], Duration::from_secs(20), None);
    assert!(complete);
    assert_eq!(saved, [1]);
    assert!(elapsed <= Duration::from_secs(21), "{elapsed:?}");
    let rules = rules(&ledger, bulkmem::Intent::Throughput);
    let at = |length: u64| rules.iter().rfind(|rule| rule.from <= length).unwrap().method.as_str();
    assert_eq!(at(4 << 10), "c_library", "{rules:?}");
    for length in [16 << 10, 256 << 10, 4 << 20] {
        assert_eq!(at(length), "portable", "{rules:?}");
    }
    for length in [64 << 20, 1 << 30] {
        assert_eq!(at(length), "movnti", "{rules:?}");
    }
    let change = rules.iter().find(|rule| rule.method == "movnti").unwrap().from;
    assert!((16 << 20..40 << 20).contains(&change), "the change was looked for more closely: {change}");
    let threads = derive::derive_policy(&ledger.figures).threads;
    assert_eq!(threads.len(), 1, "{threads:?}");
    assert_eq!(threads[0].threads, 2);
    assert!(threads[0].from > 256 << 10, "starting a thread takes time: {threads:?}");
    let finals = Condition::new(false, true, 1);
    assert!(ledger.figures.iter().any(|figure| figure.condition == finals && figure.samples >= 9));
}

/// A machine on which the fastest copy evicts its source, as MOVNTDQA does on Zen 1, and a method that is made for that is still faster.
#[cfg(target_arch = "x86_64")]
fn evicting_machine(cell: &Cell, choice: &Choice) -> f64 {
    let cached = cell.length <= 16 << 20;
    let hot_source = cached && cell.condition.source == Some(crate::engine::CacheState::Warm);
    let gb_per_s = match (choice.method.name, hot_source) {
        ("nontemporal_avx_flush_source", _) => 13.0,
        ("movntdqa_sse41", _) => 11.0,
        ("nontemporal_sse2", true) => 18.0,
        ("nontemporal_sse2", false) => 10.5,
        ("c_library", _) if cached && cell.condition.warm => 30.0,
        ("c_library", _) => 8.0,
        _ => 5.0,
    };
    20.0 + cell.length as f64 / gb_per_s
}

#[cfg(target_arch = "x86_64")]
#[test]
fn copies_leave_their_source_in_the_cache() {
    let has = |name| bulkmem::method::by_name(name).is_some_and(|method| method.available());
    assert!(has("movntdqa_sse41"), "SSE4.1 is on every machine that this runs on");
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &Progress| {};
    let mut ledger = Ledger::default();
    let mut session =
        Session::new(Planted::new(0.01, evicting_machine), &stop, &mut quiet, Duration::from_secs(20));
    run(&mut session, &SETTING, &[Operation::Copy], &mut ledger, &mut |_, _| {});
    let rules = derive::derive(&ledger.figures, &ledger.looks).rules;
    let at = |situation, length| {
        let rules = rules.iter().filter(|rule| rule.situation == situation && rule.from <= length);
        rules.max_by_key(|rule| rule.from).map(|rule| rule.method.as_str()).unwrap()
    };
    assert_eq!(at(Situation::Uncached, 1 << 20), "nontemporal_sse2", "{rules:?}");
    assert_eq!(at(Situation::UncachedReuse, 1 << 20), "nontemporal_sse2", "{rules:?}");
    assert_eq!(at(Situation::Uncached, 256 << 20), "movntdqa_sse41", "nothing stays: {rules:?}");
    assert_eq!(at(Situation::Cached, 1 << 20), "c_library", "{rules:?}");
    if has("nontemporal_avx_flush_source") {
        let by = |stream: bool| {
            let rules = rules.iter().filter(|rule| (rule.situation == Situation::Stream) == stream);
            rules.filter(|rule| rule.method == "nontemporal_avx_flush_source").count()
        };
        assert_eq!((by(true) > 0, by(false)), (true, 0), "{rules:?}");
    }
}

/// A machine on which a method that bypasses the cache is as fast for all memory, the C library eight times as fast as otherwise in
/// cached memory, and several threads are the fastest by a third method.
fn caching_machine(cell: &Cell, choice: &Choice) -> f64 {
    let gb_per_s = match (choice.method.name, cell.condition.warm && cell.length <= 8 << 20) {
        ("c_library", true) => 80.0,
        ("c_library", false) => 10.0,
        ("movnti", _) => 30.0,
        ("portable", _) if cell.condition.threads > 1 => 60.0,
        ("portable", false) => 25.0,
        _ => 5.0,
    };
    20.0 + cell.length as f64 / gb_per_s
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_operation_looks_where_the_best_method_depends_on_the_cache_state() {
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &Progress| {};
    for looks in [true, false] {
        let answer = |cell: &Cell, choice: &Choice| match looks {
            true => caching_machine(cell, choice),
            false => machine(cell, choice),
        };
        let mut ledger = Ledger::default();
        let mut session =
            Session::new(Planted::new(0.01, answer), &stop, &mut quiet, Duration::from_secs(20));
        run(&mut session, &SETTING, &[Operation::Clear], &mut ledger, &mut |_, _| {});
        let derived = derive::derive(&ledger.figures, &ledger.looks);
        let of = |situation| {
            let rules = derived.rules.iter().filter(move |rule| rule.situation == situation);
            rules.map(|rule| rule.method.as_str()).collect::<Vec<_>>()
        };
        if !looks {
            assert_eq!((derived.looks, of(Situation::Cached)), (vec![], vec![]), "the states do not differ");
            assert_eq!(of(Situation::SeveralThreads), Vec::<&str>::new(), "nothing looks");
            continue;
        }
        let [look] = derived.looks.as_slice() else { panic!("{:?}", derived.looks) };
        assert!((CACHED_TICKS + 1..=UNCACHED_TICKS).contains(&look.cached_below), "{look:?}");
        let unmapped = look.unmapped.as_ref().unwrap();
        assert!((REACHING_TICKS..=UNMAPPED_TICKS).contains(&unmapped.from), "{look:?}");
        let huge = unmapped.huge.unwrap();
        assert!((UNMAPPED_TICKS + 1..HUGE_TICKS).contains(&huge.from), "{huge:?}");
        assert_eq!(huge.length, 16 << 20, "MOVNTI is no faster at 4 MiB: {:?}", ledger.looks.new_huge);
        let all = &ledger.looks.unmapped;
        let ticks = || all.iter().flat_map(|it| &it.ticks);
        assert!(ticks().all(|it| it.len() >= 15 && it.len() == all[0].ticks[0].len()), "{all:?}");
        let compared = search::every_method(Operation::Clear).len();
        assert!(all.len() < compared / 2, "the slower ones of {compared} were dropped: {all:?}");
        assert_eq!(unmapped.method, FASTEST_UNMAPPED, "the machine becomes slower, for all: {all:?}");
        assert!((64 << 10..=256 << 10).contains(&look.from), "{look:?}");
        assert_eq!(of(Situation::Cached).first(), Some(&"c_library"));
        assert_eq!(of(Situation::Uncached).last(), Some(&"movnti"));
        assert_eq!(of(Situation::SeveralThreads).last(), Some(&"portable"));
    }
}

#[test]
fn every_cost_and_operation_is_measured_in_time() {
    let budget = Duration::from_secs(55);
    let (ledger, complete, elapsed, saved, _) = calibrated(&Operation::ALL, budget, None);
    assert!(complete);
    assert_eq!(saved, Operation::ALL.map(|operation| operation as usize + 1));
    assert!(elapsed <= budget.mul_f64(1.05), "{elapsed:?}");
    let measured =
        |operation, cost| ledger.figures.iter().any(|f| f.operation == operation && f.cost == cost);
    for operation in [Operation::Clear, Operation::Fill, Operation::Copy] {
        for cost in [Cost::Throughput, Cost::Reuse] {
            assert!(measured(operation, cost), "{operation} {cost:?}");
        }
    }
    let longest = ledger.figures.iter().map(|figure| figure.length).max();
    assert_eq!(longest, Some(1 << 30));
}

/// On the planted machine, MOVNTI is the fastest of the module's methods for memory beyond the cache.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_linux_modules_methods_are_measured_within_the_time_for_clearing() {
    for (operations, budget) in [(&Operation::ALL[..], 55), (&[Operation::Clear][..], 9)] {
        let budget = Duration::from_secs(budget);
        let (ledger, _, elapsed, ..) = calibrated(operations, budget, None);
        assert!(elapsed <= budget.mul_f64(1.06), "{elapsed:?}");
        let of = |method: &str, extent: u64| {
            let own = ledger.module.iter().filter(|it| (it.method.as_str(), it.extent) == (method, extent));
            own.map(|it| it.median_ns).fold(f64::INFINITY, f64::min)
        };
        assert!(ledger.module.iter().all(|figure| figure.samples >= 5), "{:?}", ledger.module);
        for other in ["stock", "rep_stosb", "rep_stosq"] {
            assert!(of("movnti", 32 << 20) < of(other, 32 << 20), "{other}");
        }
    }
    let (ledger, ..) = calibrated(&[Operation::Copy], Duration::from_secs(9), None);
    assert!(ledger.module.is_empty());
}

#[test]
fn lengths_are_measured_where_caches_end() {
    const MIB: u64 = 1 << 20;
    let more_than_steps = |mode, last_level| {
        let setting = Setting { mode, last_level, second_level: MIB / 2, ..SETTING };
        let (quick, mut lengths) = (Setting { mode: Mode::Quick, ..setting }.lengths(), setting.lengths());
        assert!(lengths.is_sorted());
        lengths.retain(|length| !quick.contains(length));
        lengths
    };
    for (last_level, expected) in [
        (8 * MIB, &[384 << 10, 6 * MIB, 8 * MIB][..]),
        (20 * MIB, &[384 << 10]),
        (32 * MIB, &[384 << 10, 24 * MIB, 32 * MIB]),
        (144 * MIB, &[384 << 10, 108 * MIB]),
        (256 * MIB, &[384 << 10]),
    ] {
        assert_eq!(more_than_steps(Mode::Default, last_level), expected, "{last_level}");
        assert_eq!(more_than_steps(Mode::Quick, last_level), [0; 0]);
    }
}

#[test]
fn unaligned_ranges_are_in_base_pages_where_there_are_some() {
    let setting = Setting { longest_in_base_pages: 64 << 20, ..SETTING };
    for operation in Operation::ALL {
        for length in [64, 1 << 20, 64 << 20, (64 << 20) + 1] {
            for cost in [Cost::Throughput, Cost::Reuse, Cost::Stream] {
                let cells = setting.cells(operation, cost, length);
                let plain = SETTING.cells(operation, cost, length);
                assert_eq!(cells.len(), plain.len());
                for (cell, plain) in cells.iter().zip(&plain) {
                    let base_pages =
                        length <= 64 << 20 && cost == Cost::Throughput && !cell.condition.aligned;
                    let expected = Condition { base_pages, ..plain.condition };
                    assert_eq!(cell.condition, expected, "{operation} of {length}, {cost:?}");
                }
            }
        }
    }
}

#[test]
fn base_pages_are_prepared_unless_all_memory_is_in_them() {
    const MIB: u64 = 1 << 20;
    let in_pages = |pages| Arena::new(16 * MIB, MIB, pages, Duration::MAX).unwrap();
    let in_base_pages = in_pages(Pages::Base);
    assert!(base_pages(&in_base_pages, MIB, 8 * MIB, Duration::MAX).unwrap().is_none());
    let other = in_pages(Pages::Transparent);
    let page = Machine::current().page_size;
    if other.backing_page_size() == page {
        eprintln!("not checked: there are no transparent huge pages");
        return;
    }
    for (longest, last_level, expected) in [(MIB, 8 * MIB, 16 * MIB), (48 * MIB, 8 * MIB, 48 * MIB)] {
        let arena = base_pages(&other, longest, last_level, Duration::MAX).unwrap().unwrap();
        assert!(arena.longest() >= expected && arena.backing_page_size() == page, "{arena:?}");
    }
    assert!(base_pages(&other, MIB, 64 * MIB, Duration::ZERO).is_err());
}

/// A method that is the fastest in huge pages, but slower than the C library in base pages.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_method_must_be_fast_in_base_pages_too() {
    let chosen = |longest_in_base_pages| {
        let setting = Setting { longest_in_base_pages, ..SETTING };
        let answer = |cell: &Cell, choice: &Choice| {
            let gb_per_s = match (choice.method.name, cell.condition.base_pages) {
                ("c_library", _) => 20.0,
                ("portable", false) => 24.0,
                ("portable", true) => 15.0,
                _ => 5.0,
            };
            20.0 + cell.length as f64 / gb_per_s
        };
        let stop = AtomicBool::new(false);
        let mut quiet = |_: &Progress| {};
        let mut ledger = Ledger::default();
        let mut session =
            Session::new(Planted::new(0.01, answer), &stop, &mut quiet, Duration::from_secs(20));
        run(&mut session, &setting, &[Operation::Clear], &mut ledger, &mut |_, _| {});
        let rules = rules(&ledger, bulkmem::Intent::Throughput);
        rules.iter().rfind(|rule| rule.from <= 1 << 20).unwrap().method.clone()
    };
    assert_eq!(chosen(0), "portable");
    assert_eq!(chosen(64 << 20), "c_library");
}

#[test]
fn libpmem_is_measured_and_never_chosen() {
    let (ledger, ..) = calibrated(&Operation::ALL, Duration::from_secs(55), None);
    let (libpmem, others): (Vec<Figure>, Vec<Figure>) =
        ledger.figures.iter().cloned().partition(|figure| figure.method == LIBPMEM);
    for figure in &libpmem {
        let shown = figure.operation.persists() || SUMMARY.contains(&figure.length);
        assert!(shown && figure.cost == Cost::Throughput, "{figure:?}");
        // In relation to the choice's figure, which has the planted noise.
        let ratio = figure.median_ns / (figure.length as f64 / LIBPMEM_GB_PER_S);
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    }
    let config = |it: &Figure| (it.operation, it.length, it.condition);
    let finals = |it: &&Figure| {
        SETTING.lengths().contains(&it.length)
            && (it.operation.persists() || SUMMARY.contains(&it.length))
            && it.cost == Cost::Throughput
    };
    let plain = |it: &&Figure| {
        it.condition.aligned
            && it.condition.threads == 1
            && (it.operation.persists() || it.condition.source.is_none())
    };
    // Only threads are compared at lengths that there is no time to compare methods at.
    let compares =
        |it: &&Figure| others.iter().any(|other| config(other) == config(it) && other.method != it.method);
    for other in others.iter().filter(finals).filter(plain).filter(compares) {
        assert!(libpmem.iter().any(|it| config(it) == config(other)), "{other:?}");
    }
    let derived = derive::derive_policy(&ledger.figures);
    assert_eq!(derived, derive::derive_policy(&others), "they decide nothing");
    assert!(derived.rules.iter().any(|rule| rule.operation == Operation::CopyPersist));
    assert!(derived.rules.iter().all(|rule| rule.method != LIBPMEM));
}

/// Without their samples, an operation would do uncached memory by the method for cached memory.
#[cfg(target_arch = "x86_64")]
#[test]
fn looks_are_measured_even_if_the_time_is_over() {
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &Progress| {};
    let mut ledger = Ledger::default();
    let planted = Planted::new(0.01, caching_machine);
    let mut session = Session::new(planted, &stop, &mut quiet, Duration::from_millis(1));
    run(&mut session, &SETTING, &[Operation::Clear], &mut ledger, &mut |_, _| {});
    let of = |state: MemoryState| ledger.looks.looks.iter().filter(move |it| it.state == state);
    for state in [MemoryState::Cached, MemoryState::Uncached, MemoryState::Unmapped] {
        assert!(of(state).count() > 0 && of(state).all(|it| it.times.len() >= 5), "{:?}", ledger.looks);
    }
    let unmapped = &ledger.looks.unmapped;
    assert!(!unmapped.is_empty() && unmapped.iter().flat_map(|it| &it.ticks).all(|it| it.len() == 15));
}

/// A last-level cache that holds even long ranges: bringing them into it takes longer than the operations.
#[test]
fn a_large_cache_leaves_time_for_every_operation() {
    let large = Setting { second_level: 2 << 20, last_level: 260 << 20, ..SETTING };
    let answer = |cell: &Cell, choice: &Choice| {
        let gb_per_s = match (choice.method.name, cell.condition.warm && cell.length <= 200 << 20) {
            ("c_library", true) => 40.0,
            ("c_library", false) => 10.0,
            ("portable", _) => 20.0,
            _ => 8.0,
        };
        20.0 + cell.length as f64 / gb_per_s
    };
    for seconds in [31, 48] {
        let budget = Duration::from_secs(seconds);
        let (stop, mut quiet, mut ledger) = (AtomicBool::new(false), |_: &Progress| {}, Ledger::default());
        let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut quiet, budget);
        run(&mut session, &large, &Operation::ALL, &mut ledger, &mut |_, _| {});
        let elapsed = session.elapsed();
        assert!(elapsed <= budget.mul_f64(1.06), "{elapsed:?} of {budget:?}");
        assert_eq!(ledger.finished.len(), Operation::ALL.len(), "{budget:?}");
        let compared = |operation| {
            let of = |it: &&Figure| {
                (it.operation, it.cost, it.length) == (operation, Cost::Throughput, 256 << 20)
                    && it.condition == Condition::new(true, false, 1)
                    && it.samples >= derive::FEWEST_SAMPLES
            };
            ledger.figures.iter().filter(of).count()
        };
        for operation in [Operation::Clear, Operation::Copy] {
            assert!(compared(operation) >= 2, "{operation} in {budget:?}: {}", compared(operation));
        }
    }
}

#[test]
fn lengths_that_there_was_no_time_for_are_named() {
    let mut notes = Vec::new();
    let mut progress = |it: &Progress| notes.extend(it.note.clone());
    let (stop, mut ledger) = (AtomicBool::new(false), Ledger::default());
    let planted = Planted::new(0.01, machine);
    let mut session = Session::new(planted, &stop, &mut progress, Duration::from_millis(1));
    run(&mut session, &SETTING, &[Operation::Clear, Operation::Persist], &mut ledger, &mut |_, _| {});
    let [clear, persist] = notes.as_slice() else { panic!("{notes:?}") };
    assert!(
        clear.starts_with("clear was measured only up to ")
            && clear.ends_with(": there was no time for more"),
        "{clear}"
    );
    assert_eq!(persist, "there was no time for persist: calibrate it alone (--op persist)");
}

#[test]
fn a_short_time_is_kept_too() {
    let budget = Duration::from_secs(9);
    let quick = Setting { mode: Mode::Quick, ..SETTING };
    let (ledger, _, elapsed, _, _) = calibrated_in(&quick, &Operation::ALL, budget, None);
    assert!(elapsed <= budget.mul_f64(1.06), "{elapsed:?}");
    for operation in [Operation::Clear, Operation::Copy] {
        let longest = ledger.figures.iter().filter(|f| f.operation == operation).map(|f| f.length).max();
        assert!(longest >= Some(64 << 20), "{operation}: {longest:?}");
    }
}

#[test]
fn a_stop_keeps_what_is_measured_and_takes_no_further_sample() {
    let (ledger, complete, _, saved, samples) =
        calibrated(&[Operation::Clear, Operation::Copy], Duration::from_secs(20), Some(3000));
    assert!(!complete);
    assert_eq!(saved, [0], "an operation that was not measured to the end does not count");
    assert_eq!(samples, 3000);
    assert!(!ledger.figures.is_empty());
    assert!(ledger.figures.iter().all(|figure| figure.operation == Operation::Clear));
    assert!(!rules(&ledger, bulkmem::Intent::Throughput).is_empty());
}

/// Other load lasts as long as all samples of one length, but not for ever.
#[test]
fn a_length_that_was_disturbed_is_measured_again() {
    let stop = AtomicBool::new(false);
    let mut quiet = |_: &Progress| {};
    let mut ledger = Ledger::default();
    let mut disturbed = 0;
    let answer = |cell: &Cell, choice: &Choice| {
        let load = cell.length == 64 << 10 && disturbed < 400;
        disturbed += u32::from(load);
        machine(cell, choice) * if load && disturbed % 3 > 0 { 4.0 } else { 1.0 }
    };
    let budget = Duration::from_secs(20);
    let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut quiet, budget);
    run(&mut session, &SETTING, &[Operation::Clear], &mut ledger, &mut |_, _| {});
    assert_eq!(disturbed, 400, "all of the disturbance was measured");
    let figures = ledger.figures.iter().filter(|it| it.length == 64 << 10 && it.cost == Cost::Throughput);
    let spread = figures.map(|it| it.quartiles_ns[1] / it.quartiles_ns[0]);
    assert!(
        spread.clone().count() > 3 && spread.clone().all(|it| it < 1.1),
        "{:?}",
        spread.collect::<Vec<_>>()
    );
}

/// Unaligned ranges vary at every length, so that it would be in vain.
#[test]
fn what_always_varies_is_not_measured_again() {
    let repeated = |varies: bool| {
        let stop = AtomicBool::new(false);
        let mut lengths = std::collections::BTreeSet::new();
        let mut note = |progress: &Progress| {
            if progress.what.ends_with("(again)") {
                lengths.insert(progress.what.clone());
            }
        };
        let (mut samples, mut disturbed) = (0_u32, 0);
        let answer = |cell: &Cell, choice: &Choice| {
            samples += 1;
            let slow = varies && !cell.condition.aligned && samples % 7 < 3;
            let load = cell.condition.aligned && cell.length == 64 << 10 && disturbed < 400;
            disturbed += u32::from(load);
            let slow = slow || load && disturbed % 3 > 0;
            machine(cell, choice) * if slow { 4.0 } else { 1.0 }
        };
        let mut session = Session::new(Planted::new(0.01, answer), &stop, &mut note, Duration::from_secs(20));
        let mut ledger = Ledger::default();
        run(&mut session, &SETTING, &[Operation::Clear], &mut ledger, &mut |_, _| {});
        lengths.into_iter().collect::<Vec<_>>()
    };
    for varies in [false, true] {
        assert_eq!(repeated(varies), ["clear, 64 KiB (again)"], "unaligned ranges vary: {varies}");
    }
}

#[test]
fn defaults_are_accepted_and_bad_values_are_refused_by_flag() {
    for mode in [Mode::Quick, Mode::Default, Mode::Thorough] {
        CalibrateOptions::new(mode).validate().unwrap();
    }
    let refused = |change: fn(&mut CalibrateOptions)| {
        let mut options = CalibrateOptions::new(Mode::Default);
        change(&mut options);
        options.validate().unwrap_err().to_string()
    };
    assert!(refused(|o| o.budget = Duration::ZERO).starts_with("--budget: "));
    assert!(refused(|o| o.max_length = 0).starts_with("--max-size: "));
    assert!(refused(|o| o.threads = 1_000_000).starts_with("--threads: "));
    assert!(refused(|o| o.operations.clear()).starts_with("--op: "));
    assert!(refused(|o| o.operations.push(Operation::Clear)).contains("clear is given twice"));
}
