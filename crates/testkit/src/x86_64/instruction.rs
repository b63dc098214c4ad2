//! Properties of instructions: their memory ordering, and the features that they need.

use bulkmem::machine::Features;
use iced_x86::{CpuidFeature, FastFormatter, InstructionInfoFactory, OpAccess, OpKind};
pub use iced_x86::{Instruction, Mnemonic};

/// Effect of an instruction on the order in which other threads see stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None.
    Plain,
    /// A store, or a write-back, that others may see after later stores. Includes CLFLUSH, which only Intel orders.
    Weak,
    /// Others see everything before it before everything after it.
    Fence,
}

/// Returns the effect of an instruction on ordering.
pub fn order(instruction: &Instruction) -> Order {
    use Mnemonic::*;
    match instruction.mnemonic() {
        Movnti | Movntdq | Vmovntdq | Movntps | Vmovntps | Movntpd | Vmovntpd | Movntq | Movntss
        | Movntsd | Maskmovq | Maskmovdqu | Vmaskmovdqu | Clzero | Movdiri | Movdir64b | Clflush
        | Clflushopt | Clwb => Order::Weak,
        Sfence | Mfence => Order::Fence,
        // XCHG with memory locks without a prefix.
        Xchg if has_memory_operand(instruction) => Order::Fence,
        _ if instruction.has_lock_prefix() => Order::Fence,
        _ => Order::Plain,
    }
}

/// True if an instruction stores bytes and bypasses the cache.
pub fn bypasses(instruction: &Instruction) -> bool {
    order(instruction) == Order::Weak && !writes_back(instruction)
}

/// True if an instruction writes a cache line back.
pub fn writes_back(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush)
}

/// True if an instruction moves a cache line to a cache that processors share.
pub fn demotes(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Cldemote
}

/// True if an instruction writes a YMM or ZMM register. Until their upper halves are zeroed, SSE instructions of the
/// caller run slowly on some processors, and the system saves more at each change of thread.
pub fn writes_wide_register(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    (0..instruction.op_count()).any(|operand| {
        let register = instruction.op_register(operand);
        instruction.op_kind(operand) == OpKind::Register
            && (register.is_ymm() || register.is_zmm())
            && writes(info.op_access(operand))
    })
}

/// True if an instruction zeroes the upper halves of the vector registers.
pub fn zeroes_upper_halves(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Vzeroall)
}

/// True if an instruction is a non-temporal load.
pub fn loads_nontemporally(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Movntdqa | Mnemonic::Vmovntdqa)
}

fn has_memory_operand(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// Returns the features that an instruction needs beyond those of every x86-64 processor.
///
/// # Errors
/// If it needs a feature that this function does not map to one of [`Features`]. The message names the file to edit.
pub fn needs(instruction: &Instruction) -> Result<Features, String> {
    // LLVM emits TZCNT as REP BSF if the operand is known not to be 0. An older processor executes it as BSF, with
    // the same result.
    if instruction.mnemonic() == Mnemonic::Tzcnt {
        return Ok(Features::empty());
    }
    instruction.cpuid_features().iter().try_fold(Features::empty(), |all, feature| {
        Ok(all.union(match feature {
            CpuidFeature::INTEL8086
            | CpuidFeature::INTEL186
            | CpuidFeature::INTEL286
            | CpuidFeature::INTEL386
            | CpuidFeature::INTEL486
            | CpuidFeature::X64
            | CpuidFeature::CMOV
            | CpuidFeature::CPUID
            | CpuidFeature::CX8
            | CpuidFeature::SYSCALL
            | CpuidFeature::SSE
            | CpuidFeature::SSE2
            | CpuidFeature::CLFSH
            | CpuidFeature::MULTIBYTENOP
            | CpuidFeature::PAUSE
            // ENDBR64: a no-operation on other processors.
            | CpuidFeature::CET_IBT => Features::empty(),
            CpuidFeature::SSE4_1 => Features::SSE4_1,
            CpuidFeature::AVX => Features::AVX,
            CpuidFeature::AVX2 => Features::AVX2,
            CpuidFeature::AVX512F => Features::AVX512F,
            CpuidFeature::CLFLUSHOPT => Features::CLFLUSHOPT,
            CpuidFeature::CLWB => Features::CLWB,
            CpuidFeature::CLZERO => Features::CLZERO,
            CpuidFeature::MOVDIR64B => Features::MOVDIR64B,
            CpuidFeature::PREFETCHW => Features::PREFETCHW,
            CpuidFeature::CLDEMOTE => Features::CLDEMOTE,
            other => {
                return Err(format!(
                    "`{}` needs {other:?}, for which `needs` in crates/testkit/src/x86_64/instruction.rs has no feature: \
                     add the line `CpuidFeature::{other:?} => Features::{other:?}` there, and the feature to \
                     crates/bulkmem/src/machine/features.rs if it is new",
                    text(instruction)
                ));
            }
        }))
    })
}

/// Returns the features that every processor with `features` has: an operating system cannot enable the registers of
/// AVX-512 without those of AVX, and every processor with one of these vector extensions has the earlier ones.
pub fn implied(features: Features) -> Features {
    let chain = [Features::SSE4_1, Features::AVX, Features::AVX2, Features::AVX512F];
    let last = chain.iter().rposition(|set| features.contains(*set));
    last.map_or(features, |last| chain[..last].iter().fold(features, |all, set| all | *set))
}

/// Disassembles an instruction, with its address.
pub fn text(instruction: &Instruction) -> String {
    let mut text = format!("{:#x} ", instruction.ip());
    FastFormatter::new().format(instruction, &mut text);
    text
}

/// Disassembles instructions, one per line.
pub fn texts(instructions: &[Instruction]) -> String {
    instructions.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// True if an access may write.
pub(super) fn writes(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}
