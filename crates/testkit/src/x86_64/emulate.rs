//! Emulates instructions that this processor does not support: the processor raises SIGILL, and the handler decodes
//! the instruction, does to memory what it does, and continues after it.
//!
//! This tests CLZERO on Intel and MOVDIR64B on AMD. Every execution is counted, by instruction and thread, so that
//! tests can assert that the instruction ran. Vector instructions are not emulated; tests of methods with missing
//! vector registers are skipped ([`NOT_EMULATED`](crate::table::NOT_EMULATED)).
//!
//! To emulate another instruction: add its feature to [`EMULATED`], what it does to [`MemoryAction`] and its
//! functions, and an execution of it to `raises`.

use std::arch::asm;
use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Once;

use bulkmem::machine::{Features, features};
use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, Instruction, Register};

use crate::case::{Line, describe_running, give_up, install};

/// Features whose instructions are emulated. CLWB and CLFLUSHOPT become CLFLUSH, which does at least as much.
pub const EMULATED: Features =
    Features::CLZERO.union(Features::MOVDIR64B).union(Features::CLWB).union(Features::CLFLUSHOPT);

/// Number of general-purpose registers.
const GENERAL: usize = 16;

/// Index of each general-purpose register in the kernel's signal context, in the processor's order.
const INDICES: [libc::c_int; GENERAL] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The registers that addresses are computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The general-purpose registers, in the processor's order: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8–R15.
    pub general: [u64; GENERAL],
    /// Address of the instruction.
    pub rip: u64,
}

impl Registers {
    /// Returns the registers that the kernel saved for a signal handler.
    pub(super) fn saved(context: &libc::ucontext_t) -> Registers {
        let saved = &context.uc_mcontext.gregs;
        Registers {
            general: INDICES.map(|index| saved[index as usize] as u64),
            rip: saved[libc::REG_RIP as usize] as u64,
        }
    }

    /// Returns the value of a register; `None` if it is not general-purpose.
    pub fn get(&self, register: Register) -> Option<u64> {
        if register == Register::RIP {
            return Some(self.rip);
        }
        if !register.is_gpr() {
            return None;
        }
        let full = self.general[register.full_register().number()];
        match register.size() {
            8 => Some(full),
            4 => Some(full & 0xffff_ffff),
            _ => None,
        }
    }

    /// Returns the address of a memory operand; `None` if it is relative to FS or GS, whose base is unknown here.
    pub fn address(&self, instruction: &Instruction, operand: u32) -> Option<u64> {
        instruction.virtual_address(operand, 0, |register, _, _| match register {
            // The base of these is 0 in 64-bit mode.
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            register => self.get(register),
        })
    }
}

/// Decodes the instruction at an address.
///
/// # Safety
/// There is an instruction at that address, and all its bytes are readable.
pub unsafe fn decode_at(address: u64) -> Instruction {
    const LONGEST: usize = 15;
    const SMALLEST_PAGE: usize = 4096;
    let start = address as usize;
    // Reads bytes of the next page only if the instruction extends into it.
    let near = LONGEST.min(SMALLEST_PAGE - start % SMALLEST_PAGE);
    let mut instruction = Instruction::default();
    for length in [near, LONGEST] {
        // SAFETY: all bytes of a page are readable if one is; bytes of the next page are read only if the instruction
        // extends into it.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        decoder.decode_out(&mut instruction);
        if decoder.last_error() != DecoderError::NoMoreBytes {
            break;
        }
    }
    instruction
}

/// Effect of an emulated instruction on memory, with the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAction {
    /// Sets 64 bytes to zero.
    Clear {
        /// Address of the first, a multiple of 64.
        line: u64,
    },
    /// Copies 64 bytes in one store.
    Move {
        /// Address of the destination, a multiple of 64.
        to: u64,
        /// Address of the source.
        from: u64,
    },
    /// Writes back one cache line.
    WriteBack {
        /// Any address in the line.
        address: u64,
        /// The instruction: [`Features::CLWB`] or [`Features::CLFLUSHOPT`].
        by: Features,
    },
}

/// Reason why an instruction is not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The emulator does not know the instruction.
    Unknown,
    /// MOVDIR64B to an address that is not a multiple of 64: the processor would raise #GP.
    Misaligned,
    /// The address is relative to FS or GS.
    Segment,
}

impl MemoryAction {
    /// Returns what an instruction does, given the registers.
    ///
    /// # Errors
    /// If it cannot be emulated or would fault.
    pub fn of(instruction: &Instruction, registers: &Registers) -> Result<MemoryAction, Refusal> {
        const LINE: u64 = crate::guard::LINE as u64;
        match instruction.code() {
            // The address size is that of the register: EAX under an address-size prefix.
            Code::Clzeroq | Code::Clzerod => {
                let register =
                    if instruction.code() == Code::Clzeroq { Register::RAX } else { Register::EAX };
                let address = registers.get(register).ok_or(Refusal::Unknown)?;
                Ok(MemoryAction::Clear { line: address / LINE * LINE })
            }
            Code::Movdir64b_r64_m512 | Code::Movdir64b_r32_m512 => {
                let to = registers.get(instruction.op0_register()).ok_or(Refusal::Unknown)?;
                let from = registers.address(instruction, 1).ok_or(Refusal::Segment)?;
                if to % LINE != 0 {
                    return Err(Refusal::Misaligned);
                }
                Ok(MemoryAction::Move { to, from })
            }
            Code::Clwb_m8 | Code::Clflushopt_m8 => {
                let by =
                    if instruction.code() == Code::Clwb_m8 { Features::CLWB } else { Features::CLFLUSHOPT };
                let address = registers.address(instruction, 0).ok_or(Refusal::Segment)?;
                Ok(MemoryAction::WriteBack { address, by })
            }
            _ => Err(Refusal::Unknown),
        }
    }

    /// Returns the feature of the instruction.
    pub fn feature(&self) -> Features {
        match self {
            MemoryAction::Clear { .. } => Features::CLZERO,
            MemoryAction::Move { .. } => Features::MOVDIR64B,
            MemoryAction::WriteBack { by, .. } => *by,
        }
    }

    /// Performs the action.
    ///
    /// # Safety
    /// The addresses are valid for it.
    pub unsafe fn apply(&self) {
        // Volatile, because other accesses to this memory come from code that the compiler cannot relate to this.
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            match *self {
                MemoryAction::Clear { line } => (line as *mut [u64; 8]).write_volatile([0; 8]),
                MemoryAction::Move { to, from } => {
                    let bytes = (from as *const [u8; 64]).read_volatile();
                    (to as *mut [u8; 64]).write_volatile(bytes);
                }
                MemoryAction::WriteBack { address, .. } => {
                    std::arch::x86_64::_mm_clflush(address as *const u8)
                }
            }
        }
    }
}

thread_local! {
    /// One count for each bit of [`Features`].
    static COUNTS: Cell<[u64; 32]> = const { Cell::new([0; 32]) };
}

/// Returns how many times the instruction of a feature was emulated on this thread.
pub fn count(instruction: Features) -> u64 {
    COUNTS.get()[instruction.bits().trailing_zeros() as usize % 32]
}

/// Emulates and counts the instruction at `registers.rip`. Returns its length in bytes.
///
/// # Safety
/// There is an instruction at that address, and its operands are valid for what it does.
pub(super) unsafe fn emulate(registers: &Registers) -> Result<usize, Refusal> {
    // SAFETY: the caller vouches for the instruction.
    let instruction = unsafe { decode_at(registers.rip) };
    let action = MemoryAction::of(&instruction, registers)?;
    // SAFETY: the caller vouches for its addresses.
    unsafe { action.apply() };
    let mut counts = COUNTS.get();
    counts[action.feature().bits().trailing_zeros() as usize] += 1;
    COUNTS.set(counts);
    Ok(instruction.len())
}

/// Installs the handler and returns those of `instructions` that it will be called for, because they raise SIGILL
/// here.
///
/// An instruction that CPUID does not report may run nevertheless: a virtual machine may hide CLWB, and an old
/// processor executes CLFLUSHOPT as CLFLUSH. Such instructions are not returned.
pub fn lacking(instructions: Features) -> Features {
    install_handler();
    let probed = instructions.difference(features()).intersection(EMULATED);
    probed.iter().filter(|instruction| raises(*instruction)).collect()
}

/// Installs the handler that emulates illegal instructions. Does nothing if called again.
pub fn install_handler() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // The decoder allocates tables on its first use, which a signal handler must not do.
        let _ = Decoder::new(64, &[0x90], DecoderOptions::NONE).decode();
        install(libc::SIGILL, on_illegal_instruction);
    });
}

/// True if an instruction of [`EMULATED`] raises SIGILL here. Executes it to find out.
fn raises(instruction: Features) -> bool {
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut to = Line([1; 64]);
    let from = Line([2; 64]);
    let (to, from) = (to.0.as_mut_ptr(), from.0.as_ptr());
    let before = count(instruction);
    // SAFETY: each instruction touches only the two lines, which this function owns. If the processor does not
    // support it, the handler, which the caller installed, does the same to them.
    unsafe {
        match instruction {
            Features::CLZERO => asm!("clzero", in("rax") to, options(nostack, preserves_flags)),
            Features::MOVDIR64B => {
                asm!("movdir64b {}, [{}]", in(reg) to, in(reg) from, options(nostack, preserves_flags))
            }
            Features::CLWB => asm!("clwb [{}]", in(reg) to, options(nostack, preserves_flags)),
            Features::CLFLUSHOPT => asm!("clflushopt [{}]", in(reg) to, options(nostack, preserves_flags)),
            _ => panic!(
                "EMULATED names {instruction}, but `raises` in crates/testkit/src/x86_64/emulate.rs does not execute it: \
                 add an arm with the instruction there, and what it does to MemoryAction"
            ),
        }
    }
    count(instruction) > before
}

extern "C" fn on_illegal_instruction(
    signal: libc::c_int,
    _: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a valid context to handlers installed with SA_SIGINFO, ours alone until we return.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = Registers::saved(context);
    // SAFETY: the processor has just tried to execute an instruction there. If its addresses are invalid, that is a
    // fault of the tested method, which the handler for SIGSEGV reports.
    match unsafe { emulate(&registers) } {
        Ok(length) => context.uc_mcontext.gregs[libc::REG_RIP as usize] += length as i64,
        Err(refusal) => {
            let mut line = Line::new();
            let _ = write!(
                line,
                "\nillegal instruction at {:#x}, which crates/testkit/src/x86_64/emulate.rs does not emulate ({refusal:?})",
                registers.rip
            );
            describe_running(&mut line);
            line.print();
            give_up(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Encoder, MemoryOperand};

    use super::*;
    use crate::guard::{Guarded, LINE};

    /// Writes bytes that differ from their neighbours.
    fn numbered(memory: &mut Guarded) {
        memory.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
    }

    /// Encodes the instruction into `code`, and emulates it with these registers.
    fn run(
        code: &mut Guarded,
        instruction: &Instruction,
        mut registers: Registers,
    ) -> Result<usize, Refusal> {
        // At the end of the page, so that the test fails if decoding reads past the instruction.
        let mut encoder = Encoder::new(64);
        let length = encoder
            .encode(instruction, code.addresses().start as u64)
            .expect("the instruction can be encoded");
        let start = code.addresses().end - length;
        let mut encoder = Encoder::new(64);
        encoder.encode(instruction, start as u64).expect("the instruction can be encoded");
        let at = code.len() - length;
        code.bytes_mut()[at..].copy_from_slice(&encoder.take_buffer());
        registers.rip = start as u64;
        // SAFETY: the instruction was just written there; the tests use addresses within their own mappings.
        unsafe { emulate(&registers) }
    }

    fn with(values: &[(Register, usize)]) -> Registers {
        let mut registers = Registers { general: [0xdead_beef_dead_beef; GENERAL], rip: 0 };
        for (register, value) in values {
            registers.general[register.full_register().number()] = *value as u64;
        }
        registers
    }

    #[test]
    fn clzero_clears_the_whole_line_that_holds_rax_and_no_other() {
        let mut code = Guarded::new(1);
        for offset in [0, 1, 37, 63] {
            let mut memory = Guarded::new(1);
            numbered(&mut memory);
            let mut expected = memory.bytes().to_vec();
            expected[2 * LINE..3 * LINE].fill(0);
            let rax = memory.addresses().start + 2 * LINE + offset;
            let before = count(Features::CLZERO);
            let length = run(&mut code, &Instruction::with(Code::Clzeroq), with(&[(Register::RAX, rax)]));
            assert_eq!(length, Ok(3));
            assert_eq!(count(Features::CLZERO), before + 1);
            assert_eq!(memory.bytes(), expected);
        }
    }

    /// Tests one addressing form of MOVDIR64B: the operand, and the registers with which it points to `from`.
    fn movdir64b(
        code: Code,
        to: Register,
        operand: MemoryOperand,
        from: usize,
        registers: &[(Register, usize)],
    ) {
        let mut text = Guarded::low(1);
        let mut memory = Guarded::low(1);
        numbered(&mut memory);
        let base = memory.addresses().start;
        let destination = 5 * LINE;
        let mut expected = memory.bytes().to_vec();
        expected.copy_within(from..from + LINE, destination);
        let mut values = vec![(to, base + destination)];
        values.extend(registers.iter().map(|(register, offset)| (*register, base.wrapping_add(*offset))));
        let instruction = Instruction::with2(code, to, operand).expect("it is a form of MOVDIR64B");
        let before = count(Features::MOVDIR64B);
        let result = run(&mut text, &instruction, with(&values));
        assert!(result.is_ok_and(|length| length >= 5), "{operand:?}: {result:?}");
        assert_eq!(count(Features::MOVDIR64B), before + 1, "{operand:?}");
        assert_eq!(memory.bytes(), expected, "{operand:?}");
    }

    #[test]
    fn movdir64b_moves_a_line_by_every_base_register() {
        use Register::*;
        let all = [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15];
        for base in all {
            for to in all.into_iter().filter(|to| *to != base) {
                for (displacement, from) in [(0, 700), (24, 676), (-100, 800), (1000, -300i64), (-2000, 2700)]
                {
                    let operand = if displacement == 0 {
                        MemoryOperand::with_base(base)
                    } else {
                        MemoryOperand::with_base_displ(base, displacement)
                    };
                    movdir64b(Code::Movdir64b_r64_m512, to, operand, 700, &[(base, from as usize)]);
                }
            }
        }
    }

    #[test]
    fn movdir64b_moves_a_line_by_index_and_scale() {
        use Register::*;
        for index in [RAX, RCX, RDX, RBX, RBP, RSI, R8, R12, R13, R15] {
            for scale in [1, 2, 4, 8] {
                for displacement in [0, 16, 1000, -1000] {
                    // The base is chosen so that the small index and the displacement lead to `from`.
                    let operand = MemoryOperand::new(R14, index, scale, displacement, 1, false, None);
                    let mut text = Guarded::new(1);
                    let mut memory = Guarded::new(1);
                    numbered(&mut memory);
                    let start = memory.addresses().start;
                    let from = 1500;
                    let base =
                        (start + from).wrapping_sub(9 * scale as usize).wrapping_sub(displacement as usize);
                    let mut expected = memory.bytes().to_vec();
                    expected.copy_within(from..from + LINE, LINE);
                    let values = [(RDI, start + LINE), (R14, base), (index, 9)];
                    let instruction = Instruction::with2(Code::Movdir64b_r64_m512, RDI, operand).unwrap();
                    assert!(run(&mut text, &instruction, with(&values)).is_ok());
                    assert_eq!(memory.bytes(), expected, "{operand:?}");
                }
            }
        }
    }

    #[test]
    fn movdir64b_moves_a_line_relative_to_rip_and_from_a_fixed_address() {
        let mut memory = Guarded::low(1);
        let mut text = Guarded::low(1);
        let source = (memory.addresses().start + 333) as i64;
        let relative = MemoryOperand::with_base_displ(Register::RIP, source);
        let absolute = MemoryOperand::with_displ(source as u64, 8);
        for operand in [relative, absolute] {
            numbered(&mut memory);
            let mut expected = memory.bytes().to_vec();
            expected.copy_within(333..333 + LINE, 0);
            let to = memory.addresses().start;
            let instruction = Instruction::with2(Code::Movdir64b_r64_m512, Register::R9, operand)
                .expect("a form of MOVDIR64B");
            assert!(run(&mut text, &instruction, with(&[(Register::R9, to)])).is_ok(), "{operand:?}");
            assert_eq!(memory.bytes(), expected, "{operand:?}");
        }
    }

    #[test]
    fn movdir64b_takes_addresses_of_32_bits() {
        use Register::*;
        // The upper halves of the registers are ignored, and sums wrap at 32 bits.
        let upper = 0x1234_5678_0000_0000;
        for base in [EAX, ECX, ESP, EBP, R8D, R13D] {
            let operand = MemoryOperand::with_base_displ(base, -64);
            movdir64b(Code::Movdir64b_r32_m512, EDI, operand, 640, &[(base, 704 + upper)]);
        }
        movdir64b(Code::Movdir64b_r32_m512, R15D, MemoryOperand::with_base(ESI), 640, &[(ESI, 640 + upper)]);
    }

    #[test]
    fn movdir64b_to_a_misaligned_address_is_refused_and_writes_nothing() {
        let mut memory = Guarded::new(1);
        numbered(&mut memory);
        let expected = memory.bytes().to_vec();
        let start = memory.addresses().start;
        let operand = MemoryOperand::with_base(Register::RSI);
        let instruction = Instruction::with2(Code::Movdir64b_r64_m512, Register::RDI, operand).unwrap();
        let registers = with(&[(Register::RDI, start + 8), (Register::RSI, start + 64)]);
        assert_eq!(run(&mut Guarded::new(1), &instruction, registers), Err(Refusal::Misaligned));
        assert_eq!(memory.bytes(), expected);
    }

    #[test]
    fn addresses_relative_to_fs_and_unknown_instructions_are_refused() {
        let operand = MemoryOperand::with_base(Register::RSI);
        let mut instruction = Instruction::with2(Code::Movdir64b_r64_m512, Register::RDI, operand).unwrap();
        instruction.set_segment_prefix(Register::FS);
        let registers = with(&[(Register::RDI, 64), (Register::RSI, 64)]);
        assert_eq!(run(&mut Guarded::new(1), &instruction, registers), Err(Refusal::Segment));
        let nop = Instruction::with(Code::Nopd);
        assert_eq!(run(&mut Guarded::new(1), &nop, registers), Err(Refusal::Unknown));
    }

    #[test]
    fn write_backs_change_nothing_and_are_counted() {
        let mut memory = Guarded::new(1);
        numbered(&mut memory);
        let expected = memory.bytes().to_vec();
        for (code, feature) in [(Code::Clwb_m8, Features::CLWB), (Code::Clflushopt_m8, Features::CLFLUSHOPT)]
        {
            let operand = MemoryOperand::with_base_displ(Register::RBX, 5);
            let instruction = Instruction::with1(code, operand).unwrap();
            let before = count(feature);
            let registers = with(&[(Register::RBX, memory.addresses().start)]);
            assert!(run(&mut Guarded::new(1), &instruction, registers).is_ok());
            assert_eq!(count(feature), before + 1);
            assert_eq!(memory.bytes(), expected);
        }
    }

    #[test]
    fn the_handler_emulates_what_the_processor_does_not_support() {
        let lacking = lacking(EMULATED);
        for (name, instruction) in EMULATED.difference(lacking).iter_names() {
            // tests/traces.rs emulates these nevertheless, one instruction at a time.
            let why = if features().contains(instruction) {
                "this processor has it"
            } else {
                "this processor does not report it, but executes it without SIGILL"
            };
            println!("skipped: trapping {name}: {why}");
        }
        for instruction in lacking.iter() {
            let before = count(instruction);
            assert!(raises(instruction));
            assert_eq!(count(instruction), before + 1);
        }
    }
}
