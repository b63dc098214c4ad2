//! The victim: a command of the user, or a walk over cached memory in this process.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::thread::CpuSet;

use crate::engine::neighbour::Neighbour;
use crate::measurements::corun::cpus::Bound;
use crate::{MeasureError, OptionName};

/// Interval between checks of a running command.
const TICK: Duration = Duration::from_millis(250);
/// Time between SIGTERM and SIGKILL for a command that is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time of the walk, alone.
const WALKED: Duration = Duration::from_millis(500);

/// Times of the victim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// Wall-clock seconds.
    pub(super) seconds: f64,
    /// Seconds of processor time in user space, of the command and of the processes that it waited for.
    pub(super) user: f64,
    /// The same in the kernel.
    pub(super) system: f64,
}

/// Runs a command once, on some processors, with empty input. Discards its output or, with `show`, sends it to stderr.
///
/// # Errors
/// [`MeasureError::Option`] if it cannot be started, [`MeasureError::Command`] if it does not exit with status 0,
/// [`MeasureError::Interrupted`] if `stop` was set; then the command and its process group were terminated.
pub(super) fn run_command(
    command: &[OsString],
    show: bool,
    processors: Option<&CpuSet>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Took, MeasureError> {
    let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let cannot = |error: io::Error| MeasureError::Option {
        option: OptionName::Command,
        reason: format!(
            "cannot start `{name}`: {error}; name a program that the PATH leads to, or the path of one"
        ),
    };
    let output = || {
        if show { io::stderr().as_fd().try_clone_to_owned().map(Stdio::from) } else { Ok(Stdio::null()) }
    };
    let mut child = Command::new(command.first().map_or("".as_ref(), OsString::as_os_str));
    child.args(command.get(1..).unwrap_or_default()).process_group(0);
    child.stdin(Stdio::null()).stdout(output().map_err(cannot)?).stderr(output().map_err(cannot)?);
    // A child inherits the processors.
    let bound = Bound::to(processors);
    let start = Instant::now();
    let child = child.spawn().map_err(cannot)?;
    drop(bound);
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| cannot(io::Error::other("no process id")))?;
    let ended = look_after(pid, start, stop, say);
    let (status, usage) = reap(pid).map_err(cannot)?;
    let seconds = (ended.map_err(|_| MeasureError::Interrupted)? - start).as_secs_f64();
    if !status.success() {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        return Err(MeasureError::Command { command: words.join(" "), status: status.to_string() });
    }
    Ok(Took { seconds, user: in_seconds(usage.ru_utime), system: in_seconds(usage.ru_stime) })
}

/// The command was terminated.
struct Stopped;

/// Waits until a process has ended and reports the time every second. Terminates it and its group once `stop` is set. Does
/// not reap the process, so that its ID stays valid.
fn look_after(
    pid: Pid,
    start: Instant,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Instant, Stopped> {
    let (tell, ended) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
            // The receiver is gone if the command was terminated.
            _ = tell.send(Instant::now());
        });
        let mut said = 0;
        loop {
            match ended.recv_timeout(TICK) {
                Ok(at) => return Ok(at),
                Err(RecvTimeoutError::Disconnected) => return Ok(Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stop.load(Ordering::Relaxed) {
                // It may have ended in the meantime: then there is no process to signal.
                _ = kill_process_group(pid, Signal::TERM);
                if ended.recv_timeout(POLL_INTERVAL).is_err() {
                    _ = kill_process_group(pid, Signal::KILL);
                }
                return Err(Stopped);
            }
            let seconds = start.elapsed().as_secs();
            if seconds > said {
                said = seconds;
                say(&format!(", {seconds} s"));
            }
        }
    })
}

/// Reaps a child that has ended or is about to. Returns its status and resource usage.
fn reap(pid: Pid) -> io::Result<(ExitStatus, libc::rusage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are valid for the values that the call writes.
        if unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, usage.as_mut_ptr()) } >= 0 {
            // SAFETY: all zeros is a valid value of this plain struct, and the kernel has written one over it.
            return Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn in_seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Returns the resource usage of this thread.
fn own_usage() -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for the value that the call writes; if it fails, all zeros are a valid value too.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// Walks over a list, as often as takes about half a second alone, and as often every time.
#[derive(Debug)]
pub(super) struct Walker {
    neighbour: Neighbour,
    times: Option<u32>,
}

impl Walker {
    pub(super) fn new(neighbour: Neighbour) -> Walker {
        Walker { neighbour, times: None }
    }

    /// Walks in this thread, on some processors.
    ///
    /// # Errors
    /// [`MeasureError::Interrupted`] once `stop` is set.
    pub(super) fn run(
        &mut self,
        processors: Option<&CpuSet>,
        stop: &AtomicBool,
    ) -> Result<Took, MeasureError> {
        let _bound = Bound::to(processors);
        let (start, before) = (Instant::now(), own_usage());
        let mut walks = 0;
        while self.times.map_or_else(|| start.elapsed() < WALKED, |times| walks < times) {
            if stop.load(Ordering::Relaxed) {
                return Err(MeasureError::Interrupted);
            }
            self.neighbour.walk();
            walks += 1;
        }
        let (seconds, after) = (start.elapsed().as_secs_f64(), own_usage());
        self.times = Some(walks);
        Ok(Took {
            seconds,
            user: in_seconds(after.ru_utime) - in_seconds(before.ru_utime),
            system: in_seconds(after.ru_stime) - in_seconds(before.ru_stime),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str], stop: &AtomicBool, said: &mut Vec<String>) -> Result<Took, MeasureError> {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        run_command(&command, false, None, stop, &mut |text| said.push(text.to_owned()))
    }

    #[test]
    fn commands_are_timed_and_their_processor_time_is_counted() {
        let (never, mut said) = (AtomicBool::new(false), Vec::new());
        let slept = run(&["sleep", "1.1"], &never, &mut said).unwrap();
        assert!(slept.seconds >= 1.1 && slept.user < 1.0, "{slept:?}");
        assert_eq!(said[0], ", 1 s");
        let busy = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        let busy = run(&["sh", "-c", busy], &never, &mut said).unwrap();
        assert!(busy.user > 0.0, "{busy:?}");
    }

    #[test]
    fn one_that_fails_or_is_not_there_says_so() {
        let (never, mut said) = (AtomicBool::new(false), Vec::new());
        let failed = run(&["sh", "-c", "exit 3"], &never, &mut said).unwrap_err().to_string();
        assert!(failed.contains("`sh -c exit 3`") && failed.contains("exit status: 3"), "{failed}");
        let killed = run(&["sh", "-c", "kill -9 $$"], &never, &mut said).unwrap_err().to_string();
        assert!(killed.contains("SIGKILL"), "{killed}");
        for missing in ["no-such-program", ""] {
            let missing = run(&[missing], &never, &mut said).unwrap_err();
            assert!(matches!(missing, MeasureError::Option { option: OptionName::Command, .. }), "{missing}");
        }
    }

    /// A shell that ignores the request, and what it started, are ended all the same.
    #[test]
    fn the_whole_group_ends_when_asked_to() {
        let folder = std::env::temp_dir().join(format!("bulkmem-corun-{}", std::process::id()));
        let file = folder.to_string_lossy().into_owned();
        let script = format!("trap '' TERM; sleep 60 & echo $! > {file}; wait; sleep 60");
        let (stop, mut said) = (AtomicBool::new(false), Vec::new());
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while !std::fs::read_to_string(&folder).is_ok_and(|text| text.ends_with('\n')) {
                    thread::sleep(Duration::from_millis(5));
                }
                stop.store(true, Ordering::Relaxed);
            });
            run(&["sh", "-c", &script], &stop, &mut said)
        });
        assert!(matches!(outcome, Err(MeasureError::Interrupted)), "{outcome:?}");
        let started: i32 = std::fs::read_to_string(&folder).unwrap().trim().parse().unwrap();
        std::fs::remove_file(&folder).unwrap();
        // It may be a zombie for a moment, until the process that inherited it reaps it.
        let state = || std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
        let gone = (0..400).any(|_| {
            thread::sleep(Duration::from_millis(5));
            let state = state();
            state.is_empty() || state.contains(") Z ") || !state.contains("(sleep)")
        });
        assert!(gone, "{}", state());
    }
}
