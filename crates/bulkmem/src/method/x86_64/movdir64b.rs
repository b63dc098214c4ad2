//! MOVDIR64B: copies a whole line from memory to memory as one direct store that bypasses the cache and is never
//! torn.
//!
//! A full line reaches memory in one write even under pressure, which write-combining buffers do not guarantee. Not
//! for bytes that are read soon. Weakly ordered.

use std::arch::asm;

use super::entry::{copy_kernel, fill_kernel, weak};
use super::line::{CopyLine, Durable, FillLine, LINE};
use super::{loops, tunables};
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

struct Movdir64b;

/// A cache line filled with one byte, the source of fills.
#[repr(align(64))]
struct Pattern([u8; LINE]);

impl FillLine for Movdir64b {
    type Value = Pattern;

    #[inline(always)]
    unsafe fn value(byte: u8) -> Pattern {
        Pattern([byte; LINE])
    }

    #[inline(always)]
    unsafe fn write(line: *mut u8, value: &Pattern) {
        // SAFETY: the pattern is 64 readable bytes; the rest is passed on from the caller.
        unsafe { <Movdir64b as CopyLine>::copy(line, value.0.as_ptr()) }
    }
}

impl CopyLine for Movdir64b {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8) {
        // SAFETY: the caller vouches for both lines, for the destination's alignment and for the instruction.
        unsafe { asm!("movdir64b {}, [{}]", in(reg) dst, in(reg) src, options(nostack, preserves_flags)) }
    }
}

fill_kernel!(fill = loops::fill::<Movdir64b>, |dst, len, byte, p| dst, len, byte);
fill_kernel!(fill_persist = loops::fill::<Durable<Movdir64b>>, |dst, len, byte, p| dst, len, byte);
copy_kernel!(copy = loops::copy_nontemporal::<Movdir64b, Movdir64b>, |dst, src, len, p| dst, src, len, p);
copy_kernel!(
    copy_persist = loops::copy_nontemporal::<Durable<Movdir64b>, Durable<Movdir64b>>,
    |dst, src, len, p| dst,
    src,
    len,
    p
);

pub(super) static METHODS: &[Method] = &[Method {
    name: "movdir64b",
    summary: "MOVDIR64B of each line",
    effect: CacheEffect::Bypasses,
    ordering: Ordering::Weak,
    requires: Features::MOVDIR64B,
    code: Code {
        clear: weak!(FillFn, fill, &[]),
        fill: weak!(FillFn, fill, &[]),
        copy: weak!(CopyFn, copy, tunables::NONTEMPORAL_COPY),
        fill_persist: weak!(FillFn, fill_persist, &[]),
        copy_persist: weak!(CopyFn, copy_persist, tunables::NONTEMPORAL_COPY),
        ..Code::NONE
    },
}];
