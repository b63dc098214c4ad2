//! The functions behind the method table.

use super::parameters::{Parameters, Tunable};

/// Writes `byte` to `len` bytes from `dst`. A row's clear kernel is only ever given 0.
///
/// # Safety
/// `dst..dst+len` is valid for writes, the instructions that the method requires are all enabled on this machine, and
/// `parameters` are within the ranges of the entry's tunables.
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
pub type PersistFn = unsafe fn(start: *const u8, len: usize, parameters: &Parameters);

/// A method's code for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Entry<F: 'static> {
    /// Without a fence at its end: on a weakly ordered method the caller owes one.
    pub unfenced: F,
    /// Followed by a fence where the method is weakly ordered.
    pub fenced: F,
    /// What can be tuned.
    pub tunables: &'static [Tunable],
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
    /// Fill and make durable, once fenced.
    pub fill_persist: Option<Entry<FillFn>>,
    /// Copy and make durable, once fenced.
    pub copy_persist: Option<Entry<CopyFn>>,
    /// Make durable, once fenced.
    pub persist: Option<Entry<PersistFn>>,
}

impl Code {
    /// No operation at all: the base that rows build upon.
    pub(crate) const NONE: Code =
        Code { clear: None, fill: None, copy: None, fill_persist: None, copy_persist: None, persist: None };
}
