//! Tests of durability, by recording the instructions of the operations that persist: of every line, each byte bypassed
//! the cache or was written back after its last store, and a fence came afterwards.
//!
//! A test that loses power under emulation cannot find such a fault, because emulators have no cache. So every method
//! is called through the public operations at many lengths and places, and the check must find the fault in each of
//! several faulty implementations.

use std::process::ExitCode;

use testkit::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    #[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64"))]
    recorded::add(&mut suite);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
    suite.skip("durable", "recording instructions is not written for this architecture");
    suite.run()
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64"))]
mod recorded {
    use std::arch::asm;
    #[cfg(target_arch = "x86_64")]
    use std::collections::BTreeSet;

    #[cfg(target_arch = "x86_64")]
    use bulkmem::machine::Features;
    use bulkmem::machine::Machine;
    use bulkmem::method::{self, Method};
    use bulkmem::policy::{Choice, POLICY_FORMAT, POLICY_VERSION, Policy};
    use bulkmem::{Durability, Error, Operation, Options};
    use libtest_mimic::Failed;
    use testkit::case::Case;
    use testkit::guard::{Guarded, LINE, Place};
    use testkit::harness::Suite;
    use testkit::store_tracker::{State, StoreTracker};
    use testkit::table;

    /// Limit of recorded instructions per call: all on x86-64, else those that matter.
    const LIMIT: usize = if cfg!(target_arch = "x86_64") { 1 << 20 } else { 1 << 14 };
    /// Every length up to this is tested, once at an offset that differs from that of the previous length, and once
    /// with its end at a cache line.
    const SHORTEST: usize = 2 * LINE;
    /// Some of the lengths up to this are tested.
    const SHORT: usize = 4 * LINE;
    /// Lengths that exceed the default prefetch distances.
    const LONG: [usize; 2] = [4096, 3 * 4096 - 1];
    /// Longest length that is looked up in a policy.
    #[cfg(target_arch = "x86_64")]
    const LONGEST: usize = 1 << 18;
    /// The byte that fills write.
    const BYTE: u8 = 0xa5;

    pub(super) fn add(suite: &mut Suite) {
        for row in table::entries().filter(|(_, operation)| operation.persists()) {
            suite.entry("row", row, every_length_and_offset);
        }
        #[cfg(target_arch = "x86_64")]
        {
            suite.test("policy::whatever_it_chooses", whatever_the_policy_chooses);
            let name = "policy::of_the_process";
            if Policy::global().durability() == Durability::FlushToMemory {
                suite.test(name, whatever_the_process_wide_policy_chooses);
            } else {
                suite.skip(name, "the policy of this machine writes nothing back");
            }
        }
        suite.test(
            "caches_survive::copies_and_fills_are_fenced_and_not_written_back",
            stores_where_caches_survive,
        );
        suite.test("caches_survive::persist_is_a_fence", persist_where_caches_survive);
        suite.test("caches_survive::the_policy_file_says_so", the_policy_file_says_so);
        let name = "caches_survive::otherwise_every_byte_is_written_back";
        if method::all().any(|it| it.does(Operation::Persist) && it.available()) {
            suite.test(name, every_byte_is_written_back_otherwise);
        } else {
            suite.skip(name, "needs an instruction that writes back");
        }
        // Those that write back do so by an instruction that not every processor has.
        let able = method::all().any(|it| it.does(Operation::Persist) && table::missing(it).is_empty());
        for fault in &FAULTS {
            let name = format!("control::{}", fault.name);
            if able || fault.name == "no_flush" {
                suite.test(&name, || fault.is_caught());
            } else {
                suite.skip(&name, "needs an instruction that writes back");
            }
        }
        // Breakpoints, where instructions are recorded by them, belong to all threads.
        #[cfg(not(target_arch = "x86_64"))]
        suite.serial();
    }

    /// Memory for a destination and a source.
    struct Bench {
        to: Guarded,
        from: Guarded,
    }

    /// A byte that would be lost if the power failed now.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lost {
        /// It is still in the cache.
        InCache(usize),
        /// It has left the cache, but no fence followed.
        Unfenced(usize),
    }

    impl Bench {
        fn new(most: usize) -> Bench {
            let (to, mut from) = (Guarded::new(most + LINE), Guarded::new(most + LINE));
            from.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
            Bench { to, from }
        }

        /// Traces `call` with a destination at this offset into a cache line, and a source at another.
        fn watch(
            &mut self,
            length: usize,
            offset: usize,
            before: State,
            call: impl FnOnce(&mut [u8], &[u8]) -> Result<(), Error>,
        ) -> Result<StoreTracker, Failed> {
            let to = self.to.place(Place::End, offset, length);
            let from = self.from.place(Place::Start, (offset * 7 + length) % LINE, length);
            let to = &mut self.to.bytes_mut()[to];
            if before == State::Untouched {
                // A byte that no test writes, so that each store changes what it writes.
                to.fill(0xfe);
            }
            let from = &self.from.bytes()[from];
            let range = to.as_ptr().addr()..to.as_ptr().addr() + length;
            let mut result = Ok(());
            let tracked = StoreTracker::during(LIMIT, range, before, || result = call(to, from))?;
            result.map_err(|error| error.to_string())?;
            Ok(tracked)
        }
    }

    /// Returns the first byte that would be lost if the power failed now.
    fn lost(tracked: &StoreTracker) -> Option<Lost> {
        match tracked.worst() {
            Some((at, State::Pending)) => Some(Lost::Unfenced(at)),
            Some((at, State::Cached | State::Untouched)) => Some(Lost::InCache(at)),
            Some((_, State::Durable)) | None => None,
        }
    }

    fn judge(tracked: &StoreTracker, what: impl FnOnce() -> String) -> Result<(), Failed> {
        match lost(tracked) {
            Some(lost) => Err(format!("{}: {lost:?} at the end", what()).into()),
            None => Ok(()),
        }
    }

    fn before(operation: Operation) -> State {
        if operation == Operation::Persist { State::Cached } else { State::Untouched }
    }

    /// A form of the public operations.
    #[derive(Clone, Copy, Debug)]
    enum Form {
        /// The free functions, with the default options.
        #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only its policy has thresholds"))]
        Free,
        Slice,
        Raw,
        Scope,
    }

    impl Form {
        fn call(
            self,
            options: &Options,
            operation: Operation,
            to: &mut [u8],
            from: &[u8],
        ) -> Result<(), Error> {
            let length = to.len();
            match (self, operation) {
                (Form::Free, Operation::FillPersist) => bulkmem::fill_persist(to, BYTE),
                (Form::Free, Operation::CopyPersist) => bulkmem::copy_persist(to, from),
                (Form::Free, _) => bulkmem::persist(to),
                (Form::Slice, Operation::FillPersist) => options.fill_persist(to, BYTE),
                (Form::Slice, Operation::CopyPersist) => options.copy_persist(to, from),
                (Form::Slice, _) => options.persist(to),
                // SAFETY: a slice.
                (Form::Raw, Operation::FillPersist) => unsafe {
                    options.fill_persist_raw(to.as_mut_ptr(), length, BYTE)
                },
                // SAFETY: two slices of the same length that do not overlap.
                (Form::Raw, Operation::CopyPersist) => unsafe {
                    options.copy_persist_raw(to.as_mut_ptr(), from.as_ptr(), length)
                },
                // SAFETY: a slice.
                (Form::Raw, _) => unsafe { options.persist_raw(to.as_ptr(), length) },
                (Form::Scope, _) => options.fence_scope(|scope| {
                    match operation {
                        Operation::FillPersist => scope.fill_persist(to, BYTE)?.defer(),
                        Operation::CopyPersist => scope.copy_persist(to, from)?.defer(),
                        _ => scope.persist(to)?.defer(),
                    }
                    Ok(())
                }),
            }
        }
    }

    /// Returns the lengths and offsets to test each method with.
    fn places() -> impl Iterator<Item = (usize, usize)> {
        // 37 and 64 have no common factor, so all offsets occur.
        let lengths = (0..=SHORTEST).chain((SHORTEST + 1..=SHORT).step_by(7)).chain(LONG);
        let once = lengths.map(|length| (length, length * 37 % LINE));
        once.chain((1..=SHORTEST).map(|length| (length, (LINE - length % LINE) % LINE)))
    }

    /// Calls the public operations if the processor supports the method. Otherwise calls the method's fenced function
    /// under emulation, because `Options` rejects methods that the processor does not support.
    fn every_length_and_offset(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let mut bench = Bench::new(LONG.into_iter().fold(SHORT, usize::max));
        let options = if method.available() {
            let choice = Choice::of(method, operation);
            Some(Options::new().durability(Durability::FlushToMemory).method(operation, choice)?)
        } else {
            None
        };
        for (count, (length, offset)) in places().enumerate() {
            let form = [Form::Slice, Form::Raw, Form::Scope][count % 3];
            let case = Case { length, offset, ..Case::new(method, operation) };
            let tracked = bench.watch(length, offset, before(operation), |to, from| match &options {
                Some(options) => form.call(options, operation, to, from),
                None => {
                    // SAFETY: two slices of the case's length, apart; the suite runs only rows whose instructions
                    // this machine has or the tracer emulates.
                    unsafe { case.function().call(&case, to.as_mut_ptr(), from.as_ptr()) };
                    Ok(())
                }
            })?;
            // CLFLUSH counts as weak, although methods that use it are ordered.
            if length > 0 && tracked.weak == 0 {
                return Err(format!("{case}: nothing was written back or past the cache").into());
            }
            judge(&tracked, || format!("{case}, called as {form:?}"))?;
        }
        Ok(())
    }

    /// Tests the default policies of this machine and of machines with fewer features, at the lengths around each
    /// threshold.
    #[cfg(target_arch = "x86_64")]
    fn whatever_the_policy_chooses() -> Result<(), Failed> {
        let here = Machine::current();
        let every = [Features::CLWB, Features::CLFLUSHOPT, Features::AVX512F, Features::AVX];
        let fewer = |count: usize| every[..count].iter().fold(here.features, |left, it| left.difference(*it));
        let mut bench = Bench::new(LONGEST);
        let mut methods = BTreeSet::new();
        for count in 0..=every.len() {
            let machine = Machine { features: fewer(count), ..here.clone() };
            let policy = Policy::defaults(&machine);
            let options = Options::new().durability(Durability::FlushToMemory).policy(&policy)?;
            for operation in [Operation::FillPersist, Operation::CopyPersist, Operation::Persist] {
                let edges = policy.rules(operation, bulkmem::Intent::Throughput);
                let around = edges.iter().flat_map(|it| [it.from.saturating_sub(1), it.from, it.from + 1]);
                for length in around.chain([1, 100, 5000]).filter(|length| (1..=LONGEST).contains(length)) {
                    let choice = policy.choose(operation, length, bulkmem::Intent::Throughput);
                    let choice = choice.ok_or("every x86-64 processor can write lines back")?;
                    methods.insert(choice.method.name);
                    let tracked = bench.watch(length, length % LINE, before(operation), |to, from| {
                        Form::Slice.call(&options, operation, to, from)
                    })?;
                    judge(&tracked, || format!("{operation} of {length} bytes by {choice}"))?;
                }
            }
        }
        // There are three ways: stores that bypass the cache, stores with write-backs, and write-backs alone.
        if methods.len() < 3 {
            return Err(format!("the policies chose only {methods:?}").into());
        }
        Ok(())
    }

    /// The same for the policy that calls with default options use, which takes short ones to their method by a way of their own.
    #[cfg(target_arch = "x86_64")]
    fn whatever_the_process_wide_policy_chooses() -> Result<(), Failed> {
        let mut bench = Bench::new(LONGEST);
        for operation in [Operation::FillPersist, Operation::CopyPersist, Operation::Persist] {
            let edges = Policy::global().rules(operation, bulkmem::Intent::Throughput);
            let around = edges.iter().flat_map(|it| [it.from.saturating_sub(1), it.from, it.from + 1]);
            for length in around.chain([1, 63, 100, 5000]).filter(|length| (1..=LONGEST).contains(length)) {
                for form in [Form::Free, Form::Slice, Form::Raw, Form::Scope] {
                    let tracked = bench.watch(length, length % LINE, before(operation), |to, from| {
                        form.call(&Options::new(), operation, to, from)
                    })?;
                    judge(&tracked, || format!("{operation} of {length} bytes, called as {form:?}"))?;
                }
            }
        }
        Ok(())
    }

    /// Nothing is written back, but a fence follows every store.
    fn stores_where_caches_survive() -> Result<(), Failed> {
        fenced_and_not_written_back(&Options::new().durability(Durability::CachesIncluded))
    }

    fn fenced_and_not_written_back(options: &Options) -> Result<(), Failed> {
        let mut bench = Bench::new(SHORT);
        for operation in [Operation::FillPersist, Operation::CopyPersist] {
            for (count, (length, offset)) in places().filter(|it| (1..=SHORT).contains(&it.0)).enumerate() {
                let form = [Form::Slice, Form::Raw, Form::Scope][count % 3];
                let call = |to: &mut [u8], from: &[u8]| form.call(options, operation, to, from);
                let tracked = bench.watch(length, offset, State::Untouched, call)?;
                let stored = tracked.worst().is_some_and(|(_, state)| state == State::Cached);
                if !stored || tracked.stores_pending > 0 || tracked.weak_pending > 0 {
                    return Err(
                        format!("{operation} of {length} bytes at offset {offset}: {tracked:?}").into()
                    );
                }
            }
        }
        Ok(())
    }

    fn persist_where_caches_survive() -> Result<(), Failed> {
        persist_is_a_fence(&Options::new().durability(Durability::CachesIncluded))
    }

    fn persist_is_a_fence(options: &Options) -> Result<(), Failed> {
        let mut bench = Bench::new(SHORT);
        for length in [1, LINE, SHORT] {
            let tracked = bench.watch(length, 5, State::Cached, |to, _| options.persist(to))?;
            assert_eq!((tracked.fences, tracked.weak), (1, 0), "{length} bytes");
        }
        Ok(())
    }

    /// Loads a policy file of this processor with a line that states the durability.
    fn policy_with(line: &str) -> Result<Policy, Failed> {
        let machine = Machine::current();
        let cpu = &machine.cpu;
        let head = format!("{POLICY_FORMAT} {POLICY_VERSION}");
        let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
        let text = format!("{head}\n{cpu}\n{line}end\n");
        Ok(Policy::from_file_bytes(text.as_bytes(), machine)?)
    }

    /// A line of the policy file has the same effect as the option.
    fn the_policy_file_says_so() -> Result<(), Failed> {
        let survive = policy_with("durability caches-included\n")?;
        assert_eq!(survive.durability(), Durability::CachesIncluded);
        let options = Options::new().policy(&survive)?;
        fenced_and_not_written_back(&options)?;
        persist_is_a_fence(&options)
    }

    /// Policy files that do not say so, and a program that knows better.
    fn every_byte_is_written_back_otherwise() -> Result<(), Failed> {
        let lost = [policy_with("durability flush-to-memory\n")?, policy_with("")?];
        let flushing = lost.each_ref().map(|policy| Options::new().policy(policy));
        let survive = policy_with("durability caches-included\n")?;
        let overridden =
            Options::new().policy(&survive).map(|options| options.durability(Durability::FlushToMemory));
        let mut bench = Bench::new(SHORT);
        for options in flushing.into_iter().chain([overridden]) {
            let options = options?;
            for operation in Operation::ALL.into_iter().filter(|operation| operation.persists()) {
                let call = |to: &mut [u8], from: &[u8]| Form::Slice.call(&options, operation, to, from);
                let tracked = bench.watch(SHORT, 5, before(operation), call)?;
                judge(&tracked, || format!("{operation} with {options:?}"))?;
            }
        }
        Ok(())
    }

    /// A faulty implementation of copy_persist, and the byte that the check must find.
    struct Fault {
        name: &'static str,
        persist: fn(&mut [u8], &[u8]),
        /// Receives the length and the offset into a cache line.
        lost: fn(usize, usize) -> Option<Lost>,
    }

    static FAULTS: [Fault; 8] = [
        Fault { name: "none", persist: copied_flushed_fenced, lost: |_, _| None },
        Fault {
            name: "no_flush",
            persist: |to, from| {
                store(to, from);
                fence();
            },
            lost: |_, _| Some(Lost::InCache(0)),
        },
        Fault {
            name: "no_fence",
            persist: |to, from| {
                store(to, from);
                flush(to);
            },
            lost: |_, _| Some(Lost::Unfenced(0)),
        },
        Fault {
            name: "fence_before_the_flush",
            persist: |to, from| {
                store(to, from);
                fence();
                flush(to);
            },
            lost: |_, _| Some(Lost::Unfenced(0)),
        },
        Fault {
            name: "flush_before_the_last_store",
            persist: |to, from| {
                let last = to.len() - 1;
                store(&mut to[..last], from);
                flush(to);
                store(&mut to[last..], &from[last..]);
                fence();
            },
            lost: |length, _| Some(Lost::InCache(length - 1)),
        },
        Fault {
            name: "one_line_short",
            persist: |to, from| {
                store(to, from);
                // Like a loop in steps of a line that starts at an address within a line.
                flush(&to[..to.len() - 1 - (to.as_ptr().addr() + to.len() - 1) % LINE]);
                fence();
            },
            lost: |length, offset| Some(Lost::InCache(length - 1 - (offset + length - 1) % LINE)),
        },
        Fault {
            name: "ends_stored_plainly_between_lines_past_the_cache",
            persist: |to, from| {
                // Whole lines bypass the cache, as they should. Ordinary stores write the part after them.
                let head = to.as_ptr().addr().wrapping_neg() % LINE;
                let whole = head + (to.len() - head) / LINE * LINE;
                store(&mut to[..head], from);
                flush(&to[..head]);
                store_past_the_cache(&mut to[head..whole], &from[head..]);
                store(&mut to[whole..], &from[whole..]);
                fence();
            },
            lost: |length, offset| {
                let behind = (offset + length) % LINE;
                (behind > 0).then(|| Lost::InCache(length - behind))
            },
        },
        Fault {
            name: "a_store_after_the_fence",
            persist: |to, from| {
                copied_flushed_fenced(to, from);
                store(&mut to[..1], &[!from[0]]);
            },
            lost: |_, _| Some(Lost::InCache(0)),
        },
    ];

    impl Fault {
        fn is_caught(&self) -> Result<(), Failed> {
            let mut bench = Bench::new(SHORT);
            for (length, offset) in [(129, 0), (200, 1), (256, 63), (150, 31), (192, 0)] {
                let tracked = bench.watch(length, offset, State::Untouched, |to, from| {
                    (self.persist)(to, from);
                    Ok(())
                })?;
                let expected = (self.lost)(length, offset);
                assert_eq!(lost(&tracked), expected, "{length} bytes at offset {offset}");
            }
            Ok(())
        }
    }

    fn copied_flushed_fenced(to: &mut [u8], from: &[u8]) {
        store(to, from);
        flush(to);
        fence();
    }

    /// Stores each byte to the cache.
    fn store(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: a reference.
            unsafe { std::ptr::from_mut(to).write_volatile(*from) }
        }
    }

    /// Stores whole words that bypass the cache.
    #[cfg(target_arch = "x86_64")]
    fn store_past_the_cache(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.chunks_exact_mut(8).zip(from.chunks_exact(8)) {
            let word = u64::from_ne_bytes(from.try_into().expect("chunks of 8 bytes"));
            // SAFETY: the word is valid for writes; the fence is the caller's.
            unsafe {
                asm!("movnti [{to}], {word}", to = in(reg) to.as_mut_ptr(), word = in(reg) word,
                     options(nostack, preserves_flags));
            }
        }
    }

    /// Stores whole words and writes them back: no store of this architecture is sure to bypass the cache.
    #[cfg(not(target_arch = "x86_64"))]
    fn store_past_the_cache(to: &mut [u8], from: &[u8]) {
        store(to, from);
        flush(to);
    }

    /// Writes back every line that holds a byte of the range.
    fn flush(bytes: &[u8]) {
        let before = bytes.as_ptr().addr() % LINE;
        for at in (0..bytes.len() + before).step_by(LINE).filter(|_| !bytes.is_empty()) {
            let line = bytes.as_ptr().wrapping_sub(before).wrapping_add(at);
            // SAFETY: the line holds a byte of the slice, and the processor has the instruction: see `add`.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                std::arch::x86_64::_mm_clflush(line);
                // DC CVAP.
                #[cfg(target_arch = "aarch64")]
                asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags));
                #[cfg(target_arch = "riscv64")]
                asm!(".option push", ".option arch, +zicbom", "cbo.clean ({})", ".option pop", in(reg) line,
                     options(nostack, preserves_flags));
            }
        }
    }

    /// The fence that waits for write-backs.
    fn fence() {
        method::fence();
    }
}
