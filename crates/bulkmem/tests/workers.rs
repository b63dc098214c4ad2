//! Calls with [`Workers`]: the right bytes and no byte outside, and what becomes of the threads.
#![cfg(target_arch = "x86_64")]

use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::mpsc;
use std::{env, thread};

use bulkmem::machine::features;
use bulkmem::policy::Choice;
use bulkmem::{Intent, Operation, Options, Threads, Workers};
use testkit::calls::{Bench, Form};
use testkit::guard::Place;
use testkit::table;

const FORMS: [Form; 3] = [Form::Slice, Form::Raw, Form::Scope];

fn workers(count: usize) -> Workers {
    Workers::new(NonZeroUsize::new(count).unwrap()).unwrap()
}

fn exactly(threads: usize) -> Threads {
    Threads::Exactly(NonZeroUsize::new(threads).unwrap())
}

#[test]
fn every_operation_form_and_length_gives_the_right_bytes() {
    let lengths = [0, 1, 4095, 4096, 4097, 8192, 3 * 4096 - 1, 5 * 4096 + 17, 40_961, 100_003];
    let mut bench = Bench::new(*lengths.last().unwrap());
    for workers in [1, 2, 5].map(workers) {
        let options = Options::new().workers(&workers);
        for options in [options, options.intent(Intent::Stream), options.total_len(1 << 40)] {
            for (operation, form) in Operation::ALL.iter().flat_map(|all| FORMS.map(|form| (*all, form))) {
                for length in lengths {
                    for (place, offset) in
                        [(Place::Start, 0), (Place::Start, 1), (Place::End, 0), (Place::End, 63)]
                    {
                        bench.check(&options, operation, form, (length, place, offset));
                    }
                }
            }
        }
    }
}

#[test]
fn every_method_gives_the_right_bytes() {
    let workers = workers(2);
    let mut bench = Bench::new(6 * 4096);
    for (method, operation) in table::entries().filter(|(method, _)| features().contains(method.requires)) {
        let choice = Choice::of(method, operation);
        let options = Options::new().workers(&workers).method(operation, choice).unwrap();
        for form in FORMS {
            bench.check(&options, operation, form, (5 * 4096 + 17, Place::End, 7));
        }
    }
}

/// Pieces end on multiples of huge pages there.
#[test]
fn a_long_range_is_split_by_huge_pages() {
    let workers = workers(1);
    let options = Options::new().workers(&workers);
    let length = (40 << 20) + 5;
    let mut bench = Bench::new(length);
    for operation in [Operation::Clear, Operation::CopyPersist] {
        bench.check(&options, operation, Form::Slice, (length, Place::End, 1));
    }
}

#[test]
fn any_number_of_threads_may_be_asked_for() {
    let workers = workers(2);
    let mut bench = Bench::new(1 << 20);
    let numbers = [Threads::One, Threads::Auto, exactly(2), exactly(3), exactly(4), exactly(usize::MAX)];
    for threads in numbers {
        for options in [
            Options::new().threads(threads).workers(&workers),
            Options::new().workers(&workers).threads(threads),
        ] {
            for form in FORMS {
                bench.check(&options, Operation::Copy, form, (1 << 20, Place::End, 0));
            }
        }
    }
    let mut memory = vec![1; 1 << 20];
    Options::new().workers(&workers).clear_hot(&mut memory, 70_000..80_000).unwrap();
    assert!(memory.iter().all(|&byte| byte == 0));
}

#[test]
fn several_threads_share_the_workers() {
    let workers = workers(2);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut bench = Bench::new(100_003);
                for round in 0..200 {
                    let operation = Operation::ALL[round % Operation::ALL.len()];
                    let case = (100_003, Place::End, round % 64);
                    bench.check(&Options::new().workers(&workers), operation, FORMS[round % 3], case);
                }
            });
        }
    });
}

/// Runs a test in a process of its own, where no other test starts or counts threads.
fn alone(name: &str, check: impl FnOnce()) {
    if env::var_os("BULKMEM_TEST_CHILD").is_some() {
        return check();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("BULKMEM_TEST_CHILD", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The threads of this process that the library has started: their signal masks.
fn masks() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let own = statuses.filter(|status| status.starts_with("Name:\tbulkmem\n"));
    own.map(|status| status.lines().find(|line| line.starts_with("SigBlk:")).unwrap().to_owned()).collect()
}

/// True if no thread of the library is left. The kernel lists a thread for a moment after it was joined.
fn all_ended() -> bool {
    let moments = (0..1000).map(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
    masks().is_empty() || moments.into_iter().any(|()| masks().is_empty())
}

#[test]
fn threads_live_as_long_as_the_workers() {
    alone("threads_live_as_long_as_the_workers", || {
        let mut memory = vec![1; 1 << 20];
        for _ in 0..3 {
            let workers = workers(3);
            assert_eq!(masks().len(), 3, "after the start");
            Options::new().workers(&workers).clear(&mut memory);
            Options::new().workers(&workers).threads(exactly(9)).fill(&mut memory, 7);
            assert_eq!(masks().len(), 3, "after calls");
            drop(workers);
            assert!(all_ended(), "after they were dropped");
        }
        assert!(Workers::pinned(&[usize::MAX]).is_err());
        assert!(all_ended(), "after they could not be pinned");
    });
}

#[test]
fn workers_block_every_signal_but_faults() {
    alone("workers_block_every_signal_but_faults", || {
        let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
        // The first two cannot be blocked; the C library reserves the next two.
        let never = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
        let faults = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];
        let expected = never.into_iter().chain(faults).fold(u64::MAX, |mask, signal| mask & !bit(signal));
        let _workers = workers(2);
        assert_eq!(masks(), vec![format!("SigBlk:\t{expected:016x}"); 2]);
    });
}

/// Forks, and runs `child` in the child. Panics if that panics or does not end within 20 seconds.
fn in_a_child(child: impl FnOnce()) {
    // SAFETY: the C library makes its allocator usable in the child, and `child` needs nothing else of other threads.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: no precondition. The signal ends the child if it waits for threads that do not exist.
        unsafe { libc::alarm(20) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: no precondition.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's, and `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
}

#[test]
fn a_forked_child_works_alone_and_may_drop_them() {
    alone("a_forked_child_works_alone_and_may_drop_them", || {
        let workers = workers(2);
        let mut memory = vec![1; 1 << 20];
        Options::new().workers(&workers).fill(&mut memory, 3);
        // Moved into the child's closure, but the parent's copy must not be dropped by it.
        let mut kept = Some(workers);
        in_a_child(|| {
            let inherited = kept.take().unwrap();
            Options::new().workers(&inherited).clear(&mut memory);
            assert!(memory.iter().all(|&byte| byte == 0));
            drop(inherited);
            let own = self::workers(2);
            Options::new().workers(&own).fill(&mut memory, 9);
            assert!(memory.iter().all(|&byte| byte == 9));
            assert_eq!(masks().len(), 2);
        });
        Options::new().workers(kept.as_ref().unwrap()).fill(&mut memory, 5);
        assert!(memory.iter().all(|&byte| byte == 5));
        assert_eq!(masks().len(), 2);
    });
}

/// The child inherits a lock that no thread of it holds.
#[test]
fn a_child_forked_during_a_call_works_alone() {
    alone("a_child_forked_during_a_call_works_alone", || {
        let workers = workers(1);
        let (call, called) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let workers = &workers;
            scope.spawn(move || {
                let mut memory = vec![1; 8 << 20];
                while called.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    Options::new().workers(workers).clear(&mut memory);
                }
            });
            // Dropped, which ends the calls, also if a child fails.
            let _call = call;
            for _ in 0..50 {
                in_a_child(|| {
                    let mut memory = [1; 3 * 4096];
                    Options::new().workers(workers).clear(&mut memory);
                    assert!(memory.iter().all(|&byte| byte == 0));
                });
            }
        });
    });
}
