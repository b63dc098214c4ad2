//! A record of every instruction that a call executes, with its registers: the processor's trap flag raises SIGTRAP
//! after each one.
//!
//! So tests see what ran, not what should have: whether a row's instruction was executed, which lines were written
//! back, whether a fence came last. Instructions that are to be emulated are, one by one, whether the processor has
//! them or not: so the emulator is tested on real code on every machine.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use bulkmem::machine::Features;
use iced_x86::Instruction;

use super::emulate::{self, CacheEffect, Registers, decode_at, emulate};
use crate::case::{Line, give_up, install};

/// The trap flag in RFLAGS.
const TRAP: i64 = 1 << 8;
/// INT3.
const BREAKPOINT: u8 = 0xcc;

/// What was executed, in order.
#[derive(Debug)]
pub struct Trace {
    steps: Vec<Registers>,
}

/// What the handler writes to.
struct Recorder {
    steps: Vec<Registers>,
    overflowed: bool,
    emulated: Features,
}

thread_local! {
    /// The recording that this thread is in, if any.
    static RECORDER: Cell<*mut Recorder> = const { Cell::new(std::ptr::null_mut()) };
}

impl Trace {
    /// Runs `call` one instruction at a time, at most `limit` of them, each that belongs to `emulated` by emulation
    /// (besides those that this processor lacks).
    ///
    /// An instruction repeated by a REP prefix counts as often as it is repeated.
    ///
    /// # Errors
    /// Where `call` executes more than `limit` instructions; it has run to its end all the same.
    ///
    /// # Panics
    /// Where `call` panics, or records in turn.
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
        // SAFETY: likewise; it clears the trap flag.
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

    /// Every instruction executed, with the registers just before it.
    pub fn steps(&self) -> impl Iterator<Item = (Instruction, &Registers)> {
        let mut decoded = HashMap::new();
        self.steps.iter().map(move |registers| {
            // SAFETY: the processor executed an instruction there, and code is not unmapped between test and end.
            let instruction =
                decoded.entry(registers.rip).or_insert_with(|| unsafe { decode_at(registers.rip) });
            (*instruction, registers)
        })
    }
}

extern "C" fn on_step(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid context to handlers installed with SA_SIGINFO, ours alone until we return.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // SAFETY: the pointer is null, or to a recorder that `record` keeps on this thread's stack and does not touch
    // while it is set.
    let Some(recorder) = (unsafe { RECORDER.get().as_mut() }) else {
        let mut line = Line::new();
        let _ = write!(line, "\nbreakpoint outside a recording");
        line.print();
        return give_up(signal);
    };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP;
    loop {
        let registers = Registers::saved(context);
        // SAFETY: the processor is about to execute what is there.
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
        let wanted = CacheEffect::of(&instruction, &registers)
            .is_ok_and(|effect| recorder.emulated.contains(effect.feature()));
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
