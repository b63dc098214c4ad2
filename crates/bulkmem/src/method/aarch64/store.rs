//! Cached stores, with and without write prefetches (PRFM PSTL1KEEP).
//!
//! For bytes that are read soon. Many processors recognize a long run of stores and write lines without reading them
//! ("write streaming"), so wide stores may also be fast for memory that is not cached. Not measured here yet.

use super::entry::{copy_kernel, fill_kernel, ordered};
use super::{line, loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the two methods of one width: without and with write prefetch.
macro_rules! store {
    ($module:ident, $name:literal, $prefetch_name:literal, $instruction:literal, $line:ident) => {
        mod $module {
            use super::*;

            fill_kernel!(fill = loops::fill::<line::$line>, |dst, len, byte, p| dst, len, byte);
            fill_kernel!(
                fill_prefetched = loops::fill_prefetched::<line::$line>,
                |dst, len, byte, p| dst,
                len,
                byte,
                p
            );
            copy_kernel!(copy = loops::copy_cached::<line::$line>, |dst, src, len, p| dst, src, len, p);

            pub(super) const PLAIN: Method = Method {
                name: $name,
                summary: concat!("cached stores, ", $instruction),
                effect: CacheEffect::Allocates,
                ordering: Ordering::Ordered,
                requires: Features::empty(),
                code: Code {
                    clear: ordered!(FillFn, fill, &[]),
                    fill: ordered!(FillFn, fill, &[]),
                    copy: ordered!(CopyFn, copy, tunables::CACHED_COPY),
                    ..Code::NONE
                },
            };

            pub(super) const PREFETCHED: Method = Method {
                name: $prefetch_name,
                summary: concat!("cached stores, ", $instruction, ", PRFM PSTL1KEEP ahead"),
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

store!(store_8, "store_8", "write_prefetch_8", "STR of 8 bytes", Store8);
store!(stp_16, "stp_16", "write_prefetch_stp_16", "STP of 16 bytes", Stp16);
store!(stp_32, "stp_32", "write_prefetch_stp_32", "STP of 32 bytes", Stp32);

pub(super) static METHODS: &[Method] = &[
    store_8::PLAIN,
    stp_16::PLAIN,
    stp_32::PLAIN,
    store_8::PREFETCHED,
    stp_16::PREFETCHED,
    stp_32::PREFETCHED,
];
