//! Cached stores, with and without write prefetches.
//!
//! For bytes that are read soon. With PREFETCHW some KiB ahead, also for processors whose own ownership requests are
//! too few to saturate memory (Skylake-X, Cascade Lake). Not for large ranges that are not read soon, if stores that
//! bypass the cache are faster.

use super::entry::{copy_kernel, fill_kernel, ordered};
use super::{line, loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the two methods of one width: without and with write prefetch.
macro_rules! store {
    ($module:ident, $name:literal, $prefetch_name:literal, $width:literal, $line:ident, $requires:expr
     $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;

            fill_kernel!($(#[$feature])? fill = loops::fill::<line::$line>, |dst, len, byte, p| dst, len, byte);
            fill_kernel!($(#[$feature])? fill_prefetched = loops::fill_prefetched::<line::$line>,
                         |dst, len, byte, p| dst, len, byte, p);
            copy_kernel!($(#[$feature])? copy = loops::copy_cached::<line::$line>, |dst, src, len, p| dst, src, len, p);

            pub(super) const PLAIN: Method = Method {
                name: $name,
                summary: concat!("cached stores of ", $width, " bytes"),
                effect: CacheEffect::Allocates,
                ordering: Ordering::Ordered,
                requires: $requires,
                code: Code {
                    clear: ordered!(FillFn, fill, &[]),
                    fill: ordered!(FillFn, fill, &[]),
                    copy: ordered!(CopyFn, copy, tunables::CACHED_COPY),
                    ..Code::NONE
                },
            };

            pub(super) const PREFETCHED: Method = Method {
                name: $prefetch_name,
                summary: concat!("cached stores of ", $width, " bytes, PREFETCHW ahead"),
                requires: $requires.union(Features::PREFETCHW),
                code: Code {
                    clear: ordered!(FillFn, fill_prefetched, tunables::PREFETCHED_FILL),
                    fill: ordered!(FillFn, fill_prefetched, tunables::PREFETCHED_FILL),
                    ..Code::NONE
                },
                ..PLAIN
            };
        }
    };
}

store!(store_8, "store_8", "write_prefetch_8", "8", Store8, Features::SSE2);
store!(store_sse2, "store_sse2", "write_prefetch_sse2", "16", StoreSse2, Features::SSE2);
store!(store_avx, "store_avx", "write_prefetch_avx", "32", StoreAvx, Features::AVX, #[target_feature(enable = "avx")]);
#[cfg(avx512)]
store!(store_avx512, "store_avx512", "write_prefetch_avx512", "64", StoreAvx512, Features::AVX512F,
       #[target_feature(enable = "avx512f")]);

pub(super) static METHODS: &[Method] = &[
    store_8::PLAIN,
    store_sse2::PLAIN,
    store_avx::PLAIN,
    #[cfg(avx512)]
    store_avx512::PLAIN,
    store_8::PREFETCHED,
    store_sse2::PREFETCHED,
    store_avx::PREFETCHED,
    #[cfg(avx512)]
    store_avx512::PREFETCHED,
];
