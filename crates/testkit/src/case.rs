//! One call of one method, and its description, which a failing test prints, and the fault handler if a method
//! touches a guard page.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Once;

use bulkmem::Operation;
use bulkmem::method::{CopyFn, FillFn, Method, Parameters, PersistFn};

use crate::guard::Place;

/// One call of one method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The method.
    pub method: &'static Method,
    /// The operation.
    pub operation: Operation,
    /// True to call the fenced function, false for the unfenced one.
    pub fenced: bool,
    /// Parameters of the method.
    pub parameters: Parameters,
    /// Length in bytes.
    pub length: usize,
    /// Offset of the destination (for persist, of the range) into a cache line, bytes.
    pub offset: usize,
    /// Offset of the source into a cache line, bytes. Ignored by operations without a source.
    pub source_offset: usize,
    /// The guard page that the ranges are next to.
    pub place: Place,
    /// The byte that fills write. Ignored by other operations.
    pub byte: u8,
}

impl Case {
    /// Returns a fenced call of 0 bytes with the default parameters, at the start of a cache line before the guard.
    pub fn new(method: &'static Method, operation: Operation) -> Case {
        Case {
            method,
            operation,
            fenced: true,
            parameters: method.default_parameters(operation),
            length: 0,
            offset: 0,
            source_offset: 0,
            place: Place::End,
            byte: 0,
        }
    }

    /// Returns the function that the case calls.
    ///
    /// # Panics
    /// If the method does not support the operation or does not take the parameters.
    pub fn function(&self) -> Function {
        let tunables = self.method.tunables(self.operation);
        assert!(
            tunables.is_some_and(|tunables| self.parameters.is_valid_for(tunables)),
            "{self}: the method does not support this operation or does not take these parameters"
        );
        let code = self.method.code();
        /// Selects one of the two functions of an entry.
        macro_rules! entry {
            ($kind:ident, $operation:ident) => {
                code.$operation.map(|it| Function::$kind(if self.fenced { it.fenced } else { it.unfenced }))
            };
        }
        let function = match self.operation {
            Operation::Clear => entry!(Fill, clear),
            Operation::Fill => entry!(Fill, fill),
            Operation::Copy => entry!(Copy, copy),
            Operation::FillPersist => entry!(Fill, fill_persist),
            Operation::CopyPersist => entry!(Copy, copy_persist),
            Operation::Persist => entry!(Persist, persist),
        };
        function.expect("there are tunables, so there is an entry")
    }

    /// True if the operation reads a source.
    pub fn has_source(&self) -> bool {
        self.operation.has_source()
    }
}

/// A function of a method.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// Fills and clears.
    Fill(FillFn),
    /// Copies.
    Copy(CopyFn),
    /// Makes durable what ordinary stores wrote.
    Persist(PersistFn),
}

impl Function {
    /// Returns the address of its code.
    pub fn address(self) -> *const () {
        match self {
            Function::Fill(function) => function as *const (),
            Function::Copy(function) => function as *const (),
            Function::Persist(function) => function as *const (),
        }
    }

    /// Calls the function with the length, byte and parameters of a case. After an unfenced function, the caller must
    /// fence.
    ///
    /// # Safety
    /// The function is that of the case. `case.length` bytes from `to` are valid for writes (for persist, for reads),
    /// and if the operation has a source, as many from `from` for reads, without overlap. The machine supports or
    /// emulates what the method requires.
    #[inline(always)]
    pub unsafe fn call(self, case: &Case, to: *mut u8, from: *const u8) {
        let Case { length, parameters, .. } = case;
        // Clear functions only ever receive 0.
        let byte = if case.operation == Operation::Clear { 0 } else { case.byte };
        // SAFETY: the caller vouches for the ranges and the machine; `Case::function` checked the parameters.
        unsafe {
            match self {
                Function::Fill(function) => function(to, *length, byte, parameters),
                Function::Copy(function) => function(to, from, *length, parameters),
                Function::Persist(function) => function(to, *length, parameters),
            }
        }
    }
}

/// Displays parameters in the form of `BULKMEM_METHOD`: `[name=value,…]`, or nothing if all are 0.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'p>(pub &'p Parameters);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = '[';
        for name in Parameters::NAMES {
            if let Some(value) = self.0.get(name).filter(|value| *value != 0) {
                write!(f, "{separator}{name}={value}")?;
                separator = ',';
            }
        }
        if separator == ',' { f.write_char(']') } else { Ok(()) }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { method, operation, length, offset, .. } = self;
        let entry = if self.fenced { "fenced" } else { "unfenced" };
        let place = match self.place {
            Place::Start => "after the guard",
            Place::End => "before the guard",
        };
        write!(f, "{operation}:{}{} ({entry})", method.name, Shown(&self.parameters))?;
        write!(f, " of {length} bytes at offset {offset} {place}")?;
        if self.has_source() {
            write!(f, " from offset {}", self.source_offset)?;
        }
        if matches!(operation, Operation::Fill | Operation::FillPersist) {
            write!(f, " with {:#04x}", self.byte)?;
        }
        Ok(())
    }
}

/// A case that is running, and the addresses it may touch.
#[derive(Clone)]
struct Running {
    case: Case,
    destination: Range<usize>,
    source: Range<usize>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Runs `call`. If it faults, prints the case and the distance of the address from the ranges before the process
/// ends.
pub fn running(case: &Case, destination: Range<usize>, source: Range<usize>, call: impl FnOnce()) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            install(signal, on_fault);
        }
    });
    RUNNING.set(Some(Running { case: *case, destination, source }));
    call();
    RUNNING.set(None);
}

/// Writes the running case to `out`, for signal handlers that end the process.
#[cfg(target_arch = "x86_64")]
pub(crate) fn describe_running(out: &mut Line) {
    if let Some(running) = RUNNING.take() {
        let _ = write!(out, " in {}", running.case);
    }
}

/// A signal handler.
pub(crate) type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a handler for a signal.
pub(crate) fn install(signal: libc::c_int, handler: Handler) {
    // SAFETY: an all-zero sigaction is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: `action` is initialized, and the handlers of this crate call only functions that are safe in a handler.
    let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert!(result == 0, "sigaction({signal}): {}", std::io::Error::last_os_error());
}

/// Resets a signal to its default action, which ends the process.
pub(crate) fn give_up(signal: libc::c_int) {
    // SAFETY: resetting a signal to its default has no precondition.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// A line of text on the stack, because signal handlers must not allocate.
pub(crate) struct Line {
    text: [u8; 512],
    used: usize,
}

impl Line {
    pub(crate) fn new() -> Line {
        Line { text: [0; 512], used: 0 }
    }

    /// Writes the line to standard error.
    pub(crate) fn print(mut self) {
        self.used = self.used.min(self.text.len() - 1);
        self.text[self.used] = b'\n';
        // SAFETY: the text is initialized up to `used`; write(2) may be called in handlers.
        unsafe {
            libc::write(libc::STDERR_FILENO, self.text.as_ptr().cast(), self.used + 1);
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.text[self.used..];
        let fits = text.len().min(free.len());
        free[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to handlers installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let mut line = Line::new();
    let _ = write!(line, "\nfault at {address:#x}");
    if let Some(Running { case, destination, source }) = RUNNING.take() {
        let source = case.has_source().then_some(("source", source));
        for (name, range) in [("destination", destination)].into_iter().chain(source) {
            let before = range.start.wrapping_sub(address);
            let after = address.wrapping_sub(range.end);
            if before.min(after) < 1 << 20 {
                let (distance, side) = if before < after {
                    (before, "before the start of")
                } else {
                    (after + 1, "past the end of")
                };
                let _ = write!(line, ", {distance} bytes {side} the {name}");
            }
        }
        let _ = write!(line, " in {case}");
    }
    line.print();
    give_up(signal);
}
