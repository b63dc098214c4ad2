//! CLZERO (AMD): zeroes a whole cache line without reading it, and bypasses the cache.
//!
//! The fastest clear of large ranges on Zen. Not for zeros that are read soon. Weakly ordered, like a non-temporal
//! store. (Ankur Arora, "huge page clearing optimizations" v3, 2022.)

use std::arch::asm;

use super::entry::{fill_kernel, weak};
use super::line::FillLine;
use super::loops;
use crate::machine::Features;
use crate::method::{CacheEffect, Code, Method, Ordering};

struct Clzero;

impl FillLine for Clzero {
    type Value = ();

    #[inline(always)]
    unsafe fn value(_: u8) {}

    #[inline(always)]
    unsafe fn write(line: *mut u8, (): &()) {
        // SAFETY: the caller vouches for the line and the instruction; CLZERO zeroes the aligned line that RAX
        // points into and nothing else.
        unsafe { asm!("clzero", in("rax") line, options(nostack, preserves_flags)) }
    }
}

fill_kernel!(clear = loops::fill::<Clzero>, |dst, len, byte, p| dst, len, byte);

pub(super) static METHODS: &[Method] = &[Method {
    name: "clzero",
    summary: "CLZERO of each line",
    effect: CacheEffect::Bypasses,
    ordering: Ordering::Weak,
    requires: Features::CLZERO,
    code: Code { clear: weak!(FillFn, clear, &[]), ..Code::NONE },
}];
