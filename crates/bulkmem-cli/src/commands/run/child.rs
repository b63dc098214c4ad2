//! A program as a child of this command, which gets the signals that are sent to this command.

use std::io;
use std::mem::zeroed;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use libc::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, c_int, c_void, sigaction, siginfo_t,
    sigset_t,
};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

const SIGNALS: [c_int; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The child while it runs, else 0.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// How a program ended.
pub(super) struct Ended {
    pub(super) pid: u32,
    /// Its exit status, or 128 plus the number of the signal that ended it, as shells report it.
    pub(super) code: u8,
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> io::Result<Ended> {
    // Those that arrive before the child is known, or after its end, wait.
    let mask = block();
    let before = SIGNALS.map(|signal| (signal, pass_on(signal)));
    // A caller that ignores it would leave no status to wait for. The program ignores it again.
    let children = set_default(SIGCHLD);
    let ignored = children.sa_sigaction == libc::SIG_IGN;
    // With this, the standard library uses execvp, so that a script without `#!` runs, as in place of this command.
    // SAFETY: the functions that it calls are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            as_before(ignored, &mask);
            Ok(())
        });
    }
    let ended = command.spawn().and_then(|mut child| {
        let pid = child.id();
        CHILD.store(pid as c_int, SeqCst);
        set(&mask);
        // Its number remains its own until `wait`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&child)), options));
        block();
        CHILD.store(0, SeqCst);
        waited?;
        let status = child.wait()?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        Ok(Ended { pid, code: code as u8 })
    });
    for (signal, old) in before.into_iter().chain([(SIGCHLD, children)]) {
        // SAFETY: the action is the one that was there before.
        unsafe { sigaction(signal, &raw const old, null_mut()) };
    }
    set(&mask);
    ended
}

/// Blocks the signals. Returns the mask from before.
fn block() -> sigset_t {
    // SAFETY: zeros are the empty set; all pointers are valid.
    unsafe {
        let (mut signals, mut before): (sigset_t, sigset_t) = (zeroed(), zeroed());
        SIGNALS.iter().for_each(|signal| _ = libc::sigaddset(&raw mut signals, *signal));
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before);
        before
    }
}

/// Sets the mask of blocked signals. Async-signal-safe.
fn set(mask: &sigset_t) {
    // SAFETY: the pointer is valid.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}

/// In the child: gives the signals the actions that the program would have without this command, and lets those that wait end it.
/// Async-signal-safe.
fn as_before(children_ignored: bool, mask: &sigset_t) {
    for signal in SIGNALS {
        // SAFETY: zeros are a valid action; the pointers are valid.
        unsafe {
            let mut action: sigaction = zeroed();
            sigaction(signal, null_mut(), &raw mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
    if children_ignored {
        // SAFETY: no precondition.
        unsafe { libc::signal(SIGCHLD, libc::SIG_IGN) };
    }
    set(mask);
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

/// Sends a signal to the child, if it runs. Async-signal-safe; keeps `errno`.
fn send(signal: c_int) {
    let child = CHILD.load(SeqCst);
    if child != 0 {
        // SAFETY: `errno` is the calling thread's; kill has no precondition.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(child, signal);
            *errno = before;
        }
    }
}
