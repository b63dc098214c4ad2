//! Cached stores, each line immediately followed by CBO.CLEAN or CBO.FLUSH (Zicbom); and the write-backs alone. A FENCE
//! follows.
//!
//! The instructions write back to memory. RISC-V defines no point of persistence, so that memory keeps the bytes without
//! power is up to the platform.

use super::entry::{copy_kernel, fill_kernel, weak};
use super::line::{AnySource, Clean, Flush, Store8};
use super::{fence, loops, tunables};
use crate::machine::Features;
use crate::method::lines::{self, Flushed};
use crate::method::{CacheEffect, Code, Method, Ordering};

/// Defines the methods of one instruction: stores each followed by it, and the instruction alone.
macro_rules! persisted {
    ($module:ident, $stored:literal, $alone:literal, $flush:ident, $flush_name:literal, $kept:literal) => {
        mod $module {
            use super::*;
            type Line = Flushed<Store8, $flush>;
            type Unaligned = Flushed<AnySource, $flush>;

            fill_kernel!(fill = loops::fill_flushed::<Line>, |dst, len, byte, p| dst, len, byte, p);
            copy_kernel!(
                copy = loops::copy_nontemporal::<Line, Unaligned>,
                |dst, src, len, p| dst,
                src,
                len,
                p
            );

            pub(super) const STORED: Method = Method {
                name: $stored,
                summary: concat!("cached stores of 8 bytes, each line followed by ", $flush_name),
                effect: CacheEffect::Evicts,
                ordering: Ordering::Weak,
                requires: Features::ZICBOM,
                code: Code {
                    fill_persist: weak!(FillFn, fill, tunables::FLUSHED_FILL, fence),
                    copy_persist: weak!(CopyFn, copy, tunables::NONTEMPORAL_COPY, fence),
                    ..Code::NONE
                },
            };

            pub(super) const ALONE: Method = Method {
                name: $alone,
                summary: concat!($flush_name, " of each line: written back, ", $kept),
                code: Code { persist: weak!(PersistFn, lines::flush::<$flush>, &[], fence), ..Code::NONE },
                ..STORED
            };
        }
    };
}

persisted!(clean, "store_8_cbo_clean", "cbo_clean", Clean, "CBO.CLEAN", "possibly kept");
persisted!(flush, "store_8_cbo_flush", "cbo_flush", Flush, "CBO.FLUSH", "and evicted");

pub(super) static METHODS: &[Method] = &[clean::STORED, flush::STORED, clean::ALONE, flush::ALONE];
