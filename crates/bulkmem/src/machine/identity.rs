//! The identity of the processor.

/// The identity of a processor model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CpuIdentity {
    /// `GenuineIntel`, `AuthenticAMD`, …; the architecture's name if there is no CPUID.
    pub vendor: String,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// The brand string. Not compared.
    pub name: String,
}

impl CpuIdentity {
    /// Returns true if both are the same model and stepping. Ignores the brand string.
    pub fn same_model(&self, other: &CpuIdentity) -> bool {
        self.as_key() == other.as_key()
    }

    /// The part that is compared.
    pub(crate) fn as_key(&self) -> CpuKey<'_> {
        CpuKey { vendor: &self.vendor, family: self.family, model: self.model, stepping: self.stepping }
    }

    /// Returns vendor, family, model and stepping as text: `GenuineIntel 6:85:7`.
    pub fn key(&self) -> String {
        format!("{} {}:{}:{}", self.vendor, self.family, self.model, self.stepping)
    }
}

/// The part of a [`CpuIdentity`] that is compared, without the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuKey<'v> {
    pub(crate) vendor: &'v str,
    pub(crate) family: u32,
    pub(crate) model: u32,
    pub(crate) stepping: u32,
}

#[cfg(target_arch = "x86_64")]
pub(super) fn identify() -> CpuIdentity {
    let cpu = super::cpu::Cpu::read();
    let CpuKey { vendor, family, model, stepping } = cpu.key();
    CpuIdentity { vendor: vendor.to_owned(), family, model, stepping, name: super::cpu::brand() }
}

/// The hypervisor that the processor names; `None` if it names none.
#[cfg(target_arch = "x86_64")]
pub(super) fn hypervisor() -> Option<String> {
    let signature = super::cpu::hypervisor_signature()?;
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

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn identify() -> CpuIdentity {
    CpuIdentity {
        vendor: std::env::consts::ARCH.to_owned(),
        family: 0,
        model: 0,
        stepping: 0,
        name: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel prints display family and model too: both must read CPUID alike.
    #[test]
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "x86_64")]
    fn a_hypervisor_is_named_where_the_kernel_sees_one() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        let seen = flags.split_whitespace().any(|flag| flag == "hypervisor");
        assert_eq!(hypervisor().is_some_and(|name| !name.is_empty()), seen);
    }

    #[test]
    fn the_brand_does_not_count() {
        let cpu = identify();
        let renamed = CpuIdentity { name: "another".to_owned(), ..cpu.clone() };
        assert!(cpu.same_model(&renamed));
        let other = CpuIdentity { stepping: cpu.stepping + 1, ..cpu.clone() };
        assert!(!cpu.same_model(&other));
        assert!(other.key().ends_with(&format!(":{}", cpu.stepping + 1)));
    }
}
