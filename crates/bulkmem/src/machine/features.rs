//! The instructions that this processor has and this operating system lets us use.

use std::fmt;
use std::sync::OnceLock;

use serde::{Serialize, Serializer};

bitflags::bitflags! {
    /// A set of instruction-set extensions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// MOVNTI, MOVNTDQ, SFENCE, CLFLUSH; always there on x86-64.
        const SSE2 = 1 << 0;
        /// MOVNTDQA of 16 bytes.
        const SSE4_1 = 1 << 1;
        /// 32-byte registers; needs the operating system's YMM state.
        const AVX = 1 << 2;
        /// MOVNTDQA of 32 bytes.
        const AVX2 = 1 << 3;
        /// 64-byte registers; needs the operating system's ZMM and mask state.
        const AVX512F = 1 << 4;
        /// CLFLUSHOPT.
        const CLFLUSHOPT = 1 << 5;
        /// CLWB.
        const CLWB = 1 << 6;
        /// CLZERO (AMD).
        const CLZERO = 1 << 7;
        /// MOVDIR64B.
        const MOVDIR64B = 1 << 8;
        /// PREFETCHW. Intel processors before Broadwell lack it: there the instruction does nothing.
        const PREFETCHW = 1 << 9;
        /// Enhanced REP MOVSB and STOSB.
        const ERMS = 1 << 10;
        /// Fast short REP MOVSB.
        const FSRM = 1 << 11;
    }
}

impl fmt::Display for Features {
    /// The names, with commas between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, _)) in self.iter_names().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Serialize for Features {
    /// A list of names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter_names().map(|(name, _)| name))
    }
}

/// What this machine can run, found once.
pub fn features() -> Features {
    *FEATURES.get_or_init(detect)
}

static FEATURES: OnceLock<Features> = OnceLock::new();

/// What is known of this machine without looking: all of [`features`] once anybody asked for it, the architecture's
/// baseline before. For kernels, which may not call out.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn features_known_so_far() -> Features {
    FEATURES.get().copied().unwrap_or(Features::SSE2)
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn detect() -> Features {
    Features::empty()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn detect() -> Features {
    let cpuid = raw_cpuid::CpuId::new();
    let mut features = Features::SSE2;
    if let Some(leaf) = cpuid.get_feature_info() {
        features.set(Features::SSE4_1, leaf.has_sse41());
    }
    // The standard library asks XGETBV as well as CPUID for these three.
    features.set(Features::AVX, std::arch::is_x86_feature_detected!("avx"));
    features.set(Features::AVX2, std::arch::is_x86_feature_detected!("avx2"));
    // Code for AVX-512F may use these too: the compiler takes them as part of it.
    let implied = features.contains(Features::AVX2)
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c");
    features.set(Features::AVX512F, implied && std::arch::is_x86_feature_detected!("avx512f"));
    if let Some(leaf) = cpuid.get_extended_feature_info() {
        features.set(Features::CLFLUSHOPT, leaf.has_clflushopt());
        features.set(Features::CLWB, leaf.has_clwb());
        features.set(Features::ERMS, leaf.has_rep_movsb_stosb());
        // raw-cpuid has no names for these two yet.
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        features.set(Features::MOVDIR64B, leaf.ecx & (1 << 28) != 0);
        features.set(Features::FSRM, leaf.edx & (1 << 4) != 0);
    }
    if let Some(leaf) = cpuid.get_processor_capacity_feature_info() {
        features.set(Features::CLZERO, leaf.has_cl_zero());
    }
    if let Some(leaf) = cpuid.get_extended_processor_and_feature_identifiers() {
        features.set(Features::PREFETCHW, leaf.has_prefetchw());
    }
    features
}
