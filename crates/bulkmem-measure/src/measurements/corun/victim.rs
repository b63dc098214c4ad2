//! The victim: a command of the user, or a walk over cached memory in this process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::engine::clock::processor_times;
use crate::engine::options::bad;
use crate::engine::{MeasureError, Neighbour, Result, Sample, go_on};

/// Interval between checks of a running command.
const TICK: Duration = Duration::from_millis(250);
/// Time between SIGTERM and SIGKILL for a command that is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time of the walk, alone.
const WALKED: Duration = Duration::from_millis(500);

/// Runs a command once, with empty input. Discards its output or, with `show`, sends it to stderr. Samples its time and
/// the processor time of it and of the processes that it waited for.
///
/// # Errors
/// [`MeasureError::Option`] if it cannot be started, [`MeasureError::Command`] if it does not exit with status 0,
/// [`MeasureError::Interrupted`] if `stop` was set; then the command and its process group were terminated.
pub(super) fn run_command(
    words: &[OsString],
    show: bool,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Sample> {
    let (program, arguments) = words.split_first().expect("the options are validated");
    let cannot = |error: io::Error| {
        let program = program.to_string_lossy();
        let remedy = "name a program that the PATH leads to, or the path of one";
        bad("-- COMMAND", format!("cannot start `{program}`: {error}; {remedy}"))
    };
    let (output, errors) =
        if show { (io::stderr().into(), Stdio::inherit()) } else { (Stdio::null(), Stdio::null()) };
    let mut command = Command::new(program);
    command.args(arguments).process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
    let (before, start) = (processor_times(libc::RUSAGE_CHILDREN), Instant::now());
    let mut child = command.spawn().map_err(cannot)?;
    let ended = look_after(Pid::from_child(&child), start, stop, say);
    let status = child.wait().map_err(cannot)?;
    let seconds = (ended.ok_or(MeasureError::Interrupted)? - start).as_secs_f64();
    if !status.success() {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        return Err(MeasureError::Command { command: words.join(" "), status: status.to_string() });
    }
    Ok(sample(seconds, before, libc::RUSAGE_CHILDREN))
}

/// Waits until a process has ended and reports the time every second. Does not reap the process, so that its ID stays
/// valid. Once `stop` is set, terminates it and its group, and returns `None`.
fn look_after(pid: Pid, start: Instant, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Option<Instant> {
    let (tell, ended) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            _ = retry_on_intr(|| waitid(WaitId::Pid(pid), options));
            // The receiver is gone if the command was terminated.
            _ = tell.send(Instant::now());
        });
        let mut said = 0;
        loop {
            if let Ok(at) = ended.recv_timeout(TICK) {
                return Some(at);
            }
            if stop.load(Ordering::Relaxed) {
                // It may have ended in the meantime: then there is no process to signal.
                _ = kill_process_group(pid, Signal::TERM);
                if ended.recv_timeout(POLL_INTERVAL).is_err() {
                    _ = kill_process_group(pid, Signal::KILL);
                }
                return None;
            }
            let seconds = start.elapsed().as_secs();
            if seconds > said {
                said = seconds;
                say(&format!(", {seconds} s"));
            }
        }
    })
}

/// A sample of so many seconds and the processor time since `before`.
fn sample(seconds: f64, before: [f64; 2], of: libc::c_int) -> Sample {
    let [user, system] = processor_times(of);
    Sample { value: seconds, also: vec![("user_s", user - before[0]), ("system_s", system - before[1])] }
}

/// Walks over a list, as often as takes about half a second alone, and as often every time.
#[derive(Debug)]
pub(super) struct Walker {
    pub(super) neighbour: Neighbour,
    /// Known after the first time.
    pub(super) times: Option<u32>,
}

impl Walker {
    /// Walks in this thread until the end, or until `stop` is set.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Result<Sample> {
        let (before, start) = (processor_times(libc::RUSAGE_THREAD), Instant::now());
        let mut walks = 0;
        while self.times.map_or_else(|| start.elapsed() < WALKED, |times| walks < times) {
            go_on(stop)?;
            self.neighbour.walk();
            walks += 1;
        }
        self.times = Some(walks);
        Ok(sample(start.elapsed().as_secs_f64(), before, libc::RUSAGE_THREAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str], stop: &AtomicBool, said: &mut Vec<String>) -> Result<Sample, MeasureError> {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        run_command(&command, false, stop, &mut |text| said.push(text.to_owned()))
    }

    #[test]
    fn commands_are_timed_and_their_processor_time_is_counted() {
        let (never, mut said) = (AtomicBool::new(false), Vec::new());
        let slept = run(&["sleep", "1.1"], &never, &mut said).unwrap();
        assert!(slept.value >= 1.1 && slept.also[0].1 < 1.0, "{slept:?}");
        assert_eq!(said[0], ", 1 s");
        let busy = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        let busy = run(&["sh", "-c", busy], &never, &mut said).unwrap();
        assert!(busy.also[0].1 > 0.0, "{busy:?}");
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
            assert!(matches!(missing, MeasureError::Option { option: "-- COMMAND", .. }), "{missing}");
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
