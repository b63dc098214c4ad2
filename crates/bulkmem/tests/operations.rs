//! Compares the safe and the raw operations, with every option, with plain Rust.

use std::env;
use std::mem;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use bulkmem::machine::{Features, Machine};
use bulkmem::method::{self, Ordering};
use bulkmem::policy::{Basis, Choice, POLICY_FORMAT, POLICY_VERSION, Policy};
use bulkmem::{Durability, Error, Intent, Operation, Options, Threads};

/// Lengths of lines and pages, their neighbours, and some longer ones.
fn lengths() -> impl Iterator<Item = usize> + Clone {
    let around = [512, 1024, 4096, 8192, 65_536, 262_144, 1 << 20];
    (0..=260).chain(around.into_iter().flat_map(|at| [at - 1, at, at + 1])).chain([12_345, (2 << 20) + 4097])
}

/// Returns bytes with a period that is not a power of two.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ 0x5A).collect()
}

/// Calls `work` with `length` bytes at `offset` of a pattern, and checks that the bytes around them are unchanged.
/// Returns the bytes.
fn between(offset: usize, length: usize, work: impl FnOnce(&mut [u8])) -> Vec<u8> {
    const MARGIN: usize = 80;
    let original = pattern(offset + length + MARGIN);
    let mut memory = original.clone();
    work(&mut memory[offset..offset + length]);
    assert_eq!(memory[..offset], original[..offset], "written before the destination of {length}");
    assert_eq!(
        memory[offset + length..],
        original[offset + length..],
        "written behind the destination of {length}"
    );
    memory[offset..offset + length].to_vec()
}

/// Checks every operation with one `Options`, at one place and length.
fn check(options: &Options<'_>, offset: usize, length: usize) {
    let source: Vec<u8> = pattern(length + 3)[3..].to_vec();
    let case = format!("{options:?} {offset} {length}");
    assert!(between(offset, length, |dst| options.clear(dst)).iter().all(|&byte| byte == 0), "clear {case}");
    assert!(
        between(offset, length, |dst| options.fill(dst, 0xC3)).iter().all(|&byte| byte == 0xC3),
        "fill {case}"
    );
    assert!(between(offset, length, |dst| options.copy(dst, &source).unwrap()) == source, "copy {case}");
    assert!(
        between(offset, length, |dst| options.copy_persist(dst, &source).unwrap()) == source,
        "copy_persist {case}"
    );
    assert!(
        between(offset, length, |dst| options.fill_persist(dst, 0x3C).unwrap())
            .iter()
            .all(|&byte| byte == 0x3C),
        "fill_persist {case}"
    );
    assert!(
        between(offset, length, |dst| options.clear_persist(dst).unwrap()).iter().all(|&byte| byte == 0),
        "clear_persist {case}"
    );
    let before = pattern(offset + length)[offset..].to_vec();
    assert!(between(offset, length, |dst| options.persist(dst).unwrap()) == before, "persist {case}");
}

#[test]
fn the_free_functions_do_what_plain_rust_does() {
    for length in lengths() {
        let source = pattern(length);
        let mut memory = vec![1; length];
        bulkmem::clear(&mut memory);
        assert!(memory.iter().all(|&byte| byte == 0), "clear {length}");
        bulkmem::fill(&mut memory, 0xFF);
        assert!(memory.iter().all(|&byte| byte == 0xFF), "fill {length}");
        bulkmem::copy(&mut memory, &source).unwrap();
        assert!(memory == source, "copy {length}");
        memory.fill(0);
        bulkmem::copy_persist(&mut memory, &source).unwrap();
        assert!(memory == source, "copy_persist {length}");
        bulkmem::persist(&memory).unwrap();
        assert!(memory == source, "persist {length}");
        bulkmem::fill_persist(&mut memory, 0xA5).unwrap();
        assert!(memory.iter().all(|&byte| byte == 0xA5), "fill_persist {length}");
        bulkmem::clear_persist(&mut memory).unwrap();
        assert!(memory.iter().all(|&byte| byte == 0), "clear_persist {length}");
    }
}

#[test]
fn every_intent_and_extent_gives_the_same_bytes() {
    for intent in Intent::ALL {
        for extent in [0, 1, 100_000, 64 << 20, 200 << 30, usize::MAX] {
            let options = Options::new().total_len(extent).intent(intent);
            for (at, length) in lengths().enumerate() {
                check(&options, at % 67, length);
            }
        }
    }
}

#[test]
fn every_durability_gives_the_same_bytes() {
    for durability in [Durability::FlushToMemory, Durability::CachesIncluded] {
        for length in lengths() {
            check(&Options::new().durability(durability), 5, length);
        }
    }
}

#[test]
fn every_method_can_be_forced_where_it_can_run() {
    let mut forced = 0;
    for row in method::all() {
        for operation in Operation::ALL {
            let choice = Choice::of(row, operation);
            let options = Options::new().method(operation, choice);
            if !row.does(operation) {
                assert_eq!(options.unwrap_err(), Error::WrongOperation { method: row.name, operation });
            } else if !row.available() {
                let missing = row.requires.difference(bulkmem::machine::features());
                assert_eq!(options.unwrap_err(), Error::Unavailable { method: row.name, missing });
            } else {
                for (offset, length) in [(0, 0), (1, 63), (64, 64), (63, 4097), (0, 65_536), (17, 300_001)] {
                    check(&options.clone().unwrap(), offset, length);
                }
                forced += 1;
            }
        }
    }
    assert!(forced >= 6, "the C library and the portable method at least: {forced}");
}

#[test]
fn invalid_parameters_cannot_be_forced() {
    for row in method::all().filter(|row| row.available()) {
        for operation in Operation::ALL {
            let mut choice = Choice::of(row, operation);
            choice.parameters.streams = u32::MAX;
            let refused = Options::new().method(operation, choice).map(|_| ()).unwrap_err();
            let expected = if row.does(operation) {
                Error::InvalidParameters { method: row.name, operation, parameters: choice.parameters }
            } else {
                Error::WrongOperation { method: row.name, operation }
            };
            assert_eq!(refused, expected);
        }
    }
}

#[test]
fn a_policy_of_another_machine_is_refused() {
    let mut described = Machine::current().clone();
    described.features = Features::all();
    let mut policy = Policy::defaults(&described);
    let elsewhere = method::all().find(|row| row.does(Operation::Clear) && !row.available());
    if let Some(row) = elsewhere {
        policy.force(&format!("clear:{}", row.name)).unwrap();
    }
    let options = Options::new().policy(&policy);
    assert_eq!(options.is_ok(), policy.runs_here());
    if elsewhere.is_some() {
        assert_eq!(options.unwrap_err(), Error::ForeignPolicy);
    }

    let mut own = Policy::defaults(Machine::current());
    own.force("clear:portable,fill:portable,copy:portable").unwrap();
    for length in lengths() {
        check(&Options::new().policy(&own).unwrap(), 3, length);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let exactly = (1..=8).map(|workers| Threads::Exactly(NonZeroUsize::new(workers).unwrap()));
    for threads in exactly.chain([Threads::One, Threads::Auto, Threads::Exactly(NonZeroUsize::MAX)]) {
        for length in [0, 1, 4095, 4096, 4097, 8192, 3 * 4096 - 1, 5 * 4096 + 17, 40_961, 100_003] {
            for offset in [0, 1, 2049] {
                check(&Options::new().threads(threads), offset, length);
            }
        }
    }
    let threads = Threads::Exactly(NonZeroUsize::new(2).unwrap());
    check(&Options::new().threads(threads).durability(Durability::CachesIncluded), 77, (40 << 20) + 5);
}

#[test]
fn every_hot_range_is_cleared_and_so_is_the_rest() {
    for (offset, length) in [(0, 0_usize), (0, 1), (7, 63), (0, 128), (9, 1000), (33, 3 * 4096 + 17)] {
        let mut edges: Vec<usize> = [0, 1, 2, 55, 57, 63, 64, 65, 127, 500, 4096].into_iter().collect();
        edges.extend([1, 2, 3, 63, 64, 65].map(|back| length.saturating_sub(back)));
        edges.extend([length / 2, length]);
        for start in edges.iter().copied().filter(|&edge| edge <= length) {
            for end in edges.iter().copied().filter(|&edge| start <= edge && edge <= length) {
                let cleared =
                    between(offset, length, |dst| Options::new().clear_hot(dst, start..end).unwrap());
                assert!(cleared.iter().all(|&byte| byte == 0), "{offset} {length} {start}..{end}");
            }
        }
    }
    let threads = Threads::Exactly(NonZeroUsize::new(3).unwrap());
    let cleared = between(1, 1 << 20, |dst| {
        Options::new().total_len(1 << 30).threads(threads).clear_hot(dst, 70_000..80_000).unwrap()
    });
    assert!(cleared.iter().all(|&byte| byte == 0));
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "what must be refused")]
fn a_hot_range_elsewhere_is_an_error_and_clears_nothing() {
    for hot in [0..101, 100..101, 101..101, 60..50, 101..0, 0..usize::MAX, usize::MAX..usize::MAX] {
        let mut memory = pattern(100);
        let refused = Options::new().clear_hot(&mut memory, hot.clone()).unwrap_err();
        assert_eq!(refused, Error::HotOutOfBounds { hot, length: 100 });
        assert_eq!(memory, pattern(100));
    }
}

#[test]
fn different_lengths_are_an_error_and_write_nothing() {
    let expected = Error::LengthMismatch { destination: 100, source_length: 99 };
    let mut memory = pattern(100);
    assert_eq!(bulkmem::copy(&mut memory, &[0; 99]).unwrap_err(), expected);
    assert_eq!(bulkmem::copy_persist(&mut memory, &[0; 99]).unwrap_err(), expected);
    bulkmem::fence_scope(|scope| {
        let (left, right) = memory.split_at_mut(50);
        assert!(scope.copy(left, &[0; 51]).is_err());
        assert!(scope.copy_persist(right, &[0; 49]).is_err());
    });
    assert_eq!(memory, pattern(100));
}

#[test]
fn raw_copies_that_overlap_are_moves() {
    const LENGTH: usize = 10_000;
    for distance in [0, 1, 7, 8, 63, 64, 65, 4096, LENGTH - 1, LENGTH, LENGTH + 1] {
        for (from, to) in [(0, distance), (distance, 0)] {
            let mut expected = pattern(LENGTH + distance);
            let mut memory = expected.clone();
            expected.copy_within(from..from + LENGTH, to);
            let start = memory.as_mut_ptr();
            // SAFETY: both ranges are within the vector.
            unsafe { Options::new().copy_raw(start.add(to), start.add(from), LENGTH) }
            assert!(memory == expected, "{from} {to}");

            let mut memory = pattern(LENGTH + distance);
            let start = memory.as_mut_ptr();
            // SAFETY: as above.
            let persisted =
                unsafe { Options::new().copy_persist_raw(start.add(to), start.add(from), LENGTH) };
            if distance < LENGTH {
                let destination = start.addr() + to;
                let refused =
                    Error::Overlap { destination, source_address: start.addr() + from, length: LENGTH };
                assert_eq!(persisted.unwrap_err(), refused);
                assert!(memory == pattern(LENGTH + distance), "{from} {to}");
            } else {
                persisted.unwrap();
                assert!(memory == expected, "{from} {to}");
            }
        }
    }
}

#[test]
fn raw_forms_do_what_the_safe_ones_do() {
    let options = Options::new().total_len(1 << 30).intent(Intent::Stream);
    for length in lengths() {
        let source = pattern(length);
        let mut memory = pattern(length);
        let start = memory.as_mut_ptr();
        // SAFETY: the vector's own bytes, and another vector's.
        unsafe {
            options.clear_raw(start, length);
            assert!((0..length).all(|at| start.add(at).read() == 0));
            options.fill_raw(start, length, 9);
            assert!((0..length).all(|at| start.add(at).read() == 9));
            options.fill_persist_raw(start, length, 8).unwrap();
            assert!((0..length).all(|at| start.add(at).read() == 8));
            options.copy_raw(start, source.as_ptr(), length);
            options.persist_raw(start, length).unwrap();
        }
        assert!(memory == source, "{length}");
    }
}

#[test]
fn no_bytes_at_all_may_be_anywhere() {
    for options in [
        Options::new(),
        Options::new().total_len(1 << 30).threads(Threads::Exactly(NonZeroUsize::new(4).unwrap())),
    ] {
        for at in [ptr::null_mut(), ptr::without_provenance_mut(usize::MAX), ptr::without_provenance_mut(1)] {
            // SAFETY: no bytes.
            unsafe {
                options.clear_raw(at, 0);
                options.fill_raw(at, 0, 1);
                options.copy_raw(at, at, 0);
                options.copy_persist_raw(at, at, 0).unwrap();
                options.fill_persist_raw(at, 0, 1).unwrap();
                options.persist_raw(at, 0).unwrap();
            }
        }
    }
}

/// Returns options with a weakly ordered method, if the architecture has one.
fn weak() -> Options<'static> {
    let rows = method::all().filter(|row| row.available() && row.ordering == Ordering::Weak);
    let row = rows.into_iter().find(|row| row.does(Operation::Clear)).unwrap_or(method::c_library());
    Options::new().method(Operation::Clear, Choice::of(row, Operation::Clear)).unwrap()
}

#[test]
fn a_scope_does_every_operation() {
    for options in [
        Options::new(),
        weak(),
        Options::new().total_len(1 << 30),
        Options::new().durability(Durability::CachesIncluded),
    ] {
        for length in [0, 1, 64, 100, 5000, 300_000] {
            let source = pattern(length);
            let [mut a, mut b, mut c, mut d, mut e, mut f] = [(); 6].map(|()| vec![1; length]);
            options.fence_scope(|scope| {
                let cleared = scope.clear(&mut a);
                let filled = scope.fill(&mut b, 3);
                let copied = scope.copy(&mut c, &source).unwrap();
                let persisted = scope.copy_persist(&mut d, &source).unwrap();
                let written_back = scope.persist(&source).unwrap();
                let of_one_byte =
                    scope.fill_persist(&mut e, 4).unwrap().join(scope.clear_persist(&mut f).unwrap());
                let ((((a, b), c), d), written_back) =
                    cleared.join(filled).join(copied).join(persisted).join(written_back).fence();
                let (e, f) = of_one_byte.fence();
                assert!(a.iter().all(|&byte| byte == 0) && b.iter().all(|&byte| byte == 3));
                assert!(c == source && d == source && written_back == source);
                assert!(e.iter().all(|&byte| byte == 4) && f.iter().all(|&byte| byte == 0));
            });
            assert!(a.iter().all(|&byte| byte == 0) && b.iter().all(|&byte| byte == 3));
            assert!(c == source && d == source);
            assert!(e.iter().all(|&byte| byte == 4) && f.iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn bytes_come_back_after_a_scope_whatever_became_of_their_guards() {
    let mut memory = vec![1_u8; 64 * 4096];
    weak().fence_scope(|scope| {
        for (at, page) in memory.chunks_mut(4096).enumerate() {
            let unfenced = scope.clear(page);
            match at % 4 {
                0 => mem::forget(unfenced),
                1 => unfenced.defer(),
                2 => drop(unfenced),
                _ => unfenced.fence()[0] = 5,
            }
        }
    });
    let expected = |at: usize| u8::from(at.is_multiple_of(4096) && at / 4096 % 4 == 3) * 5;
    assert!(memory.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
}

#[test]
fn a_panic_leaves_a_scope_with_the_bytes_written() {
    let mut memory = vec![1_u8; 100_000];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        weak().fence_scope(|scope| {
            mem::forget(scope.clear(&mut memory));
            panic!("on purpose");
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert!(memory.iter().all(|&byte| byte == 0));
}

#[test]
fn a_scope_with_threads_does_the_same() {
    let mut memory = vec![1_u8; 1 << 20];
    let threads = Threads::Exactly(NonZeroUsize::new(3).unwrap());
    weak().threads(threads).fence_scope(|scope| {
        assert!(scope.clear(&mut memory).fence().iter().all(|&byte| byte == 0));
    });
}

/// Runs one test of this file again, in a process of its own with this variable. Returns its standard error.
fn again(test: &str, variable: &str, value: &str) -> String {
    let mut child = testkit::program::again();
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("BULKMEM_TEST_CHILD", "1");
    let output = child.env(variable, value).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(
        output.status.success() && passed,
        "{variable}={value}: {}{text}",
        String::from_utf8_lossy(&output.stdout)
    );
    text
}

fn is_child() -> bool {
    env::var_os("BULKMEM_TEST_CHILD").is_some()
}

/// A variable that any parent process may have set must not disable flushing.
#[test]
fn no_variable_tells_that_caches_survive() {
    let name = "no_variable_tells_that_caches_survive";
    if is_child() {
        assert_eq!(Policy::global().durability(), Durability::FlushToMemory);
        bulkmem::init().unwrap();
        return;
    }
    again(name, "BULKMEM_EADR", "1");
}

/// The process-wide policy takes from its file what survives a power failure.
#[test]
fn the_policy_file_tells_whether_caches_survive() {
    let name = "the_policy_file_tells_whether_caches_survive";
    if is_child() {
        assert_eq!(Policy::global().durability(), Durability::CachesIncluded);
        bulkmem::init().unwrap();
        check(&Options::new(), 1, 1000);
        return;
    }
    let cpu = &Machine::current().cpu;
    let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulkmem/profile.policy");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(
        &file,
        format!("{POLICY_FORMAT} {POLICY_VERSION}\n{cpu}\ndurability caches-included\nend\n"),
    )
    .unwrap();
    again(name, "XDG_CONFIG_HOME", folder.path().to_str().unwrap());
    again("a_file_that_a_variable_names_does_not", "BULKMEM_PROFILE", file.to_str().unwrap());
}

/// Runs only in a process that the test above starts.
#[test]
fn a_file_that_a_variable_names_does_not() {
    if is_child() {
        assert_eq!(Policy::global().durability(), Durability::FlushToMemory);
        let error = bulkmem::init().unwrap_err();
        assert!(matches!(error, bulkmem::policy::PolicyError::DurabilityIgnored), "{error}");
    }
}

/// Times under an emulator say nothing about a processor, so such a policy file counts only if it is named.
#[test]
fn a_policy_measured_under_an_emulator_is_no_default() {
    let name = "a_policy_measured_under_an_emulator_is_no_default";
    if is_child() {
        let origin = Policy::global().origin();
        assert!(matches!(origin.basis, Basis::Defaults { .. }), "{origin:?}");
        let [refused] = &origin.refused[..] else { panic!("{origin:?}") };
        assert!(refused.reason.contains("under an emulator"), "{origin:?}");
        return bulkmem::init().unwrap();
    }
    let cpu = &Machine::current().cpu;
    let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulkmem/profile.policy");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let lines = "emulator qemu-x86_64\nrule clear throughput 0 portable\nend\n";
    std::fs::write(&file, format!("{POLICY_FORMAT} {POLICY_VERSION}\n{cpu}\n{lines}")).unwrap();
    again(name, "XDG_CONFIG_HOME", folder.path().to_str().unwrap());
    again("one_that_a_variable_names_is_used", "BULKMEM_PROFILE", file.to_str().unwrap());
    assert!(Policy::from_file(&file).is_ok());
}

/// Runs only in a process that the test above starts.
#[test]
fn one_that_a_variable_names_is_used() {
    if is_child() {
        let basis = &Policy::global().origin().basis;
        assert!(matches!(basis, Basis::Profile { .. }), "{basis:?}");
        bulkmem::init().unwrap();
    }
}

#[test]
fn forced_methods_hold_for_short_calls_too() {
    let name = "forced_methods_hold_for_short_calls_too";
    if is_child() {
        check(&Options::new(), 1, 10);
        let chosen = Policy::global().choose(Operation::Clear, 10, Intent::Throughput).unwrap();
        assert_eq!(chosen.method.name, "portable");
        return;
    }
    let complaints = again(name, "BULKMEM_METHOD", "clear:portable,fill:portable,copy:portable");
    assert!(!complaints.contains("bulkmem:"), "{complaints}");
}

/// If the system refuses more threads, the calling thread does their work, and its signal mask does not change.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_cannot_be_had_are_done_without() {
    let name = "threads_that_cannot_be_had_are_done_without";
    if !is_child() {
        again(name, "BULKMEM_TEST_CHILD", "1");
        return;
    }
    let mut memory = vec![1; 1 << 20];
    bulkmem::clear(&mut memory[..1]);
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = pages * 4096 + (256 << 10);
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: a limit for this process, which is this test's alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "no room for another stack");
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk:")).unwrap().to_owned()
    };
    let before = blocked();
    let threads = Threads::Exactly(NonZeroUsize::new(8).unwrap());
    Options::new().threads(threads).fill(&mut memory, 7);
    assert!(memory.iter().all(|&byte| byte == 7));
    assert_eq!(blocked(), before);
}

#[test]
fn errors_tell_the_cause_and_the_remedy() {
    let row = method::by_name("portable").unwrap();
    for (error, parts) in [
        (Error::LengthMismatch { destination: 5, source_length: 6 }, ["5 bytes", "slice both"]),
        (Error::Overlap { destination: 16, source_address: 17, length: 2 }, ["0x10", "persist_raw"]),
        (Error::NotDurable { operation: Operation::CopyPersist }, ["persist", "Options::durability"]),
        (
            Error::WrongOperation { method: row.name, operation: Operation::Persist },
            ["persist", "bulkmem methods"],
        ),
        (Error::Unavailable { method: "clzero", missing: Features::CLZERO }, ["CLZERO", "bulkmem methods"]),
        (Error::ForeignPolicy, ["instructions", "Machine::current()"]),
        (Error::HotOutOfBounds { hot: 3..9, length: 5 }, ["3..9", "clip"]),
    ] {
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
