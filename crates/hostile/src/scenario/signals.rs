//! Signal handlers at every instruction of a call.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};

use crate::step::stepped;
use crate::work::{self, ROOM, Run};

static MEMORY: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static WRONG: AtomicBool = AtomicBool::new(false);

/// Performs operations in a handler.
fn call() {
    // SAFETY: the memory is as long, and the handler's alone.
    if !work::quick(unsafe { std::slice::from_raw_parts_mut(MEMORY.load(SeqCst), ROOM) }) {
        WRONG.store(true, SeqCst);
    }
}

/// Number of the instruction after which the handler makes calls.
static AT: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

fn call_once(count: usize) -> bool {
    if count == AT.load(SeqCst) {
        call();
        DONE.store(true, SeqCst);
    }
    !DONE.load(SeqCst)
}

/// Exit status of a child that ended before that instruction.
const NOT_REACHED: libc::c_int = 2;

fn leave() -> ! {
    let status = match (DONE.load(SeqCst), WRONG.load(SeqCst)) {
        (true, wrong) => libc::c_int::from(wrong),
        (false, _) => NOT_REACHED,
    };
    // SAFETY: _exit has no precondition.
    unsafe { libc::_exit(status) }
}

/// Forks children that did not use the library yet. Each runs `work` and is interrupted at another instruction by a
/// handler that makes calls, until `work` has no further instruction. `next` returns the number that follows another.
fn interrupted(next: impl Fn(usize) -> usize, child: impl Fn()) -> Result<(), String> {
    let mut handlers = work::memory();
    MEMORY.store(handlers.as_mut_ptr(), SeqCst);
    let mut children = 0;
    let mut at = 1;
    loop {
        AT.store(at, SeqCst);
        // SAFETY: the child ends by _exit; this process has one thread.
        let status = unsafe {
            let process = libc::fork();
            if process == 0 {
                libc::alarm(10);
                child();
                leave();
            }
            let mut status = 0;
            libc::waitpid(process, &raw mut status, 0);
            status
        };
        match status {
            0 => children += 1,
            _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == NOT_REACHED => break,
            _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM => {
                return Err(format!("interrupted at instruction {at}, it hung"));
            }
            _ => return Err(format!("interrupted at instruction {at}, it ended with status {status:#x}")),
        }
        at = next(at);
    }
    if children < 20 { Err(format!("there were but {children} places to interrupt")) } else { Ok(()) }
}

/// A handler that makes calls interrupts the first call: at each of the first instructions, then at every sixteenth.
pub(crate) fn first_call(operation: Run) -> Result<(), String> {
    interrupted(
        |at| at + 1 + at / 16,
        || {
            let mut memory = [1; ROOM];
            if !stepped(call_once, || operation(&mut memory, 200)) {
                WRONG.store(true, SeqCst);
            }
        },
    )
}

/// A handler that interrupted `malloc` or `free` makes the first call.
pub(crate) fn interrupted_malloc(_: Run) -> Result<(), String> {
    interrupted(|at| at + 5, in_malloc)
}

fn in_malloc() {
    // With a second thread, the C library locks its heap. The sizes are those that it does not cache.
    std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(60)));
    let heap = || {
        // Otherwise the compiler removes unused allocations.
        // SAFETY: each block from malloc is freed once.
        unsafe {
            let blocks = [5000, 40_000].map(|size| black_box(libc::malloc(size)));
            blocks.into_iter().for_each(|block| libc::free(block));
        }
    };
    heap();
    stepped(call_once, heap);
    heap();
}
