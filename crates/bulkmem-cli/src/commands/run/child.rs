//! A program as a child of this command, which gets the signals that are sent to this command.

use std::io;
use std::mem::zeroed;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use libc::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, c_int, c_void, sigaction, siginfo_t,
};

const SIGNALS: [c_int; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The child while it runs, else 0.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that arrived before the child started, or 0.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// How a program ended.
pub(super) struct Ended {
    pub(super) pid: u32,
    /// Its exit status, or 128 plus the number of the signal that ended it, as shells report it.
    pub(super) code: u8,
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> io::Result<Ended> {
    let before = SIGNALS.map(|signal| (signal, pass_on(signal)));
    // A caller that ignores it would leave no status to wait for. The program ignores it again.
    let children = set_default(SIGCHLD);
    if children.sa_sigaction == libc::SIG_IGN {
        // SAFETY: signal is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::signal(SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
    }
    let ended = command.spawn().and_then(|mut child| {
        let pid = child.id();
        CHILD.store(pid as c_int, SeqCst);
        send(EARLY.load(SeqCst));
        let status = child.wait();
        CHILD.store(0, SeqCst);
        let status = status?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        Ok(Ended { pid, code: code as u8 })
    });
    for (signal, old) in before.into_iter().chain([(SIGCHLD, children)]) {
        // SAFETY: the action is the one that was there before.
        unsafe { sigaction(signal, &raw const old, null_mut()) };
    }
    ended
}

/// Sets the default action of a signal. Returns the old one.
fn set_default(signal: c_int) -> sigaction {
    // SAFETY: zeros are the default action; both pointers are valid.
    unsafe {
        let (mut old, new): (sigaction, sigaction) = (zeroed(), zeroed());
        sigaction(signal, &raw const new, &raw mut old);
        old
    }
}

/// Passes a signal on from now on, unless it is ignored, as by nohup(1). Returns the old action.
fn pass_on(signal: c_int) -> sigaction {
    // SAFETY: zeros are a valid action; both pointers are valid; the handler is async-signal-safe.
    unsafe {
        let mut old: sigaction = zeroed();
        sigaction(signal, null_mut(), &raw mut old);
        if old.sa_sigaction != libc::SIG_IGN {
            let mut new: sigaction = zeroed();
            new.sa_sigaction = handler as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            sigaction(signal, &raw const new, null_mut());
        }
        old
    }
}

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid description.
    let by_process = unsafe { (*info).si_code } <= 0;
    // A terminal sends its signals (Ctrl-C) to the child too, but only its leader learns that it is gone.
    if by_process || signal == SIGHUP {
        send(signal);
    }
}

/// Sends a signal to the child; if the child has not started, later. Async-signal-safe; keeps `errno`.
fn send(signal: c_int) {
    match CHILD.load(SeqCst) {
        0 => EARLY.store(signal, SeqCst),
        // SAFETY: `errno` is the calling thread's; kill has no precondition, and does nothing for the signal 0.
        child => unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(child, signal);
            *errno = before;
        },
    }
}
