//! Measurements of microarchitectures, with their sources, and the rules that follow from them.
//!
//! An entry contains only what was measured on that microarchitecture, and applies to all models with the same core. Other
//! processors get the entry of their vendor, or else [`UNKNOWN`]: conclusions from the measured ones.

use std::ops::RangeInclusive;

use crate::machine::CpuKey;

/// A microarchitecture, and the rules that follow from its published measurements.
#[derive(Debug)]
pub(super) struct Microarchitecture {
    pub(super) name: &'static str,
    pub(super) vendor: &'static str,
    family: u32,
    /// Display models with this core. Empty in the entry for all other processors of a vendor.
    models: &'static [RangeInclusive<u32>],
    /// The last-level cache that one thread sees on the measured machine, bytes; used if this machine's is unknown.
    pub(super) last_level: u64,
    /// The finding.
    pub(super) known: &'static str,
    /// Its source.
    pub(super) source: &'static str,
    /// True if stores that bypass the cache are fastest for memory larger than the cache.
    pub(super) bypass_pays: bool,
    /// True if the write-back of cached stores may be faster than non-temporal ones, as on Intel's persistent memory modules. False
    /// for AMD's processors, which do not support these, and for Sapphire and Emerald Rapids (only the first does): where measured
    /// (Zen 1, 3, 4, 5, Emerald Rapids), calibrations chose stores that bypass the cache at every length.
    pub(super) write_back_pays: bool,
    /// Clear and fill above the lengths that the C library handles, in rising order.
    pub(super) clear: &'static [Step],
    /// Clear and fill that bypass the cache: the first available method is used.
    pub(super) bypass: &'static [Want],
    /// Copies above the lengths that the C library handles.
    pub(super) copy: &'static [Step],
}

impl Microarchitecture {
    /// True if the processor itself was measured, or another with the same core.
    pub(super) fn is_measured(&self) -> bool {
        !self.models.is_empty()
    }
}

/// A length from which the first available method is used.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) from: From,
    pub(super) methods: &'static [Want],
    pub(super) reason: &'static str,
}

/// The length at which a rule begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    Bytes(u64),
    /// The size of the second-level cache.
    Level2,
    /// A number of quarters of the last-level cache.
    LastLevelQuarters(u64),
}

/// A method by name, and the parameters in which it differs from its defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) name: &'static str,
    pub(super) set: &'static [(&'static str, u32)],
}

/// A method with its default parameters.
pub(super) const fn plain(name: &'static str) -> Want {
    Want { name, set: &[] }
}

const MIB: u64 = 1 << 20;

const ARORA_2020: &str =
    "Ankur Arora, [PATCH 4/8] x86/asm: add clear_page_nt(), LKML, 2020-10-14: perf bench mem memset";
const ARORA_2022: &str = "Ankur Arora, [PATCH v3 00/21] huge page clearing optimizations, LKML, 2022-06: REP STOSB, MOVNTI and CLZERO by chunk over 4 GiB";
/// The length from which that series clears without caching (its patch 15, clear_page_non_caching_threshold).
const NON_CACHING: From = From::Bytes(8 * MIB);
/// Clearly more than the cache holds. The sources measured below the cache's size and at several times it; at the
/// size itself both ways come out alike (Rome, 16 MB).
pub(super) const PAST_LAST_LEVEL: From = From::LastLevelQuarters(6);

const CACHED: &str = "fits in the cache: REP stores run at the cache's speed";
const MOVNTI: &[Want] = &[plain("movnti"), plain("nontemporal_sse2")];
const REP_STOSB: &[Want] = &[plain("rep_stosb"), plain("rep_stosq")];
const REP_STOSQ: &[Want] = &[plain("rep_stosq"), plain("rep_stosb")];
const NONTEMPORAL_AVX: &[Want] = &[plain("nontemporal_avx"), plain("clzero"), plain("nontemporal_sse2")];
const CLZERO: &[Want] = &[plain("clzero"), plain("movnti"), plain("nontemporal_sse2")];
/// Copies that bypass the cache. All widths write at one speed (Patocka 2020), the wider do it in fewer instructions;
/// 64-byte registers cost clock on some processors.
pub(super) const BYPASS_COPY: &[Want] =
    &[plain("nontemporal_avx"), plain("nontemporal_sse2"), plain("movnti")];

const COPY_BEYOND_CACHE: &[Step] = &[Step {
    // Source and destination together are one and a half times the cache.
    from: From::LastLevelQuarters(3),
    methods: BYPASS_COPY,
    reason: "both ranges are more than the cache holds: bypassing it spares a read of the destination",
}];

static TABLE: &[Microarchitecture] = &[
    Microarchitecture {
        name: "Broadwell",
        vendor: "GenuineIntel",
        family: 6,
        models: &[61..=61, 71..=71, 79..=79, 86..=86],
        last_level: 25 * MIB,
        known: "on a Broadwell-X, REP STOSB is 1.5 times as fast as MOVNTI at 16 MB, MOVNTI 2.2 times as fast from 128 MB",
        source: ARORA_2020,
        bypass_pays: true,
        write_back_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: PAST_LAST_LEVEL,
                methods: MOVNTI,
                reason: "more than the cache holds: MOVNTI spares the read that REP STOSB does before it writes",
            },
        ],
        bypass: MOVNTI,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "Zen, Zen+",
        vendor: "AuthenticAMD",
        family: 23,
        models: &[0x00..=0x2F],
        last_level: 8 * MIB,
        known: "on Naples, non-temporal stores clear uncached memory at 15 to 25 GB/s, memset at 7 to 9; memset clears memory in the \
                cache of 8 MB at 37 to 39 up to 2 MB and 28 to 31 at 4 MB, non-temporal stores at 12 to 26; non-temporal copies of \
                uncached memory are 1.2 to 1.5 times as fast as memcpy",
        source: "bulkmem's own measurement, 2026-11: docs/machines/amd-epyc-naples-vm.md",
        bypass_pays: true,
        write_back_pays: false,
        clear: &[Step {
            from: From::LastLevelQuarters(2),
            methods: NONTEMPORAL_AVX,
            reason: "2 to 2.7 times as fast as memset where memory is not cached, 0.5 to 0.9 times where it is",
        }],
        bypass: NONTEMPORAL_AVX,
        copy: &[Step {
            from: From::LastLevelQuarters(2),
            methods: BYPASS_COPY,
            reason: "1.2 to 1.5 times as fast as memcpy on uncached memory, and as fast on cached memory",
        }],
    },
    Microarchitecture {
        name: "Zen 2",
        vendor: "AuthenticAMD",
        family: 23,
        models: &[0x30..=0x4F, 0x60..=0x7F, 0x90..=0x91, 0xA0..=0xAF],
        last_level: 16 * MIB,
        known: "on Rome, REP STOSQ is as fast as MOVNTI at 16 MB, MOVNTI 1.3 to 1.4 times as fast from 128 MB",
        source: ARORA_2020,
        bypass_pays: true,
        write_back_pays: false,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSQ, reason: CACHED },
            Step {
                from: PAST_LAST_LEVEL,
                methods: MOVNTI,
                reason: "more than the cache holds: MOVNTI spares the read that REP STOSQ does before it writes",
            },
        ],
        bypass: MOVNTI,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "Skylake-X, Cascade Lake, Cooper Lake",
        vendor: "GenuineIntel",
        family: 6,
        models: &[85..=85],
        last_level: 36 * MIB,
        known: "MOVNTI is slower than REP STOSB at every size (by 69 % at 16 MB, 3 to 4 % from 128 MB); plain stores \
                with PREFETCHW 2 to 8 KiB ahead are 1.6 times as fast as the better of both from 256 MiB",
        source: "Ankur Arora, [PATCH 4/8] x86/asm: add clear_page_nt(), LKML, 2020-10-14, and his X86_FEATURE_MOVNT_SLOW, \
                 2022; the prefetched stores: bulkmem's own measurement on Cascade Lake",
        bypass_pays: false,
        write_back_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: PAST_LAST_LEVEL,
                // 32-byte stores keep the clock that 64-byte ones cost on this microarchitecture.
                methods: &[
                    Want { name: "write_prefetch_avx", set: &[("write_distance", 4096)] },
                    Want { name: "write_prefetch_sse2", set: &[("write_distance", 4096)] },
                    Want { name: "write_prefetch_8", set: &[("write_distance", 4096)] },
                    plain("rep_stosb"),
                ],
                reason: "more than the cache holds: PREFETCHW ahead hides the read before the write; MOVNTI is slow here",
            },
        ],
        bypass: MOVNTI,
        copy: &[],
    },
    Microarchitecture {
        name: "Ice Lake",
        vendor: "GenuineIntel",
        family: 6,
        models: &[106..=106, 108..=108, 125..=126],
        last_level: 48 * MIB,
        known: "on an Ice Lake-X, over 4 GiB MOVNTI is twice as fast as REP STOSB, whatever the chunk (4 KiB to 1 GiB)",
        source: ARORA_2022,
        bypass_pays: true,
        write_back_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: NON_CACHING,
                methods: MOVNTI,
                reason: "MOVNTI is twice as fast as REP STOSB, whatever the chunk",
            },
        ],
        bypass: MOVNTI,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "Zen 3",
        vendor: "AuthenticAMD",
        family: 25,
        models: &[0x00..=0x0F, 0x20..=0x5F],
        last_level: 32 * MIB,
        known: "on Milan, over 4 GiB CLZERO is the fastest, whatever the chunk; without it MOVNTI for chunks up to 8 MB, REP STOSB \
                for chunks from 32 MB, the size of its cache",
        source: ARORA_2022,
        bypass_pays: true,
        write_back_pays: false,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: NON_CACHING,
                methods: CLZERO,
                reason: "CLZERO is 1.3 to 3.5 times as fast as REP STOSB, MOVNTI is faster below the size of the cache",
            },
            Step {
                from: From::LastLevelQuarters(4),
                methods: &[plain("clzero"), plain("rep_stosb"), plain("movnti")],
                reason: "from the size of the cache on, one REP STOSB passes the cache by and outruns MOVNTI",
            },
        ],
        bypass: CLZERO,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "Zen 4",
        vendor: "AuthenticAMD",
        family: 25,
        models: &[0x10..=0x1F, 0x60..=0xAF],
        last_level: 32 * MIB,
        known: "on Genoa, zeros by 32- or 64-byte non-temporal stores run at 88 GB/s, CLZERO at 80; memset at 33 below the size of \
                the cache and 77 beyond; where memory is in the cache memset is up to 1.1 times as fast from 1 MiB on",
        source: "bulkmem's own measurement, 2026-11-21: docs/machines/amd-epyc-genoa-vm.md",
        bypass_pays: true,
        write_back_pays: false,
        clear: &[Step {
            from: From::Bytes(3 * MIB / 2),
            methods: NONTEMPORAL_AVX,
            reason: "2.6 times as fast as memset where memory is not cached, 0.9 times where it is",
        }],
        bypass: NONTEMPORAL_AVX,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "Zen 5",
        vendor: "AuthenticAMD",
        family: 26,
        models: &[0x00..=0x2F, 0x40..=0x4F, 0x60..=0x7F],
        last_level: 32 * MIB,
        known: "on an EPYC, CLZERO clears uncached memory at 87 to 96 GB/s and memset at 49 to 55; memset clears cached \
                memory at 114 to 152 GB/s and CLZERO at 26 to 49; non-temporal copies are 1.2 to 1.6 times as fast as \
                memcpy from 4 MiB on",
        source: "bulkmem's own measurement, 2026-11: docs/machines/amd-epyc-zen5-vm.md",
        bypass_pays: true,
        write_back_pays: false,
        clear: &[Step {
            from: PAST_LAST_LEVEL,
            methods: CLZERO,
            reason: "more than the cache holds: 1.7 times as fast as memset; on cached memory memset is up to 5 times as fast",
        }],
        bypass: CLZERO,
        copy: &[Step {
            from: From::Bytes(4 * MIB),
            methods: BYPASS_COPY,
            reason: "1.2 to 1.6 times as fast as memcpy",
        }],
    },
    Microarchitecture {
        name: "Sapphire Rapids, Emerald Rapids",
        vendor: "GenuineIntel",
        family: 6,
        models: &[143..=143, 207..=207],
        last_level: 32 * MIB,
        known: "on an Emerald Rapids, non-temporal stores of any width clear uncached memory at 20 to 24 GB/s and memset at \
                12 to 14; a mix of non-temporal and prefetched stores is at most 9 % slower than those there, and clears memory \
                in the third-level cache at 25 to 30 GB/s, where memset reaches 20 to 27 and non-temporal stores 8 to 13; copies \
                by several page streams are 1.3 to 1.6 times as fast as memcpy on uncached memory up to 64 MiB",
        source: "bulkmem's own measurement, 2026-11: docs/machines/intel-emerald-rapids-vm.md",
        bypass_pays: true,
        write_back_pays: false,
        clear: &[Step {
            from: From::Level2,
            methods: &[
                Want { name: "hybrid_avx", set: &[("write_distance", 512), ("streams", 4)] },
                plain("nontemporal_avx"),
                plain("nontemporal_sse2"),
            ],
            reason: "1.6 times as fast as memset on uncached memory, and 1.1 to 1.3 times on cached memory",
        }],
        bypass: NONTEMPORAL_AVX,
        copy: &[Step {
            from: From::Level2,
            methods: &[
                Want { name: "nontemporal_streams_avx", set: &[("streams", 4)] },
                Want { name: "nontemporal_streams_sse2", set: &[("streams", 4)] },
            ],
            reason: "1.3 to 1.6 times as fast as memcpy on uncached memory, and as fast on cached memory",
        }],
    },
    Microarchitecture {
        name: "Skylake (client)",
        vendor: "GenuineIntel",
        family: 6,
        models: &[78..=78, 94..=94],
        last_level: 8 * MIB,
        known: "the kernel series of 2022 marks MOVNTI as slow on Skylake, and clears through the cache there",
        source: ARORA_2022,
        bypass_pays: false,
        write_back_pays: true,
        clear: &[Step { from: From::Level2, methods: REP_STOSB, reason: "MOVNTI is slow on Skylake" }],
        bypass: MOVNTI,
        copy: &[],
    },
    Microarchitecture {
        name: "another AMD processor",
        vendor: "AuthenticAMD",
        family: 0,
        models: &[],
        last_level: 32 * MIB,
        known: "on Zen to Zen 5, stores that bypass the cache are faster than cached ones for what the cache cannot hold",
        source: ARORA_2022,
        bypass_pays: true,
        write_back_pays: false,
        clear: BEYOND_CACHE,
        bypass: CLZERO,
        copy: COPY_BEYOND_CACHE,
    },
    Microarchitecture {
        name: "another Intel processor",
        vendor: "GenuineIntel",
        family: 0,
        models: &[],
        last_level: 32 * MIB,
        known: "on Broadwell, Ice Lake and Emerald Rapids, but not on Skylake, stores that bypass the cache are faster than \
                cached ones for what the cache cannot hold",
        source: ARORA_2022,
        bypass_pays: true,
        write_back_pays: true,
        clear: BEYOND_CACHE,
        bypass: MOVNTI,
        copy: COPY_BEYOND_CACHE,
    },
];

const BEYOND_CACHE: &[Step] = &[
    Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
    Step {
        from: PAST_LAST_LEVEL,
        methods: CLZERO,
        reason: "more than the cache holds: bypassing it pays on most microarchitectures",
    },
];

/// Every other: bypass the cache for what it cannot hold, until a measurement here says otherwise.
pub(super) static UNKNOWN: Microarchitecture = Microarchitecture {
    name: "unknown",
    vendor: "",
    family: 0,
    models: &[],
    last_level: 32 * MIB,
    known: "stores that bypass the cache are slower than cached ones for what the cache holds and faster beyond, on \
            every measured microarchitecture but Skylake",
    source: ARORA_2022,
    bypass_pays: true,
    write_back_pays: true,
    clear: BEYOND_CACHE,
    bypass: CLZERO,
    copy: COPY_BEYOND_CACHE,
};

/// The row of that processor, else of its vendor, else [`UNKNOWN`].
pub(super) fn of(cpu: CpuKey) -> &'static Microarchitecture {
    let core = |row: &&Microarchitecture| {
        row.family == cpu.family && row.models.iter().any(|models| models.contains(&cpu.model))
    };
    let mut of_vendor = TABLE.iter().filter(|row| row.vendor == cpu.vendor);
    let measured = of_vendor.clone().find(core);
    measured.or_else(|| of_vendor.find(|row| !row.is_measured())).unwrap_or(&UNKNOWN)
}

/// True if an entry of that processor says that MOVNTI is slower than cached stores.
pub(super) fn movnti_is_slow(cpu: CpuKey) -> bool {
    !of(cpu).bypass_pays
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::{method, operation::Operation};

    #[test]
    fn every_row_is_found_and_tells_its_source() {
        for row in TABLE {
            assert!(!row.known.is_empty() && row.source.contains("20"), "{}", row.name);
            for model in row.models.iter().cloned().flatten() {
                let cpu = CpuKey { vendor: row.vendor, family: row.family, model, stepping: 0 };
                assert!(std::ptr::eq(of(cpu), row), "{}: model {model}", row.name);
                assert!(std::ptr::eq(of(CpuKey { vendor: "Other", ..cpu }), &UNKNOWN));
                let other = of(CpuKey { family: 99, ..cpu });
                assert!(other.vendor == row.vendor && !other.is_measured(), "{}", other.name);
            }
        }
    }

    /// Processors of the measured families, by the models that they report.
    #[test]
    fn families_are_recognized_and_not_single_models() {
        for (vendor, family, model, name) in [
            ("AuthenticAMD", 23, 0x31, "Zen 2"),
            ("AuthenticAMD", 23, 0x71, "Zen 2"),
            ("AuthenticAMD", 25, 0x01, "Zen 3"),
            ("AuthenticAMD", 25, 0x50, "Zen 3"),
            ("AuthenticAMD", 25, 0x11, "Zen 4"),
            ("AuthenticAMD", 25, 0x61, "Zen 4"),
            ("AuthenticAMD", 25, 0xA0, "Zen 4"),
            ("AuthenticAMD", 26, 0x02, "Zen 5"),
            ("AuthenticAMD", 26, 0x44, "Zen 5"),
            ("AuthenticAMD", 26, 0x50, "another AMD processor"),
            ("AuthenticAMD", 23, 0x01, "Zen, Zen+"),
            ("AuthenticAMD", 23, 0x18, "Zen, Zen+"),
            ("GenuineIntel", 6, 79, "Broadwell"),
            ("GenuineIntel", 6, 85, "Skylake-X, Cascade Lake, Cooper Lake"),
            ("GenuineIntel", 6, 106, "Ice Lake"),
            ("GenuineIntel", 6, 143, "Sapphire Rapids, Emerald Rapids"),
            ("GenuineIntel", 6, 173, "another Intel processor"),
            ("HygonGenuine", 24, 1, "unknown"),
        ] {
            assert_eq!(of(CpuKey { vendor, family, model, stepping: 0 }).name, name, "{family}:{model}");
        }
    }

    #[test]
    fn cached_stores_are_written_back_where_that_may_pay() {
        for (vendor, family, model, pays) in [
            ("GenuineIntel", 6, 85, true),
            ("GenuineIntel", 6, 106, true),
            ("GenuineIntel", 6, 143, false),
            ("GenuineIntel", 6, 207, false),
            ("AuthenticAMD", 25, 0x11, false),
        ] {
            let row = of(CpuKey { vendor, family, model, stepping: 0 });
            assert_eq!(row.write_back_pays, pays, "{}", row.name);
        }
    }

    /// The module has its own copy, in C.
    #[test]
    fn the_module_and_the_library_agree_on_where_movnti_is_slow() {
        let slow = TABLE.iter().filter(|row| row.vendor == "GenuineIntel" && !row.bypass_pays);
        let mut ours: Vec<u32> = slow.flat_map(|row| row.models.iter().cloned().flatten()).collect();
        ours.sort_unstable();
        let quirk = include_str!("../../../../kmod/quirk.c");
        let models = quirk.lines().filter_map(|line| line.trim().strip_prefix("SLOW(")?.split_once(')'));
        let mut of_module: Vec<u32> = models.map(|(model, _)| model.parse().unwrap()).collect();
        of_module.sort_unstable();
        assert_eq!(ours, of_module);
    }

    /// A misspelt name would never be chosen, and nothing would say so.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_wanted_method_is_in_the_table_and_takes_its_parameters() {
        for row in TABLE.iter().chain([&UNKNOWN]) {
            let steps = row.clear.iter().flat_map(|step| step.methods);
            for want in steps.chain(row.bypass) {
                check(want, Operation::Clear);
            }
            for want in row.copy.iter().flat_map(|step| step.methods) {
                check(want, Operation::Copy);
            }
        }
    }

    /// Also for the lists that hold for every processor.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::policy) fn check(want: &Want, operation: Operation) {
        let method = method::by_name(want.name).unwrap_or_else(|| panic!("no method {}", want.name));
        let tunables =
            method.tunables(operation).unwrap_or_else(|| panic!("{} cannot {operation}", want.name));
        let mut parameters = method.default_parameters(operation);
        assert!(want.set.iter().all(|(tunable, value)| parameters.set(tunable, *value)), "{want:?}");
        assert!(parameters.is_valid_for(tunables), "{want:?}");
    }
}
