//! The identity of the processor.

/// The identity of a processor model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "unstable-internals"), non_exhaustive)]
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
    /// Describes a processor model.
    pub fn new(vendor: &str, family: u32, model: u32, stepping: u32) -> CpuIdentity {
        CpuIdentity { vendor: vendor.to_owned(), family, model, stepping, name: String::new() }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brand_does_not_count() {
        let cpu = CpuIdentity {
            vendor: "GenuineIntel".to_owned(),
            family: 6,
            model: 85,
            stepping: 7,
            name: "a".to_owned(),
        };
        let renamed = CpuIdentity { name: "another".to_owned(), ..cpu.clone() };
        assert!(cpu.same_model(&renamed));
        let other = CpuIdentity { stepping: cpu.stepping + 1, ..cpu.clone() };
        assert!(!cpu.same_model(&other));
        assert!(other.key().ends_with(&format!(":{}", cpu.stepping + 1)));
    }
}
