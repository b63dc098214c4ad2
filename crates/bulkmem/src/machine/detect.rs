//! Detects the processor and its instructions.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[cfg(target_arch = "x86_64")]
use super::cpu;
use super::features::Features;
use super::identity::CpuIdentity;
#[cfg(any(target_arch = "x86_64", with_methods))]
use super::identity::CpuKey;

#[cfg(target_arch = "x86_64")]
pub(super) fn identify() -> CpuIdentity {
    let cpu = cpu::Cpu::read();
    let CpuKey { vendor, family, model, stepping } = cpu.key();
    CpuIdentity { vendor: vendor.to_owned(), family, model, stepping, name: cpu::brand() }
}

/// The hypervisor that the processor names; `None` if it names none.
#[cfg(target_arch = "x86_64")]
pub(super) fn hypervisor() -> Option<String> {
    let signature = cpu::hypervisor_signature()?;
    let name = match &signature {
        b"KVMKVMKVM\0\0\0" => "KVM",
        b"Microsoft Hv" => "Hyper-V",
        b"VMwareVMware" => "VMware",
        b"XenVMMXenVMM" => "Xen",
        b"TCGTCGTCGTCG" => "QEMU",
        b"bhyve bhyve " => "bhyve",
        b"ACRNACRNACRN" => "ACRN",
        b" QNXQVMBSQG " | b"QNXQVMBSQG\0\0" => "QNX",
        other => {
            let letters: String =
                other.iter().copied().map(char::from).filter(char::is_ascii_graphic).collect();
            return Some(if letters.is_empty() { "unknown".to_owned() } else { letters });
        }
    };
    Some(name.to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn hypervisor() -> Option<String> {
    None
}

/// The emulator that the processor names: QEMU without hardware virtualization. `None` if it names none.
pub(super) fn emulator() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    let emulated = cpu::hypervisor_signature().is_some_and(|signature| &signature == b"TCGTCGTCGTCG");
    // The implementer 0 is reserved for software; QEMU's processor `max` has it.
    #[cfg(all(target_arch = "aarch64", with_methods))]
    let emulated = super::architecture::main_id() != 0 && super::architecture::key().family == 0;
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", with_methods))))]
    let emulated = false;
    emulated.then(|| "QEMU".to_owned())
}

#[cfg(all(not(target_arch = "x86_64"), with_methods))]
pub(super) fn identify() -> CpuIdentity {
    let CpuKey { vendor, family, model, stepping } = super::architecture::key();
    CpuIdentity { vendor: vendor.to_owned(), family, model, stepping, name: super::architecture::brand() }
}

#[cfg(not(any(target_arch = "x86_64", with_methods)))]
pub(super) fn identify() -> CpuIdentity {
    CpuIdentity {
        vendor: std::env::consts::ARCH.to_owned(),
        family: 0,
        model: 0,
        stepping: 0,
        name: String::new(),
    }
}

/// Set in [`FOUND`] once the rest of it is valid. No feature uses this bit.
const KNOWN: u32 = 1 << 31;

/// The features that were found, and [`KNOWN`]. Every thread finds the same, so no thread waits for another.
static FOUND: AtomicU32 = AtomicU32::new(0);

/// Returns the instructions that this machine can run. Never blocks or allocates; the result is kept.
#[inline]
pub fn features() -> Features {
    match FOUND.load(Relaxed) {
        0 => detect(),
        found => Features::from_bits_truncate(found),
    }
}

/// The features that [`features`] has found, or the architecture's baseline before that. For kernels, which may not
/// execute CPUID.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn features_known_so_far() -> Features {
    Features::from_bits_truncate(FOUND.load(Relaxed)) | Features::SSE2
}

/// Keeps what was found.
pub(super) fn remember(features: Features) {
    FOUND.store(features.bits() | KNOWN, Relaxed);
}

#[cold]
fn detect() -> Features {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let found = cpu::Cpu::read().features;
    #[cfg(all(not(target_arch = "x86_64"), with_methods))]
    let found = super::architecture::features();
    #[cfg(not(with_methods))]
    let found = Features::empty();
    remember(found);
    found
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The kernel prints display family and model too: both must read CPUID alike.
    #[test]
    fn it_agrees_with_the_kernel() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().unwrap().trim() == name).unwrap();
            line.split(':').nth(1).unwrap().trim().to_owned()
        };
        let cpu = identify();
        assert_eq!(cpu.vendor, field("vendor_id"));
        assert_eq!(cpu.family.to_string(), field("cpu family"));
        assert_eq!(cpu.model.to_string(), field("model"));
        assert_eq!(cpu.stepping.to_string(), field("stepping"));
    }

    /// The kernel sees the same bit of CPUID.
    #[test]
    fn a_hypervisor_is_named_where_the_kernel_sees_one() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        let seen = flags.split_whitespace().any(|flag| flag == "hypervisor");
        assert_eq!(hypervisor().is_some_and(|name| !name.is_empty()), seen);
    }
}
