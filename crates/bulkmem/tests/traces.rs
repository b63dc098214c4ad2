//! Tests of methods, by single-stepping or breakpoints: their instructions are executed, weak stores are fenced, persisted
//! bytes are written back, and the emulator does to memory what the instructions do.

use std::process::ExitCode;

use testkit::harness::Suite;

fn main() -> ExitCode {
    let suite = Suite::new(env!("CARGO_CRATE_NAME"));
    #[cfg(target_arch = "x86_64")]
    return x86_64::run(suite);
    #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
    return watched::run(suite);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
    {
        let mut suite = suite;
        suite.skip("traces", "recording instructions is not written for this architecture");
        suite.run()
    }
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
#[path = "traces/watched.rs"]
mod watched;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::process::ExitCode;

    use bulkmem::Operation;
    use bulkmem::machine::Features;
    use bulkmem::method::{self, Method, Ordering, Parameters};
    use libtest_mimic::Failed;
    use testkit::case::{self, Case};
    use testkit::guard::{Guarded, LINE, Place};
    use testkit::harness::Suite;
    use testkit::oracle::Oracle;
    use testkit::table;
    use testkit::x86_64::emulate;
    use testkit::x86_64::instruction::needs;
    use testkit::x86_64::store_tracker::{State, StoreTracker};
    use testkit::x86_64::trace::Trace;

    /// Limit of instructions per traced call: 64 KiB, one byte at a time.
    const LIMIT: usize = 1 << 18;
    /// Lengths around those of words, vectors and lines, and a few lines long.
    const LENGTHS: [usize; 22] =
        [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 191, 256, 1000];
    const OFFSETS: [usize; 5] = [0, 1, 8, 31, 63];

    pub(super) fn run(mut suite: Suite) -> ExitCode {
        for row in table::entries() {
            suite.entry("executes", row, what_is_required_is_executed);
            suite.entry("fenced", row, nothing_is_pending_at_the_end);
            if row.1.persists() {
                suite.entry("durable", row, every_byte_is_durable_at_the_end);
            }
            if row.0.requires.intersects(emulate::EMULATED) {
                suite.entry("emulated", row, emulation_gives_the_same_bytes);
            }
        }
        suite.test("loops_start_where_their_names_say", loops_start_where_their_names_say);
        suite.test("checker::a_plain_copy_is_not_durable", a_plain_copy_is_not_durable);
        suite.test("checker::a_flush_of_half_the_bytes_is_seen", a_flush_of_half_the_bytes_is_seen);
        suite.test("checker::the_state_before_a_store_is_seen", the_state_before_a_store_is_seen);
        suite.test("checker::a_trace_that_is_too_long_is_an_error", a_trace_that_is_too_long_is_an_error);
        suite.run()
    }

    /// Traces the call of a case. Returns the trace and the range of the destination.
    fn traced(case: &Case, memory: &Memory) -> Result<(Trace, std::ops::Range<usize>), String> {
        let to = memory.to.place(case.place, case.offset, case.length);
        let from = memory.from.place(case.place, case.source_offset, case.length);
        let (start, source) =
            (memory.to.addresses().start + to.start, memory.from.addresses().start + from.start);
        let range = start..start + case.length;
        let function = case.function();
        let mut trace = None;
        case::running(case, range.clone(), source..source + case.length, || {
            trace = Some(Trace::record(LIMIT, Features::empty(), || {
                // SAFETY: both ranges are within mappings of ours that nothing else looks at; the suite runs only
                // rows whose instructions this machine has or `record` emulates.
                unsafe { function.call(case, start as *mut u8, source as *const u8) }
            }));
        });
        Ok((trace.expect("it was called")?, range))
    }

    struct Memory {
        to: Guarded,
        from: Guarded,
    }

    impl Memory {
        fn new(most: usize) -> Memory {
            Memory { to: Guarded::new(most + LINE), from: Guarded::new(most + LINE) }
        }
    }

    /// The start of a loop is the instruction that runs once for each of the lines.
    fn loops_start_where_their_names_say() -> Result<(), Failed> {
        const LINES: usize = 16;
        let memory = Memory::new(LINES * LINE);
        for (name, past) in [("loop_aligned_sse2", 0), ("loop_unaligned_sse2", 50)] {
            let method = method::by_name(name).ok_or(name)?;
            for operation in [Operation::Clear, Operation::Copy] {
                let case = Case { length: LINES * LINE, place: Place::Start, ..Case::new(method, operation) };
                let (trace, _) = traced(&case, &memory)?;
                let addresses: Vec<u64> = trace.steps().map(|(instruction, _)| instruction.ip()).collect();
                let runs = |address: &u64| addresses.iter().filter(|other| *other == address).count();
                let start = addresses.iter().find(|address| runs(address) == LINES);
                if start.map(|start| start % 64) != Some(past) {
                    return Err(format!("{name}, {operation}: the loop starts at {start:x?}").into());
                }
            }
        }
        Ok(())
    }

    /// Each feature that the method requires is used with some parameters and length. Otherwise a test of it would be
    /// empty, or the method would be unavailable on machines that could run it.
    fn what_is_required_is_executed(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        // These two only tell how fast string instructions are.
        let speed = Features::ERMS | Features::FSRM;
        let mut unseen = method.requires.difference(speed | Features::SSE2);
        let memory = Memory::new(1 << 16);
        let mut sets = table::parameter_sets(method.tunables(operation).unwrap_or_default());
        // The cheapest first. A length of twice the longest unit reaches every loop.
        let enough = |set: &Parameters| {
            let longest = set.read_distance.max(set.write_distance).max(set.block).max(set.streams * 4096);
            (2 * longest as usize).clamp(512, 1 << 16)
        };
        sets.sort_by_key(enough);
        for parameters in sets {
            if unseen.is_empty() {
                return Ok(());
            }
            let length = enough(&parameters);
            let case = Case { parameters, length, place: Place::Start, ..Case::new(method, operation) };
            for (instruction, _) in traced(&case, &memory)?.0.steps() {
                unseen.remove(needs(&instruction).unwrap_or(Features::empty()));
            }
        }
        if unseen.is_empty() {
            Ok(())
        } else {
            Err(format!("{unseen:?} is required, but never executed").into())
        }
    }

    /// The fenced function leaves nothing unfenced. The unfenced function of a weakly ordered method sometimes does.
    fn nothing_is_pending_at_the_end(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let mut base = Case::new(method, operation);
        let streams =
            method.tunables(operation).unwrap_or_default().iter().find(|tunable| tunable.name == "streams");
        base.parameters.streams = streams.map_or(0, |tunable| tunable.range.0);
        // The last length uses every page stream.
        let streamed = 2 * 4096 * base.parameters.streams as usize;
        let memory = Memory::new(streamed.max(1 << 12));
        let mut unfenced_pending = false;
        for (count, length) in LENGTHS.into_iter().chain([streamed]).enumerate() {
            let offset = OFFSETS[count % OFFSETS.len()];
            let case = Case { length, offset, source_offset: offset, ..base };
            let (trace, range) = traced(&case, &memory)?;
            let fenced = StoreTracker::of_trace(&trace, range, State::Untouched)?;
            if fenced.weak_pending > 0 {
                return Err(format!("{case}: {} weak stores are pending", fenced.weak_pending).into());
            }
            let (trace, range) = traced(&Case { fenced: false, ..case }, &memory)?;
            unfenced_pending |= StoreTracker::of_trace(&trace, range, State::Untouched)?.weak_pending > 0;
        }
        if unfenced_pending == (method.ordering == Ordering::Weak) {
            return Ok(());
        }
        Err(format!("declared {:?}, but something was pending: {unfenced_pending}", method.ordering).into())
    }

    /// Every byte of the range has left the cache, and a fence came afterwards.
    fn every_byte_is_durable_at_the_end(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let memory = Memory::new(1 << 14);
        let before = if operation == Operation::Persist { State::Cached } else { State::Untouched };
        for parameters in table::parameter_sets(method.tunables(operation).unwrap_or_default()) {
            let defaults = parameters == method.default_parameters(operation);
            let lengths: &[usize] = if defaults { &LENGTHS } else { &[1500] };
            for (count, length) in lengths.iter().copied().enumerate() {
                let offset = OFFSETS[count % OFFSETS.len()];
                let source_offset = OFFSETS[count / 2 % OFFSETS.len()];
                for fenced in [true, false] {
                    let base = Case::new(method, operation);
                    let case = Case { parameters, length, offset, source_offset, fenced, ..base };
                    let (trace, range) = traced(&case, &memory)?;
                    let worst = StoreTracker::of_trace(&trace, range, before)?.worst();
                    let least = if fenced { State::Durable } else { State::Pending };
                    if let Some((at, state)) = worst.filter(|(_, state)| *state < least) {
                        return Err(format!("{case}: byte {at} is {state:?} at the end").into());
                    }
                }
            }
        }
        Ok(())
    }

    /// The emulated instructions write the right bytes, also where the processor supports them.
    fn emulation_gives_the_same_bytes(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let emulated = method.requires & emulate::EMULATED;
        let mut oracle = Oracle::new(1 << 10);
        for length in LENGTHS {
            for offset in OFFSETS {
                let source_offset = (offset + length) % LINE;
                let case = Case { length, offset, source_offset, byte: 0xa5, ..Case::new(method, operation) };
                let mut trace = Err("it was not called".to_owned());
                oracle.check_by(&case, |call| trace = Trace::record(LIMIT, emulated, call))?;
                trace?;
            }
        }
        match emulated.iter_names().find(|(_, instruction)| emulate::count(*instruction) == 0) {
            Some((name, _)) => Err(format!("{name} was never emulated").into()),
            None => Ok(()),
        }
    }

    fn a_plain_copy_is_not_durable() -> Result<(), Failed> {
        let memory = Memory::new(LINE);
        let case =
            Case { length: 40, ..Case::new(bulkmem::method::by_name("portable").unwrap(), Operation::Copy) };
        let (trace, range) = traced(&case, &memory)?;
        let worst = StoreTracker::of_trace(&trace, range, State::Untouched)?.worst();
        assert_eq!(worst, Some((0, State::Cached)));
        Ok(())
    }

    fn a_flush_of_half_the_bytes_is_seen() -> Result<(), Failed> {
        let memory = Guarded::new(2 * LINE);
        let range = memory.addresses().start..memory.addresses().start + 2 * LINE;
        let flush = |offset: usize| {
            // SAFETY: the line is ours.
            unsafe { std::arch::x86_64::_mm_clflush(memory.as_ptr().wrapping_add(offset)) }
        };
        let trace = Trace::record(LIMIT, Features::empty(), || flush(LINE))?;
        assert_eq!(
            StoreTracker::of_trace(&trace, range.clone(), State::Cached)?.worst(),
            Some((0, State::Cached))
        );
        let both = || [0, LINE].into_iter().for_each(flush);
        let trace = Trace::record(LIMIT, Features::empty(), both)?;
        assert_eq!(
            StoreTracker::of_trace(&trace, range.clone(), State::Cached)?.worst(),
            Some((0, State::Pending))
        );
        let trace = Trace::record(LIMIT, Features::empty(), || {
            both();
            method::fence();
        })?;
        assert_eq!(StoreTracker::of_trace(&trace, range, State::Cached)?.worst(), Some((0, State::Durable)));
        Ok(())
    }

    fn the_state_before_a_store_is_seen() -> Result<(), Failed> {
        let memory = Guarded::new(2 * LINE);
        let line =
            |at: usize| memory.addresses().start + at * LINE..memory.addresses().start + (at + 1) * LINE;
        // SAFETY: the line is ours.
        let store = |at: usize| unsafe { memory.as_ptr().wrapping_add(at * LINE).write_volatile(1) };
        // SAFETY: the line is ours.
        let flush = || unsafe { std::arch::x86_64::_mm_clflush(memory.as_ptr()) };
        let traced = |fenced: bool| {
            Trace::record(LIMIT, Features::empty(), || {
                flush();
                if fenced {
                    method::fence();
                }
                store(1);
                method::fence();
            })
        };
        for (fenced, state) in [(false, State::Pending), (true, State::Durable)] {
            let tracked = StoreTracker::before_store(&traced(fenced)?, line(0), State::Cached, line(1))?;
            assert_eq!(tracked.worst(), Some((0, state)));
        }
        assert!(StoreTracker::before_store(&traced(true)?, line(1), State::Cached, line(0)).is_err());
        Ok(())
    }

    fn a_trace_that_is_too_long_is_an_error() -> Result<(), Failed> {
        match Trace::record(3, Features::empty(), || (0..4).for_each(|_| method::fence())) {
            Err(error) if error.contains("more than 3 instructions") => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}
