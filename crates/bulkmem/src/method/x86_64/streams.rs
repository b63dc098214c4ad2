//! Page streams: several pages are written in parallel, one cache line of each in turn.
//!
//! Hardware prefetchers and memory banks work on one page each, so this uses more of them. In hybrids, one stream
//! bypasses the cache and the others are cached and prefetched, because the two kinds of store use different buffers.
//! Not for ranges of a few pages, which these methods write sequentially.

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::{line, loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the three methods of one width: cached, non-temporal, and a hybrid of both.
macro_rules! streams {
    ($module:ident, $cached:literal, $nontemporal:literal, $hybrid:literal, $width:literal,
     $store:ident, $nt:ident, $requires:expr $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;
            use line::{$nt as Nt, $store as Store};

            fill_kernel!($(#[$feature])? fill = loops::fill_streams::<Store, Store>,
                         |dst, len, byte, p| dst, len, byte, p, true);
            fill_kernel!($(#[$feature])? fill_nontemporal = loops::fill_streams::<Nt, Nt>,
                         |dst, len, byte, p| dst, len, byte, p, false);
            fill_kernel!($(#[$feature])? fill_hybrid = loops::fill_streams::<Nt, Store>,
                         |dst, len, byte, p| dst, len, byte, p, false);
            copy_kernel!($(#[$feature])? copy = loops::copy_streams::<Store, Store>,
                         |dst, src, len, p| dst, src, len, p, true);
            copy_kernel!($(#[$feature])? copy_nontemporal = loops::copy_streams::<Nt, Nt>,
                         |dst, src, len, p| dst, src, len, p, false);
            copy_kernel!($(#[$feature])? copy_hybrid = loops::copy_streams::<Nt, Store>,
                         |dst, src, len, p| dst, src, len, p, false);

            pub(super) const CACHED: Method = Method {
                name: $cached,
                summary: concat!("parallel page streams, cached stores of ", $width, " bytes"),
                effect: CacheEffect::Allocates,
                ordering: Ordering::Ordered,
                requires: $requires.union(Features::PREFETCHW),
                code: Code {
                    clear: ordered!(FillFn, fill, tunables::STREAM_FILL),
                    fill: ordered!(FillFn, fill, tunables::STREAM_FILL),
                    copy: ordered!(CopyFn, copy, tunables::STREAM_COPY),
                    ..Code::NONE
                },
            };

            pub(super) const NONTEMPORAL: Method = Method {
                name: $nontemporal,
                summary: concat!("parallel page streams, non-temporal stores of ", $width, " bytes"),
                effect: CacheEffect::Bypasses,
                ordering: Ordering::Weak,
                requires: $requires,
                code: Code {
                    clear: weak!(FillFn, fill_nontemporal, tunables::NONTEMPORAL_STREAM_FILL),
                    fill: weak!(FillFn, fill_nontemporal, tunables::NONTEMPORAL_STREAM_FILL),
                    copy: weak!(CopyFn, copy_nontemporal, tunables::NONTEMPORAL_STREAM_COPY),
                    ..Code::NONE
                },
            };

            pub(super) const HYBRID: Method = Method {
                name: $hybrid,
                summary: concat!("parallel page streams, one non-temporal and the others cached, stores of ", $width, " bytes"),
                effect: CacheEffect::Mixed,
                ordering: Ordering::Weak,
                requires: $requires.union(Features::PREFETCHW),
                code: Code {
                    clear: weak!(FillFn, fill_hybrid, tunables::STREAM_FILL),
                    fill: weak!(FillFn, fill_hybrid, tunables::STREAM_FILL),
                    copy: weak!(CopyFn, copy_hybrid, tunables::STREAM_COPY),
                    ..Code::NONE
                },
            };
        }
    };
}

streams!(
    sse2,
    "streams_sse2",
    "nontemporal_streams_sse2",
    "hybrid_sse2",
    "16",
    StoreSse2,
    NontemporalSse2,
    Features::SSE2
);
streams!(avx, "streams_avx", "nontemporal_streams_avx", "hybrid_avx", "32", StoreAvx, NontemporalAvx,
         Features::AVX, #[target_feature(enable = "avx")]);
#[cfg(avx512)]
streams!(avx512, "streams_avx512", "nontemporal_streams_avx512", "hybrid_avx512", "64", StoreAvx512,
         NontemporalAvx512, Features::AVX512F, #[target_feature(enable = "avx512f")]);

pub(super) static METHODS: &[Method] = &[
    sse2::CACHED,
    avx::CACHED,
    #[cfg(avx512)]
    avx512::CACHED,
    sse2::NONTEMPORAL,
    avx::NONTEMPORAL,
    #[cfg(avx512)]
    avx512::NONTEMPORAL,
    sse2::HYBRID,
    avx::HYBRID,
    #[cfg(avx512)]
    avx512::HYBRID,
];
