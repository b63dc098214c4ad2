//! The table of methods: every way this library knows to carry out an operation, one row each.
//!
//! The dispatcher, the calibration, the tests, the benchmarks and the command line all walk this table.
//! A method knows nothing of policy: it is told where, how much, and with which parameters.

// Miri runs no assembly, which is all that these two are made of: under it only `portable` is there.
#[cfg(not(miri))]
mod c_library;
mod parameters;
pub(crate) mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

use std::fmt;

pub use parameters::{Knob, Parameters};

use crate::machine::Features;
use crate::operation::Operation;

/// What a method leaves in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The destination's lines end up in the cache.
    Allocates,
    /// The destination's lines do not enter the cache (and leave it, where they were there).
    Bypasses,
    /// The destination's lines enter the cache and are written back; they may leave it.
    Evicts,
    /// Some lines enter the cache, others pass it by.
    Mixed,
}

/// Whether the stores of a method are ordered before later stores of the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Ordinary stores: nothing more is needed.
    Ordered,
    /// Weakly ordered: others may see later stores first, until a fence.
    Weak,
}

/// Writes `byte` to `len` bytes from `dst`. A row's clear kernel is only ever given 0.
///
/// # Safety
/// `dst..dst+len` is valid for writes, the method's [`Method::requires`] are all enabled on this machine, and
/// `parameters` are within the ranges of the entry's knobs.
pub type FillFn = unsafe fn(dst: *mut u8, len: usize, byte: u8, parameters: &Parameters);

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// As [`FillFn`]; besides, `src..src+len` is valid for reads and does not overlap the destination.
pub type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize, parameters: &Parameters);

/// Writes the cache lines that hold `start..start+len` back to memory.
///
/// # Safety
/// As [`FillFn`], but the range needs only be valid for reads.
pub type FlushFn = unsafe fn(start: *const u8, len: usize, parameters: &Parameters);

/// A method's code for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Entry<F: 'static> {
    /// Without a fence at its end: on a weakly ordered method the caller owes one.
    pub unfenced: F,
    /// Followed by a fence where the method is weakly ordered.
    pub fenced: F,
    /// What can be tuned.
    pub knobs: &'static [Knob],
}

/// One row of the table.
pub struct Method {
    /// The name, unique in the table.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What it leaves in the cache.
    pub effect: Effect,
    /// Whether it needs a fence.
    pub ordering: Ordering,
    /// The instructions it uses; all must be enabled.
    pub requires: Features,
    /// Its code, by operation.
    pub code: Code,
}

/// A method's code, by operation.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Clear: the byte given is always 0.
    pub clear: Option<Entry<FillFn>>,
    /// Fill with any byte.
    pub fill: Option<Entry<FillFn>>,
    /// Copy.
    pub copy: Option<Entry<CopyFn>>,
    /// Copy and make durable (durable once fenced).
    pub persist: Option<Entry<CopyFn>>,
    /// Make durable (durable once fenced).
    pub flush: Option<Entry<FlushFn>>,
}

impl Code {
    /// No operation at all: the base that rows build upon.
    pub(crate) const NONE: Code = Code { clear: None, fill: None, copy: None, persist: None, flush: None };
}

impl Method {
    /// The knobs of the method for one operation; `None` where it cannot do that operation.
    pub fn knobs(&self, operation: Operation) -> Option<&'static [Knob]> {
        match operation {
            Operation::Clear => self.code.clear.map(|entry| entry.knobs),
            Operation::Fill => self.code.fill.map(|entry| entry.knobs),
            Operation::Copy => self.code.copy.map(|entry| entry.knobs),
            Operation::Persist => self.code.persist.map(|entry| entry.knobs),
            Operation::Flush => self.code.flush.map(|entry| entry.knobs),
        }
    }

    /// Whether the method can do the operation.
    pub fn does(&self, operation: Operation) -> bool {
        self.knobs(operation).is_some()
    }

    /// Whether the processor has, and the operating system enables, all that the method needs.
    pub fn available(&self) -> bool {
        crate::machine::features().contains(self.requires)
    }

    /// The parameters that serve where nothing was measured.
    pub fn default_parameters(&self, operation: Operation) -> Parameters {
        let mut parameters = Parameters::default();
        for knob in self.knobs(operation).unwrap_or_default() {
            parameters.set(knob.name, knob.default);
        }
        parameters
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Method {
    fn eq(&self, other: &Method) -> bool {
        self.name == other.name
    }
}
impl Eq for Method {}

/// Every method of this architecture, whether this machine can run it or not.
pub fn all() -> impl Iterator<Item = &'static Method> {
    #[cfg(not(miri))]
    let common = [&c_library::METHOD, &portable::METHOD].into_iter();
    #[cfg(miri)]
    let common = [&portable::METHOD].into_iter();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return common.chain(x86_64::methods());
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    common
}

/// The method of that name.
pub fn by_name(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

/// The C library's memset and memcpy: what everything is compared with.
pub fn c_library() -> &'static Method {
    #[cfg(not(miri))]
    return &c_library::METHOD;
    #[cfg(miri)]
    &portable::METHOD
}

/// By operation, the method for calls that arrive before a policy is loaded: it calls no function, needs nothing but the
/// architecture's baseline, and takes parameters that are all 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::BUILT_IN;
/// As on x86-64.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) static BUILT_IN: [&Method; Operation::ALL.len()] = [&portable::METHOD; Operation::ALL.len()];

/// Waits until every earlier store and write-back of this thread is visible to others (and, for
/// write-backs and non-temporal stores to persistent memory, durable).
///
/// x86-64: SFENCE. Elsewhere a sequentially consistent fence.
#[inline(always)]
pub fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    x86_64::sfence();
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
