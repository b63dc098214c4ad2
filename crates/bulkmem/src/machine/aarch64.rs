//! Reads what the kernel and the system registers say: the processor's identity and its instructions.
//!
//! Nothing here traps: the kernel reports features in the auxiliary vector (HWCAP), and user space may read DCZID_EL0 and
//! CTR_EL0. Only the identity reads a register that the kernel emulates (MIDR_EL1), if HWCAP says that it does.

use std::arch::asm;

use super::features::Features;
use super::identity::CpuKey;

/// Bits of HWCAP and HWCAP2 (Linux, `arch/arm64/include/uapi/asm/hwcap.h`).
mod hwcap {
    pub(super) const CPUID: u64 = 1 << 11;
    pub(super) const DCPOP: u64 = 1 << 16;
    pub(super) const SVE: u64 = 1 << 22;
    pub(super) const DCPODP_2: u64 = 1 << 0;
    pub(super) const MOPS_2: u64 = 1 << 43;
}

/// Reads a system register.
macro_rules! register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: user space may read this register, which the caller has checked, and reading it has no effect.
        unsafe { asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags)) }
        value
    }};
}

/// HWCAP and HWCAP2.
fn capabilities() -> (u64, u64) {
    // SAFETY: getauxval has no precondition; it reads what the kernel put on the stack at the program's start.
    unsafe { (libc::getauxval(libc::AT_HWCAP), libc::getauxval(libc::AT_HWCAP2)) }
}

/// The features by HWCAP, HWCAP2, DCZID_EL0 and CTR_EL0.
fn decoded((first, second): (u64, u64), zero: u64, cache_type: u64) -> Features {
    let mut features = Features::empty();
    features.set(Features::DC_ZVA, zero & PROHIBITED == 0);
    features.set(Features::SVE, first & hwcap::SVE != 0);
    features.set(Features::MOPS, second & hwcap::MOPS_2 != 0);
    // The smallest line of all data caches, in words of 4 bytes. Write-backs step by 64 bytes, and would miss smaller lines.
    let line = 4u64 << (cache_type >> 16 & 0xf);
    let wide = line >= super::CACHE_LINE as u64;
    features.set(Features::DC_CVAP, wide && first & hwcap::DCPOP != 0);
    features.set(Features::DC_CVADP, wide && second & hwcap::DCPODP_2 != 0);
    features
}

/// The bit DZP of DCZID_EL0.
const PROHIBITED: u64 = 1 << 4;

/// The instructions that the processor has and the operating system has enabled.
pub(super) fn features() -> Features {
    decoded(capabilities(), register!("dczid_el0"), register!("ctr_el0"))
}

/// Bytes that one DC ZVA zeroes; a power of two.
#[inline(always)]
pub(crate) fn zero_block() -> usize {
    block(register!("dczid_el0"))
}

/// Bytes of a block by DCZID_EL0, which holds the logarithm of its words of 4 bytes.
#[inline(always)]
fn block(zero: u64) -> usize {
    4 << (zero & 0xf)
}

/// MIDR_EL1; 0 if the kernel does not provide it.
pub(super) fn main_id() -> u64 {
    if capabilities().0 & hwcap::CPUID == 0 { 0 } else { register!("midr_el1") }
}

/// The processor: the implementer's name as vendor, its number as family, the part number as model, variant and revision
/// as stepping.
pub(super) fn key() -> CpuKey<'static> {
    identity(main_id())
}

fn identity(id: u64) -> CpuKey<'static> {
    let field = |shift: u32, bits: u32| (id >> shift) as u32 & ((1 << bits) - 1);
    let implementer = field(24, 8);
    let vendor = match implementer {
        0x41 => "Arm",
        0x46 => "Fujitsu",
        0x48 => "HiSilicon",
        0x4e => "NVIDIA",
        0x51 => "Qualcomm",
        0x61 => "Apple",
        0xc0 => "Ampere",
        _ => "aarch64",
    };
    CpuKey { vendor, family: implementer, model: field(4, 12), stepping: field(20, 4) << 4 | field(0, 4) }
}

/// The name of the processor, for those whose number is published; empty for others.
pub(super) fn brand() -> String {
    let key = key();
    match (key.family, key.model) {
        (0x41, 0xd0c) => "Neoverse N1",
        (0x41, 0xd40) => "Neoverse V1",
        (0x41, 0xd49) => "Neoverse N2",
        (0x41, 0xd4f) => "Neoverse V2",
        (0x46, 0x001) => "A64FX",
        (0xc0, 0xac3) => "Ampere-1",
        _ => "",
    }
    .to_owned()
}

/// Frequency of the counter in Hz.
pub(crate) fn counter_frequency() -> u64 {
    register!("cntfrq_el0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ZERO: u64 = PROHIBITED | 4;
    const LINES_OF_64: u64 = 4 << 16;
    const LINES_OF_32: u64 = 3 << 16;

    #[test]
    fn each_bit_is_its_feature() {
        assert_eq!(decoded((0, 0), NO_ZERO, LINES_OF_64), Features::empty());
        assert_eq!(decoded((0, 0), 4, LINES_OF_64), Features::DC_ZVA);
        assert_eq!(decoded((hwcap::SVE, 0), NO_ZERO, LINES_OF_64), Features::SVE);
        assert_eq!(decoded((0, hwcap::MOPS_2), NO_ZERO, LINES_OF_64), Features::MOPS);
        assert_eq!(decoded((hwcap::DCPOP, 0), NO_ZERO, LINES_OF_64), Features::DC_CVAP);
        assert_eq!(decoded((0, hwcap::DCPODP_2), NO_ZERO, LINES_OF_64), Features::DC_CVADP);
        assert_eq!(decoded((u64::MAX, u64::MAX), 4, LINES_OF_64), Features::OF_ARCHITECTURE);
    }

    #[test]
    fn lines_shorter_than_the_step_of_the_loops_disable_write_backs() {
        let all = decoded((u64::MAX, u64::MAX), 4, LINES_OF_32);
        assert!(!all.intersects(Features::DC_CVAP | Features::DC_CVADP), "{all}");
        assert_eq!(decoded((hwcap::DCPOP, 0), NO_ZERO, 5 << 16), Features::DC_CVAP, "lines of 128 bytes");
    }

    #[test]
    fn blocks_are_powers_of_two_in_bytes() {
        assert_eq!([block(0), block(4), block(7), block(9), block(PROHIBITED | 4)], [4, 64, 512, 2048, 64]);
    }

    #[test]
    fn a_neoverse_n1_is_told_by_its_numbers() {
        let key = identity(0x413f_d0c1);
        assert_eq!((key.vendor, key.family, key.model, key.stepping), ("Arm", 0x41, 0xd0c, 0x31));
        assert_eq!(identity(0).vendor, "aarch64");
    }
}
