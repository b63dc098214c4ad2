//! The instructions that this processor has and this operating system lets us use.

use std::fmt;

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
        /// CLDEMOTE. Processors without it execute a no-operation.
        const CLDEMOTE = 1 << 12;
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

#[cfg(feature = "serde")]
impl serde::Serialize for Features {
    /// A list of names.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter_names().map(|(name, _)| name))
    }
}
