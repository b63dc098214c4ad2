//! Page streams: several pages are written in parallel, one cache line of each in turn. `x86_64/streams.rs` says why.

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::line::{Stnp32 as Nt, Stp32 as Store};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

fill_kernel!(fill = loops::fill_streams::<Store, Store>, |dst, len, byte, p| dst, len, byte, p, true);
fill_kernel!(fill_nontemporal = loops::fill_streams::<Nt, Nt>, |dst, len, byte, p| dst, len, byte, p, false);
fill_kernel!(fill_hybrid = loops::fill_streams::<Nt, Store>, |dst, len, byte, p| dst, len, byte, p, false);
copy_kernel!(copy = loops::copy_streams::<Store, Store>, |dst, src, len, p| dst, src, len, p, true);
copy_kernel!(copy_nontemporal = loops::copy_streams::<Nt, Nt>, |dst, src, len, p| dst, src, len, p, false);
copy_kernel!(copy_hybrid = loops::copy_streams::<Nt, Store>, |dst, src, len, p| dst, src, len, p, false);

pub(super) static METHODS: &[Method] = &[
    Method {
        name: "streams_stp_32",
        summary: "parallel page streams, cached stores of 32 bytes",
        effect: CacheEffect::Allocates,
        ordering: Ordering::Ordered,
        requires: Features::empty(),
        code: Code {
            clear: ordered!(FillFn, fill, tunables::STREAM_FILL),
            fill: ordered!(FillFn, fill, tunables::STREAM_FILL),
            copy: ordered!(CopyFn, copy, tunables::STREAM_COPY),
            ..Code::NONE
        },
    },
    Method {
        name: "nontemporal_streams_stnp_32",
        summary: "parallel page streams, non-temporal stores of 32 bytes",
        effect: CacheEffect::Bypasses,
        ordering: Ordering::Weak,
        requires: Features::empty(),
        code: Code {
            clear: weak!(FillFn, fill_nontemporal, tunables::NONTEMPORAL_STREAM_FILL),
            fill: weak!(FillFn, fill_nontemporal, tunables::NONTEMPORAL_STREAM_FILL),
            copy: weak!(CopyFn, copy_nontemporal, tunables::NONTEMPORAL_STREAM_COPY),
            ..Code::NONE
        },
    },
    Method {
        name: "hybrid_stp_32",
        summary: "parallel page streams, one non-temporal and the others cached, stores of 32 bytes",
        effect: CacheEffect::Mixed,
        ordering: Ordering::Weak,
        requires: Features::empty(),
        code: Code {
            clear: weak!(FillFn, fill_hybrid, tunables::STREAM_FILL),
            fill: weak!(FillFn, fill_hybrid, tunables::STREAM_FILL),
            copy: weak!(CopyFn, copy_hybrid, tunables::STREAM_COPY),
            ..Code::NONE
        },
    },
];
