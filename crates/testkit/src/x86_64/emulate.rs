//! Instructions that this processor lacks, carried out by hand: the processor raises SIGILL, the handler decodes
//! what it stumbled over, does the same to memory, and steps over it.
//!
//! So CLZERO is tested on Intel and MOVDIR64B on AMD. Every execution is counted, by instruction and thread, for
//! tests to assert that the instruction ran at all. Vector instructions cannot be had this way: their rows are
//! skipped, by name.

use std::arch::asm;
use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Once;

use bulkmem::machine::{Features, features};
use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, Instruction, Register};

use crate::case::{Line, describe_running, give_up, install};

/// What can be emulated. CLWB and CLFLUSHOPT become CLFLUSH, which does at least as much.
pub const EMULATED: Features =
    Features::CLZERO.union(Features::MOVDIR64B).union(Features::CLWB).union(Features::CLFLUSHOPT);

/// How many general-purpose registers there are.
const GENERAL: usize = 16;

/// Where the kernel keeps each general-purpose register, in the processor's numbering.
const PLACES: [libc::c_int; GENERAL] = [
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

/// The registers that addresses are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The general-purpose ones, in the processor's numbering: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8–R15.
    pub general: [u64; GENERAL],
    /// Where the instruction starts.
    pub rip: u64,
}

impl Registers {
    /// As the kernel saved them for a handler.
    pub(super) fn saved(context: &libc::ucontext_t) -> Registers {
        let saved = &context.uc_mcontext.gregs;
        Registers {
            general: PLACES.map(|place| saved[place as usize] as u64),
            rip: saved[libc::REG_RIP as usize] as u64,
        }
    }

    /// A register's value; `None` for one that is not general-purpose.
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

    /// The address of a memory operand; `None` where it is relative to FS or GS, whose base nobody knows here.
    pub fn address(&self, instruction: &Instruction, operand: u32) -> Option<u64> {
        instruction.virtual_address(operand, 0, |register, _, _| match register {
            // Their base is 0 in 64-bit mode.
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            register => self.get(register),
        })
    }
}

/// The instruction at an address.
///
/// # Safety
/// There is an instruction at that address: all its bytes are readable.
pub unsafe fn decode_at(address: u64) -> Instruction {
    const LONGEST: usize = 15;
    const SMALLEST_PAGE: usize = 4096;
    let start = address as usize;
    // Bytes on the next page are only looked at when the instruction reaches there.
    let near = LONGEST.min(SMALLEST_PAGE - start % SMALLEST_PAGE);
    let mut instruction = Instruction::default();
    for length in [near, LONGEST] {
        // SAFETY: up to the end of the page all is readable if the first byte is; beyond it, the instruction goes on.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        decoder.decode_out(&mut instruction);
        if decoder.last_error() != DecoderError::NoMoreBytes {
            break;
        }
    }
    instruction
}

/// What an instruction does that can be emulated, with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEffect {
    /// The 64 bytes from here become zero.
    Clear {
        /// Where; on a line.
        line: u64,
    },
    /// 64 bytes move at once.
    Move {
        /// Where to; on a line.
        to: u64,
        /// Where from.
        from: u64,
    },
    /// The line that holds this address is written back.
    WriteBack {
        /// Anywhere in the line.
        address: u64,
        /// Which of the instructions: [`Features::CLWB`] or [`Features::CLFLUSHOPT`].
        by: Features,
    },
}

/// Why an instruction is not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is none of those that can be.
    Unknown,
    /// MOVDIR64B to an address that is not on a line: the processor would raise #GP.
    Misaligned,
    /// Its address is relative to FS or GS.
    Segment,
}

impl CacheEffect {
    /// What the instruction does, given the registers.
    ///
    /// # Errors
    /// Where it is none that can be emulated, or would fault.
    pub fn of(instruction: &Instruction, registers: &Registers) -> Result<CacheEffect, Refusal> {
        const LINE: u64 = 64;
        match instruction.code() {
            // The address size is that of the register: EAX under an address-size prefix.
            Code::Clzeroq | Code::Clzerod => {
                let register =
                    if instruction.code() == Code::Clzeroq { Register::RAX } else { Register::EAX };
                let address = registers.get(register).ok_or(Refusal::Unknown)?;
                Ok(CacheEffect::Clear { line: address / LINE * LINE })
            }
            Code::Movdir64b_r64_m512 | Code::Movdir64b_r32_m512 => {
                let to = registers.get(instruction.op0_register()).ok_or(Refusal::Unknown)?;
                let from = registers.address(instruction, 1).ok_or(Refusal::Segment)?;
                if to % LINE != 0 {
                    return Err(Refusal::Misaligned);
                }
                Ok(CacheEffect::Move { to, from })
            }
            Code::Clwb_m8 | Code::Clflushopt_m8 => {
                let by =
                    if instruction.code() == Code::Clwb_m8 { Features::CLWB } else { Features::CLFLUSHOPT };
                let address = registers.address(instruction, 0).ok_or(Refusal::Segment)?;
                Ok(CacheEffect::WriteBack { address, by })
            }
            _ => Err(Refusal::Unknown),
        }
    }

    /// The instruction that has this effect.
    pub fn feature(&self) -> Features {
        match self {
            CacheEffect::Clear { .. } => Features::CLZERO,
            CacheEffect::Move { .. } => Features::MOVDIR64B,
            CacheEffect::WriteBack { by, .. } => *by,
        }
    }

    /// Does it.
    ///
    /// # Safety
    /// The addresses are valid for what the instruction does to them.
    pub unsafe fn apply(&self) {
        // SAFETY: the caller vouches for the addresses. Volatile, since other accesses to this memory come from
        // code that the compiler does not connect with this.
        unsafe {
            match *self {
                CacheEffect::Clear { line } => (line as *mut [u64; 8]).write_volatile([0; 8]),
                CacheEffect::Move { to, from } => {
                    let bytes = (from as *const [u8; 64]).read_volatile();
                    (to as *mut [u8; 64]).write_volatile(bytes);
                }
                CacheEffect::WriteBack { address, .. } => {
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

/// How many times this thread had an instruction emulated.
pub fn count(instruction: Features) -> u64 {
    COUNTS.get()[instruction.bits().trailing_zeros() as usize % 32]
}

/// Emulates the instruction that the registers point at, counts it, and says how long it is.
///
/// # Safety
/// There is an instruction at `registers.rip`, and its addresses are valid for what it does.
pub(super) unsafe fn emulate(registers: &Registers) -> Result<usize, Refusal> {
    // SAFETY: the caller vouches for the instruction.
    let instruction = unsafe { decode_at(registers.rip) };
    let effect = CacheEffect::of(&instruction, registers)?;
    // SAFETY: the caller vouches for its addresses.
    unsafe { effect.apply() };
    let mut counts = COUNTS.get();
    counts[effect.feature().bits().trailing_zeros() as usize] += 1;
    COUNTS.set(counts);
    Ok(instruction.len())
}

/// Installs the handler and says which of these instructions it will be called for: those that this processor
/// lacks. What is hidden rather than lacking (a virtual machine may deny CLWB and yet run it, an old processor runs
/// CLFLUSHOPT as CLFLUSH) raises nothing and is not among them.
pub fn lacking(instructions: Features) -> Features {
    install_handler();
    let probed = instructions.difference(features()).intersection(EMULATED);
    probed.iter().filter(|instruction| raises(*instruction)).collect()
}

/// From now on illegal instructions that can be emulated are. Does nothing when called again.
pub fn install_handler() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // The decoder builds tables on its first use, which allocates: not in a handler.
        let _ = Decoder::new(64, &[0x90], DecoderOptions::NONE).decode();
        install(libc::SIGILL, on_illegal_instruction);
    });
}

/// Whether an instruction of [`EMULATED`] raises SIGILL here; found by trying.
fn raises(instruction: Features) -> bool {
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut to = Line([1; 64]);
    let from = Line([2; 64]);
    let (to, from) = (to.0.as_mut_ptr(), from.0.as_ptr());
    let before = count(instruction);
    // SAFETY: each instruction touches only the two lines, which are ours; where the processor lacks it, the
    // handler, which the caller installed, does the same to them.
    unsafe {
        match instruction {
            Features::CLZERO => asm!("clzero", in("rax") to, options(nostack, preserves_flags)),
            Features::MOVDIR64B => {
                asm!("movdir64b {}, [{}]", in(reg) to, in(reg) from, options(nostack, preserves_flags))
            }
            Features::CLWB => asm!("clwb [{}]", in(reg) to, options(nostack, preserves_flags)),
            Features::CLFLUSHOPT => asm!("clflushopt [{}]", in(reg) to, options(nostack, preserves_flags)),
            _ => unreachable!("{instruction:?} is not emulated"),
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
    // SAFETY: the processor stumbled over an instruction there; where its addresses are bad, the fault is the
    // tested method's, and the fault handler says so.
    match unsafe { emulate(&registers) } {
        Ok(length) => context.uc_mcontext.gregs[libc::REG_RIP as usize] += length as i64,
        Err(refusal) => {
            let mut line = Line::new();
            let _ = write!(line, "\nillegal instruction at {:#x}, not emulated ({refusal:?})", registers.rip);
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

    /// Bytes that differ from place to place.
    fn numbered(memory: &mut Guarded) {
        memory.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
    }

    /// Encodes the instruction as if at `rip`, puts it into `code`, and emulates it with these registers.
    fn run(
        code: &mut Guarded,
        instruction: &Instruction,
        mut registers: Registers,
    ) -> Result<usize, Refusal> {
        // At the very end of the page: decoding must not reach beyond the instruction.
        let mut encoder = Encoder::new(64);
        let length = encoder.encode(instruction, code.addresses().start as u64).expect("it can be encoded");
        let start = code.addresses().end - length;
        let mut encoder = Encoder::new(64);
        encoder.encode(instruction, start as u64).expect("it can be encoded");
        let at = code.len() - length;
        code.bytes_mut()[at..].copy_from_slice(&encoder.take_buffer());
        registers.rip = start as u64;
        // SAFETY: the instruction was just put there; the tests give addresses within mappings of theirs.
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

    /// One addressing form of MOVDIR64B: the operand, and the registers that make it point at `from`.
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
                    // The index is small; the base makes up for it.
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
        // The registers' upper halves do not count, and sums wrap at 32 bits.
        let upper = 0x1234_5678_0000_0000;
        for base in [EAX, ECX, ESP, EBP, R8D, R13D] {
            let operand = MemoryOperand::with_base_displ(base, -64);
            movdir64b(Code::Movdir64b_r32_m512, EDI, operand, 640, &[(base, 704 + upper)]);
        }
        movdir64b(Code::Movdir64b_r32_m512, R15D, MemoryOperand::with_base(ESI), 640, &[(ESI, 640 + upper)]);
    }

    #[test]
    fn movdir64b_to_no_line_is_refused_and_writes_nothing() {
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
    fn what_is_relative_to_fs_or_unknown_is_refused() {
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

    /// The handler itself: the processor raises SIGILL at an instruction that it lacks, and goes on behind it.
    #[test]
    fn what_the_processor_lacks_is_trapped_and_emulated() {
        let lacking = lacking(EMULATED);
        for (name, instruction) in EMULATED.difference(lacking).iter_names() {
            // Said, not passed over: tests/traces.rs has these emulated one by one all the same.
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
