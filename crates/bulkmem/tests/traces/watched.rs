//! The tests for architectures whose instructions are recorded by breakpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use bulkmem::Operation;
use bulkmem::method::{self, Method, Ordering, Parameters};
use libtest_mimic::Failed;
#[cfg(target_arch = "aarch64")]
use testkit::aarch64::NAMED;
use testkit::breakpoints::{Often, record};
use testkit::case::{self, Case};
use testkit::guard::{Guarded, LINE};
use testkit::harness::Suite;
use testkit::oracle::Oracle;
#[cfg(target_arch = "riscv64")]
use testkit::riscv64::NAMED;
use testkit::step::Step;
use testkit::store_tracker::{State, StoreTracker};
use testkit::table;
use testkit::walk::Walk;

/// Limit of recorded instructions per call.
const LIMIT: usize = 1 << 14;
/// Longest case of the tests for execution.
const LONGEST: usize = 1 << 15;
/// Lengths around those of words, vectors and lines, and a few lines long.
const LENGTHS: [usize; 22] =
    [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 191, 256, 1000];
const OFFSETS: [usize; 5] = [0, 1, 8, 31, 63];

/// The tests that executed an instruction, by its name.
static EXECUTED: Mutex<BTreeMap<&str, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// Runs the tests. Prints each instruction and the tests that executed it, which `scripts/test-arch.sh` adds up.
pub(crate) fn run(mut suite: Suite) -> ExitCode {
    for row in table::entries() {
        // The C library is not part of this executable.
        if row.0.name != "c_library" {
            suite.entry("executes", row, every_named_instruction_is_executed);
        }
        suite.entry("fenced", row, nothing_is_pending_at_the_end);
        if row.1.persists() {
            suite.entry("durable", row, every_byte_is_durable_at_the_end);
        }
    }
    suite.test("checker::a_plain_copy_is_not_durable", a_plain_copy_is_not_durable);
    suite.test("checker::too_many_executions_are_an_error", too_many_executions_are_an_error);
    suite.test("checker::a_jump_is_refused", a_jump_is_refused);
    // Breakpoints belong to all threads.
    suite.serial();
    let code = suite.run();
    let executed = EXECUTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !executed.is_empty() {
        NAMED.iter().for_each(|name| println!("named instruction: {name}"));
    }
    for (name, tests) in &*executed {
        tests.iter().for_each(|test| println!("executed instruction: {name}: {test}"));
    }
    code
}

/// Each instruction that the method exists for and that its code has is executed with some parameters and length. Otherwise
/// the tests of its bytes would be empty.
fn every_named_instruction_is_executed(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    for fenced in [true, false] {
        let function = Case { fenced, ..Case::new(method, operation) }.function();
        let walk = Walk::from(function.address())?;
        steps.extend(walk.steps.into_iter().filter(|(_, step)| name_of(step).is_some()));
    }
    let tunables = method.tunables(operation).unwrap_or_default();
    let prefetches_for_write = tunables.iter().any(|tunable| tunable.name == "write_distance");
    // The loops of page streams have prefetches, which methods without that tunable never reach.
    let reachable = |name: &&str| prefetches_for_write || !["prfm pstl1keep", "prefetch.w"].contains(name);
    let mut wanted: BTreeSet<_> = steps.values().filter_map(name_of).filter(reachable).collect();
    // Before and after blocks that are no longer than a cache line, no whole line is left to store.
    if let Some(zero) = ["dc zva", "cbo.zero"].into_iter().find(|name| wanted.contains(name)) {
        wanted = BTreeSet::from([zero]);
    }
    let mut executed = BTreeSet::new();
    let mut oracle = Oracle::new(LONGEST);
    for parameters in table::parameter_sets(tunables) {
        let lengths = LENGTHS.into_iter().chain(table::unit_lengths(&parameters, LONGEST));
        for (count, length) in lengths.enumerate() {
            let case = Case {
                parameters,
                length,
                offset: OFFSETS[count % OFFSETS.len()],
                source_offset: OFFSETS[count / 2 % OFFSETS.len()],
                fenced: count % 2 == 0,
                byte: 0xa5,
                ..Case::new(method, operation)
            };
            let mut recording = Err("it was not called".to_owned());
            oracle.check_by(&case, |call| {
                // SAFETY: the walk decoded the steps; the tests run one after the other, on one thread.
                recording = unsafe { record(steps.values(), Often::Once, LIMIT, 0..0, call) };
            })?;
            for event in recording?.events {
                executed.extend(name_of(&steps[&event.address]));
                steps.remove(&event.address);
            }
        }
        if executed.is_superset(&wanted) {
            break;
        }
    }
    let mut all = EXECUTED.lock().unwrap_or_else(PoisonError::into_inner);
    for name in &executed {
        all.entry(name).or_default().insert(format!("{operation} by {}", method.name));
    }
    match wanted.difference(&executed).next() {
        Some(name) => Err(format!("`{name}` is in the code, but never executed").into()),
        None => Ok(()),
    }
}

/// Returns the name of an instruction that the methods exist for; `None` for others, also for those that keep registers on
/// the stack.
fn name_of(step: &Step) -> Option<&'static str> {
    if step.text.contains("sp") {
        return None;
    }
    NAMED.iter().copied().find(|name| *name == step.mnemonic)
}

struct Memory {
    to: Guarded,
    from: Guarded,
}

impl Memory {
    fn new(most: usize) -> Memory {
        let (to, mut from) = (Guarded::new(most + LINE), Guarded::new(most + LINE));
        from.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
        Memory { to, from }
    }

    /// Records the call of a case, and returns the state of the destination.
    fn track(&mut self, case: &Case) -> Result<StoreTracker, String> {
        let to = self.to.place(case.place, case.offset, case.length);
        let from = self.from.place(case.place, case.source_offset, case.length);
        // Bytes that no operation writes here, so that every store changes what it writes.
        self.to.bytes_mut()[to.clone()].fill(0xfe);
        let (start, source) =
            (self.to.addresses().start + to.start, self.from.addresses().start + from.start);
        let range: Range<usize> = start..start + case.length;
        let before = if case.operation == Operation::Persist { State::Cached } else { State::Untouched };
        let function = case.function();
        let mut tracked = Err("it was not called".to_owned());
        case::running(case, range.clone(), source..source + case.length, || {
            tracked = StoreTracker::during(LIMIT, range, before, || {
                // SAFETY: both ranges are within mappings of ours that nothing else accesses; the suite runs only rows whose
                // instructions this machine has.
                unsafe { function.call(case, start as *mut u8, source as *const u8) }
            });
        });
        tracked
    }
}

/// Returns parameters with the fewest streams, which need the least memory.
fn with_fewest_streams(method: &Method, operation: Operation) -> Parameters {
    let mut parameters = method.default_parameters(operation);
    for tunable in method.tunables(operation).unwrap_or_default() {
        if tunable.name == "streams" {
            parameters.streams = tunable.range.0;
        }
    }
    parameters
}

/// The fenced function leaves nothing unfenced. The unfenced function of a weakly ordered method sometimes does.
fn nothing_is_pending_at_the_end(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let parameters = with_fewest_streams(method, operation);
    // The last length uses every page stream.
    let streamed = 2 * 4096 * parameters.streams as usize;
    let mut memory = Memory::new(streamed.max(1 << 12));
    let mut unfenced_pending = false;
    for (count, length) in LENGTHS.into_iter().chain([streamed]).enumerate() {
        let offset = OFFSETS[count % OFFSETS.len()];
        let base = Case::new(method, operation);
        let case = Case { parameters, length, offset, source_offset: offset, byte: 0xa5, ..base };
        let tracked = memory.track(&case)?;
        if tracked.weak_pending > 0 {
            return Err(format!("{case}: {} weak stores are pending", tracked.weak_pending).into());
        }
        unfenced_pending |= memory.track(&Case { fenced: false, ..case })?.weak_pending > 0;
    }
    if unfenced_pending == (method.ordering == Ordering::Weak) {
        return Ok(());
    }
    Err(format!("declared {:?}, but something was pending: {unfenced_pending}", method.ordering).into())
}

/// Every byte of the range was written back after it was stored, and a barrier waited for that.
fn every_byte_is_durable_at_the_end(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let mut memory = Memory::new(1 << 14);
    for parameters in table::parameter_sets(method.tunables(operation).unwrap_or_default()) {
        let defaults = parameters == method.default_parameters(operation);
        let lengths: &[usize] = if defaults { &LENGTHS } else { &[1500] };
        for (count, length) in lengths.iter().copied().enumerate() {
            let offset = OFFSETS[count % OFFSETS.len()];
            let source_offset = OFFSETS[count / 2 % OFFSETS.len()];
            for fenced in [true, false] {
                let base = Case::new(method, operation);
                let case = Case { parameters, length, offset, source_offset, fenced, byte: 0xa5, ..base };
                let least = if fenced { State::Durable } else { State::Pending };
                let worst = memory.track(&case)?.worst();
                if let Some((at, state)) = worst.filter(|(_, state)| *state < least) {
                    return Err(format!("{case}: byte {at} is {state:?} at the end").into());
                }
            }
        }
    }
    Ok(())
}

fn a_plain_copy_is_not_durable() -> Result<(), Failed> {
    let case = Case { length: 40, ..Case::new(method::by_name("portable").unwrap(), Operation::Copy) };
    assert_eq!(Memory::new(LINE).track(&case)?.worst(), Some((0, State::Cached)));
    Ok(())
}

fn too_many_executions_are_an_error() -> Result<(), Failed> {
    let fences = |count: usize| {
        StoreTracker::during(3, 0..0, State::Untouched, || (0..count).for_each(|_| method::fence()))
    };
    assert_eq!(fences(3)?.fences, 3);
    match fences(4) {
        Err(error) if error.contains("more than 3 executions") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn a_jump_is_refused() -> Result<(), Failed> {
    let case = Case::new(method::by_name("portable").unwrap(), Operation::Clear);
    let walk = Walk::from(case.function().address())?;
    // SAFETY: the walk decoded the steps; the tests run one after the other, on one thread.
    match unsafe { record(walk.steps.values(), Often::Once, LIMIT, 0..0, || ()) } {
        Err(error) if error.contains("goes on elsewhere") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
