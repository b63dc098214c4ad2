//! CBO.ZERO (Zicboz): zeroes a block without reading it. In order it is a set of ordinary stores.

use std::arch::asm;

use super::entry::ordered;
use super::line::Store8;
use super::loops;
use crate::machine::{Features, zero_block};
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters};

/// Clears. Whole blocks by CBO.ZERO, and what is before and after them by stores.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn clear(dst: *mut u8, len: usize, _: u8, _: &Parameters) {
    let block = zero_block();
    if block == 0 {
        // SAFETY: passed on from the caller.
        return unsafe { loops::fill::<Store8>(dst, len, 0) };
    }
    let head = (dst.addr().wrapping_neg() & (block - 1)).min(len);
    let blocks = (len - head) / block;
    // SAFETY: head, blocks and tail together are the range, which the caller vouches for. CBO.ZERO zeroes the aligned
    // block that holds its address and nothing else; the method requires a kernel that allows it.
    unsafe {
        loops::fill::<Store8>(dst, head, 0);
        let mut at = dst.add(head);
        for _ in 0..blocks {
            asm!(".option push", ".option arch, +zicboz", "cbo.zero ({})", ".option pop", in(reg) at,
                 options(nostack, preserves_flags));
            at = at.add(block);
        }
        loops::fill::<Store8>(at, len - head - blocks * block, 0);
    }
}

pub(super) static METHODS: &[Method] = &[Method {
    name: "cbo_zero",
    summary: "CBO.ZERO of each block",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::ZICBOZ,
    code: Code { clear: ordered!(FillFn, clear, &[]), ..Code::NONE },
}];
