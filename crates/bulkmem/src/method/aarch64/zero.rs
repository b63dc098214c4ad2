//! DC ZVA: zeroes a block without reading it.
//!
//! The counterpart of CLZERO, but through the cache: where the lines end up depends on the processor. In order it is a
//! set of ordinary stores. Blocks are 64 bytes on most processors and up to 2 KiB on others.

use std::arch::asm;

use super::entry::ordered;
use super::line::Stp32;
use super::loops;
use crate::machine::{Features, zero_block};
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Clears. Whole blocks by DC ZVA, and what is before and after them by stores.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn clear(dst: *mut u8, len: usize, _: u8, _: &Parameters) {
    let block = zero_block();
    let head = (dst.addr().wrapping_neg() & (block - 1)).min(len);
    let blocks = (len - head) / block;
    // SAFETY: head, blocks and tail together are the range, which the caller vouches for. DC ZVA zeroes the aligned
    // block that holds its address and nothing else; the method requires a processor that allows it.
    unsafe {
        loops::fill::<Stp32>(dst, head, 0);
        let mut at = dst.add(head);
        for _ in 0..blocks {
            asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags));
            at = at.add(block);
        }
        loops::fill::<Stp32>(at, len - head - blocks * block, 0);
    }
}

pub(super) static METHODS: &[Method] = &[Method {
    name: "dc_zva",
    summary: "DC ZVA of each block",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::DC_ZVA,
    code: Code { clear: ordered!(FillFn, clear, &[]), ..Code::NONE },
}];
