//! Many first calls at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use crate::work::{self, OPERATIONS, ROOM, Run};

const THREADS: usize = 64;

/// 64 threads make their first calls at the same time.
pub(crate) fn together(_: Run) -> Result<(), String> {
    let barrier = Barrier::new(THREADS);
    let right = std::thread::scope(|scope| {
        let first = |number: usize| {
            let mut memory = work::memory();
            barrier.wait();
            let right = OPERATIONS[number % OPERATIONS.len()].1(&mut memory, 5000);
            right && work::quick(&mut memory)
        };
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || first(number))).collect();
        threads.into_iter().all(|thread| thread.join().is_ok_and(|right| right))
    });
    work::right(right)
}

static HANDLERS_MEMORY: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static WRONG: AtomicBool = AtomicBool::new(false);
/// True while the main thread makes its first call.
static ACTIVE: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    if !ACTIVE.load(SeqCst) {
        return;
    }
    // SAFETY: the memory is as long, and the handler's alone: the signal is blocked while the handler runs.
    let memory = unsafe { std::slice::from_raw_parts_mut(HANDLERS_MEMORY.load(SeqCst), ROOM) };
    if !work::quick(memory) {
        WRONG.store(true, SeqCst);
    }
}

/// Another thread sends signals while the main thread makes its first call, and the handler makes calls too.
pub(crate) fn storm(_: Run) -> Result<(), String> {
    let (mut memory, mut handlers) = (work::memory(), work::memory());
    HANDLERS_MEMORY.store(handlers.as_mut_ptr(), SeqCst);
    let (started, done) = (AtomicBool::new(false), AtomicBool::new(false));
    // SAFETY: a handler for a signal that nothing else uses, and this thread's own id.
    let main = unsafe {
        libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t);
        libc::pthread_self()
    };
    let right = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                // SAFETY: the main thread lives longer than this one.
                unsafe { libc::pthread_kill(main, libc::SIGUSR1) };
                started.store(true, SeqCst);
            }
        });
        while !started.load(SeqCst) {
            std::hint::spin_loop();
        }
        ACTIVE.store(true, SeqCst);
        let right = work::exercise(&mut memory);
        done.store(true, SeqCst);
        right
    });
    work::right(right && !WRONG.load(SeqCst))
}
