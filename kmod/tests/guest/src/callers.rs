//! Tests processes that are hinted as a whole, and the processes and programs that they start.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::device::{Device, HintProcess};
use crate::hints::{choose, pipe, sleep_for_ever, touch};
use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module::{self, Counters, Fault, counted, counter, until};
use crate::process::{Child, End};
use crate::sizes::with_smaller_pages;

/// The extent of a hinted process: longer than any threshold.
pub(crate) const ALL: u64 = u64::MAX;
/// A threshold that one huge page does not reach.
pub(crate) const LONG: u64 = 8 << 20;
/// The processes that can have one hint, and the hints of a user.
const PROCESSES: u64 = 1024;
const FAMILIES: usize = 64;

/// The argument by which this program is one that faults in huge pages and knows nothing of hints.
const PROGRAM: &str = "--fault-in-huge-pages";
const PROGRAM_PAGES: u64 = 3;

pub(crate) fn tests(suite: &mut Suite) {
    for source in [Source::Pool2M, Source::Transparent] {
        let mut add = |name: &str, test: fn(Source) -> Result<(), Failed>| {
            suite.test(&format!("callers::{name}::{source:?}"), move || test(source));
        };
        add("a_hinted_process", a_hinted_process);
        add("every_threshold_is_reached", every_threshold_is_reached);
        add("children_and_their_children", children_and_their_children);
        add("children_that_exist_already_are_not", children_that_exist_already_are_not);
        add("a_child_outlives_its_parents", a_child_outlives_its_parents);
    }
    suite.test("callers::a_program_is_hinted_after_exec", || program(false));
    suite.test("callers::a_program_is_hinted_after_exec_by_a_thread", || program(true));
    suite.test("callers::a_program_that_a_program_starts", a_program_that_a_program_starts);
    suite.test("callers::end_with_the_process", end_with_the_process);
    suite.test("callers::a_thread_that_ends_first_changes_nothing", a_thread_that_ends_first_changes_nothing);
    suite.test("callers::a_family_has_a_limit", a_family_has_a_limit);
    suite.test("callers::a_user_has_a_limit", a_user_has_a_limit);
    suite.test("callers::many_processes_leave_nothing", many_processes_leave_nothing);
    suite.test("callers::nonsense_is_refused", nonsense_is_refused);
    suite.test("smaller::of_a_hinted_process_stay_cached", smaller_pages_stay_cached);
    suite.test("loading::unloaded_while_a_process_is_hinted", unloaded_while_a_process_is_hinted);
}

/// Runs this program as the one of [`PROGRAM`], if its argument says so.
pub(crate) fn as_program() -> Option<ExitCode> {
    if std::env::args().nth(1).as_deref() != Some(PROGRAM) {
        return None;
    }
    let fault = || {
        let mapping = HugeMapping::new(Source::Transparent, PROGRAM_PAGES as usize)?;
        (0..PROGRAM_PAGES as usize).for_each(|page| mapping.touch(page * MIDDLE + MIDDLE / 2));
        mapping.frames().map(|_| ())
    };
    Some(match fault() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

pub(crate) fn hint_this_process() -> io::Result<()> {
    // The hint does not need the file.
    Device::open()?.hint_process()
}

fn hinted(processes: u64) -> io::Result<()> {
    until("another number of processes is hinted", || Ok(counter("hinted_processes")? == processes))
}

/// A pair of ends by which one process waits for another.
pub(crate) struct Signal(std::fs::File, std::fs::File);

impl Signal {
    pub(crate) fn new() -> io::Result<Signal> {
        let (read, write) = pipe()?;
        Ok(Signal(read, write))
    }

    pub(crate) fn give(&self) -> io::Result<()> {
        (&self.1).write_all(b"!")
    }

    pub(crate) fn wait(&self) -> io::Result<()> {
        (&self.0).read_exact(&mut [0])
    }
}

fn a_hinted_process(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    assert_eq!(counter("hinted_processes")?, 0);
    Child::spawn(|| {
        let mapping = HugeMapping::new(source, 8)?;
        touch(&mapping, &[(MIDDLE - 1, 0)])?;
        hint_this_process()?;
        assert_eq!(counter("hinted_processes")?, 1);
        touch(&mapping, &[(MIDDLE, ALL), (3 * MIDDLE - 1, ALL)])?;
        // Memory that is mapped later, and other threads.
        let other = HugeMapping::new(source, 3)?;
        touch(&other, &[(0, ALL)])?;
        thread::scope(|scope| {
            let toucher = scope.spawn(|| touch(&other, &[(MIDDLE, ALL)]));
            toucher.join().map_err(|_| Failed::from("the thread panicked"))?
        })?;
        // A second hint changes nothing; one for a range neither.
        hint_this_process()?;
        assert_eq!(counter("hinted_processes")?, 1);
        let device = Device::open()?;
        device.hint(mapping.address(), LONG)?;
        touch(&mapping, &[(4 * MIDDLE, ALL)])?;
        device.unhint()?;
        touch(&mapping, &[(5 * MIDDLE, ALL)])
    })?
    .succeed()?;
    hinted(0)?;
    // This process is not hinted.
    touch(&HugeMapping::new(source, 1)?, &[(7, 0)])
}

fn every_threshold_is_reached(source: Source) -> Result<(), Failed> {
    choose(u64::MAX)?;
    Child::spawn(|| {
        hint_this_process()?;
        touch(&HugeMapping::new(source, 1)?, &[(MIDDLE / 2, ALL)])
    })?
    .succeed()
}

fn children_and_their_children(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    Child::spawn(|| {
        hint_this_process()?;
        Child::spawn(|| {
            assert_eq!(counter("hinted_processes")?, 2);
            touch(&HugeMapping::new(source, 1)?, &[(0, ALL)])?;
            Child::spawn(|| {
                assert_eq!(counter("hinted_processes")?, 3);
                touch(&HugeMapping::new(source, 2)?, &[(MIDDLE, ALL)])
            })?
            .succeed()
        })?
        .succeed()?;
        hinted(1)?;
        touch(&HugeMapping::new(source, 1)?, &[(0, ALL)])
    })?
    .succeed()?;
    hinted(0)?;
    Ok(())
}

fn children_that_exist_already_are_not(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    Child::spawn(|| {
        let signal = Signal::new()?;
        let child = Child::spawn(|| {
            signal.wait()?;
            touch(&HugeMapping::new(source, 1)?, &[(0, 0)])
        })?;
        hint_this_process()?;
        signal.give()?;
        child.succeed()
    })?
    .succeed()
}

fn a_child_outlives_its_parents(source: Source) -> Result<(), Failed> {
    choose(LONG)?;
    let (orphaned, done) = (Signal::new()?, Signal::new()?);
    Child::spawn(|| {
        hint_this_process()?;
        // Not dropped, which would kill it.
        std::mem::forget(Child::spawn(|| {
            orphaned.wait()?;
            assert_eq!(counter("hinted_processes")?, 1);
            touch(&HugeMapping::new(source, 1)?, &[(0, ALL)])?;
            touch(&HugeMapping::new(source, 1)?, &[(MIDDLE - 1, ALL)])?;
            done.give()?;
            Ok(())
        })?);
        Ok(())
    })?
    .succeed()?;
    hinted(1)?;
    orphaned.give()?;
    let Signal(mut read, write) = done;
    // Otherwise reading would not end if the child fails.
    drop(write);
    read.read_exact(&mut [0])?;
    hinted(0)?;
    Ok(())
}

/// Checks that all huge pages that were cleared since then, at least `least`, were parts of large extents.
fn all_hinted(before: &Counters, least: u64) -> Result<(), Failed> {
    let since = Counters::read()?.since(before);
    if since.get("faults") < least || since.get("skipped") > 0 || since.get("movnti/hinted") < least {
        return Err(format!("of {least} huge pages and more, not all were hinted: {since:?}").into());
    }
    Ok(())
}

fn program(by_a_thread: bool) -> Result<(), Failed> {
    choose(LONG)?;
    let before = Counters::read()?;
    Child::spawn(|| {
        hint_this_process()?;
        let exec = || Failed::from(Command::new("/proc/self/exe").arg(PROGRAM).exec());
        if by_a_thread {
            // The first thread ends without an exec of its own.
            Err(thread::spawn(exec).join().unwrap_or_else(|_| "the thread panicked".into()))
        } else {
            Err(exec())
        }
    })?
    .succeed()?;
    all_hinted(&before, PROGRAM_PAGES)?;
    hinted(0)?;
    // The program has no hint of its own.
    let before = Counters::read()?;
    assert!(Command::new("/proc/self/exe").arg(PROGRAM).status()?.success());
    let since = Counters::read()?.since(&before);
    assert_eq!((since.get("skipped"), since.get("movnti/hinted")), (since.get("faults"), 0), "{since:?}");
    Ok(())
}

/// By posix_spawn, whose child shares the parent's memory until it executes the program.
fn a_program_that_a_program_starts() -> Result<(), Failed> {
    choose(LONG)?;
    let before = Counters::read()?;
    Child::spawn(|| {
        hint_this_process()?;
        let script = format!("/proc/{}/exe {PROGRAM}; exit $?", std::process::id());
        assert!(Command::new("/bin/sh").args(["-c", &script]).status()?.success());
        Ok(())
    })?
    .succeed()?;
    all_hinted(&before, PROGRAM_PAGES)?;
    hinted(0)?;
    Ok(())
}

fn end_with_the_process() -> Result<(), Failed> {
    choose(LONG)?;
    let signal = Signal::new()?;
    let child = || {
        Child::spawn(|| {
            hint_this_process()?;
            thread::scope(|scope| {
                (0..3).for_each(|_| _ = scope.spawn(sleep_for_ever));
                signal.give()?;
                sleep_for_ever()
            })
        })
    };
    let children = [child()?, child()?, child()?];
    for _ in &children {
        signal.wait()?;
    }
    hinted(3)?;
    for child in children {
        assert_eq!(child.kill()?, End::Signal(libc::SIGKILL));
    }
    hinted(0)?;
    Ok(())
}

fn a_thread_that_ends_first_changes_nothing() -> Result<(), Failed> {
    choose(LONG)?;
    Child::spawn(|| {
        hint_this_process()?;
        let mapping = HugeMapping::new(Source::Pool2M, 2)?;
        thread::spawn(|| ()).join().map_err(|_| "the thread panicked")?;
        touch(&mapping, &[(0, ALL)])?;
        // The first thread ends, the process does not.
        thread::spawn(move || {
            let task = format!("/proc/self/task/{}/stat", std::process::id());
            let ended =
                until("the first thread runs", || Ok(std::fs::read_to_string(&task)?.contains(") Z ")));
            // Without a look at the frames, which /proc shows only of a process whose first thread lives.
            let touch = || {
                mapping.touch(MIDDLE);
                Ok(())
            };
            let touched = ended
                .map_err(Failed::from)
                .and_then(|()| counted(&[Fault { size: MIDDLE, offset: 0, hint: ALL }], touch));
            // SAFETY: ends the process; no other thread runs.
            unsafe { libc::_exit(i32::from(touched.is_err())) }
        });
        // SAFETY: ends this thread only, and runs no destructors: the other thread owns all that it uses.
        unsafe { libc::syscall(libc::SYS_exit, 7) };
        Err("the thread did not end".into())
    })?
    .succeed()?;
    hinted(0)?;
    Ok(())
}

fn a_family_has_a_limit() -> Result<(), Failed> {
    choose(LONG)?;
    let before = counter("unhinted_processes")?;
    Child::spawn(|| {
        hint_this_process()?;
        let mut children = Vec::new();
        for _ in 0..PROCESSES + 2 {
            children.push(Child::spawn(sleep_for_ever)?);
        }
        assert_eq!(counter("hinted_processes")?, PROCESSES);
        assert_eq!(counter("unhinted_processes")? - before, 3);
        // A child without a hint works, and so does one of it, which is not hinted and not counted.
        Child::spawn(|| {
            touch(&HugeMapping::new(Source::Pool2M, 1)?, &[(0, 0)])?;
            Child::spawn(|| touch(&HugeMapping::new(Source::Pool2M, 1)?, &[(0, 0)]))?.succeed()
        })?
        .succeed()?;
        assert_eq!(counter("unhinted_processes")? - before, 4);
        // Another hint is not affected.
        touch(&HugeMapping::new(Source::Pool2M, 1)?, &[(0, ALL)])?;
        drop(children);
        hinted(1)?;
        // Marks can be used again after a grace period.
        until("the marks of processes that ended are in use", || {
            let child = Child::spawn(|| {
                assert_eq!(counter("hinted_processes")?, 2);
                Ok(())
            })?;
            Ok(child.wait()? == End::Exit(0))
        })?;
        Ok(())
    })?
    .succeed()?;
    hinted(0)?;
    Ok(())
}

/// Starts a child that becomes a user, makes the request, and sleeps. Returns it and the error of the request.
fn hinted_user(device: &Device, user: u32) -> Result<(Child, i32), Failed> {
    let (mut read, mut write) = pipe()?;
    let child = Child::spawn(|| {
        // SAFETY: changes the user of this child only.
        if user != 0 && unsafe { libc::setresuid(user, user, user) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        let error = device.hint_process().err().and_then(|error| error.raw_os_error()).unwrap_or(0);
        write.write_all(&error.to_ne_bytes())?;
        sleep_for_ever()
    })?;
    drop(write);
    let mut error = [0; 4];
    read.read_exact(&mut error)?;
    Ok((child, i32::from_ne_bytes(error)))
}

fn a_user_has_a_limit() -> Result<(), Failed> {
    choose(LONG)?;
    let device = Device::open()?;
    let mut children = Vec::new();
    for user in [1000, 0] {
        for _ in 0..FAMILIES {
            let (child, error) = hinted_user(&device, user)?;
            assert_eq!(error, 0, "user {user}");
            children.push(child);
        }
    }
    assert_eq!(hinted_user(&device, 1000)?.1, libc::ENOSPC);
    // Another user, and root, who has CAP_SYS_RESOURCE.
    assert_eq!(hinted_user(&device, 1001)?.1, 0);
    assert_eq!(hinted_user(&device, 0)?.1, 0);
    drop(children);
    hinted(0)?;
    // The end of the user's processes makes room, after a grace period.
    until("the user's hints are in force", || {
        hinted_user(&device, 1000).map(|(_, error)| error == 0).map_err(|_| io::Error::other("no child"))
    })?;
    hinted(0)?;
    Ok(())
}

/// Processes that are hinted, fork, run threads, execute and end at the same time.
fn many_processes_leave_nothing() -> Result<(), Failed> {
    choose(LONG)?;
    let before = counter("unhinted_processes")?;
    let busy = |seed: usize| {
        move || -> Result<(), Failed> {
            for round in 0..12 {
                if round == seed % 5 {
                    hint_this_process()?;
                }
                let mut children = Vec::new();
                for kind in 0..3 {
                    children.push(Child::spawn(|| match (seed + round + kind) % 3 {
                        0 => Err(Command::new("/bin/true").exec().into()),
                        1 => {
                            thread::spawn(|| ());
                            Child::spawn(|| Ok(()))?.succeed()
                        }
                        _ => Ok(()),
                    })?);
                }
                // One of them may be killed in its fork, exec or end.
                children.pop().map(Child::kill).transpose()?;
                for child in children {
                    child.succeed()?;
                }
            }
            Ok(())
        }
    };
    let children: Vec<Child> = (0..6).map(|seed| Child::spawn(busy(seed))).collect::<io::Result<_>>()?;
    for child in children {
        child.succeed()?;
    }
    // A grandchild of a child that was killed ends on its own.
    hinted(0)?;
    assert_eq!(counter("unhinted_processes")?, before);
    Ok(())
}

fn nonsense_is_refused() -> Result<(), Failed> {
    choose(LONG)?;
    Child::spawn(|| {
        let device = Device::open()?;
        let asked = |size, flags, later| {
            let result = device.hint_process_as(&HintProcess { size, flags, later });
            result.map_err(|error| error.raw_os_error().unwrap_or(0))
        };
        for (size, flags, later, error) in [
            (0, 0, 0, libc::EINVAL),
            (HintProcess::SIZE - 1, 0, 0, libc::EINVAL),
            (HintProcess::SIZE, 1, 0, libc::EINVAL),
            (HintProcess::SIZE + 8, 0, 1, libc::E2BIG),
            (u32::MAX, 0, 0, libc::E2BIG),
        ] {
            assert_eq!(asked(size, flags, later), Err(error), "size {size}, flags {flags}, then {later}");
        }
        let unmapped = device.ioctl(crate::device::HINT_PROCESS, 0).map_err(|error| error.raw_os_error());
        assert_eq!(unmapped, Err(Some(libc::EFAULT)));
        assert_eq!(counter("hinted_processes")?, 0, "nothing of it was taken");
        assert_eq!(asked(HintProcess::SIZE, 0, 7), Ok(()), "what is after the structure does not count");
        assert_eq!(asked(HintProcess::SIZE + 8, 0, 0), Ok(()));
        assert_eq!(counter("hinted_processes")?, 1);
        Ok(())
    })?
    .succeed()
}

fn smaller_pages_stay_cached() -> Result<(), Failed> {
    choose(LONG)?;
    with_smaller_pages(|| {
        Child::spawn(|| {
            hint_this_process()?;
            let mapping = HugeMapping::new(Source::Transparent, 1)?;
            let before = Counters::read()?;
            mapping.touch(9);
            let since = Counters::read()?.since(&before);
            assert!(since.get("prefetchw/bytes") > 0 && since.get("movnti/bytes") == 0, "{since:?}");
            Ok(())
        })?
        .succeed()
    })
}

fn unloaded_while_a_process_is_hinted() -> Result<(), Failed> {
    choose(LONG)?;
    let (started, go) = (Signal::new()?, Signal::new()?);
    let child = Child::spawn(|| {
        hint_this_process()?;
        started.give()?;
        go.wait()?;
        touch(&HugeMapping::new(Source::Transparent, 1)?, &[(0, 0)])?;
        Child::spawn(|| touch(&HugeMapping::new(Source::Transparent, 1)?, &[(0, 0)]))?.succeed()
    })?;
    started.wait()?;
    module::unload()?;
    choose(LONG)?;
    assert_eq!(counter("hinted_processes")?, 0);
    go.give()?;
    child.succeed()?;
    // The new module hints again.
    Child::spawn(|| {
        hint_this_process()?;
        Child::spawn(|| touch(&HugeMapping::new(Source::Transparent, 1)?, &[(0, ALL)]))?.succeed()
    })?
    .succeed()
}
