//! Stores of 8 bytes: plain, with prefetches (Zicbop), and with the non-temporal hint (Zihintntl).
//!
//! The hints are no-operations on processors without these extensions.

use super::entry::{copy_kernel, fill_kernel, ordered, weak};
use super::line::{AnySource, Nontemporal8, Store8};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

fill_kernel!(fill = loops::fill::<Store8>, |dst, len, byte, p| dst, len, byte);
fill_kernel!(fill_prefetched = loops::fill_prefetched::<Store8>, |dst, len, byte, p| dst, len, byte, p);
fill_kernel!(
    fill_streams = loops::fill_streams::<Store8, Store8>,
    |dst, len, byte, p| dst,
    len,
    byte,
    p,
    true
);
fill_kernel!(fill_nontemporal = loops::fill::<Nontemporal8>, |dst, len, byte, p| dst, len, byte);
copy_kernel!(copy = loops::copy_nontemporal::<Store8, AnySource>, |dst, src, len, p| dst, src, len, p);
copy_kernel!(
    copy_nontemporal = loops::copy_nontemporal::<Nontemporal8, AnySource>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);

const STORE: Method = Method {
    name: "store_8",
    summary: "cached stores, SD of 8 bytes",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::empty(),
    code: Code {
        clear: ordered!(FillFn, fill, &[]),
        fill: ordered!(FillFn, fill, &[]),
        copy: ordered!(CopyFn, copy, tunables::NONTEMPORAL_COPY),
        ..Code::NONE
    },
};

pub(super) static METHODS: &[Method] = &[
    STORE,
    Method {
        name: "write_prefetch_8",
        summary: "cached stores, SD of 8 bytes, PREFETCH.W ahead",
        code: Code {
            clear: ordered!(FillFn, fill_prefetched, tunables::PREFETCHED_FILL),
            fill: ordered!(FillFn, fill_prefetched, tunables::PREFETCHED_FILL),
            ..Code::NONE
        },
        ..STORE
    },
    Method {
        name: "streams_8",
        summary: "parallel page streams, cached stores of 8 bytes",
        code: Code {
            clear: ordered!(FillFn, fill_streams, tunables::STREAM_FILL),
            fill: ordered!(FillFn, fill_streams, tunables::STREAM_FILL),
            ..Code::NONE
        },
        ..STORE
    },
    Method {
        name: "nontemporal_8",
        summary: "stores of 8 bytes, each after the hint NTL.ALL",
        effect: CacheEffect::Bypasses,
        ordering: Ordering::Weak,
        requires: Features::ZIHINTNTL,
        code: Code {
            clear: weak!(FillFn, fill_nontemporal, &[]),
            fill: weak!(FillFn, fill_nontemporal, &[]),
            copy: weak!(CopyFn, copy_nontemporal, tunables::NONTEMPORAL_COPY),
            ..Code::NONE
        },
    },
];
