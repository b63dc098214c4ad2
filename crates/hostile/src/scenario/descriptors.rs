//! File descriptors and errno.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::work::{self, Run};

fn is_open(descriptor: libc::c_int) -> bool {
    // SAFETY: F_GETFD only asks.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

/// The first call with the descriptors 0, 1 and 2 closed, while another thread writes to them: files that the library
/// opens must not keep these descriptors, nor be written to. The caller examines its files afterwards.
pub(crate) fn closed(_: Run) -> Result<(), String> {
    let mut memory = work::memory();
    let done = AtomicBool::new(false);
    // SAFETY: nothing of ours uses them any more.
    unsafe {
        for descriptor in 0..3 {
            libc::close(descriptor);
        }
    }
    let right = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                for to in 0..3 {
                    // SAFETY: the byte is valid for reads.
                    unsafe { libc::write(to, c"x".as_ptr().cast(), 1) };
                }
            }
        });
        let right = work::exercise(&mut memory);
        done.store(true, Relaxed);
        right
    });
    let open = (0..3).any(is_open);
    // SAFETY: _exit has no precondition. There is nowhere to write to, so that the status says it all.
    unsafe { libc::_exit(if open { 3 } else { i32::from(!right) }) }
}

/// A terminal that is named as the policy file does not become the terminal of this session. The caller names it.
pub(crate) fn terminal(_: Run) -> Result<(), String> {
    let mut memory = work::memory();
    // SAFETY: the child makes calls of the C library only, as it may; no other thread runs.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::setsid();
            let right = work::exercise(&mut memory);
            let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR);
            libc::_exit(if terminal != -1 { 3 } else { i32::from(!right) });
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        match status {
            0 => Ok(()),
            0x300 => Err("the terminal became the session's".to_owned()),
            other => Err(format!("the child's status is {other:#x}")),
        }
    }
}

/// The first call does not change errno.
pub(crate) fn errno(operation: Run) -> Result<(), String> {
    const MARK: libc::c_int = 1234;
    let mut memory = work::memory();
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = MARK };
    let right = operation(&mut memory, 5000);
    // SAFETY: as above.
    let found = unsafe { *libc::__errno_location() };
    if found != MARK {
        return Err(format!("errno is {found}"));
    }
    work::right(right)
}
