//! Copies by non-temporal stores that spare the cache the source, too: a copy that only stores past the cache still
//! loads its source into it, and evicts others' data there.
//!
//! For sources that nothing reads again soon. Not for others, since both would be read from memory again, and
//! CLFLUSHOPT evicts a line from the caches of all processors. (The question whether a copy can limit the pollution by
//! its source is Dan Williams's, in reply to Mikulas Patocka, "memcpy_flushcache: use cache flushing for larger
//! lengths", 2020.)

use super::entry::{copy_kernel, weak};
use super::line::{NontemporalAvx, SourceEvicted};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

copy_kernel!(
    #[target_feature(enable = "avx")]
    copy_flushing = loops::copy_nontemporal::<SourceEvicted<NontemporalAvx>, SourceEvicted<NontemporalAvx>>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);
copy_kernel!(
    #[target_feature(enable = "avx")]
    copy_prefetching = loops::copy_nta::<NontemporalAvx>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);

const FLUSHING: Method = Method {
    name: "nontemporal_avx_flush_source",
    summary: "non-temporal stores of 32 bytes, each line of the source evicted by CLFLUSHOPT",
    effect: CacheEffect::Bypasses,
    ordering: Ordering::Weak,
    requires: Features::AVX.union(Features::CLFLUSHOPT),
    code: Code { copy: weak!(CopyFn, copy_flushing, &[tunables::READ_DISTANCE]), ..Code::NONE },
};
const PREFETCHING: Method = Method {
    name: "nontemporal_avx_nta_source",
    summary: "non-temporal stores of 32 bytes, PREFETCHNTA of the source ahead",
    requires: Features::AVX,
    code: Code { copy: weak!(CopyFn, copy_prefetching, &[tunables::NTA_DISTANCE]), ..Code::NONE },
    ..FLUSHING
};

pub(super) static METHODS: &[Method] = &[FLUSHING, PREFETCHING];
