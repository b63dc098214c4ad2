//! Looks at the cache state through the public operations: the right bytes and no byte outside, whatever a look finds; the
//! verdicts for memory in a known state; and how looks are switched off.
// Longer than 600 lines: the tests share policies by which each look finds the same, and how to run alone and count looks.
#![cfg(target_arch = "x86_64")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::process::Command;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, iter};

use bulkmem::machine::{Machine, features};
use bulkmem::method::Method;
use bulkmem::policy::{LineError, POLICY_FORMAT, POLICY_VERSION, Policy, PolicyFileError};
use bulkmem::{Intent, Operation, Options, Threads, look, pointers};
use testkit::calls::{Bench, Form};
use testkit::guard::Place;
use testkit::table;

const FROM: usize = 8192;
/// Bytes from one look to the next in cached memory, and where stores bypass the cache; and the least for another.
const INTERVAL: usize = 4 << 20;
const LONGEST_INTERVAL: usize = 16 << 20;
const WORTH_ANOTHER: usize = 1 << 20;

/// Thresholds of time with which each look finds the same: the lines are cached if they take fewer ticks than the first
/// number, and the pages not mapped if reaching them takes at least the second.
const ALWAYS_CACHED: &str = "4000000000 4000000000";
const ALWAYS_UNCACHED: &str = "1 4000000000";
const ALWAYS_UNMAPPED: &str = "1 1";

const OPERATIONS: [Operation; 5] =
    [Operation::Clear, Operation::Fill, Operation::Copy, Operation::FillPersist, Operation::CopyPersist];

fn policy_file(lines: &str) -> Result<Policy, PolicyFileError> {
    let machine = Machine::current();
    let cpu = &machine.cpu;
    let cpu = format!("cpu {} {} {} {}", cpu.family, cpu.model, cpu.stepping, cpu.vendor);
    Policy::from_file_bytes(
        format!("{POLICY_FORMAT} {POLICY_VERSION}\n{cpu}\n{lines}end\n").as_bytes(),
        machine,
    )
}

/// A policy that looks: one method where the memory is cached, another where it is not.
fn looking(operation: Operation, cached: &str, uncached: &str, times: &str) -> Policy {
    // The method for unmapped memory, if it is not named.
    let unmapped = if times.split(' ').count() > 2 { String::new() } else { format!(" {cached}") };
    let lines = format!(
        "rule {operation} cached 0 {cached}\nrule {operation} uncached 0 {uncached}\n\
         look {operation} {FROM} {times}{unmapped}\n"
    );
    policy_file(&lines).unwrap()
}

/// The methods of this machine for an operation.
fn methods(operation: Operation) -> Vec<&'static Method> {
    let able = table::entries().filter(|(_, other)| *other == operation).map(|(method, _)| method);
    able.filter(|method| features().contains(method.requires)).collect()
}

/// Each method takes each of the two places, with every verdict.
#[test]
fn the_bytes_are_right_whatever_is_found() {
    let mut bench = Bench::new(3 * FROM);
    for operation in OPERATIONS {
        let all = methods(operation);
        let other = all[0].name;
        for method in &all {
            for (cached, uncached, times) in [
                (method.name, other, ALWAYS_CACHED),
                (method.name, other, ALWAYS_UNMAPPED),
                (other, method.name, ALWAYS_UNCACHED),
                (method.name, method.name, ALWAYS_UNCACHED),
            ] {
                let policy = looking(operation, cached, uncached, times);
                let options = Options::new().policy(&policy).unwrap();
                for length in [FROM - 1, FROM, FROM + 1, 2 * FROM + 77, 3 * FROM] {
                    for (form, place, offset) in [
                        (Form::Slice, Place::End, 3),
                        (Form::Raw, Place::Start, 0),
                        (Form::Scope, Place::End, 0),
                    ] {
                        bench.check(&options, operation, form, (length, place, offset));
                        bench.check(&options.populate(true), operation, form, (length, place, offset));
                    }
                }
            }
        }
    }
}

#[test]
fn the_bytes_are_right_over_several_looks_and_threads() {
    let lengths = [INTERVAL + WORTH_ANOTHER, LONGEST_INTERVAL + WORTH_ANOTHER + 12_345];
    let mut bench = Bench::new(lengths[1]);
    for operation in OPERATIONS {
        let weak = methods(operation).into_iter().find(|method| method.name.starts_with("nontemporal"));
        let weak = weak.expect("a method that bypasses the cache").name;
        let other = methods(operation)[0].name;
        let bypassing_new_pages = format!("{ALWAYS_UNMAPPED} {other} 1 {}", lengths[1]);
        for times in [ALWAYS_CACHED, ALWAYS_UNCACHED, ALWAYS_UNMAPPED, "200 40000", &bypassing_new_pages] {
            let policy = looking(operation, other, weak, times);
            let options = Options::new().policy(&policy).unwrap();
            let several = options.threads(Threads::Exactly(NonZeroUsize::new(3).unwrap()));
            for length in lengths {
                for options in [options, several, options.populate(true), several.populate(true)] {
                    bench.check(&options, operation, Form::Slice, (length, Place::End, 1));
                }
            }
            bench.check(&options.total_len(1 << 40), operation, Form::Raw, (FROM, Place::Start, 5));
        }
    }
}

#[test]
fn the_bytes_are_right_in_short_calls_of_a_large_total() {
    let mut bench = Bench::new(FROM);
    for operation in OPERATIONS {
        let all = methods(operation);
        let other = all[0].name;
        for method in &all {
            for (cached, uncached, times) in [
                (method.name, other, ALWAYS_CACHED),
                (method.name, other, ALWAYS_UNMAPPED),
                (other, method.name, ALWAYS_UNCACHED),
            ] {
                let policy = looking(operation, cached, uncached, times);
                let options = Options::new().policy(&policy).unwrap().total_len(1 << 20);
                for length in [4096, 4097, FROM - 1] {
                    for form in [Form::Slice, Form::Raw, Form::Scope] {
                        bench.check(&options, operation, form, (length, Place::End, 3));
                    }
                }
            }
        }
    }
}

#[test]
fn short_calls_of_a_large_total_look_once_in_an_interval() {
    alone("short_calls_of_a_large_total_look_once_in_an_interval", &[], || {
        const CALL: usize = 4096;
        let policy = policy_file(&format!(
            "rule copy cached 0 c_library\nrule copy uncached 0 movnti\n\
             look copy 65536 {ALWAYS_UNCACHED} c_library\n"
        ));
        let policy = policy.unwrap();
        let (source, mut memory) = (vec![1; 2 * CALL], vec![0; 2 * CALL]);
        let mut looks = |options: Options<'_>, length: usize, calls: usize| {
            let calls =
                || (0..calls).for_each(|_| options.copy(&mut memory[..length], &source[..length]).unwrap());
            found(Operation::Copy, calls)
        };
        let options = Options::new().policy(&policy).unwrap();
        assert_eq!(looks(options, CALL, 100), [0; 3], "no large total");
        assert_eq!(looks(options.total_len(65535), CALL, 100), [0; 3], "a total that does not look");
        let options = options.total_len(1 << 30);
        assert_eq!(looks(options, CALL - 1, 100), [0; 3], "too short");
        assert_eq!(looks(options.look(false), CALL, 100), [0; 3]);
        assert_eq!(looks(options, CALL, 1), [0, 1, 0]);
        let interval = INTERVAL / CALL;
        assert_eq!(looks(options, CALL, interval - 1), [0; 3], "the verdict is carried over");
        assert_eq!(looks(options, CALL, 1), [0, 1, 0]);
        assert_eq!(looks(options, CALL, interval - 1), [0; 3]);
        assert_eq!(looks(options, CALL, 2), [0, 1, 0]);
        bulkmem::forget_verdicts();
        assert_eq!(looks(options, CALL, interval), [0, 1, 0], "what the call before found is forgotten");
        assert_eq!(looks(options, 2 * CALL, 10 * (interval / 2)), [0, 10, 0]);
        assert_eq!(memory, source);
    });
}

/// How many looks of an operation found each state while `during` ran. Other tests look at other operations.
fn found(operation: Operation, during: impl FnOnce()) -> [u64; 3] {
    let counts = || {
        let counts = look::counts(operation);
        [counts.cached, counts.uncached, counts.unmapped]
    };
    let before = counts();
    during();
    let after = counts();
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// In a process of its own, where no other test looks.
fn alone(name: &str, variables: &[(&str, &str)], check: impl FnOnce()) {
    if env::var_os("BULKMEM_TEST_CHILD").is_some() {
        return check();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("BULKMEM_TEST_CHILD", "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn each_look_is_counted_and_none_happens_unasked() {
    alone("each_look_is_counted_and_none_happens_unasked", &[], || {
        let policy = looking(Operation::Clear, "c_library", "movnti", ALWAYS_UNCACHED);
        let options = Options::new().policy(&policy).unwrap();
        let mut memory = vec![1; 2 * LONGEST_INTERVAL + WORTH_ANOTHER];
        let looks = |options: Options<'_>, memory: &mut [u8]| {
            found(Operation::Clear, || options.clear(memory)).iter().sum::<u64>()
        };
        assert_eq!(looks(options, &mut memory), 3);
        assert_eq!(looks(options, &mut memory[..FROM]), 1);
        assert_eq!(looks(options, &mut memory[..FROM - 1]), 0, "too short");
        assert_eq!(looks(options.look(false), &mut memory), 0);
        for intent in [Intent::Reuse, Intent::Stream] {
            assert_eq!(looks(options.intent(intent), &mut memory), 0, "{intent}");
        }
        let forced = options.policy(&policy).unwrap();
        let choice = policy.choose(Operation::Clear, 0, Intent::Throughput).unwrap();
        assert_eq!(looks(forced.method(Operation::Clear, choice).unwrap(), &mut memory), 0);
        let mut forced = policy.clone();
        forced.force("clear:movnti").unwrap();
        assert_eq!(looks(Options::new().policy(&forced).unwrap(), &mut memory), 0);
        assert_eq!(found(Operation::Fill, || options.fill(&mut memory, 1)), [0; 3], "no rule to look");
        assert!(look::is_on());
        look::stop();
        assert_eq!(looks(options, &mut memory), 0, "stopped");
        assert_eq!(looks(Options::new().policy(&policy).unwrap(), &mut memory), 0, "for good");
        assert!(!look::is_on() && memory.iter().all(|byte| *byte == 0 || *byte == 1));
    });
}

/// The bytes of each call that follows count once, whatever the operation.
#[test]
fn more_and_more_bytes_follow_each_look_after_eight_that_agree() {
    alone("more_and_more_bytes_follow_each_look_after_eight_that_agree", &[], || {
        const CALL: usize = 64 << 10;
        let source = vec![7; CALL];
        let mut memory = vec![1; CALL];
        for operation in OPERATIONS {
            let method = if operation.persists() { "store_8_clflushopt" } else { "c_library" };
            let policy = looking(operation, method, method, ALWAYS_CACHED);
            let options = Options::new().policy(&policy).unwrap();
            let mut call = || match operation {
                Operation::Clear => options.clear(&mut memory),
                Operation::Fill => options.fill(&mut memory, 7),
                Operation::Copy => options.copy(&mut memory, &source).unwrap(),
                Operation::FillPersist => options.fill_persist(&mut memory, 7).unwrap(),
                _ => options.copy_persist(&mut memory, &source).unwrap(),
            };
            let mut looked = Vec::new();
            for _ in 0..8 + 9 + 17 {
                looked.push(found(operation, &mut call).iter().sum::<u64>());
            }
            let expected = [vec![1; 8], vec![0; 8], vec![1], vec![0; 16], vec![1]].concat();
            assert_eq!(looked, expected, "{operation}");
        }
    });
}

/// Runs a check where the stack can grow by 16 KiB and remain within the same 64 KiB, by which a thread's calls are recognized.
#[inline(never)]
fn within_a_part_of_the_stack(check: impl FnOnce()) {
    let here = 0_u8;
    if (&raw const here).addr() % (64 << 10) < 16 << 10 { in_the_next_part(check) } else { check() }
}

#[inline(never)]
fn in_the_next_part(check: impl FnOnce()) {
    let passed = black_box([0_u8; 20 << 10]);
    check();
    black_box(&passed);
}

/// A library that replaces memcpy asks before it calls anything else. Each question that is answered by yes counts as a call.
#[test]
fn calls_that_follow_by_the_c_librarys_function_are_known_before_they_begin() {
    alone("calls_that_follow_by_the_c_librarys_function_are_known_before_they_begin", &[], || {
        let policy = looking(Operation::Copy, "c_library", "movnti", ALWAYS_CACHED);
        within_a_part_of_the_stack(|| follow_by_the_c_librarys_function(&policy));
    });
}

#[inline(never)]
fn follow_by_the_c_librarys_function(policy: &Policy) {
    const CALL: usize = 64 << 10;
    let source = vec![7; CALL];
    let mut memory = vec![1; CALL + 8192];
    let behind = |memory: &[u8], distance: usize| {
        source.as_ptr().addr().wrapping_add(distance).wrapping_sub(memory.as_ptr().addr()) % 4096
    };
    let [apart, aliased] = [2048, 8].map(|distance| behind(&memory, distance));
    let mut copies = |count: usize| {
        let options = Options::new().policy(policy).unwrap();
        let dst = &mut memory[apart..][..CALL];
        let looks = found(Operation::Copy, || (0..count).for_each(|_| options.copy(dst, &source).unwrap()));
        assert_eq!(looks, [count as u64, 0, 0]);
        dst.as_ptr()
    };
    let follows = |dst: *const u8, length| pointers::copy_follows_c_library(dst, source.as_ptr(), length);
    let dst = copies(7);
    assert!(!follows(dst, CALL));
    copies(1);
    for _ in 0..8 {
        assert!(!follows(dst, CALL - 1) && !follows(dst.wrapping_sub(apart).wrapping_add(aliased), CALL));
        assert!(!pointers::set_follows_c_library(Operation::Clear, CALL));
        assert!(follows(dst, CALL));
    }
    assert!(!follows(dst, CALL), "the next call looks");
    copies(1);
    assert!(follows(dst, CALL));
    look::stop();
    assert!(!follows(dst, CALL), "looks have been stopped");
}

#[test]
fn calls_that_follow_by_another_method_do_not_follow_by_the_c_librarys_function() {
    alone("calls_that_follow_by_another_method_do_not_follow_by_the_c_librarys_function", &[], || {
        let policy = looking(Operation::Fill, "portable", "c_library", ALWAYS_CACHED);
        let options = Options::new().policy(&policy).unwrap();
        let mut memory = vec![1; 64 << 10];
        (0..12).for_each(|_| options.fill(&mut memory, 7));
        assert!(!pointers::set_follows_c_library(Operation::Fill, memory.len()));
    });
}

/// Shows which method ran by the number of looks: a method whose speed depends on the length of one call is not interrupted.
#[test]
fn several_threads_have_a_method_of_their_own_for_uncached_memory() {
    alone("several_threads_have_a_method_of_their_own_for_uncached_memory", &[], || {
        let lines = |own: &str| {
            format!(
                "rule clear cached 0 portable\nrule clear uncached 0 movnti\n{own}\
                 look clear {FROM} {ALWAYS_UNCACHED} portable\n"
            )
        };
        // Pieces end with huge pages.
        let mut memory = vec![1; 2 * (LONGEST_INTERVAL + INTERVAL)];
        let mut looks = |policy: &Policy, threads: usize| {
            let threads = Threads::Exactly(NonZeroUsize::new(threads).unwrap());
            let options = Options::new().policy(policy).unwrap().threads(threads);
            found(Operation::Clear, || options.clear(&mut memory))
        };
        let with = policy_file(&lines("rule clear several_threads 0 c_library\n")).unwrap();
        assert_eq!(looks(&with, 2), [0, 2, 0], "one for each piece");
        assert_eq!(looks(&with, 1), [0, 3, 0]);
        let without = policy_file(&lines("")).unwrap();
        assert_eq!(looks(&without, 2), [0, 4, 0], "two for each piece");
        assert_eq!(looks(&without, 1), [0, 3, 0]);
    });
}

/// Bytes that are used next are looked at from the length from which the choices differ.
#[test]
fn with_the_intent_reuse_looks_begin_where_bypassing_the_cache_pays() {
    alone("with_the_intent_reuse_looks_begin_where_bypassing_the_cache_pays", &[], || {
        let lines = |own: &str| {
            policy_file(&format!(
                "rule clear reuse 0 portable\nrule clear cached 0 portable\nrule clear uncached 0 movnti\n{own}\
                 look clear {FROM} {ALWAYS_UNCACHED} portable\n"
            ))
        };
        let mut memory = vec![1; LONGEST_INTERVAL + WORTH_ANOTHER];
        let mut looks = |policy: &Policy, intent: Intent, length: usize| {
            let options = Options::new().policy(policy).unwrap().intent(intent);
            bulkmem::forget_verdicts();
            memory[..length].fill(1);
            let found = found(Operation::Clear, || options.clear(&mut memory[..length]));
            assert!(memory[..length].iter().all(|byte| *byte == 0));
            found
        };
        let from = 3 * FROM;
        let own = lines(&format!(
            "rule clear uncached_reuse 0 portable\nrule clear uncached_reuse {from} movnti\n"
        ));
        let own = own.unwrap();
        assert_eq!(own.looks_from(Operation::Clear, Intent::Reuse), from);
        for (intent, length, expected) in [
            (Intent::Reuse, from - 1, 0),
            (Intent::Reuse, from, 1),
            (Intent::Reuse, LONGEST_INTERVAL + WORTH_ANOTHER, 2),
            (Intent::Throughput, FROM, 1),
            (Intent::Stream, LONGEST_INTERVAL, 0),
        ] {
            assert_eq!(looks(&own, intent, length), [0, expected, 0], "{intent}, {length} bytes");
        }
        // Calls that are too short share looks if their total is long enough.
        let mut parts = vec![1; 10 * from];
        let mut in_parts = |length: usize| {
            let options = Options::new().policy(&own).unwrap().intent(Intent::Reuse).total_len(10 * length);
            bulkmem::forget_verdicts();
            found(Operation::Clear, || parts.chunks_mut(length).take(10).for_each(|part| options.clear(part)))
        };
        assert_eq!(in_parts(from - 64), [0, 1, 0]);
        assert_eq!(in_parts(from / 10 - 64), [0; 3]);
        let with_endless_total = |policy: &Policy, intent: Intent| {
            let options = Options::new().policy(policy).unwrap().intent(intent).total_len(usize::MAX);
            bulkmem::forget_verdicts();
            found(Operation::Clear, || options.clear(&mut vec![1; FROM]))
        };
        assert_eq!(with_endless_total(&own, Intent::Reuse), [0, 1, 0]);
        assert_eq!(with_endless_total(&own, Intent::Stream), [0; 3]);
        assert_eq!(with_endless_total(&lines("").unwrap(), Intent::Reuse), [0; 3]);
        // The hot part stays in the cache; the rest is a stream.
        let hot = found(Operation::Clear, || {
            let options = Options::new().policy(&own).unwrap();
            options.clear_hot(&mut vec![1; 4 * from], 64..3 * from).unwrap();
        });
        assert_eq!(hot, [0; 3]);
        let states = "rule clear cached 0 portable\nrule clear uncached 0 movnti\n";
        for of_look in ["uncached_reuse", "cached_reuse"] {
            let late =
                format!("look clear {FROM} {ALWAYS_UNCACHED} portable\nrule clear {of_look} 0 movnti\n");
            assert!(policy_file(&format!("{states}{late}")).is_err(), "{of_look} would not count");
        }
        // Rules that end before looks begin do not count.
        let ended = format!(
            "rule clear uncached_reuse 0 movnti\nrule clear uncached_reuse 100 portable\n\
             rule clear uncached_reuse {from} movnti\n"
        );
        assert_eq!(lines(&ended).unwrap().looks_from(Operation::Clear, Intent::Reuse), from);
        // A look needs the bytes that all looks need.
        let short = lines("rule clear uncached_reuse 0 movnti\n").unwrap();
        assert_eq!(short.looks_from(Operation::Clear, Intent::Reuse), FROM);
        // With choices that keep to the cache, none is needed.
        for none in ["", "rule clear uncached_reuse 0 portable\n", "rule clear uncached_reuse 0 store_8\n"] {
            let none = lines(none).unwrap();
            assert_eq!(none.looks_from(Operation::Clear, Intent::Reuse), usize::MAX);
            assert_eq!(looks(&none, Intent::Reuse, LONGEST_INTERVAL), [0; 3]);
        }
    });
}

/// How often this thread has called madvise since a filter traps it.
#[cfg(target_os = "linux")]
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Filters madvise of this thread; a trap counts.
#[cfg(target_os = "linux")]
fn answer_madvise(answer: u32) {
    /// Counts the call, which succeeds without doing anything.
    extern "C" fn count(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
        MAPPED.fetch_add(1, Relaxed);
        // SAFETY: the kernel passes the registers.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = 0 };
    }
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of a filter's input.
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_madvise as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the handler only counts, and sets the result; the program is as long as it says, and read during the call only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            count as extern "C" fn(_, *mut libc::siginfo_t, *mut libc::ucontext_t) as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let done = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(done, 0, "no filter here: {}", std::io::Error::last_os_error());
    }
}

/// In a process of its own that ends without ending its threads: the C library calls madvise when a thread ends.
#[cfg(target_os = "linux")]
fn alone_and_filtered(name: &str, check: impl FnOnce()) {
    alone(name, &[], || {
        check();
        println!("1 passed");
        // SAFETY: the handlers of this process have nothing to do.
        unsafe { libc::_exit(0) }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn the_kernel_maps_pages_only_if_the_caller_allows_it_and_the_memory_has_none() {
    alone_and_filtered("the_kernel_maps_pages_only_if_the_caller_allows_it_and_the_memory_has_none", || {
        /// Bytes that are mapped at a time; each portion ends at a multiple of it.
        const PORTION: usize = 512 << 10;
        let mut memory = vec![1; 4 * PORTION];
        let start = memory.as_ptr().addr().wrapping_neg() % PORTION;
        let memory = &mut memory[start..][..3 * PORTION];
        // Whatever the call is answered: the stores map what it did not.
        answer_madvise(libc::SECCOMP_RET_TRAP);
        let [unmapped, mapped] = [ALWAYS_UNMAPPED, ALWAYS_CACHED]
            .map(|times| looking(Operation::Clear, "c_library", "movnti", times));
        let mut calls = |options: Options<'_>, length: usize| {
            let before = MAPPED.load(Relaxed);
            memory.fill(1);
            options.clear(&mut memory[..length]);
            assert!(memory[..length].iter().all(|byte| *byte == 0));
            MAPPED.load(Relaxed) - before
        };
        let [unmapped, mapped] = [&unmapped, &mapped].map(|it| Options::new().policy(it).unwrap());
        for (options, length, expected) in [
            (unmapped, 3 * PORTION, 0),
            (mapped.populate(true), 3 * PORTION, 0),
            (unmapped.populate(true).look(false), 3 * PORTION, 0),
            (unmapped.populate(true), FROM - 1, 0),
            (unmapped.populate(true), FROM, 1),
            (unmapped.populate(true), PORTION, 1),
            (unmapped.populate(true), PORTION + 1, 2),
            (unmapped.populate(true), 3 * PORTION, 3),
            (unmapped.populate(true).intent(Intent::Reuse), PORTION, 1),
            // A part of a total.
            (unmapped.populate(true).total_len(1 << 30), FROM - 1, 1),
        ] {
            // Each call looks again, however often looks have agreed.
            for _ in 0..10 {
                assert_eq!(calls(options, length), expected, "{length}");
            }
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_kernel_that_maps_no_pages_in_advance_is_no_error_and_is_not_asked_again() {
    alone_and_filtered("a_kernel_that_maps_no_pages_in_advance_is_no_error_and_is_not_asked_again", || {
        let policy = looking(Operation::Clear, "c_library", "movnti", ALWAYS_UNMAPPED);
        let options = Options::new().policy(&policy).unwrap().populate(true);
        let mut memory = vec![1; 2 * FROM];
        // As Linux before 5.14, which does not know it with a range of no bytes either.
        answer_madvise(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32);
        // SAFETY: this thread's variable.
        unsafe { *libc::__errno_location() = 77 };
        options.clear(&mut memory);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.fill(1);
        // Of several filters, the strictest answer counts: a call would be counted now.
        answer_madvise(libc::SECCOMP_RET_TRAP);
        options.clear(&mut memory);
        assert!(memory.iter().all(|byte| *byte == 0));
        assert_eq!(MAPPED.load(Relaxed), 0);
    });
}

#[test]
fn a_variable_switches_looks_off() {
    alone("a_variable_switches_looks_off", &[("BULKMEM_LOOK", "off")], || {
        // Before the process-wide policy is loaded, and afterwards.
        for _ in 0..2 {
            let policy = looking(Operation::Clear, "c_library", "movnti", ALWAYS_UNCACHED);
            let options = Options::new().policy(&policy).unwrap();
            assert_eq!(found(Operation::Clear, || options.clear(&mut vec![1; 2 * FROM])), [0; 3]);
            assert!(!look::is_on());
            bulkmem::init().unwrap();
        }
    });
}

#[test]
fn an_odd_value_of_the_variable_is_reported() {
    alone("an_odd_value_of_the_variable_is_reported", &[("BULKMEM_LOOK", "0\n")], || {
        let error = bulkmem::init().unwrap_err().to_string();
        assert_eq!(error, "BULKMEM_LOOK is `0\\n`; write on or off");
    });
}

/// The kernel can forbid a process to read the clock; an attempt is a fault.
#[test]
#[cfg(target_os = "linux")]
fn nothing_looks_where_the_clock_is_forbidden() {
    alone("nothing_looks_where_the_clock_is_forbidden", &[], || {
        // SAFETY: it only forbids an instruction to this thread.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) }, 0);
        let policy = looking(Operation::Clear, "c_library", "movnti", ALWAYS_UNCACHED);
        let options = Options::new().policy(&policy).unwrap();
        assert!(!look::is_on());
        let mut memory = vec![1; 2 * FROM];
        assert_eq!(found(Operation::Clear, || options.clear(&mut memory)), [0; 3]);
        assert!(memory.iter().all(|byte| *byte == 0));
    });
}

/// Strict seccomp forbids the clock, too. A process that stopped looks before may go on; one that did not is killed.
#[test]
#[cfg(target_os = "linux")]
fn looks_that_were_stopped_do_not_end_a_process_in_strict_seccomp() {
    alone("looks_that_were_stopped_do_not_end_a_process_in_strict_seccomp", &[], || {
        let policy = looking(Operation::Clear, "c_library", "movnti", ALWAYS_UNCACHED);
        let options = Options::new().policy(&policy).unwrap();
        let mut memory = vec![1; 2 * FROM];
        for stopped in [false, true] {
            if stopped {
                look::stop();
            }
            memory.fill(1);
            // SAFETY: until it ends, the child makes only system calls and works on memory that is its own.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
                    options.clear(&mut memory);
                    let cleared = memory.iter().all(|byte| *byte == 0);
                    libc::syscall(libc::SYS_exit, if cleared { 42 } else { 1 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            let ended = (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status));
            assert_eq!(
                ended,
                if stopped { (false, 42) } else { (true, 0) },
                "{status:#x}, stopped: {stopped}"
            );
        }
    });
}

#[test]
fn lines_that_make_no_sense_are_refused() {
    let rules = "rule clear cached 0 c_library\nrule clear uncached 0 movnti\n";
    let refused = |lines: &str| match policy_file(lines) {
        Err(PolicyFileError::Line { error, .. }) => error,
        other => panic!("{lines}: {other:?}"),
    };
    for good in [
        "look clear 65536 400",
        "look clear 4096 400 400 c_library",
        "look clear 65536 400 20000 portable",
        "look clear 65536 400 20000 c_library 20000 0",
    ] {
        policy_file(&format!("{rules}{good}\n")).unwrap();
    }
    for odd in [
        "look clear",
        "look clear 65536",
        "look clear 65536 400 20000",
        "look clear 65536 400 20000 c_library 90000",
        "look clear 65536 400 20000 c_library 19999 0",
        "look clear 65536 400 20000 c_library 90000 -1",
        "look clear 65536 400 20000 c_library 90000 0 0",
        "look clear 65536 400 c_library",
        "look clean 65536 400 20000 c_library",
        "look clear 65536 400 -1 c_library",
        "look clear 65536 0 400 c_library",
        "look clear 65536 400 0 c_library",
        "look clear 4095 400 20000 c_library",
        "look clear 65536 400 99999999999999999999 c_library",
        "look persist 65536 400 20000 clwb",
        "rule clear warm 0 c_library",
    ] {
        assert_eq!(refused(&format!("{rules}{odd}\n")), LineError::Fields, "{odd}");
    }
    assert_eq!(refused(&format!("{rules}look clear 65536 400 20000 none\n")), LineError::Method);
    // A look needs the rules of both states, once.
    let look = "look clear 65536 400 20000 c_library\n";
    for without in ["", "rule clear cached 0 c_library\n", "rule clear uncached 0 movnti\n"] {
        assert_eq!(refused(&format!("{without}{look}")), LineError::Order, "{without}");
    }
    assert_eq!(refused(&format!("{rules}{look}{look}")), LineError::Order);
    let reversed: String = iter::once(look).chain([rules]).collect();
    assert_eq!(refused(&reversed), LineError::Order);
}
