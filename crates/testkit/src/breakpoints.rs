//! Records which instructions of interest a call executes, in order, by breakpoints.
//!
//! For architectures without a trap flag that user space may set. Works on processors and under emulators. Each breakpoint
//! is executed as the instruction that it replaces, so the call has its usual effects. No other thread may execute the code
//! at the same time: the process ends with a message if one does. The pages of the code stay writable afterwards.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, Once, PoisonError};

use crate::case::{Line, give_up, install};
use crate::guard::LINE;
use crate::step::{Kind, Next, Step};

#[cfg(target_arch = "aarch64")]
use self::aarch64 as architecture;
#[cfg(target_arch = "riscv64")]
use self::riscv64 as architecture;

/// The start of an instruction, which a breakpoint replaces.
type Code = architecture::Code;

/// An execution of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The address of the instruction.
    pub address: u64,
    /// For instructions with [`Step::line`]: the address in that register.
    pub operand: u64,
    /// The bytes of the cache line of `operand` at that moment; zeros for other instructions.
    pub line: [u8; LINE],
}

/// What a call executed.
#[derive(Debug)]
pub struct Recording {
    /// The executions, in order.
    pub events: Vec<Event>,
    /// The bytes of the observed range just before the last barrier, or at the start of the call if there was none.
    pub before_last_barrier: Vec<u8>,
}

/// An instruction that is watched.
#[derive(Clone, Copy)]
struct Spot {
    address: u64,
    following: u64,
    register: Option<usize>,
    barrier: bool,
    original: Code,
    /// Its breakpoint is set. Otherwise it executes unnoticed.
    armed: bool,
    /// The breakpoint is set again after each execution.
    again: bool,
}

/// The breakpoint after an instruction whose own breakpoint is to be set again.
struct Return {
    /// Index of that instruction.
    spot: usize,
    /// What the breakpoint replaced; `None` if that is an instruction with a breakpoint of its own.
    original: Option<Code>,
}

/// The recording in progress, which the signal handler writes to.
struct Recorder {
    /// By rising addresses.
    spots: Vec<Spot>,
    back: Option<Return>,
    events: Vec<Event>,
    overflowed: bool,
    observed: *const u8,
    before_last_barrier: Vec<u8>,
}

thread_local! {
    /// The recording in progress on this thread; null if there is none.
    static RECORDER: Cell<*mut Recorder> = const { Cell::new(std::ptr::null_mut()) };
}

/// How often an instruction is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// Its first execution.
    Once,
    /// Every execution.
    Always,
}

/// Runs `call` and records the executions of `steps`, at most `limit`, and the bytes of a range at barriers.
///
/// # Errors
/// If the code cannot be made writable, an instruction is a jump, or more executions are to be recorded. `call` has not run,
/// or has run to its end.
///
/// # Panics
/// If `call` panics, or a recording is in progress on this thread.
///
/// # Safety
/// The steps were decoded from mapped code, which no other thread executes meanwhile. The observed range is mapped.
pub unsafe fn record<'s>(
    steps: impl IntoIterator<Item = &'s Step>,
    often: Often,
    limit: usize,
    observed: Range<usize>,
    call: impl FnOnce(),
) -> Result<Recording, String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| install(libc::SIGTRAP, on_breakpoint));
    assert!(RECORDER.get().is_null(), "a recording within a recording");

    let mut spots = Vec::new();
    for step in steps {
        if step.next != Next::Following {
            return Err(format!("`{}` goes on elsewhere, so that it cannot be watched", step.text));
        }
        spots.push(Spot {
            address: step.address,
            following: step.address + step.length,
            register: step.line,
            barrier: matches!(step.kind, Kind::Barrier | Kind::Completion),
            // SAFETY: the caller vouches for the code.
            original: unsafe { architecture::read(step.address) },
            armed: true,
            again: often == Often::Always,
        });
    }
    spots.sort_unstable_by_key(|spot| spot.address);
    spots.dedup_by_key(|spot| spot.address);
    for spot in &spots {
        make_writable(spot.address)?;
        make_writable(spot.following)?;
    }
    let mut recorder = Recorder {
        spots,
        back: None,
        events: Vec::with_capacity(limit),
        overflowed: false,
        observed: observed.start as *const u8,
        before_last_barrier: vec![0; observed.len()],
    };
    recorder.observe();
    RECORDER.set(&raw mut recorder);
    // SAFETY: writable now. Until `call`, this thread executes none of the instructions: neither this loop nor the handler
    // is among them.
    recorder.spots.iter().for_each(|spot| unsafe { architecture::write(spot.address, architecture::BREAK) });
    let result = catch_unwind(AssertUnwindSafe(call));
    RECORDER.set(std::ptr::null_mut());
    if let Some((address, original)) =
        recorder.back.as_ref().and_then(|back| Some((recorder.spots[back.spot].following, back.original?)))
    {
        // SAFETY: writable, and not executed before this function returns.
        unsafe { architecture::write(address, original) };
    }
    for spot in &recorder.spots {
        // SAFETY: as above.
        unsafe { architecture::write(spot.address, spot.original) };
    }
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    if recorder.overflowed {
        return Err(format!("more than {limit} executions were to be recorded"));
    }
    Ok(Recording { events: recorder.events, before_last_barrier: recorder.before_last_barrier })
}

/// Makes the code at an address writable, and leaves it executable.
fn make_writable(address: u64) -> Result<(), String> {
    /// The pages that are writable.
    static WRITABLE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    // An instruction may lie on two pages.
    for page in [address / size, (address + 3) / size] {
        let mut writable = WRITABLE.lock().unwrap_or_else(PoisonError::into_inner);
        if writable.contains(&page) {
            continue;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: the page is code of this process, which stays readable and executable.
        if unsafe { libc::mprotect((page * size) as *mut libc::c_void, size as usize, access) } != 0 {
            return Err(format!("making code writable at {address:#x}: {}", std::io::Error::last_os_error()));
        }
        writable.insert(page);
    }
    Ok(())
}

extern "C" fn on_breakpoint(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid context to handlers installed with SA_SIGINFO, ours alone until we return.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let at = architecture::program_counter(context);
    // SAFETY: the pointer is null, or points to a recorder on this thread's stack, which `record` uses only before and after
    // the call that this handler interrupted.
    let recorder = unsafe { RECORDER.get().as_mut() };
    if !recorder.is_some_and(|recorder| recorder.stop(at, context)) {
        let mut line = Line::new();
        let _ = write!(line, "\nbreakpoint at {at:#x}, where this thread records nothing");
        line.print();
        give_up(signal);
    }
}

impl Recorder {
    /// Keeps the bytes of the observed range as they are now.
    fn observe(&mut self) {
        for (at, kept) in self.before_last_barrier.iter_mut().enumerate() {
            // SAFETY: the caller of `record` vouches for the range, which has as many bytes.
            *kept = unsafe { self.observed.add(at).read_volatile() };
        }
    }

    /// Records the execution of the instruction at an address, and lets it happen. False if nothing is to stop there.
    fn stop(&mut self, at: u64, context: &libc::ucontext_t) -> bool {
        let returned = self.back.take();
        if let Some(Return { spot, original }) = &returned {
            let spot = &mut self.spots[*spot];
            if spot.following != at {
                return false;
            }
            spot.armed = true;
            // SAFETY: `record` made the code writable, and this thread is in the handler.
            unsafe {
                architecture::write(spot.address, architecture::BREAK);
                if let Some(original) = *original {
                    architecture::write(at, original);
                }
            }
        }
        let Ok(index) = self.spots.binary_search_by_key(&at, |spot| spot.address) else {
            return returned.is_some();
        };
        if !std::mem::replace(&mut self.spots[index].armed, false) {
            return returned.is_some();
        }
        let Spot { following, register, barrier, original, again, .. } = self.spots[index];
        if barrier {
            self.observe();
        }
        // SAFETY: as above.
        unsafe { architecture::write(at, original) };
        if again {
            let own = self.spots.binary_search_by_key(&following, |spot| spot.address);
            let original = if own.is_ok_and(|own| self.spots[own].armed) {
                None
            } else {
                // SAFETY: as above.
                let original = unsafe { architecture::read(following) };
                // SAFETY: as above.
                unsafe { architecture::write(following, architecture::BREAK) };
                Some(original)
            };
            self.back = Some(Return { spot: index, original });
        }
        let mut event = Event { address: at, operand: 0, line: [0; LINE] };
        if let Some(register) = register {
            event.operand = architecture::register(context, register);
            let line = event.operand as usize / LINE * LINE;
            // SAFETY: the instruction that executes next would fault if the line were not mapped; `case::running` then
            // names the case.
            event.line = unsafe { (line as *const [u8; LINE]).read_volatile() };
        }
        if self.events.len() == self.events.capacity() {
            self.overflowed = true;
        } else {
            self.events.push(event);
        }
        true
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;

    pub(super) type Code = u32;
    /// BRK #0.
    pub(super) const BREAK: Code = 0xd420_0000;

    /// Reads an instruction.
    ///
    /// # Safety
    /// The address is that of an instruction.
    pub(super) unsafe fn read(address: u64) -> Code {
        // SAFETY: passed on from the caller; instructions are aligned.
        unsafe { (address as *const Code).read_volatile() }
    }

    /// Replaces an instruction, for this thread.
    ///
    /// # Safety
    /// The address is that of an instruction in writable memory, which no other thread executes.
    pub(super) unsafe fn write(address: u64, code: Code) {
        // SAFETY: passed on from the caller. The processor fetches what was written: cleaned to the point of unification,
        // then invalidated in the instruction cache.
        unsafe {
            (address as *mut Code).write_volatile(code);
            asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) address,
                 options(nostack, preserves_flags));
        }
    }

    pub(super) fn program_counter(context: &libc::ucontext_t) -> u64 {
        context.uc_mcontext.pc
    }

    pub(super) fn register(context: &libc::ucontext_t, number: usize) -> u64 {
        // Register 31 is the zero register in these instructions.
        context.uc_mcontext.regs.get(number).copied().unwrap_or(0)
    }
}

#[cfg(target_arch = "riscv64")]
mod riscv64 {
    use std::arch::asm;

    /// The first half of an instruction, which may be all of it.
    pub(super) type Code = u16;
    /// C.EBREAK.
    pub(super) const BREAK: Code = 0x9002;
    const SYS_RISCV_FLUSH_ICACHE: libc::c_long = 259;

    /// Reads the first half of an instruction.
    ///
    /// # Safety
    /// The address is that of an instruction.
    pub(super) unsafe fn read(address: u64) -> Code {
        // SAFETY: passed on from the caller; instructions are aligned to two bytes.
        unsafe { (address as *const Code).read_volatile() }
    }

    /// Replaces the first half of an instruction, for this thread.
    ///
    /// # Safety
    /// The address is that of an instruction in writable memory, which no other thread executes.
    pub(super) unsafe fn write(address: u64, code: Code) {
        // SAFETY: passed on from the caller. The kernel makes all processors that this thread may move to fetch what was
        // written; QEMU does not have the call, and needs none.
        unsafe {
            (address as *mut Code).write_volatile(code);
            libc::syscall(SYS_RISCV_FLUSH_ICACHE, address, address + 2, 0);
            asm!(
                ".option push",
                ".option arch, +zifencei",
                "fence.i",
                ".option pop",
                options(nostack, preserves_flags)
            );
        }
    }

    pub(super) fn program_counter(context: &libc::ucontext_t) -> u64 {
        context.uc_mcontext.__gregs[0]
    }

    pub(super) fn register(context: &libc::ucontext_t, number: usize) -> u64 {
        // The place of register 0 holds the program counter.
        if number == 0 { 0 } else { context.uc_mcontext.__gregs[number] }
    }
}
