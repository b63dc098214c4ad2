//! Single-stepping: the processor's trap flag raises SIGTRAP after each instruction, so that a handler can run at
//! every place of a call.

use std::arch::asm;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

/// The trap flag in RFLAGS.
const TRAP: i64 = 1 << 8;

/// Called after each instruction, with its number. Returns false to stop.
pub(crate) type Each = fn(count: usize) -> bool;

static EACH: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid context to a handler installed with SA_SIGINFO; the pointer is an `Each`.
    unsafe {
        let each: Each = std::mem::transmute(EACH.load(SeqCst));
        if !each(COUNT.fetch_add(1, SeqCst) + 1) {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
        }
    }
}

/// Runs `call`, and `each` after every instruction of it. For one thread at a time.
pub(crate) fn stepped<R>(each: Each, call: impl FnOnce() -> R) -> R {
    EACH.store(each as *mut (), SeqCst);
    COUNT.store(0, SeqCst);
    // SAFETY: a handler with three arguments, as SA_SIGINFO has it. Traps go to the thread that raises them; the flag
    // is changed on this thread's stack, as the compiler allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        let result = call();
        asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq");
        result
    }
}
