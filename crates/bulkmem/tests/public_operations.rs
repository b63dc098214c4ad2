//! Tests of the public operations, by recording instructions: whatever weakly ordered method is used, no store is
//! unfenced when an operation returns or a scope ends, and one fence suffices for all operations of a scope.

use std::process::ExitCode;

use testkit::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    #[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64"))]
    recorded::add(&mut suite);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
    suite.skip("public_operations", "recording instructions is not written for this architecture");
    suite.run()
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64"))]
mod recorded {
    use bulkmem::machine::features;
    use bulkmem::method::{self, Method, Ordering};
    use bulkmem::policy::{Choice, Policy};
    use bulkmem::{Durability, Error, Operation, Options};
    use libtest_mimic::Failed;
    use testkit::guard::Guarded;
    use testkit::harness::Suite;
    use testkit::store_tracker::{State, StoreTracker};
    use testkit::table;

    /// Two pages in each of the fewest streams, and a part of a page.
    const LENGTH: usize = 2 * 2 * 4096 + 100;
    /// Limit of recorded instructions per call: all on x86-64, else those that matter.
    const LIMIT: usize = if cfg!(target_arch = "x86_64") { 1 << 18 } else { 1 << 14 };

    /// A form of the public operations.
    #[derive(Clone, Copy)]
    enum Form {
        Slice,
        Raw,
        Scope,
    }

    pub(super) fn add(suite: &mut Suite) {
        for (method, operation) in table::entries().filter(|(method, _)| method.ordering == Ordering::Weak) {
            // `Options` rejects methods that would have to be emulated.
            let missing = method.requires.difference(features());
            for (form, name) in [(Form::Slice, "slice"), (Form::Raw, "raw"), (Form::Scope, "scope")] {
                suite.entry_needing(
                    missing,
                    &format!("fenced_{name}"),
                    (method, operation),
                    move |method, operation| returns_fenced(method, operation, form),
                );
            }
        }
        for (method, operation) in table::entries().filter(|(method, _)| method.ordering == Ordering::Ordered)
        {
            let missing = method.requires.difference(features());
            suite.entry_needing(missing, "raw_form_fences", (method, operation), raw_form_fences);
        }
        suite.test("raw_form_fences::overlapping_copy", raw_overlapping_copy_fences);
        #[cfg(target_arch = "x86_64")]
        {
            suite.test("short_parts_are_not_fenced", by_defaults::short_parts_are_not_fenced);
            suite.test("short_parts_in_a_scope_get_the_extents_method", by_defaults::short_parts_in_a_scope);
            suite.test("calls_that_look_are_fenced", by_defaults::calls_that_look_are_fenced);
        }
        add_free_functions(suite);
        suite.test("one_fence_serves_a_scope", one_fence_serves_a_scope);
        // Breakpoints, where instructions are recorded by them, belong to all threads.
        #[cfg(not(target_arch = "x86_64"))]
        suite.serial();
    }

    fn traced(
        memory: &mut [u8],
        before: State,
        call: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<StoreTracker, Failed> {
        let range = memory.as_ptr_range();
        let mut result = Ok(());
        let addresses = range.start as usize..range.end as usize;
        let tracked = StoreTracker::during(LIMIT, addresses, before, || result = call(memory))?;
        result.map_err(|error| error.to_string())?;
        Ok(tracked)
    }

    /// Checks that there were weak stores, that all are fenced, and that the bytes are durable if the operation
    /// persists.
    fn check(operation: Operation, tracked: &StoreTracker) -> Result<(), Failed> {
        if tracked.weak == 0 {
            return Err("nothing was stored weakly: some other method ran".into());
        }
        if tracked.weak_pending > 0 {
            return Err(format!("{} weak stores are pending", tracked.weak_pending).into());
        }
        match tracked.worst() {
            Some((at, state)) if operation.persists() && state != State::Durable => {
                Err(format!("byte {at} is {state:?}").into())
            }
            _ => Ok(()),
        }
    }

    fn before(operation: Operation) -> State {
        if operation == Operation::Persist { State::Cached } else { State::Untouched }
    }

    /// Returns a choice with the fewest streams, which need the least memory.
    fn with_fewest_streams(method: &'static Method, operation: Operation) -> Choice {
        let mut choice = Choice::of(method, operation);
        for tunable in method.tunables(operation).unwrap_or_default() {
            if tunable.name == "streams" {
                choice.parameters.streams = tunable.range.0;
            }
        }
        choice
    }

    fn returns_fenced(method: &'static Method, operation: Operation, form: Form) -> Result<(), Failed> {
        let choice = with_fewest_streams(method, operation);
        let options = Options::new().durability(Durability::FlushToMemory).method(operation, choice)?;
        // At the same offset into a word: otherwise, copies on RISC-V store single bytes, which have no hint.
        let source = &vec![0x5a; LENGTH + 3][3..];
        let mut memory = vec![0xff; LENGTH + 3];
        let memory = &mut memory[3..];
        let tracked = traced(memory, before(operation), |to| match form {
            Form::Slice => by_slice(&options, operation, to, source),
            Form::Raw => by_raw(&options, operation, to, source),
            Form::Scope => in_scope(&options, operation, to, source),
        })?;
        check(operation, &tracked)?;
        let expected = match operation {
            Operation::Clear => 0,
            Operation::Fill | Operation::FillPersist => 7,
            Operation::Copy | Operation::CopyPersist => 0x5a,
            Operation::Persist => 0xff,
        };
        if memory.iter().any(|byte| *byte != expected) { Err("wrong bytes".into()) } else { Ok(()) }
    }

    /// On write-combining memory, ordinary stores are weakly ordered too.
    fn raw_form_fences(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let options = Options::new().method(operation, with_fewest_streams(method, operation))?;
        let source = vec![0x5a; LENGTH];
        let mut memory = vec![0xff; LENGTH];
        all_fenced(&traced(&mut memory, before(operation), |to| by_raw(&options, operation, to, &source))?)
    }

    fn raw_overlapping_copy_fences() -> Result<(), Failed> {
        let mut memory = vec![0xff; LENGTH];
        all_fenced(&traced(&mut memory, State::Untouched, |to| {
            let start = to.as_mut_ptr();
            // SAFETY: both ranges are within the slice.
            unsafe { Options::new().copy_raw(start.add(1), start, LENGTH - 1) }
            Ok(())
        })?)
    }

    fn all_fenced(tracked: &StoreTracker) -> Result<(), Failed> {
        match (tracked.stores_pending, tracked.fences) {
            (0, 1..) => Ok(()),
            (pending, fences) => Err(format!("{pending} stores are pending after {fences} fences").into()),
        }
    }

    fn by_slice(options: &Options, operation: Operation, to: &mut [u8], source: &[u8]) -> Result<(), Error> {
        match operation {
            Operation::Clear => options.clear(to),
            Operation::Fill => options.fill(to, 7),
            Operation::Copy => options.copy(to, &source[..to.len()])?,
            Operation::FillPersist => options.fill_persist(to, 7)?,
            Operation::CopyPersist => options.copy_persist(to, &source[..to.len()])?,
            Operation::Persist => options.persist(to)?,
        }
        Ok(())
    }

    fn by_raw(options: &Options, operation: Operation, to: &mut [u8], source: &[u8]) -> Result<(), Error> {
        let (start, length, source) = (to.as_mut_ptr(), to.len(), source[..to.len()].as_ptr());
        // SAFETY: both slices are valid for `length` bytes, the destination for writes, and they are apart.
        unsafe {
            match operation {
                Operation::Clear => options.clear_raw(start, length),
                Operation::Fill => options.fill_raw(start, length, 7),
                Operation::Copy => options.copy_raw(start, source, length),
                Operation::FillPersist => options.fill_persist_raw(start, length, 7)?,
                Operation::CopyPersist => options.copy_persist_raw(start, source, length)?,
                Operation::Persist => options.persist_raw(start, length)?,
            }
        }
        Ok(())
    }

    fn in_scope(options: &Options, operation: Operation, to: &mut [u8], source: &[u8]) -> Result<(), Error> {
        let source = &source[..to.len()];
        options.fence_scope(|scope| {
            match operation {
                Operation::Clear => scope.clear(to).defer(),
                Operation::Fill => scope.fill(to, 7).defer(),
                Operation::Copy => scope.copy(to, source)?.defer(),
                Operation::FillPersist => scope.fill_persist(to, 7)?.defer(),
                Operation::CopyPersist => scope.copy_persist(to, source)?.defer(),
                Operation::Persist => scope.persist(to)?.defer(),
            }
            Ok(())
        })
    }

    /// Free functions use the process-wide policy, for which a variable forces weakly ordered methods.
    fn add_free_functions(suite: &mut Suite) {
        let weak = |operation: Operation| {
            method::all().find(|it| it.does(operation) && it.ordering == Ordering::Weak && it.available())
        };
        let forced: Vec<_> = Operation::ALL.into_iter().filter_map(|it| Some((it, weak(it)?))).collect();
        let text: Vec<_> =
            forced.iter().map(|(operation, method)| format!("{operation}:{}", method.name)).collect();
        let text = text.join(",");
        if std::env::var("BULKMEM_METHOD").is_ok_and(|given| given == text) {
            bulkmem::init().expect("the methods are available");
        } else {
            // The library reads the environment when the process starts, so this program starts itself again.
            let mut again = testkit::program::again();
            again.args(std::env::args_os().skip(1)).env("BULKMEM_METHOD", text);
            panic!("cannot start again: {}", std::os::unix::process::CommandExt::exec(&mut again));
        }
        for operation in Operation::ALL {
            let name = format!("fenced_function::{operation}");
            match weak(operation) {
                Some(_) => suite.test(&name, move || function_returns_fenced(operation)),
                None => suite.skip(&name, "no weakly ordered method of it is available"),
            }
        }
    }

    fn function_returns_fenced(operation: Operation) -> Result<(), Failed> {
        let policy = Policy::global();
        assert_eq!(policy.origin().forced.iter().filter(|(it, _)| *it == operation).count(), 1);
        let source = vec![0x5a; LENGTH];
        let mut memory = vec![0xff; LENGTH];
        // The first call finds out which lengths go straight to the C library, and the second uses the result.
        for _ in 0..2 {
            let tracked = traced(&mut memory, before(operation), |to| {
                match operation {
                    Operation::Clear => bulkmem::clear(to),
                    Operation::Fill => bulkmem::fill(to, 7),
                    Operation::Copy => bulkmem::copy(to, &source)?,
                    Operation::FillPersist => bulkmem::fill_persist(to, 7)?,
                    Operation::CopyPersist => bulkmem::copy_persist(to, &source)?,
                    Operation::Persist => bulkmem::persist(to)?,
                }
                Ok(())
            })?;
            check(operation, &tracked)?;
        }
        Ok(())
    }

    fn one_fence_serves_a_scope() -> Result<(), Failed> {
        let weak = |it: &&Method| {
            it.does(Operation::Clear)
                && it.ordering == Ordering::Weak
                && it.available()
                && !it.name.contains("stream")
        };
        let weak = method::all().find(weak).ok_or("no weakly ordered method of clear")?;
        let options = Options::new().method(Operation::Clear, Choice::of(weak, Operation::Clear))?;
        // Starts at a cache line, so that the method's main loop stores every byte.
        let mut parts = Guarded::new(3 * 4096);
        parts.bytes_mut().fill(1);
        let tracked = traced(parts.bytes_mut(), State::Untouched, |memory| {
            options.fence_scope(|scope| {
                let mut parts = memory.chunks_mut(4096).map(|part| scope.clear(part));
                let (first, second) = (parts.next().expect("three"), parts.next().expect("three"));
                first.join(second).defer();
                parts.next().expect("three").defer();
            });
            Ok(())
        })?;
        assert_eq!((tracked.fences, tracked.weak_pending), (1, 0));
        if weak.name == "movnti" {
            assert_eq!(tracked.weak, 3 * 4096 / 8, "each 8 bytes by a MOVNTI");
        }
        assert!(tracked.weak > 0, "{}", weak.name);
        assert!(parts.bytes().iter().all(|byte| *byte == 0));
        Ok(())
    }

    /// With what the policy chooses on x86-64.
    #[cfg(target_arch = "x86_64")]
    mod by_defaults {
        use bulkmem::Intent;
        use bulkmem::machine::Machine;
        use bulkmem::policy::{POLICY_FORMAT, POLICY_VERSION};

        use super::*;

        const UNMAPPED: &str = "1 1";

        /// The part that is timed, and what follows by another method; and calls that follow what earlier ones found.
        pub(super) fn calls_that_look_are_fenced() -> Result<(), Failed> {
            let machine = Machine::current();
            let cpu = &machine.cpu;
            // SAFETY: a range of no bytes changes nothing.
            let populates = unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) } == 0;
            if !populates {
                println!("skipped: calls that have the kernel map pages: Linux before 5.14 cannot");
            }
            for operation in Operation::ALL.into_iter().filter(|operation| *operation != Operation::Persist) {
                // Every look finds uncached memory, or cached memory, or memory whose pages are not mapped: the kernel maps them,
                // and the method for cached memory follows.
                for times in ["1 400000000000", "400000000000 400000000000", UNMAPPED] {
                    let methods = match (operation.persists(), times == "1 400000000000") {
                        (false, true) => ["c_library", "movnti"],
                        (false, false) => ["movnti", "c_library"],
                        (true, _) => ["store_8_clflushopt", "movnti"],
                    };
                    let [cached, uncached] = methods;
                    let policy = format!(
                        "{POLICY_FORMAT} {POLICY_VERSION}\ncpu {} {} {} {}\nrule {operation} cached 0 {cached}\n\
                         rule {operation} uncached 0 {uncached}\nlook {operation} 8192 {times} {cached}\nend\n",
                        cpu.family, cpu.model, cpu.stepping, cpu.vendor
                    );
                    let policy = Policy::from_file_bytes(policy.as_bytes(), machine)?;
                    let options = Options::new().durability(Durability::FlushToMemory).policy(&policy)?;
                    let options = options.populate(true);
                    let source = vec![0x5a; LENGTH];
                    for (form, follows) in [Form::Slice, Form::Raw, Form::Scope]
                        .map(|it| [(it, false), (it, true)])
                        .as_flattened()
                    {
                        // Linux before 5.14 leaves such calls to another method.
                        if times == UNMAPPED && (*follows || !populates) {
                            continue;
                        }
                        let mut memory = vec![0xff; LENGTH];
                        let call = |to: &mut [u8]| match form {
                            Form::Slice => by_slice(&options, operation, to, &source),
                            Form::Raw => by_raw(&options, operation, to, &source),
                            Form::Scope => in_scope(&options, operation, to, &source),
                        };
                        bulkmem::forget_verdicts();
                        if *follows {
                            let looks = || {
                                let counts = bulkmem::look::counts(operation);
                                counts.cached + counts.uncached
                            };
                            let before = looks();
                            // Each at an address of its own: the same one would be tried with stores through the cache.
                            let mut others = vec![0xff; 9 * LENGTH];
                            others.chunks_mut(LENGTH).try_for_each(call)?;
                            assert_eq!(looks() - before, 8, "the ninth call follows");
                        }
                        let tracked = traced(&mut memory, State::Untouched, call)?;
                        check(operation, &tracked).map_err(|error| {
                            Failed::from(format!(
                                "{operation} {times}: {}",
                                error.message().unwrap_or_default()
                            ))
                        })?;
                    }
                }
            }
            Ok(())
        }

        /// Traces one call for a part of 64 bytes of 1 GiB, for which the policy chooses a method that bypasses the
        /// cache.
        fn short_part(call: impl FnOnce(&Options, &mut [u8])) -> Result<StoreTracker, Failed> {
            let policy = Policy::defaults(Machine::current());
            let options = Options::new().total_len(1 << 30).intent(Intent::Stream).policy(&policy)?;
            let whole = policy.choose(Operation::Clear, 1 << 30, Intent::Stream).ok_or("no method")?.method;
            assert_eq!(whole.ordering, Ordering::Weak, "{}", whole.name);
            let mut memory = Guarded::new(4096);
            traced(&mut memory.bytes_mut()[..64], State::Untouched, |part| {
                call(&options, part);
                Ok(())
            })
        }

        pub(super) fn short_parts_are_not_fenced() -> Result<(), Failed> {
            let tracked = short_part(|options, part| options.clear(part))?;
            assert_eq!((tracked.fences, tracked.weak), (0, 0));
            Ok(())
        }

        /// In a scope, one fence suffices for all calls.
        pub(super) fn short_parts_in_a_scope() -> Result<(), Failed> {
            let tracked = short_part(|options, part| options.fence_scope(|scope| scope.clear(part).defer()))?;
            assert!(tracked.weak > 0);
            assert_eq!((tracked.fences, tracked.weak_pending), (1, 0));
            Ok(())
        }
    }
}
