//! Records every instruction that a call executes, with its registers, by means of the processor's trap flag, which
//! raises SIGTRAP after each one.
//!
//! So tests examine the instructions that ran: those of the method, the lines that were written back, and whether a
//! fence came last. A recording can also emulate instructions that the processor supports, which tests the emulator
//! with real code on every machine.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use bulkmem::machine::Features;
use iced_x86::Instruction;

use super::emulate::{self, MemoryAction, Registers, decode_at, emulate};
use crate::case::{Line, give_up, install};

/// The trap flag in RFLAGS.
const TRAP: i64 = 1 << 8;
/// INT3.
const BREAKPOINT: u8 = 0xcc;

/// The instructions that were executed, in order.
#[derive(Debug)]
pub struct Trace {
    steps: Vec<Registers>,
}

/// The recording in progress, which the signal handler writes to.
struct Recorder {
    steps: Vec<Registers>,
    overflowed: bool,
    emulated: Features,
}

thread_local! {
    /// The recording in progress on this thread; null if there is none.
    static RECORDER: Cell<*mut Recorder> = const { Cell::new(std::ptr::null_mut()) };
}

impl Trace {
    /// Runs `call` and records at most `limit` instructions. Emulates those of the features `emulated`, and those
    /// that this processor does not support.
    ///
    /// An instruction with a REP prefix counts once per repetition.
    ///
    /// # Errors
    /// If `call` executes more than `limit` instructions. It has run to its end nevertheless.
    ///
    /// # Panics
    /// If `call` panics, or a recording is in progress on this thread.
    pub fn record(limit: usize, emulated: Features, call: impl FnOnce()) -> Result<Trace, String> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| install(libc::SIGTRAP, on_step));
        let lacking = emulate::lacking(emulate::EMULATED);
        assert!(RECORDER.get().is_null(), "a recording within a recording");

        let mut recorder =
            Recorder { steps: Vec::with_capacity(limit), overflowed: false, emulated: emulated | lacking };
        RECORDER.set(&raw mut recorder);
        // SAFETY: the handler, installed above, steps over the breakpoint and sets the trap flag.
        unsafe { std::arch::asm!("int3") }
        let result = catch_unwind(AssertUnwindSafe(call));
        // SAFETY: the handler steps over the breakpoint and clears the trap flag.
        unsafe { std::arch::asm!("int3") }
        RECORDER.set(std::ptr::null_mut());
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        if recorder.overflowed {
            return Err(format!("more than {limit} instructions were executed"));
        }
        Ok(Trace { steps: recorder.steps })
    }

    /// Returns every executed instruction, with the registers just before it.
    pub fn steps(&self) -> impl Iterator<Item = (Instruction, &Registers)> {
        let mut decoded = HashMap::new();
        self.steps.iter().map(move |registers| {
            // SAFETY: the processor executed an instruction there, and no test unmaps code.
            let instruction =
                decoded.entry(registers.rip).or_insert_with(|| unsafe { decode_at(registers.rip) });
            (*instruction, registers)
        })
    }
}

extern "C" fn on_step(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid context to handlers installed with SA_SIGINFO, ours alone until we return.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // SAFETY: the pointer is null, or points to a recorder on this thread's stack, which `record` does not use while
    // the pointer is set.
    let Some(recorder) = (unsafe { RECORDER.get().as_mut() }) else {
        let mut line = Line::new();
        let _ = write!(line, "\nbreakpoint outside a recording");
        line.print();
        return give_up(signal);
    };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP;
    loop {
        let registers = Registers::saved(context);
        // SAFETY: the processor is about to execute the instruction there.
        if unsafe { (registers.rip as *const u8).read() } == BREAKPOINT {
            context.uc_mcontext.gregs[libc::REG_RIP as usize] += 1;
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
            return;
        }
        if recorder.steps.len() == recorder.steps.capacity() {
            recorder.overflowed = true;
        } else {
            recorder.steps.push(registers);
        }
        // SAFETY: as above.
        let instruction = unsafe { decode_at(registers.rip) };
        let wanted = MemoryAction::of(&instruction, &registers)
            .is_ok_and(|action| recorder.emulated.contains(action.feature()));
        if !wanted {
            return;
        }
        // SAFETY: the processor would have done the same next.
        match unsafe { emulate(&registers) } {
            Ok(length) => context.uc_mcontext.gregs[libc::REG_RIP as usize] += length as i64,
            Err(_) => return,
        }
    }
}
