//! Non-temporal stores: a write-combining buffer assembles the line and writes it to memory, bypassing the cache.
//!
//! They do not read a line before they overwrite it, and do not evict others. Not for bytes that are read soon, and
//! not on Skylake-X and Cascade Lake, where the few buffers limit one thread. (Ankur Arora, "x86/asm: add
//! clear_page_nt()", 2020; Mikulas Patocka, "memcpy_flushcache: use cache flushing for larger lengths", 2020.)

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::line::{self, Durable};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

macro_rules! nontemporal {
    ($module:ident, $name:literal, $summary:literal, $line:ident, $requires:expr $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;
            use line::$line as Line;

            fill_kernel!($(#[$feature])? fill = loops::fill::<Line>, |dst, len, byte, p| dst, len, byte);
            copy_kernel!($(#[$feature])? copy = loops::copy_nontemporal::<Line, Line>,
                         |dst, src, len, p| dst, src, len, p);
            fill_kernel!($(#[$feature])? fill_persist = loops::fill::<Durable<Line>>, |dst, len, byte, p| dst, len, byte);
            copy_kernel!($(#[$feature])? copy_persist = loops::copy_nontemporal::<Durable<Line>, Durable<Line>>,
                         |dst, src, len, p| dst, src, len, p);

            pub(super) const METHOD: Method = Method {
                name: $name,
                summary: $summary,
                effect: CacheEffect::Bypasses,
                ordering: Ordering::Weak,
                requires: $requires,
                code: Code {
                    clear: weak!(FillFn, fill, &[]),
                    fill: weak!(FillFn, fill, &[]),
                    copy: weak!(CopyFn, copy, tunables::NONTEMPORAL_COPY),
                    fill_persist: weak!(FillFn, fill_persist, &[]),
                    copy_persist: weak!(CopyFn, copy_persist, tunables::NONTEMPORAL_COPY),
                    ..Code::NONE
                },
            };
        }
    };
}

nontemporal!(movnti_4, "movnti_4", "non-temporal stores of 4 bytes (MOVNTI)", Nontemporal4, Features::SSE2);
nontemporal!(movnti, "movnti", "non-temporal stores of 8 bytes (MOVNTI)", Nontemporal8, Features::SSE2);
nontemporal!(
    sse2,
    "nontemporal_sse2",
    "non-temporal stores of 16 bytes (MOVNTDQ)",
    NontemporalSse2,
    Features::SSE2
);
nontemporal!(avx, "nontemporal_avx", "non-temporal stores of 32 bytes (VMOVNTDQ)", NontemporalAvx, Features::AVX,
             #[target_feature(enable = "avx")]);
#[cfg(avx512)]
nontemporal!(avx512, "nontemporal_avx512", "non-temporal stores of 64 bytes (VMOVNTDQ)", NontemporalAvx512,
             Features::AVX512F, #[target_feature(enable = "avx512f")]);

/// Defines methods with non-temporal loads, with non-temporal stores and, for bytes that are used next, with cached
/// ones. They are for write-combining memory; from write-back memory, most processors perform an ordinary load. They
/// begin with an MFENCE; [`loops::copy_nontemporal_loads`] says why.
macro_rules! movntdqa {
    ($module:ident, $name:literal, $cached_name:literal, $width:literal, $line:ident, $unaligned:ident,
     $cached:ident, $cached_unaligned:ident, $requires:expr $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;

            copy_kernel!($(#[$feature])? copy = loops::copy_nontemporal_loads::<line::$line, line::$unaligned>,
                         |dst, src, len, p| dst, src, len, p);
            copy_kernel!($(#[$feature])? copy_cached = loops::copy_nontemporal_loads::<line::$cached, line::$cached_unaligned>,
                         |dst, src, len, p| dst, src, len, p);

            pub(super) const METHOD: Method = Method {
                name: $name,
                summary: concat!("non-temporal loads (MOVNTDQA) and stores of ", $width, " bytes"),
                effect: CacheEffect::Bypasses,
                ordering: Ordering::Weak,
                requires: $requires,
                code: Code { copy: weak!(CopyFn, copy, tunables::NONTEMPORAL_COPY), ..Code::NONE },
            };

            pub(super) const CACHED: Method = Method {
                name: $cached_name,
                summary: concat!("non-temporal loads (MOVNTDQA), cached stores of ", $width, " bytes"),
                effect: CacheEffect::Allocates,
                ordering: Ordering::Ordered,
                code: Code { copy: ordered!(CopyFn, copy_cached, tunables::NONTEMPORAL_COPY), ..Code::NONE },
                ..METHOD
            };
        }
    };
}

movntdqa!(
    movntdqa_sse41,
    "movntdqa_sse41",
    "movntdqa_store_sse41",
    "16",
    LoadNontemporalSse41,
    NontemporalSse2,
    LoadNontemporalStoreSse41,
    StoreSse2,
    Features::SSE4_1
);
movntdqa!(movntdqa_avx2, "movntdqa_avx2", "movntdqa_store_avx2", "32", LoadNontemporalAvx2, NontemporalAvx,
          LoadNontemporalStoreAvx2, StoreAvx, Features::AVX.union(Features::AVX2), #[target_feature(enable = "avx,avx2")]);
#[cfg(avx512)]
movntdqa!(movntdqa_avx512, "movntdqa_avx512", "movntdqa_store_avx512", "64", LoadNontemporalAvx512,
          NontemporalAvx512, LoadNontemporalStoreAvx512, StoreAvx512, Features::AVX512F,
          #[target_feature(enable = "avx512f")]);

pub(super) static METHODS: &[Method] = &[
    movnti_4::METHOD,
    movnti::METHOD,
    sse2::METHOD,
    avx::METHOD,
    #[cfg(avx512)]
    avx512::METHOD,
    movntdqa_sse41::METHOD,
    movntdqa_avx2::METHOD,
    #[cfg(avx512)]
    movntdqa_avx512::METHOD,
    movntdqa_sse41::CACHED,
    movntdqa_avx2::CACHED,
    #[cfg(avx512)]
    movntdqa_avx512::CACHED,
];
