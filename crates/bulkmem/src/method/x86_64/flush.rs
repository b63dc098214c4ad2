//! Cached stores, each line immediately followed by CLWB, CLFLUSHOPT or CLFLUSH; and the write-backs alone.
//!
//! For durable ranges for which non-temporal stores are slower because of their length, or that are read again soon
//! (CLWB may keep the line). Not for bytes that need not be durable. (Mikulas Patocka, "memcpy_flushcache: use cache
//! flushing for larger lengths", 2020.)

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::line::{self, Flushed};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, lines};

/// Defines one method: a width of store and an instruction that writes back. CLFLUSH has its own fences (`ordered`);
/// the others need one (`weak`).
macro_rules! flushed {
    ($module:ident, $name:literal, $width:literal, $store:ident, $flush:ident, $flush_name:literal, $entry:ident,
     $ordering:ident, $requires:expr $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;
            type Line = Flushed<line::$store, line::$flush>;

            fill_kernel!($(#[$feature])? fill = loops::fill_flushed::<Line>, |dst, len, byte, p| dst, len, byte, p);
            copy_kernel!($(#[$feature])? copy_persist = loops::copy_flushed::<Line>, |dst, src, len, p| dst, src, len, p);

            pub(super) const METHOD: Method = Method {
                name: $name,
                summary: concat!("cached stores of ", $width, " bytes, each line followed by ", $flush_name),
                effect: CacheEffect::Evicts,
                ordering: Ordering::$ordering,
                requires: $requires,
                code: Code {
                    clear: $entry!(FillFn, fill, tunables::FLUSHED_FILL),
                    fill: $entry!(FillFn, fill, tunables::FLUSHED_FILL),
                    fill_persist: $entry!(FillFn, fill, tunables::FLUSHED_FILL),
                    copy_persist: $entry!(CopyFn, copy_persist, tunables::FLUSHED_COPY),
                    ..Code::NONE
                },
            };
        }
    };
}

/// Defines the methods of one width.
macro_rules! flushed_by_each {
    ($clwb:ident, $clwb_name:literal, $opt:ident, $opt_name:literal, $flush:ident, $flush_name:literal,
     $width:literal, $store:ident, $requires:expr $(, #[$feature:meta])?) => {
        flushed!($clwb, $clwb_name, $width, $store, Clwb, "CLWB", weak, Weak,
                 $requires.union(Features::CLWB).union(Features::PREFETCHW) $(, #[$feature])?);
        flushed!($opt, $opt_name, $width, $store, Clflushopt, "CLFLUSHOPT", weak, Weak,
                 $requires.union(Features::CLFLUSHOPT).union(Features::PREFETCHW) $(, #[$feature])?);
        flushed!($flush, $flush_name, $width, $store, Clflush, "CLFLUSH", ordered, Ordered,
                 $requires.union(Features::PREFETCHW) $(, #[$feature])?);
    };
}

flushed_by_each!(
    store_8_clwb,
    "store_8_clwb",
    store_8_clflushopt,
    "store_8_clflushopt",
    store_8_clflush,
    "store_8_clflush",
    "8",
    Store8,
    Features::SSE2
);
flushed_by_each!(
    store_sse2_clwb,
    "store_sse2_clwb",
    store_sse2_clflushopt,
    "store_sse2_clflushopt",
    store_sse2_clflush,
    "store_sse2_clflush",
    "16",
    StoreSse2,
    Features::SSE2
);
flushed_by_each!(store_avx_clwb, "store_avx_clwb", store_avx_clflushopt, "store_avx_clflushopt", store_avx_clflush,
                 "store_avx_clflush", "32", StoreAvx, Features::AVX, #[target_feature(enable = "avx")]);
#[cfg(avx512)]
flushed_by_each!(store_avx512_clwb, "store_avx512_clwb", store_avx512_clflushopt, "store_avx512_clflushopt",
                 store_avx512_clflush, "store_avx512_clflush", "64", StoreAvx512, Features::AVX512F,
                 #[target_feature(enable = "avx512f")]);

const CLWB: Method = Method {
    name: "clwb",
    summary: "CLWB of each line: written back, possibly kept",
    effect: CacheEffect::Evicts,
    ordering: Ordering::Weak,
    requires: Features::CLWB,
    code: Code { persist: weak!(PersistFn, lines::flush::<line::Clwb>, &[]), ..Code::NONE },
};
const CLFLUSHOPT: Method = Method {
    name: "clflushopt",
    summary: "CLFLUSHOPT of each line: written back and evicted",
    requires: Features::CLFLUSHOPT,
    code: Code { persist: weak!(PersistFn, lines::flush::<line::Clflushopt>, &[]), ..Code::NONE },
    ..CLWB
};
const CLFLUSH: Method = Method {
    name: "clflush",
    summary: "CLFLUSH of each line between fences: written back and evicted, one after another",
    ordering: Ordering::Ordered,
    requires: Features::SSE2,
    code: Code { persist: ordered!(PersistFn, lines::flush::<line::Clflush>, &[]), ..Code::NONE },
    ..CLWB
};

pub(super) static METHODS: &[Method] = &[
    store_8_clwb::METHOD,
    store_sse2_clwb::METHOD,
    store_avx_clwb::METHOD,
    #[cfg(avx512)]
    store_avx512_clwb::METHOD,
    store_8_clflushopt::METHOD,
    store_sse2_clflushopt::METHOD,
    store_avx_clflushopt::METHOD,
    #[cfg(avx512)]
    store_avx512_clflushopt::METHOD,
    store_8_clflush::METHOD,
    store_sse2_clflush::METHOD,
    store_avx_clflush::METHOD,
    #[cfg(avx512)]
    store_avx512_clflush::METHOD,
    CLWB,
    CLFLUSHOPT,
    CLFLUSH,
];
