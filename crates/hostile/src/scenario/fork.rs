//! Forks during the first call on another thread.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::step::stepped;
use crate::work::{self, Run};

/// Number of the instruction of the first call at which the next child is forked.
static NEXT: AtomicUsize = AtomicUsize::new(1);

const RUNNING: usize = 0;
const WAITING: usize = 1;
const ENDED: usize = 2;
/// State of the thread that makes the first call.
static STATE: AtomicUsize = AtomicUsize::new(RUNNING);

/// One thread makes the first call and stops at an instruction; then the main thread forks, and the child makes
/// calls. Repeats this at later instructions: at each of the first, then at every eighth.
pub(crate) fn at_every_stage(operation: Run) -> Result<(), String> {
    let (mut memory, mut childs) = (work::memory(), work::memory());
    let first = std::thread::spawn(move || {
        let each = |count| {
            if count == NEXT.load(SeqCst) {
                STATE.store(WAITING, SeqCst);
                while STATE.load(SeqCst) == WAITING {
                    std::hint::spin_loop();
                }
            }
            true
        };
        let right = stepped(each, || operation(&mut memory, 5000));
        STATE.store(ENDED, SeqCst);
        right
    });
    let mut children = 0;
    loop {
        match STATE.load(SeqCst) {
            ENDED => break,
            WAITING => {}
            _ => {
                std::hint::spin_loop();
                continue;
            }
        }
        let at = NEXT.load(SeqCst);
        child(&mut childs).map_err(|what| format!("forked at instruction {at}: {what}"))?;
        children += 1;
        NEXT.store(at + 1 + at / 8, SeqCst);
        STATE.store(RUNNING, SeqCst);
    }
    work::right(first.join().is_ok_and(|right| right))?;
    if children < 10 { Err(format!("only {children} children were made")) } else { Ok(()) }
}

fn child(memory: &mut [u8]) -> Result<(), String> {
    // The system call, because the C library's function waits for the lock of the heap, which the other thread may
    // hold.
    // SAFETY: the child, a copy of this thread, only calls functions that are safe in a signal handler.
    unsafe {
        let child = libc::syscall(libc::SYS_fork) as libc::pid_t;
        if child == 0 {
            libc::alarm(10);
            libc::_exit(libc::c_int::from(!work::quick(memory)));
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        match status {
            0 => Ok(()),
            _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM => {
                Err("the child hung".to_owned())
            }
            other => Err(format!("the child's status is {other:#x}")),
        }
    }
}
