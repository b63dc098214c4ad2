//! Reads CPUID: the processor's identity, its instructions and its caches.
//!
//! A virtual machine traps each CPUID instruction, which takes 1 to 25 µs, so the first call of a program reads no more
//! leaves than it needs. Nothing here allocates or calls the operating system.

use std::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};

use super::caches::Caches;
use super::features::Features;
use super::identity::CpuKey;

/// The leaves that every program reads once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    highest_leaf: u32,
    vendor: [u8; 12],
    family: u32,
    model: u32,
    stepping: u32,
    pub(super) features: Features,
}

/// Executes CPUID.
fn cpuid(leaf: u32, index: u32) -> CpuidResult {
    #[allow(unused_unsafe, reason = "unsafe before Rust 1.93")]
    // SAFETY: every x86-64 processor has CPUID.
    unsafe {
        __cpuid_count(leaf, index)
    }
}

impl Cpu {
    /// Executes CPUID four times, five times on processors that may have CLZERO.
    pub(super) fn read() -> Cpu {
        let basic = cpuid(0, 0);
        let mut vendor = [0; 12];
        for (at, register) in [basic.ebx, basic.edx, basic.ecx].into_iter().enumerate() {
            for (byte, value) in register.to_le_bytes().into_iter().enumerate() {
                vendor[at * 4 + byte] = value;
            }
        }
        let version = cpuid(1, 0);
        let signature = version.eax;
        let base = signature >> 8 & 0xf;
        let low = signature >> 4 & 0xf;
        Cpu {
            highest_leaf: basic.eax,
            vendor,
            family: if base == 0xf { base + (signature >> 20 & 0xff) } else { base },
            model: if matches!(base, 0x6 | 0xf) { low | (signature >> 12 & 0xf0) } else { low },
            stepping: signature & 0xf,
            features: features(basic.eax, version.ecx, vendor == *b"GenuineIntel"),
        }
    }

    pub(super) fn key(&self) -> CpuKey<'_> {
        CpuKey {
            vendor: std::str::from_utf8(&self.vendor).unwrap_or_default(),
            family: self.family,
            model: self.model,
            stepping: self.stepping,
        }
    }
}

/// Which instructions the processor has and the operating system has enabled.
fn features(highest_leaf: u32, version: u32, intel: bool) -> Features {
    let bit = |register: u32, bit: u32| register & 1 << bit != 0;
    let mut features = Features::SSE2;
    let mut set = |feature, present| features.set(feature, present);
    set(Features::SSE4_1, bit(version, 19));
    // OSXSAVE: XGETBV is there, and tells the register state that the operating system saves.
    // SAFETY: the processor reports OSXSAVE.
    let saved = if bit(version, 27) { unsafe { enabled_state() } } else { 0 };
    let avx = bit(version, 28) && saved & 0x6 == 0x6;
    set(Features::AVX, avx);
    if highest_leaf >= 7 {
        let extended = cpuid(7, 0);
        let avx2 = avx && bit(extended.ebx, 5);
        set(Features::AVX2, avx2);
        // The compiler takes FMA and F16C as part of AVX-512F, so code for the latter may use them.
        let implied = avx2 && bit(version, 12) && bit(version, 29);
        set(Features::AVX512F, implied && bit(extended.ebx, 16) && saved & 0xe6 == 0xe6);
        set(Features::ERMS, bit(extended.ebx, 9));
        set(Features::CLFLUSHOPT, bit(extended.ebx, 23));
        set(Features::CLWB, bit(extended.ebx, 24));
        set(Features::CLDEMOTE, bit(extended.ecx, 25));
        set(Features::MOVDIR64B, bit(extended.ecx, 28));
        set(Features::FSRM, bit(extended.edx, 4));
    }
    // Leaf 0x80000001 reports long mode, so every x86-64 processor has it.
    set(Features::PREFETCHW, bit(cpuid(0x8000_0001, 0).ecx, 8));
    // Leaf 0x80000008 reports the width of addresses; every x86-64 processor has it. No Intel processor has CLZERO.
    set(Features::CLZERO, !intel && bit(cpuid(0x8000_0008, 0).ebx, 0));
    features
}

/// XCR0: the register state that the operating system saves.
///
/// # Safety
/// The processor reports OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn enabled_state() -> u64 {
    // SAFETY: the caller vouches for OSXSAVE; register 0 always exists then.
    unsafe { _xgetbv(0) }
}

/// The brand string; empty if the processor has none.
pub(super) fn brand() -> String {
    if cpuid(0x8000_0000, 0).eax < 0x8000_0004 {
        return String::new();
    }
    let registers = (0x8000_0002..=0x8000_0004).flat_map(|leaf| {
        let CpuidResult { eax, ebx, ecx, edx } = cpuid(leaf, 0);
        [eax, ebx, ecx, edx]
    });
    let bytes: Vec<u8> = registers.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The 12 bytes by which a hypervisor names itself; `None` if the processor reports no hypervisor.
pub(super) fn hypervisor_signature() -> Option<[u8; 12]> {
    if cpuid(1, 0).ecx >> 31 == 0 {
        return None;
    }
    let CpuidResult { ebx, ecx, edx, .. } = cpuid(0x4000_0000, 0);
    let mut signature = [0; 12];
    for (bytes, register) in signature.chunks_exact_mut(4).zip([ebx, ecx, edx]) {
        bytes.copy_from_slice(&register.to_le_bytes());
    }
    Some(signature)
}

/// True if the time stamp counter counts at a constant rate in every power state ("invariant TSC").
///
/// Hypervisors often hide this, because a virtual machine can move to a computer whose counter has another rate. So in a virtual
/// machine this function assumes it.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn has_constant_clock() -> bool {
    let power = if cpuid(0x8000_0000, 0).eax >= 0x8000_0007 { cpuid(0x8000_0007, 0).edx } else { 0 };
    is_constant(power, cpuid(1, 0).ecx)
}

/// The same by EDX of leaf 0x80000007 and ECX of leaf 1.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_constant(power: u32, version: u32) -> bool {
    power & 1 << 8 != 0 || version & 1 << 31 != 0
}

impl Cpu {
    /// Sizes of the data and unified caches from the level `from` on; 0 where the processor tells none.
    pub(super) fn caches(&self, from: usize) -> Caches {
        // AMD and Hygon describe caches in a leaf of their own, in the same form.
        let leaf = match self.vendor {
            [b'A' | b'H', ..] if cpuid(0x8000_0000, 0).eax >= 0x8000_001d => 0x8000_001d,
            [b'A' | b'H', ..] => return Caches::default(),
            _ if self.highest_leaf >= 4 => 4,
            _ => return Caches::default(),
        };
        let mut levels = [0; 3];
        let mut read = |index| {
            let found = cache(leaf, index);
            if let Some(Cache { level: level @ 1..=3, bytes, holds_data: true }) = found {
                levels[level - 1] = bytes;
            }
            found.map(|cache| cache.level)
        };
        // The usual order is L1 data, L1 instruction, L2, L3: for the outer levels two leaves suffice.
        if from == 2 && read(2) == Some(2) && read(3) == Some(3) {
            return Caches::from(levels);
        }
        // A virtual machine may repeat a cache without end.
        (0..16).take_while(|&index| read(index).is_some_and(|level| level < 3)).for_each(drop);
        Caches::from(levels)
    }
}

/// One cache as CPUID describes it.
struct Cache {
    level: usize,
    bytes: u64,
    holds_data: bool,
}

/// The cache of that index; `None` after the last.
fn cache(leaf: u32, index: u32) -> Option<Cache> {
    let CpuidResult { eax, ebx, ecx, .. } = cpuid(leaf, index);
    let kind = eax & 0x1f;
    let ways = u64::from(ebx >> 22) + 1;
    let partitions = u64::from(ebx >> 12 & 0x3ff) + 1;
    let line = u64::from(ebx & 0xfff) + 1;
    let sets = u64::from(ecx) + 1;
    (kind != 0).then(|| Cache {
        level: (eax >> 5 & 0x7) as usize,
        bytes: ways * partitions * line * sets,
        holds_data: matches!(kind, 1 | 3),
    })
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::is_constant;

    #[test]
    fn a_clock_is_constant_if_the_processor_says_so_or_a_hypervisor_may_hide_it() {
        let (invariant, hypervisor) = (1 << 8, 1 << 31);
        assert!(is_constant(invariant, 0));
        assert!(is_constant(0, hypervisor));
        assert!(!is_constant(0xff, 0x7fff_ffff));
    }
}
