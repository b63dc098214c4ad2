//! The string instructions: REP STOSB, STOSD, STOSQ, MOVSB, MOVSD, MOVSQ, and REP STOSQ with write prefetches ahead.
//!
//! Microcode receives the whole length and chooses how to write it. Some processors (Milan) stop allocating cache
//! lines if the length exceeds the last-level cache. Not for short ranges, because the start takes some 30 cycles,
//! and not on processors that ignore the length (Ice Lake-X).

use std::arch::asm;

use super::edges::{self, Lines};
use super::entry::ordered;
use super::line::{LINE, Store8};
use super::part::{copy_part, fill_part};
use super::prefetch::prefetch_for_write;
use super::tunables;
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering, Parameters, Tunable};

/// The block of one REP instruction.
const REP_BLOCK: Tunable = Tunable {
    name: "block",
    range: (64, tunables::FURTHEST),
    step: 64,
    default: 1024,
    search: &[256, 1024, 4096],
};

/// REP STOSQ of `words` words of 8 bytes.
///
/// # Safety
/// `dst` is valid for writes of 8 × `words` bytes.
#[inline(always)]
unsafe fn stosq(dst: *mut u8, words: usize, byte: u8) {
    // SAFETY: the caller vouches for the range; the calling convention guarantees that the direction flag is clear.
    unsafe {
        asm!("rep stosq", inout("rdi") dst => _, inout("rcx") words => _, in("rax") u64::from_ne_bytes([byte; 8]),
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn rep_stosb(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
    // SAFETY: as in `stosq`.
    unsafe {
        asm!("rep stosb", inout("rdi") dst => _, inout("rcx") len => _, in("al") byte,
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn rep_stosq(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
    let part = len % 8;
    // SAFETY: words and part together are the range, which the caller vouches for.
    unsafe {
        stosq(dst, len / 8, byte);
        fill_part(dst.add(len - part), part, byte);
    }
}

/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn rep_stosd(dst: *mut u8, len: usize, byte: u8, _: &Parameters) {
    let part = len % 4;
    // SAFETY: words and part together are the range, which the caller vouches for; the direction flag is clear.
    unsafe {
        asm!("rep stosd", inout("rdi") dst => _, inout("rcx") len / 4 => _, in("eax") u32::from_ne_bytes([byte; 4]),
             options(nostack, preserves_flags));
        fill_part(dst.add(len - part), part, byte);
    }
}

/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
unsafe fn rep_movsb(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear.
    unsafe {
        asm!("rep movsb", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len => _,
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
unsafe fn rep_movsq(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    let part = len % 8;
    let words = len - part;
    // SAFETY: words and part together are the ranges, which the caller vouches for; the direction flag is clear.
    unsafe {
        asm!("rep movsq", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len / 8 => _,
             options(nostack, preserves_flags));
        copy_part(dst.add(words), src.add(words), part);
    }
}

/// # Safety
/// See [`CopyFn`](crate::method::CopyFn).
unsafe fn rep_movsd(dst: *mut u8, src: *const u8, len: usize, _: &Parameters) {
    let part = len % 4;
    let words = len - part;
    // SAFETY: as in `rep_movsq`.
    unsafe {
        asm!("rep movsd", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len / 4 => _,
             options(nostack, preserves_flags));
        copy_part(dst.add(words), src.add(words), part);
    }
}

/// REP STOSQ block by block. Before each, the block `write_distance` further on is prefetched for writing.
/// Tunables: `write_distance`, `block`.
///
/// # Safety
/// See [`FillFn`](crate::method::FillFn).
unsafe fn write_prefetch_rep_stosq(dst: *mut u8, len: usize, byte: u8, parameters: &Parameters) {
    let distance = parameters.write_distance as usize;
    let block = (parameters.block as usize).max(LINE);
    // SAFETY: the blocks are cut from the whole lines that `edges` left; prefetches reach only into those.
    unsafe {
        let Lines { start, count, .. } = edges::fill::<Store8>(dst, len, byte);
        let bytes = count * LINE;
        let mut done = 0;
        while done < bytes {
            let now = block.min(bytes - done);
            let from = done + distance;
            for ahead in (from..(from + now).min(bytes)).step_by(LINE) {
                prefetch_for_write(start.add(ahead));
            }
            stosq(start.add(done), now / 8, byte);
            done += now;
        }
    }
}

const REP_STOSB: Method = Method {
    name: "rep_stosb",
    summary: "REP STOSB",
    effect: CacheEffect::Allocates,
    ordering: Ordering::Ordered,
    requires: Features::SSE2,
    code: Code {
        clear: ordered!(FillFn, rep_stosb, &[]),
        fill: ordered!(FillFn, rep_stosb, &[]),
        ..Code::NONE
    },
};
const REP_STOSQ: Method = Method {
    name: "rep_stosq",
    summary: "REP STOSQ",
    code: Code {
        clear: ordered!(FillFn, rep_stosq, &[]),
        fill: ordered!(FillFn, rep_stosq, &[]),
        ..Code::NONE
    },
    ..REP_STOSB
};
const REP_STOSD: Method = Method {
    name: "rep_stosd",
    summary: "REP STOSD, for comparison only",
    code: Code {
        clear: ordered!(FillFn, rep_stosd, &[]),
        fill: ordered!(FillFn, rep_stosd, &[]),
        ..Code::NONE
    },
    ..REP_STOSB
};
const WRITE_PREFETCH_REP_STOSQ: Method = Method {
    name: "write_prefetch_rep_stosq",
    summary: "REP STOSQ block by block, PREFETCHW ahead",
    requires: Features::SSE2.union(Features::PREFETCHW),
    code: Code {
        clear: ordered!(FillFn, write_prefetch_rep_stosq, &[tunables::WRITE_DISTANCE, REP_BLOCK]),
        fill: ordered!(FillFn, write_prefetch_rep_stosq, &[tunables::WRITE_DISTANCE, REP_BLOCK]),
        ..Code::NONE
    },
    ..REP_STOSB
};
const REP_MOVSB: Method = Method {
    name: "rep_movsb",
    summary: "REP MOVSB",
    code: Code { copy: ordered!(CopyFn, rep_movsb, &[]), ..Code::NONE },
    ..REP_STOSB
};
const REP_MOVSQ: Method = Method {
    name: "rep_movsq",
    summary: "REP MOVSQ",
    code: Code { copy: ordered!(CopyFn, rep_movsq, &[]), ..Code::NONE },
    ..REP_STOSB
};
const REP_MOVSD: Method = Method {
    name: "rep_movsd",
    summary: "REP MOVSD, for comparison only",
    code: Code { copy: ordered!(CopyFn, rep_movsd, &[]), ..Code::NONE },
    ..REP_STOSB
};

pub(super) static METHODS: &[Method] =
    &[REP_STOSB, REP_STOSD, REP_STOSQ, WRITE_PREFETCH_REP_STOSQ, REP_MOVSB, REP_MOVSD, REP_MOVSQ];
