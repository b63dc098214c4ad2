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

        /// aarch64: DC ZVA, unless the system prohibits it.
        const DC_ZVA = 1 << 13;
        /// aarch64: SVE registers; needs the operating system's support.
        const SVE = 1 << 14;
        /// aarch64: the memory instructions SET and CPY (FEAT_MOPS).
        const MOPS = 1 << 15;
        /// aarch64: DC CVAP, on lines of 64 bytes or more.
        const DC_CVAP = 1 << 16;
        /// aarch64: DC CVADP, on lines of 64 bytes or more.
        const DC_CVADP = 1 << 17;

        /// riscv64: CBO.ZERO; needs the operating system's permission.
        const ZICBOZ = 1 << 18;
        /// riscv64: CBO.CLEAN and CBO.FLUSH, on blocks of 64 bytes or more; needs the operating system's permission.
        const ZICBOM = 1 << 19;
        /// riscv64: vectors, version 1.0.
        const RVV = 1 << 20;
        /// riscv64: the hints NTL. Processors without it execute a no-operation.
        const ZIHINTNTL = 1 << 21;
    }
}

impl Features {
    /// Those of the architecture that the library is built for.
    pub const OF_ARCHITECTURE: Features = Features::from_bits_truncate(if cfg!(target_arch = "x86_64") {
        0x1fff
    } else if cfg!(target_arch = "aarch64") {
        0x3_e000
    } else if cfg!(target_arch = "riscv64") {
        0x3c_0000
    } else {
        0
    });

    /// Those that every processor of the architecture has.
    pub const BASELINE: Features =
        if cfg!(target_arch = "x86_64") { Features::SSE2 } else { Features::empty() };
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
