//! Published measurements of microarchitectures, with their sources.
//!
//! An entry contains only what was measured on that microarchitecture. All other processors get [`UNKNOWN`], the authors'
//! own conclusion from these measurements.

use crate::machine::CpuKey;

/// A microarchitecture, and the rules that follow from its published measurements.
#[derive(Debug)]
pub(super) struct Microarchitecture {
    pub(super) name: &'static str,
    vendor: &'static str,
    family: u32,
    models: &'static [u32],
    /// The last-level cache that one thread sees on the measured machine, bytes; used if this machine's is unknown.
    pub(super) last_level: u64,
    /// The finding.
    pub(super) known: &'static str,
    /// Its source.
    pub(super) source: &'static str,
    /// True if stores that bypass the cache are fastest for memory larger than the cache.
    pub(super) bypass_pays: bool,
    /// Clear and fill above the lengths that the C library handles, in rising order.
    pub(super) clear: &'static [Step],
    /// Clear and fill that bypass the cache: the first available method is used.
    pub(super) bypass: &'static [Want],
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

static TABLE: &[Microarchitecture] = &[
    Microarchitecture {
        name: "Broadwell-X",
        vendor: "GenuineIntel",
        family: 6,
        models: &[79, 86],
        last_level: 25 * MIB,
        known: "REP STOSB is 1.5 times as fast as MOVNTI at 16 MB, MOVNTI 2.2 times as fast from 128 MB",
        source: ARORA_2020,
        bypass_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: PAST_LAST_LEVEL,
                methods: MOVNTI,
                reason: "more than the cache holds: MOVNTI spares the read that REP STOSB does before it writes",
            },
        ],
        bypass: MOVNTI,
    },
    Microarchitecture {
        name: "Rome (Zen 2)",
        vendor: "AuthenticAMD",
        family: 23,
        models: &[49],
        last_level: 16 * MIB,
        known: "REP STOSQ is as fast as MOVNTI at 16 MB, MOVNTI 1.3 to 1.4 times as fast from 128 MB",
        source: ARORA_2020,
        bypass_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSQ, reason: CACHED },
            Step {
                from: PAST_LAST_LEVEL,
                methods: MOVNTI,
                reason: "more than the cache holds: MOVNTI spares the read that REP STOSQ does before it writes",
            },
        ],
        bypass: MOVNTI,
    },
    Microarchitecture {
        name: "Skylake-X, Cascade Lake, Cooper Lake",
        vendor: "GenuineIntel",
        family: 6,
        models: &[85],
        last_level: 36 * MIB,
        known: "MOVNTI is slower than REP STOSB at every size (by 69 % at 16 MB, 3 to 4 % from 128 MB); plain stores \
                with PREFETCHW 2 to 8 KiB ahead are 1.6 times as fast as the better of both from 256 MiB",
        source: "Ankur Arora, [PATCH 4/8] x86/asm: add clear_page_nt(), LKML, 2020-10-14, and his X86_FEATURE_MOVNT_SLOW, \
                 2022; the prefetched stores: bulkmem's own measurement on Cascade Lake",
        bypass_pays: false,
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
    },
    Microarchitecture {
        name: "Ice Lake-X",
        vendor: "GenuineIntel",
        family: 6,
        models: &[106, 108],
        last_level: 48 * MIB,
        known: "over 4 GiB MOVNTI is twice as fast as REP STOSB, whatever the chunk (4 KiB to 1 GiB)",
        source: ARORA_2022,
        bypass_pays: true,
        clear: &[
            Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
            Step {
                from: NON_CACHING,
                methods: MOVNTI,
                reason: "MOVNTI is twice as fast as REP STOSB, whatever the chunk",
            },
        ],
        bypass: MOVNTI,
    },
    Microarchitecture {
        name: "Milan (Zen 3)",
        vendor: "AuthenticAMD",
        family: 25,
        models: &[1],
        last_level: 32 * MIB,
        known: "over 4 GiB CLZERO is the fastest, whatever the chunk; without it MOVNTI for chunks up to 8 MB, REP STOSB \
                for chunks from 32 MB, the size of its cache",
        source: ARORA_2022,
        bypass_pays: true,
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
    },
    Microarchitecture {
        name: "Genoa (Zen 4)",
        vendor: "AuthenticAMD",
        family: 25,
        models: &[17],
        last_level: 32 * MIB,
        known: "zeros by 32- or 64-byte non-temporal stores run at 88 GB/s, CLZERO at 80; memset at 33 below the size of \
                the cache and 77 beyond; where memory is in the cache memset is up to 1.1 times as fast from 1 MiB on",
        source: "bulkmem's own measurement, 2026-11-21: docs/machines/amd-epyc-genoa-vm.md",
        bypass_pays: true,
        clear: &[Step {
            from: From::Bytes(3 * MIB / 2),
            methods: NONTEMPORAL_AVX,
            reason: "2.6 times as fast as memset where memory is not cached, 0.9 times where it is",
        }],
        bypass: NONTEMPORAL_AVX,
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
            every measured microarchitecture but Skylake-X",
    source: ARORA_2022,
    bypass_pays: true,
    clear: &[
        Step { from: From::Level2, methods: REP_STOSB, reason: CACHED },
        Step {
            from: PAST_LAST_LEVEL,
            methods: CLZERO,
            reason: "more than the cache holds: bypassing it pays on most microarchitectures",
        },
    ],
    bypass: CLZERO,
};

/// The row of that processor, else [`UNKNOWN`].
pub(super) fn of(cpu: CpuKey) -> &'static Microarchitecture {
    let its = |row: &&Microarchitecture| {
        row.vendor == cpu.vendor && row.family == cpu.family && row.models.contains(&cpu.model)
    };
    TABLE.iter().find(its).unwrap_or(&UNKNOWN)
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
            for &model in row.models {
                let cpu = CpuKey { vendor: row.vendor, family: row.family, model, stepping: 0 };
                assert!(std::ptr::eq(of(cpu), row), "{}: model {model}", row.name);
                assert!(std::ptr::eq(of(CpuKey { vendor: "Other", ..cpu }), &UNKNOWN));
            }
        }
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
