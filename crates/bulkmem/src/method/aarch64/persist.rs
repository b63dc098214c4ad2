//! Cached stores, each line immediately followed by DC CVAP or DC CVADP; and the write-backs alone. A DSB follows.
//!
//! DC CVAP cleans a line to the point of persistence, DC CVADP to the point of deep persistence. DC CVAC is not enough: it
//! cleans to the point of coherency, where all observers see the same bytes, and that may be a cache that loses them with
//! the power. A processor without DC CVAP therefore gets an error. STNP does not replace the write-back, because it is a
//! hint: the bytes may stay in the cache.

use super::entry::{copy_kernel, fill_kernel, weak};
use super::{line, loops, persisted, tunables};
use crate::machine::Features;
use crate::method::lines::{self, Flushed};
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the methods of one instruction: stores each followed by it, and the instruction alone.
macro_rules! persisted {
    ($module:ident, $stored:literal, $alone:literal, $flush:ident, $flush_name:literal, $feature:ident) => {
        mod $module {
            use super::*;
            type Line = Flushed<line::Stp32, line::$flush>;

            fill_kernel!(fill = loops::fill_flushed::<Line>, |dst, len, byte, p| dst, len, byte, p);
            copy_kernel!(copy = loops::copy_flushed::<Line>, |dst, src, len, p| dst, src, len, p);

            pub(super) const STORED: Method = Method {
                name: $stored,
                summary: concat!("cached stores of 32 bytes, each line followed by ", $flush_name),
                effect: CacheEffect::Evicts,
                ordering: Ordering::Weak,
                requires: Features::$feature,
                code: Code {
                    fill_persist: weak!(FillFn, fill, tunables::FLUSHED_FILL, persisted),
                    copy_persist: weak!(CopyFn, copy, tunables::FLUSHED_COPY, persisted),
                    ..Code::NONE
                },
            };

            pub(super) const ALONE: Method = Method {
                name: $alone,
                summary: concat!($flush_name, " of each line: written back, possibly kept"),
                code: Code {
                    persist: weak!(PersistFn, lines::flush::<line::$flush>, &[], persisted),
                    ..Code::NONE
                },
                ..STORED
            };
        }
    };
}

persisted!(cvap, "stp_32_cvap", "dc_cvap", Cvap, "DC CVAP", DC_CVAP);
persisted!(cvadp, "stp_32_cvadp", "dc_cvadp", Cvadp, "DC CVADP", DC_CVADP);

pub(super) static METHODS: &[Method] = &[cvap::STORED, cvadp::STORED, cvap::ALONE, cvadp::ALONE];
