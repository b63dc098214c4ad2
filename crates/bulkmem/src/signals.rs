//! Keeps the program's signal handlers off the threads that this library starts, and off a thread that loads the policy.

use std::mem::MaybeUninit;
use std::ptr;

/// Signals that the kernel raises for what a thread itself executes. They stay as they are: a fault whose signal is
/// blocked kills the process, even if it has a handler, such as a virtual machine monitor's for SIGBUS.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Calls `start` with every signal but those of faults blocked on the current thread, so that a thread started there blocks
/// them for its whole life. The current thread's own mask is restored afterwards, also if `start` panics.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // Miri does not support signals.
    let _mask = (!cfg!(miri)).then(Mask::block);
    start()
}

/// The signals that the current thread blocked before; blocks those again when dropped.
struct Mask(libc::sigset_t);

impl Mask {
    fn block() -> Mask {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigfillset initializes the set that the next calls read. sigprocmask changes the current thread's
        // mask, which no other thread uses, and initializes `before`: it fails only for an unknown first argument.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Mask(before.assume_init())
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set is initialized. The value never leaves the thread whose mask it holds: `without_signals` keeps
        // it on its stack.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
